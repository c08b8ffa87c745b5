//! Credit for decisions whose events have not come yet.

use super::rungs::Rungs;
use super::slab::NONE;
use crate::endpoint::HolderId;
use crate::hash::{CHUNK_BYTES, Space};
use crate::rung::rungs;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A routed prompt.
#[derive(Clone, Copy, Debug)]
pub struct Speculation<'a> {
    /// Holder that will have it.
    pub holder: HolderId,
    /// Space of the prompt.
    pub space: Space,
    /// Hashes at the prompt's rungs, shallowest first, without a gap.
    pub rungs: &'a [u64],
    /// Estimated tokens of the whole prompt.
    pub prompt_tokens: u32,
    /// Bytes of the whole prompt: canonical text, or token ids.
    pub prompt_bytes: u64,
    /// When it ends by itself, on the clock of [`super::Index::expire`].
    pub expires_ms: u64,
}

/// Handle of a speculation; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpeculationId(pub u64);

#[derive(Debug)]
struct Credited {
    holder: HolderId,
    expires_ms: u64,
    /// Rungs and the tokens credited at each.
    rungs: Vec<(u32, u32)>,
}

/// Speculations under way.
#[derive(Debug, Default)]
pub(super) struct Speculations {
    next: u64,
    by_id: HashMap<SpeculationId, Credited>,
    by_expiry: BTreeSet<(u64, SpeculationId)>,
    by_deepest: BTreeSet<(u32, SpeculationId)>,
    credited_rungs: usize,
}

impl Speculations {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.by_id.len() * 96 + self.credited_rungs * 8
    }

    pub(super) fn add(
        &mut self,
        speculation: &Speculation<'_>,
        table: &mut Rungs,
    ) -> SpeculationId {
        let id = SpeculationId(self.next);
        self.next += 1;
        let mut above = NONE;
        let credited: Vec<(u32, u32)> = speculation
            .rungs
            .iter()
            .zip(rungs(speculation.space, u32::MAX))
            .map(|(&hash, depth)| {
                let tokens = tokens_at(speculation.prompt_tokens, speculation.prompt_bytes, depth);
                above = table.speculate(hash, above, speculation.holder, tokens);
                (above, tokens)
            })
            .collect();
        self.credited_rungs += credited.len();
        if let Some(&(deepest, _)) = credited.last() {
            self.by_deepest.insert((deepest, id));
        }
        self.by_expiry.insert((speculation.expires_ms, id));
        self.by_id.insert(
            id,
            Credited {
                holder: speculation.holder,
                expires_ms: speculation.expires_ms,
                rungs: credited,
            },
        );
        id
    }

    pub(super) fn cancel(&mut self, id: SpeculationId, table: &mut Rungs) {
        let Some(credited) = self.by_id.remove(&id) else {
            return;
        };
        self.by_expiry.remove(&(credited.expires_ms, id));
        self.credited_rungs -= credited.rungs.len();
        if let Some(&(deepest, _)) = credited.rungs.last() {
            self.by_deepest.remove(&(deepest, id));
        }
        for (rung, tokens) in credited.rungs {
            table.unspeculate(rung, credited.holder, tokens);
        }
    }

    pub(super) fn expire(&mut self, now_ms: u64, table: &mut Rungs) {
        while let Some(&(expires_ms, id)) = self.by_expiry.first() {
            if expires_ms > now_ms {
                return;
            }
            self.cancel(id, table);
        }
    }

    /// Ends the speculations of holders that no longer exist.
    pub(super) fn cancel_holders(&mut self, holders: &[HolderId], table: &mut Rungs) {
        let is_theirs = |credited: &Credited| holders.contains(&credited.holder);
        let ids: Vec<SpeculationId> = self
            .by_id
            .iter()
            .filter(|(_, credited)| is_theirs(credited))
            .map(|(&id, _)| id)
            .collect();
        for id in ids {
            self.cancel(id, table);
        }
    }

    /// Ends the speculations whose deepest rung its holder's events have covered.
    pub(super) fn confirm(&mut self, table: &mut Rungs) {
        for (rung, holder) in table.take_confirmed() {
            let waiting = self
                .by_deepest
                .range((rung, SpeculationId(0))..=(rung, SpeculationId(u64::MAX)));
            let is_confirmed = |id: &SpeculationId| {
                self.by_id
                    .get(id)
                    .is_some_and(|credited| credited.holder == holder)
                    && table.is_covered(rung, holder)
            };
            let ids: Vec<SpeculationId> = waiting.map(|&(_, id)| id).filter(is_confirmed).collect();
            for id in ids {
                self.cancel(id, table);
            }
        }
    }
}

/// Most tokens of a rung: [`super::counts::Counts`] has no room for more.
const MAX_TOKENS: u32 = u32::MAX - 1;

/// Tokens estimated up to `depth` chunks of a prompt.
pub(super) fn tokens_at(prompt_tokens: u32, prompt_bytes: u64, depth: u32) -> u32 {
    let bytes = u64::from(depth) * CHUNK_BYTES as u64;
    let tokens = u64::from(prompt_tokens).saturating_mul(bytes) / prompt_bytes.max(1);
    u32::try_from(tokens)
        .unwrap_or(u32::MAX)
        .min(prompt_tokens)
        .min(MAX_TOKENS)
}
