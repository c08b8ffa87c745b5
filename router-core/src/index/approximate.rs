//! Approximate credit: what an endpoint should still hold by the decisions that sent prompts to it.
//!
//! ```text
//!  decision ─► rungs of its prompt ─► Lru of the holder          oldest ◄──────────────────────► newest
//!                                       entry: rung, tokens        deepest of the       shallowest of the
//!                                       from the rung above        oldest prompt        newest prompt
//! ```
//!
//! An engine frees the blocks of a request from its end, and takes the longest free one when it needs room. The list does the same with
//! rungs: a decision touches the rungs of its prompt from the deepest to the shallowest, and whatever does not fit into the holder's
//! tokens is dropped from the old end. So a prefix stays at least as long as what goes on from it, and what is left of a prompt is a prefix.
//!
//! Credit is published like that of events, and counted apart from both events and speculations (see `rungs`).

use super::rungs::Rungs;
use super::slab::{NONE, Slab};
use super::speculation::tokens_at;
use super::{Index, SourceId};
use crate::endpoint::HolderId;
use crate::hash::Space;
use crate::rung::rungs;
use hashbrown::HashMap;

/// Share of the index's bytes that approximate credit may take: what events say is worth more.
const SHARE_OF_BYTES: usize = 2;
/// Rungs dropped at a time from the longest list when the bytes are used up, so that looking for it is seldom.
const SHED_RUNGS: usize = 256;

/// A prompt that was sent to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
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
}

/// Handle of a decision, to take it back or to correct it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionId {
    number: u32,
    holder: HolderId,
    space: Space,
    /// Hash of the deepest rung.
    deepest: u64,
    rungs: u32,
    prompt_bytes: u64,
}

/// What is remembered of decisions for one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApproximateStats {
    /// Tokens that the holder has room for.
    pub capacity_tokens: u64,
    /// Tokens credited.
    pub used_tokens: u64,
    /// Rungs credited.
    pub rungs: usize,
    /// Rungs that were dropped to make room.
    pub evicted_rungs: u64,
    /// Whether some were dropped to stay within the byte bound of the index.
    pub is_cut: bool,
}

#[derive(Debug)]
struct Entry {
    rung: u32,
    /// Slot of the rung above, as told by the decision that brought the entry.
    parent: u32,
    older: u32,
    newer: u32,
    /// Tokens from the rung above to this one.
    tokens: u32,
    /// Tokens credited at the rung.
    depth: u32,
    /// Decision that brought the entry; 0 once it is gone.
    first: u32,
    /// Decision that touched it last.
    last: u32,
}

/// Bytes of an entry with its place in the map, about.
const ENTRY_BYTES: usize = size_of::<Entry>() + 14;
/// Bytes of a rung that is there for one entry alone, and of the credit at it, about; they are counted with the rungs.
const RUNG_BYTES: usize = 80;

#[derive(Debug)]
struct Lru {
    entries: Slab<Entry>,
    by_rung: HashMap<u32, u32>,
    oldest: u32,
    newest: u32,
    capacity_tokens: u64,
    used_tokens: u64,
    evicted: u64,
    is_cut: bool,
}

/// All holders that are known by decisions.
#[derive(Debug, Default)]
pub(super) struct Approximates {
    lists: HashMap<HolderId, Lru>,
    decisions: u32,
    entries: usize,
}

impl Approximates {
    /// Bytes in use besides those of the rungs, about.
    pub(super) fn bytes(&self) -> usize {
        self.entries * ENTRY_BYTES
    }

    fn remember(&mut self, decided: &Decided<'_>, capacity: u64, table: &mut Rungs) -> DecisionId {
        self.decisions = self.decisions.wrapping_add(1).max(1);
        let number = self.decisions;
        let list = self
            .lists
            .entry(decided.holder)
            .or_insert_with(|| Lru::new(capacity));
        list.capacity_tokens = capacity;
        let before = list.entries.len();
        list.touch(decided, number, table);
        list.fit(decided.holder, table);
        self.entries = self.entries + list.entries.len() - before;
        // A prompt that is longer than the room for it has lost its end.
        let is_left = |&(_, &hash): &(usize, &u64)| list.slot_of(hash, table) != NONE;
        let deepest = decided.rungs.iter().enumerate().rfind(is_left);
        DecisionId {
            number,
            holder: decided.holder,
            space: decided.space,
            deepest: deepest.map_or(0, |(_, &hash)| hash),
            rungs: deepest.map_or(0, |(i, _)| u32::try_from(i + 1).unwrap_or(u32::MAX)),
            prompt_bytes: decided.prompt_bytes,
        }
    }

