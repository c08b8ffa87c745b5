//! Looking a prompt up: how much of it each endpoint holds.

use super::{
    endpoints::{EndpointKey, Endpoints},
    entry::SetId,
    replica::Snapshot,
    sets::{Sets, holders},
    table::Table,
};
use crate::{
    endpoint::Tier,
    hash::{CHUNK_BYTES, ChunkHash, Seed, Space, chunk_hashes},
    rung::is_rung,
};

/// Bytes of a token id.
const TOKEN_BYTES: usize = 4;

/// Rungs that are loaded together at first; each time as many again as before. A prompt that nobody holds costs few then, and one that is held
/// to its end few rounds.
const FIRST_LOADED: usize = 16;

/// A rung of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Depth in chunks, from 1.
    pub chunks: u32,
    /// Chunk hash at that depth.
    pub hash: u64,
}

impl Rung {
    /// Bytes of text up to the rung.
    pub fn bytes(self) -> u64 {
        u64::from(self.chunks) * CHUNK_BYTES as u64
    }
}

/// Rungs of one prompt, hashed once and probed in every shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptHashes {
    /// Shallowest first.
    pub rungs: Vec<Rung>,
    /// Bytes of the whole canonical text.
    pub bytes: u64,
}

impl PromptHashes {
    /// Hashes canonical text up to `max_bytes` (the rest counts as uncached).
    pub fn new(scope: ChunkHash, text: &[u8], seed: Seed, max_bytes: usize) -> Self {
        let hashed = text.get(..max_bytes).unwrap_or(text);
        Self::of_hashed(Space::Text, scope, hashed, seed, text.len())
    }

    /// Hashes token ids (u32 LE) up to `max_bytes` (the rest counts as uncached).
    ///
    /// An engine computes at least a prompt's last token, so that a block that ends with it is never a hit: that token is not hashed.
    pub fn of_token_ids(scope: ChunkHash, ids: &[u8], seed: Seed, max_bytes: usize) -> Self {
        let computed = ids.len().saturating_sub(TOKEN_BYTES);
        let hashed = ids.get(..max_bytes.min(computed)).unwrap_or_default();
        Self::of_hashed(Space::Token, scope, hashed, seed, ids.len())
    }

    fn of_hashed(space: Space, scope: ChunkHash, hashed: &[u8], seed: Seed, bytes: usize) -> Self {
        let rungs = (1u32..)
            .zip(chunk_hashes(scope, hashed, seed))
            .filter(|&(chunks, _)| is_rung(space, chunks))
            .map(|(chunks, hash)| Rung {
                chunks,
                hash: hash.0,
            })
            .collect();
        Self {
            rungs,
            bytes: bytes as u64,
        }
    }

    /// The space of a prompt's rungs: text unless one of them is none there.
    pub fn space(rungs: &[Rung]) -> Space {
        if rungs.iter().all(|rung| is_rung(Space::Text, rung.chunks)) {
            Space::Text
        } else {
            Space::Token
        }
    }
}

/// What an endpoint holds of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Tokens by tier, fastest first ([`Tier::ALL`]), in whole blocks.
    pub by_tier: [u32; 3],
    /// Tokens in whole blocks that are only expected, because a prompt with this prefix was just sent there.
    pub speculative: u32,
}

impl Credit {
    /// Tokens the endpoint need not compute.
    pub fn tokens(self) -> u32 {
        self.by_tier.into_iter().fold(self.speculative, u32::max)
    }

    /// Tokens that the index says it holds, what is only expected aside.
    pub fn indexed(self) -> u32 {
        self.by_tier.into_iter().fold(0, u32::max)
    }

