//! Decisions and endings of the last few milliseconds, which others are not told of yet.
//!
//! Telling takes longer than deciding (a message for other VMs and the indexer, an expectation for each rung), and whenever it is done, a request
//! or an answer waits for it. So it is done by ticks, and when the VM's record may be written again. This VM's next decisions don't wait for
//! that: they compare prompts with what was sent.

use super::{Decision, RoutingView};
use crate::{
    hash::Space,
    load::speculation::{Origin, Speculation, tokens_of},
    proto,
    shared::record::Body,
    snapshot::{EndpointKey, PromptHashes, Rung, probe::Expectation},
};

/// Most that waits; with one more, all is told at once.
pub(super) const MAX_UNTOLD: usize = 64;

/// Something to tell.
#[derive(Debug)]
pub(super) struct Untold {
    pub(super) shard: u32,
    pub(super) endpoint: EndpointKey,
    pub(super) said_ms: u64,
    pub(super) body: Body,
    /// Of a decision: whose it is, and the tokens that were queued at its endpoint then.
    pub(super) decided: Option<(Origin, u64)>,
}

impl RoutingView {
    /// Has others told of something, in a while.
    pub(super) fn tell_later(&mut self, untold: Untold) {
        self.untold.push(untold);
        if self.untold.len() > MAX_UNTOLD {
            self.tell();
        }
    }

    /// Tells everybody what there is to tell, in its order.
    pub(super) fn tell(&mut self) {
        for untold in core::mem::take(&mut self.untold) {
            let Untold {
                shard,
                endpoint,
                said_ms,
                body,
                decided,
            } = untold;
            let message = self.vms.send(shard, endpoint, body, said_ms);
            if let Some((origin, queued_tokens)) = decided {
                self.speculate(origin, &message, queued_tokens);
            }
            self.forward(message);
        }
    }

    /// Who is expected to hold rungs of a prompt.
    pub(super) fn expected(&self, rungs: &[Rung]) -> Expected<'_> {
        Expected {
            told: self.speculation(),
            untold: ahead(&self.untold, rungs),
        }
    }
}

/// As much of a prompt as an endpoint was just sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    endpoint: EndpointKey,
    rungs: usize,
    tokens: u32,
}

/// Expectations that are told, and those that are not yet.
pub(super) struct Expected<'a> {
    told: &'a Speculation,
    untold: Vec<Ahead>,
}

impl Expectation for Expected<'_> {
    fn expected(&self, place: usize, rung: u64, found: &mut dyn FnMut(EndpointKey, u32)) -> bool {
        let mut is_expected = self.told.expected(place, rung, found);
        for ahead in self.untold.iter().filter(|ahead| place < ahead.rungs) {
            is_expected = true;
            // Only the deepest one is credited in the end.
            if place + 1 == ahead.rungs {
                found(ahead.endpoint, ahead.tokens);
            }
        }
        is_expected
    }
}

fn ahead(untold: &[Untold], rungs: &[Rung]) -> Vec<Ahead> {
    let of = |untold: &Untold| {
        let Body::Routed(routed) = &untold.body else {
            return None;
        };
        let shared = shared_rungs(&routed.rungs, rungs);
        let deepest = rungs.get(shared.checked_sub(1)?)?;
        Some(Ahead {
            endpoint: untold.endpoint,
            rungs: shared,
            tokens: tokens_of(deepest.bytes(), bytes_per_token(routed)),
        })
    };
    untold.iter().filter_map(of).collect()
}

/// How many rungs two prompts share. Hashes are chained: where one is equal, all before it are.
fn shared_rungs(hashes: &[u8], rungs: &[Rung]) -> usize {
    let (hashes, _) = hashes.as_chunks::<8>();
    let is_equal = |place: usize| {
        let other = hashes.get(place).map(|hash| u64::from_le_bytes(*hash));
        other == rungs.get(place).map(|rung| rung.hash)
    };
    let (mut equal, mut end) = (0, hashes.len().min(rungs.len()));
    while equal < end {
        let middle = equal + (end - equal) / 2;
        if is_equal(middle) {
            equal = middle + 1;
        } else {
            end = middle;
        }
    }
    equal
}

/// Of a batch one prompt is told: the message has room for one, and the others are known once events confirm them.
pub(super) fn told(prompts: &[PromptHashes]) -> &[Rung] {
    let told = prompts.iter().find(|prompt| !prompt.rungs.is_empty());
    told.map_or(&[][..], |prompt| &prompt.rungs)
}

/// What is said of a decision; the endpoint is named where it is sent.
pub(super) fn routed(
    origin: Origin,
    decision: &Decision,
    prompts: &[PromptHashes],
    predicted_cached_tokens: u32,
) -> proto::Routed {
    let rungs = told(prompts);
    let mut hashes = Vec::with_capacity(rungs.len() * size_of::<u64>());
    for rung in rungs {
        hashes.extend_from_slice(&rung.hash.to_le_bytes());
    }
    proto::Routed {
        request: origin.request.0,
        endpoint: 0,
        rungs: hashes.into(),
        prompt_bytes: prompts.iter().map(|prompt| prompt.bytes).sum(),
        predicted_cached_tokens,
        estimated_prompt_tokens: decision.prompt_tokens,
        token_ids: PromptHashes::space(rungs) == Space::Token,
        is_cold: decision.matched_bytes == 0,
        queued_prefill_tokens: decision
            .ranking
            .first()
            .map_or(0, |best| best.queued_prefill_tokens),
        age_ms: 0,
    }
}

/// What a decision reckoned with.
pub(super) fn bytes_per_token(routed: &proto::Routed) -> f64 {
    routed.prompt_bytes as f64 / f64::from(routed.estimated_prompt_tokens.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_share_rungs_up_to_where_they_part() {
        let hashes =
            |own: u64, shared: u64| (0..20).map(move |n| if n < shared { n + 1 } else { own + n });
        let rungs = |own, shared| -> Vec<Rung> {
            let numbered = (1..).zip(hashes(own, shared));
            numbered
                .map(|(chunks, hash)| Rung { chunks, hash })
                .collect()
        };
        for shared in 0..=20 {
            let bytes: Vec<u8> = hashes(100, shared).flat_map(u64::to_le_bytes).collect();
            let expected = usize::try_from(shared).unwrap();
            assert_eq!(shared_rungs(&bytes, &rungs(200, shared)), expected);
            let short = &bytes[..8 * expected.min(7)];
            assert_eq!(shared_rungs(short, &rungs(200, shared)), expected.min(7));
        }
        assert_eq!(shared_rungs(&[1, 2, 3], &rungs(0, 20)), 0);
    }
}