    /// Takes back what only this decision brought.
    fn cancel(&mut self, id: &DecisionId, table: &mut Rungs) {
        let Some(list) = self.lists.get_mut(&id.holder) else {
            return;
        };
        let mut slot = list.slot_of(id.deepest, table);
        for _ in 0..id.rungs {
            if slot == NONE {
                return;
            }
            let entry = &list.entries[slot];
            if entry.first != id.number || entry.last != id.number {
                return;
            }
            let parent = entry.parent;
            list.remove(slot, id.holder, table);
            self.entries -= 1;
            slot = parent;
        }
    }

    /// Spreads the tokens that the prompt really had over its rungs.
    fn correct(&mut self, id: &DecisionId, prompt_tokens: u32, table: &mut Rungs) {
        let Some(list) = self.lists.get_mut(&id.holder) else {
            return;
        };
        let at = |depth: u32| tokens_at(prompt_tokens, id.prompt_bytes, depth);
        let depths: Vec<u32> = rungs(id.space, u32::MAX).take(id.rungs as usize).collect();
        let mut slot = list.slot_of(id.deepest, table);
        let is_new = |entry: &Entry| entry.first == id.number;
        for (i, &depth) in depths.iter().enumerate().rev() {
            // What another decision brought has been corrected by that one, or is as well known as this one.
            if slot == NONE || !is_new(&list.entries[slot]) {
                break;
            }
            let above = i.checked_sub(1).and_then(|i| depths.get(i)).copied();
            let tokens = at(depth).saturating_sub(above.map_or(0, at));
            list.set(slot, (at(depth), tokens), table);
            slot = list.entries[slot].parent;
        }
        let before = list.entries.len();
        list.fit(id.holder, table);
        self.entries = self.entries + list.entries.len() - before;
    }

    /// Forgets all decisions for a holder.
    pub(super) fn clear(&mut self, holder: HolderId, table: &mut Rungs) {
        if let Some(mut list) = self.lists.remove(&holder) {
            self.entries -= list.entries.len();
            while list.oldest != NONE {
                list.remove(list.oldest, holder, table);
            }
        }
    }

    fn resize(&mut self, holder: HolderId, capacity: u64, table: &mut Rungs) {
        if let Some(list) = self.lists.get_mut(&holder) {
            let before = list.entries.len();
            list.capacity_tokens = capacity;
            list.fit(holder, table);
            self.entries = self.entries + list.entries.len() - before;
        }
    }

    /// Drops the oldest rungs of the longest lists until the bytes are kept.
    fn shed(&mut self, max_bytes: usize, table: &mut Rungs) {
        while self.entries * (ENTRY_BYTES + RUNG_BYTES) > max_bytes {
            let longest = self
                .lists
                .iter_mut()
                .max_by_key(|(holder, list)| (list.entries.len(), **holder));
            let Some((&holder, list)) = longest else {
                return;
            };
            list.is_cut = true;
            for _ in 0..SHED_RUNGS.min(list.entries.len()) {
                list.evict(holder, table);
                self.entries -= 1;
            }
        }
    }
}

impl Lru {
    fn new(capacity_tokens: u64) -> Self {
        Self {
            entries: Slab::default(),
            by_rung: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            capacity_tokens,
            used_tokens: 0,
            evicted: 0,
            is_cut: false,
        }
    }

    /// Slot of the rung of `hash`; [`NONE`] when it is not credited.
    fn slot_of(&self, hash: u64, table: &Rungs) -> u32 {
        table
            .find(hash)
            .and_then(|rung| self.by_rung.get(&rung))
            .map_or(NONE, |&slot| slot)
    }

    fn touch(&mut self, decided: &Decided<'_>, number: u32, table: &mut Rungs) {
        let prompt_tokens = decided.prompt_tokens;
        let mut slots = Vec::with_capacity(decided.rungs.len());
        let (mut parent, mut rung_above, mut above) = (NONE, NONE, 0);
        for (&hash, chunks) in decided.rungs.iter().zip(rungs(decided.space, u32::MAX)) {
            let depth = tokens_at(prompt_tokens, decided.prompt_bytes, chunks);
            let known = self.slot_of(hash, table);
            let slot = if known == NONE {
                let rung = table.speculate(hash, rung_above, decided.holder, depth);
                let tokens = depth.saturating_sub(above);
                self.insert(Entry {
                    rung,
                    parent,
                    older: NONE,
                    newer: NONE,
                    tokens,
                    depth,
                    first: number,
                    last: number,
                })
            } else {
                known
            };
            (parent, rung_above, above) = (slot, self.entries[slot].rung, depth);
            slots.push(slot);
        }
        for slot in slots.into_iter().rev() {
            self.unlink(slot);
            self.link_newest(slot);
            self.entries[slot].last = number;
        }
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        self.used_tokens += u64::from(entry.tokens);
        let rung = entry.rung;
        let slot = self.entries.insert(entry);
        self.by_rung.insert(rung, slot);
        self.link_newest(slot);
        slot
    }