    /// What is held of two prompts together: each counts with the tokens that it would be served with, so that sums of
    /// [`Self::tokens`] hold. A tier then counts what it and faster ones hold.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (one, two) = (self.cumulative(), other.cumulative());
        let mut sum = Self::default();
        let tiers = one.by_tier.into_iter().zip(two.by_tier);
        for (tokens, (a, b)) in sum.by_tier.iter_mut().zip(tiers) {
            *tokens = a.saturating_add(b);
        }
        if self.speculative > 0 || other.speculative > 0 {
            sum.speculative = one.speculative.saturating_add(two.speculative);
        }
        sum
    }

    fn cumulative(self) -> Self {
        let mut most = 0;
        Self {
            by_tier: self.by_tier.map(|tokens| {
                most = tokens.max(most);
                most
            }),
            speculative: self.tokens(),
        }
    }

    /// Fastest tier that holds all of [`Self::tokens`]; `None` when nothing is held, or the credit is speculative.
    pub fn tier(self) -> Option<Tier> {
        let best = self.tokens();
        Tier::ALL
            .into_iter()
            .zip(self.by_tier)
            .find(|&(_, tokens)| tokens == best && best > 0)
            .map(|(tier, _)| tier)
    }
}

/// Result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// One for each endpoint, in order of [`Endpoints::list`].
    pub credits: Vec<Credit>,
    /// Bytes of text up to the deepest rung in the table.
    pub bytes: u64,
    /// Tokens up to that rung.
    pub tokens: u32,
}

impl Match {
    /// What is held of two prompts together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (credit, other) in self.credits.iter_mut().zip(&other.credits) {
            *credit = credit.plus(*other);
        }
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self
    }

    /// Bytes per token of this prompt, as far as the table knows: only where the match is long enough to tell.
    pub fn bytes_per_token(&self) -> Option<f64> {
        const MIN_TOKENS: u32 = 256;
        (self.tokens >= MIN_TOKENS).then(|| self.bytes as f64 / f64::from(self.tokens))
    }
}

/// Who is expected to hold a rung soon.
pub trait Expectation {
    /// Calls `found` with each endpoint that is expected to hold the rung and its tokens up to there; gives whether there was one. `place`
    /// is the rung's among those of the prompt, from 0. An endpoint may be left out where it is found at a deeper rung of the prompt.
    fn expected(&self, place: usize, rung: u64, found: &mut dyn FnMut(EndpointKey, u32)) -> bool;
}

/// Nobody is expected to hold anything.
impl Expectation for () {
    fn expected(
        &self,
        _place: usize,
        _rung: u64,
        _found: &mut dyn FnMut(EndpointKey, u32),
    ) -> bool {
        false
    }
}

/// Finds what each endpoint holds of a prompt.
///
/// Rungs are probed from the first until one is absent from both table and expectation (a rung whose set lacks a holder does not end the
/// walk: hybrid models are not prefix-closed). A holder's credit is the token depth of its deepest rung, floored to its block size.
/// Rungs that a thinned table does not have say nothing. Costs a lookup per matched rung and one more, and a step per holder of each distinct run of sets.
pub fn matched(
    table: &Table,
    sets: &Sets,
    endpoints: &Endpoints,
    expectation: &dyn Expectation,
    rungs: &[Rung],
) -> Match {
    let mut result = Match {
        credits: vec![Credit::default(); endpoints.list().len()],
        ..Match::default()
    };
    let mut found = Vec::new();
    let mut loaded = 0;
    // Mostly the same endpoint again and again.
    let mut last = None;
    for (at, rung) in rungs.iter().enumerate() {
        if at == loaded {
            let next = rungs.get(loaded..).unwrap_or_default();
            let next = next.get(..loaded.max(FIRST_LOADED)).unwrap_or(next);
            table.load(next.iter().map(|rung| rung.hash));
            loaded += next.len();
        }
        let entry = table.get(rung.hash);
        let expected = expectation.expected(at, rung.hash, &mut |key, tokens| {
            let place = match last {
                Some((of, place)) if of == key => place,
                _ => endpoints.place_of(key),
            };
            last = Some((key, place));
            let info = place.and_then(|place| endpoints.list().get(place));
            let credit = place.and_then(|place| result.credits.get_mut(place));
            if let (Some(info), Some(credit)) = (info, credit) {
                credit.speculative = credit.speculative.max(info.whole_blocks(tokens));
            }
        });
        match entry {
            Some(entry) => {
                found.push((entry.set, entry.token_depth));
                result.bytes = rung.bytes();
                result.tokens = entry.token_depth;
            }
            None if expected || !table.thinning().keeps(rung.hash) => {}
            None => break,
        }
    }
    credit_deepest(&mut result.credits, &found, sets, endpoints);
    result
}

