//! What a profile gives: who is best, and why.

use super::{MAX_CHOICES, picker::Judged};
use crate::snapshot::{Credit, EndpointKey};

/// The best of the candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// Best first: as many as were asked for, then those of the rest that a retry may go to.
    pub best: Vec<Explanation>,
    /// All that could serve the request.
    pub eligible: usize,
    /// Those of them besides `best` that hold some of the prompt, in no order.
    pub others: Vec<Holding>,
}

/// What an endpoint holds of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Identity.
    pub key: EndpointKey,
    /// Tokens that it need not compute, as far as that counts.
    pub tokens: u32,
    /// Tokens that the index says it holds, whether that is trusted or not.
    pub indexed_tokens: u32,
}

/// Why a candidate stands where it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Identity.
    pub key: EndpointKey,
    /// Address as Envoy spells it.
    pub address: String,
    /// Data-parallel rank.
    pub rank: Option<u32>,
    /// Number of its shard.
    pub shard: usize,
    /// What it holds of the prompt, as far as that counts: see [`crate::snapshot::EndpointInfo::trusted`].
    pub credit: Credit,
    /// Tokens that the index says it holds, whether that is trusted or not.
    pub indexed_tokens: u32,
    /// Tokens it would have to compute.
    pub uncached_tokens: u32,
    /// Tokens that wait before this prompt (the assumed ones when load is unknown).
    pub queued_prefill_tokens: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Whether its load is known.
    pub load_is_known: bool,
    /// Whether it is so much busier than others that what it holds does not count.
    pub is_overfull: bool,
    /// Whether it is full.
    pub is_full: bool,
    /// Prefill rate reckoned with.
    pub prefill_tokens_per_s: f64,
    /// Time to bring what slower tiers hold to the accelerator, in milliseconds.
    pub fetch_ms: f64,
    /// Waits for a slot and for memory, in milliseconds.
    pub decode_ms: f64,
    /// Cost in milliseconds, what scorers add included; what the default cost would be where scores decide.
    pub cost_ms: f64,
    /// Work until the first token without `beta`, in milliseconds.
    pub ttft_ms: f64,
    /// Sum of weighted scores, where scores decide.
    pub score: Option<f64>,
    /// Score by each of the profile's scorers, in their order.
    pub scores: Vec<f64>,
}

/// The endpoints to try, best first, at most [`MAX_CHOICES`]. A retry keeps the request's headers, the rank among them, so those after the first
/// are only endpoints of the same rank, or without ranks when the first has none.
pub fn choices(ranking: &[Explanation]) -> impl Iterator<Item = &Explanation> {
    let rank = ranking.first().and_then(|best| best.rank);
    ranking
        .iter()
        .filter(move |candidate| candidate.rank == rank)
        .take(MAX_CHOICES)
}

/// Moves those behind the first `most` that a retry may go to right behind them, best first, where there are too few among the first; gives
/// how many there are then. `rank_of` gives the data-parallel rank.
pub(super) fn with_retries(
    judged: &mut [Judged],
    most: usize,
    rank_of: impl Fn(&Judged) -> Option<u32>,
) -> usize {
    let Some((best, rest)) = judged.split_at_mut_checked(most) else {
        return judged.len();
    };
    let Some(rank) = best.first().map(&rank_of) else {
        return most;
    };
    let found = best.iter().filter(|of| rank_of(of) == rank).count();
    let wanted = MAX_CHOICES.saturating_sub(found);
    for moved in 0..wanted {
        let left = rest.iter().enumerate().skip(moved);
        let of_rank = left.filter(|(_, of)| rank_of(of) == rank);
        let Some((at, _)) = of_rank.min_by_key(|(_, of)| of.order()) else {
            return most + moved;
        };
        rest.swap(moved, at);
    }
    most + wanted
}