    fn set(&mut self, slot: u32, (depth, tokens): (u32, u32), table: &mut Rungs) {
        let entry = &mut self.entries[slot];
        self.used_tokens = self.used_tokens + u64::from(tokens) - u64::from(entry.tokens);
        entry.tokens = tokens;
        if entry.depth != depth {
            table.respeculate(entry.rung, entry.depth, depth);
            entry.depth = depth;
        }
    }

    /// Drops what there is no room for.
    fn fit(&mut self, holder: HolderId, table: &mut Rungs) {
        while self.used_tokens > self.capacity_tokens && self.oldest != NONE {
            self.evict(holder, table);
        }
    }

    fn evict(&mut self, holder: HolderId, table: &mut Rungs) {
        if self.oldest != NONE {
            self.evicted += 1;
            self.remove(self.oldest, holder, table);
        }
    }

    fn remove(&mut self, slot: u32, holder: HolderId, table: &mut Rungs) {
        self.unlink(slot);
        let entry = &mut self.entries[slot];
        entry.first = 0;
        self.used_tokens -= u64::from(entry.tokens);
        table.unspeculate(entry.rung, holder, entry.depth);
        self.by_rung.remove(&entry.rung);
        self.entries.free(slot);
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (self.entries[slot].older, self.entries[slot].newer);
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = self.newest;
        let entry = &mut self.entries[slot];
        (entry.older, entry.newer) = (older, NONE);
        match older {
            NONE => self.oldest = slot,
            older => self.entries[older].newer = slot,
        }
        self.newest = slot;
    }
}

impl Index {
    /// Credits a holder with a prompt for as long as its cache of `capacity_tokens` tokens should hold it, by the decisions alone that are
    /// remembered. Costs a few steps for each rung.
    pub fn remember(&mut self, decided: &Decided<'_>, capacity_tokens: u64) -> DecisionId {
        let table = &mut self.store.rungs;
        let id = self.approximates.remember(decided, capacity_tokens, table);
        self.approximates
            .shed(self.config.max_bytes / SHARE_OF_BYTES, table);
        self.keep_within_bound();
        id
    }

    /// Takes back what only this decision brought: it failed.
    pub fn cancel_decision(&mut self, id: &DecisionId) {
        self.approximates.cancel(id, &mut self.store.rungs);
    }

    /// The prompt of a decision had `prompt_tokens` tokens.
    pub fn correct_decision(&mut self, id: &DecisionId, prompt_tokens: u32) {
        let table = &mut self.store.rungs;
        self.approximates.correct(id, prompt_tokens, table);
    }

    /// The holder has room for so many tokens from now on.
    pub fn resize_decisions(&mut self, holder: HolderId, capacity_tokens: u64) {
        let table = &mut self.store.rungs;
        self.approximates.resize(holder, capacity_tokens, table);
    }

    /// Forgets all decisions for a holder.
    pub fn forget_decisions(&mut self, holder: HolderId) {
        self.approximates.clear(holder, &mut self.store.rungs);
    }

    /// What is remembered of decisions for a holder; `None` when there is nothing.
    pub fn approximate_stats(&self, holder: HolderId) -> Option<ApproximateStats> {
        let list = self.approximates.lists.get(&holder)?;
        Some(ApproximateStats {
            capacity_tokens: list.capacity_tokens,
            used_tokens: list.used_tokens,
            rungs: list.entries.len(),
            evicted_rungs: list.evicted,
            is_cut: list.is_cut,
        })
    }

    /// Drops the blocks of a source and keeps what is remembered of decisions.
    pub fn drop_blocks(&mut self, id: SourceId) {
        if let Some((model, mut source)) = self.sources.remove(&id) {
            self.source_bytes -= source.bytes();
            source.clear(&mut self.store);
            let source = self.new_source(source.holders);
            self.sources.insert(id, (model, source));
        }
    }
}

#[cfg(test)]
mod tests;