/// [`matched`] in a snapshot.
pub fn matched_in(
    snapshot: &Snapshot,
    endpoints: &Endpoints,
    expectation: &dyn Expectation,
    rungs: &[Rung],
) -> Match {
    matched(
        &snapshot.table,
        &snapshot.sets,
        endpoints,
        expectation,
        rungs,
    )
}

/// Credits every live holder with the depth of its deepest rung.
fn credit_deepest(
    credits: &mut [Credit],
    found: &[(SetId, u32)],
    sets: &Sets,
    endpoints: &Endpoints,
) {
    let mut credited = vec![[false; 3]; credits.len()];
    let mut last = SetId::EMPTY;
    for &(set, tokens) in found.iter().rev() {
        if set == last {
            continue;
        }
        last = set;
        for holder in holders(sets.get(set).unwrap_or_default()) {
            let Some((place, tier)) = endpoints.holder(holder) else {
                continue;
            };
            let (Some(credit), Some(done), Some(info)) = (
                credits.get_mut(place),
                credited.get_mut(place),
                endpoints.list().get(place),
            ) else {
                continue;
            };
            let tier = tier as usize;
            if let (Some(tokens_of_tier), Some(done)) =
                (credit.by_tier.get_mut(tier), done.get_mut(tier))
                && !*done
            {
                *done = true;
                *tokens_of_tier = info.whole_blocks(tokens);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn credit() -> impl Strategy<Value = Credit> {
        let tokens = prop_oneof![Just(0u32), 1u32..1_000];
        ([tokens.clone(), tokens.clone(), tokens.clone()], tokens).prop_map(
            |(by_tier, speculative)| Credit {
                by_tier,
                speculative,
            },
        )
    }

    proptest! {
        #[test]
        fn credits_of_several_prompts_add_up(credits in proptest::collection::vec(credit(), 2..6)) {
            let sum = credits.iter().copied().reduce(Credit::plus).unwrap();
            let tokens: u32 = credits.iter().map(|credit| credit.tokens()).sum();
            prop_assert_eq!(sum.tokens(), tokens);
            let is_expected = credits.iter().any(|credit| credit.speculative > 0);
            prop_assert_eq!(sum.speculative > 0, is_expected);
        }
    }

    #[test]
    fn the_tier_of_a_sum_is_the_slowest_that_is_needed() {
        let of = |by_tier| Credit {
            by_tier,
            speculative: 0,
        };
        let (gpu, cpu) = (of([64, 0, 0]), of([0, 32, 0]));
        assert_eq!(gpu.plus(gpu).tier(), Some(Tier::Gpu));
        assert_eq!(gpu.plus(cpu).tier(), Some(Tier::Cpu));
        assert_eq!(gpu.plus(Credit::default()).tier(), Some(Tier::Gpu));
    }

    #[test]
    fn token_ids_are_probed_at_every_block_up_to_2048_tokens_without_the_last_token() {
        let ids = |tokens: u32| -> Vec<u8> { (0..tokens).flat_map(u32::to_le_bytes).collect() };
        let hashes =
            |tokens| PromptHashes::of_token_ids(ChunkHash(5), &ids(tokens), Seed(1), usize::MAX);
        let depths: Vec<u32> = hashes(16 * 140)
            .rungs
            .iter()
            .map(|rung| rung.chunks)
            .collect();
        assert_eq!(depths, (1..=128).chain([132, 136]).collect::<Vec<_>>());
        assert_eq!(PromptHashes::space(&hashes(16 * 140).rungs), Space::Token);
        let text = PromptHashes::new(ChunkHash(5), &[b'x'; 64 * 140], Seed(1), usize::MAX);
        assert_eq!(PromptHashes::space(&text.rungs), Space::Text);
        // An engine computes the last token of every prompt.
        assert_eq!(
            [16, 17, 32, 33].map(|tokens| hashes(tokens).rungs.len()),
            [0, 1, 1, 2]
        );
        assert_eq!(hashes(0).rungs.len(), 0);
        assert_eq!(hashes(33).bytes, 132);
        let limited = PromptHashes::of_token_ids(ChunkHash(5), &ids(100), Seed(1), 128);
        assert_eq!((limited.rungs.len(), limited.bytes), (2, 400));
    }
}
