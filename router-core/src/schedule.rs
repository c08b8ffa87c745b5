//! Choosing endpoints.
//!
//! ```text
//!   ttft(e) = (queued_prefill(e) + uncached(e)) / prefill_rate(e) + fetch(e)
//!   cost(e) = ttft(e) + (beta - 1) * uncached(e) / mean prefill_rate                       lowest wins
//! ```
//!
//! `queued_prefill` are prompt tokens sent to the endpoint and not yet prefilled, `uncached` those of this prompt that it does not
//! hold. The second term of the cost is what a miss costs others: they wait for its work, and its copy displaces theirs. It is reckoned by one rate
//! for all: on a slow endpoint the work takes longer, but as many fewer requests wait there. `beta` = 2 while nothing waits, and more the longer
//! requests wait ([`BETA_PER_WAIT_S`]), since work is then what everybody waits for. Mean TTFT is within 10 % of a clairvoyant greedy choice
//! (`docs/simulation.md`). Costs are compared in whole milliseconds; equal ones by
//! requests in flight, then at random by the seed. Unknown load counts as the mean of the known ones when that is more. Requests that wait in
//! an engine and that no gateway accounts for count as prompts like this one.
//!
//! **A hot prefix spills.** What an endpoint holds never makes it much busier than the others: from `max_imbalance` sequences more than the
//! least busy one on, and half as many again, its cost is reckoned as if it held nothing.
//!
//! **A full endpoint** ([`Limits`]) is chosen only when all are full, and then the decision says so.
//!
//! `fetch` is the time in which the engine brings what it holds in slower tiers to its accelerator. It brings all of it, so it is the
//! endpoint's cost even where computing would be faster; then another endpoint may win.
//!
//! Of an endpoint about which the index has proved wrong ([`crate::trust`]) only a share of the prefix counts, but for one decision in
//! [`TRIALS`].

mod fetch;
pub mod rates;

pub use fetch::{DEFAULT_CPU_US_PER_TOKEN, DEFAULT_DISK_US_PER_TOKEN, FetchCosts};

use crate::{
    admission::Limits,
    load::EndpointLoad,
    snapshot::{Credit, EndpointInfo, EndpointKey, Role},
};

/// `beta` when the policy has none.
pub const DEFAULT_BETA: f64 = 2.0;

/// How much `beta` grows with each second of the mean wait for prefill over all candidates.
pub const BETA_PER_WAIT_S: f64 = 0.5;

/// Most that `beta` grows to; more than that gains nothing in simulation.
pub const MAX_BETA: f64 = 8.0;

/// Prefill rate when no candidate's is known.
pub const DEFAULT_PREFILL_TOKENS_PER_S: f64 = 8_000.0;

/// `max_imbalance` when the policy has none.
pub const DEFAULT_MAX_IMBALANCE: u32 = 24;

/// One of so many decisions counts all credit of distrusted endpoints: only replies to claims can show that the index is right again.
pub const TRIALS: u64 = 32;

/// Most endpoints in a ranking.
pub const MAX_CHOICES: usize = 3;

/// Phase the endpoint is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Prefill and decode in one place, or the decode leg.
    #[default]
    Decode,
    /// The prefill leg.
    Prefill,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need<'a> {
    /// Profile id of the model; empty = any.
    pub model: &'a str,
    /// Adapter, when not the base model.
    pub adapter: Option<&'a str>,
    /// Pool; empty = any.
    pub pool: &'a str,
    /// Phase.
    pub phase: Phase,
    /// Tokens of the prompt, estimated.
    pub prompt_tokens: u32,
    /// Weight of uncached tokens.
    pub beta: f64,
    /// What slower tiers cost.
    pub fetch: FetchCosts,
    /// Sequences by which what it holds may make an endpoint busier than the least busy one; 0 = default.
    pub max_imbalance: u32,
    /// When an endpoint is full.
    pub limits: Limits,
}

/// An endpoint with what is known of it for one request.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The endpoint.
    pub endpoint: &'a EndpointInfo,
    /// Number of its shard.
    pub shard: usize,
    /// What it holds of the prompt.
    pub credit: Credit,
    /// Its load.
    pub load: EndpointLoad,
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
    /// What it holds of the prompt, as far as that counts: see [`EndpointInfo::trusted`].
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
    /// Whether it is so much busier than others that what it holds does not count in its cost.
    pub is_overfull: bool,
    /// Whether it is full.
    pub is_full: bool,
    /// Prefill rate reckoned with.
    pub prefill_tokens_per_s: f64,
    /// Time to bring what slower tiers hold to the accelerator, in milliseconds.
    pub fetch_ms: f64,
    /// Cost in milliseconds.
    pub cost_ms: f64,
    /// Work until the first token without `beta`, in milliseconds.
    pub ttft_ms: f64,
}

/// Whether an endpoint may serve the request at all: healthy, of the model, pool and phase, and with the adapter.
pub fn is_eligible(endpoint: &EndpointInfo, need: &Need<'_>) -> bool {
    let has_adapter = |adapter| match &endpoint.adapters {
        None => true,
        Some(adapters) => adapters.iter().any(|name| name == adapter),
    };
    endpoint.healthy
        && (need.model.is_empty() || endpoint.model.is_empty() || endpoint.model == need.model)
        && (need.pool.is_empty() || endpoint.pool == need.pool)
        && need.adapter.is_none_or(has_adapter)
        && match need.phase {
            Phase::Decode => endpoint.role != Role::Prefill,
            Phase::Prefill => endpoint.role != Role::Decode,
        }
}

/// A candidate's load as it is reckoned with.
#[derive(Clone, Copy, Debug)]
struct Reckoned {
    queued_tokens: f64,
    in_flight: f64,
}

impl Reckoned {
    fn of(load: &EndpointLoad, need: &Need<'_>) -> Self {
        let strangers = f64::from(load.waiting_strangers()) * f64::from(need.prompt_tokens);
        Self {
            queued_tokens: load.usage.queued_prefill_tokens as f64 + strangers,
            in_flight: f64::from(load.in_flight()),
        }
    }

    /// What is not known is at least what is usual.
    fn or_usual(self, usual: Self) -> Self {
        Self {
            queued_tokens: self.queued_tokens.max(usual.queued_tokens),
            in_flight: self.in_flight.max(usual.in_flight),
        }
    }

    /// Whether one more would make it too much busier than the least busy one.
    fn is_overfull(self, least: f64, need: &Need<'_>) -> bool {
        let max_imbalance = match need.max_imbalance {
            0 => DEFAULT_MAX_IMBALANCE,
            sequences => sequences,
        };
        let then = self.in_flight + 1.0;
        then >= least + f64::from(max_imbalance) && then >= 1.5 * least
    }
}

/// Orders the eligible candidates, best first; full ones only where all are. The result depends on nothing but the arguments, and not on
/// their order.
pub fn rank(candidates: &[Candidate<'_>], need: &Need<'_>, seed: u64) -> Vec<Explanation> {
    let mut eligible: Vec<&Candidate<'_>> = candidates
        .iter()
        .filter(|candidate| is_eligible(candidate.endpoint, need))
        .collect();
    let mean_rate = mean(
        eligible
            .iter()
            .filter_map(|candidate| candidate.endpoint.prefill_tokens_per_s),
    );
    let known = || {
        let loads = eligible.iter().map(|candidate| &candidate.load);
        loads
            .filter(|load| load.is_known())
            .map(|load| Reckoned::of(load, need))
    };
    let usual = Reckoned {
        queued_tokens: mean(known().map(|load| load.queued_tokens)).unwrap_or(0.0),
        in_flight: mean(known().map(|load| load.in_flight)).unwrap_or(0.0),
    };
    let is_full = |candidate: &Candidate<'_>| need.limits.is_full(&candidate.load);
    if !eligible.iter().all(|candidate| is_full(candidate)) {
        eligible.retain(|candidate| !is_full(candidate));
    }
    let reckon = |candidate: &Candidate<'_>| {
        let load = Reckoned::of(&candidate.load, need);
        if candidate.load.is_known() {
            load
        } else {
            load.or_usual(usual)
        }
    };
    let least = eligible
        .iter()
        .map(|candidate| reckon(candidate).in_flight)
        .fold(f64::INFINITY, f64::min);
    let beta = if need.beta.is_finite() && need.beta > 0.0 {
        need.beta
    } else {
        DEFAULT_BETA
    };

    let common_rate = mean_rate.unwrap_or(DEFAULT_PREFILL_TOKENS_PER_S);
    let rate = |candidate: &Candidate<'_>| {
        let known = candidate.endpoint.prefill_tokens_per_s;
        known.unwrap_or(common_rate)
    };
    let waits = eligible.iter();
    let wait_s = mean(waits.map(|of| reckon(of).queued_tokens / rate(of))).unwrap_or(0.0);
    let beta = (beta + BETA_PER_WAIT_S * wait_s).min(beta.max(MAX_BETA));

    let is_trial = scatter(EndpointKey(0), seed).is_multiple_of(TRIALS);

    let mut ranking: Vec<Explanation> = eligible
        .into_iter()
        .map(|candidate| {
            let rate = rate(candidate);
            let load = reckon(candidate);
            let is_overfull = load.is_overfull(least, need);
            let credit = if is_trial {
                candidate.credit
            } else {
                candidate.endpoint.trusted(candidate.credit)
            };
            let uncached_tokens = need.prompt_tokens.saturating_sub(credit.tokens());
            let fetch_ms = need.fetch.ms(credit, need.prompt_tokens);
            let work_ms = |weight: f64, uncached: u32, fetch_ms: f64| {
                let uncached = f64::from(uncached);
                let others_s = (weight - 1.0) * uncached / common_rate;
                1_000.0 * ((load.queued_tokens + uncached) / rate + others_s) + fetch_ms
            };
            Explanation {
                key: candidate.endpoint.key,
                address: candidate.endpoint.address.clone(),
                rank: candidate.endpoint.rank,
                shard: candidate.shard,
                credit,
                indexed_tokens: candidate.credit.indexed(),
                uncached_tokens,
                queued_prefill_tokens: whole(load.queued_tokens),
                in_flight: u32::try_from(whole(load.in_flight)).unwrap_or(u32::MAX),
                load_is_known: candidate.load.is_known(),
                is_overfull,
                is_full: is_full(candidate),
                prefill_tokens_per_s: rate,
                fetch_ms,
                cost_ms: if is_overfull {
                    work_ms(beta, need.prompt_tokens, 0.0)
                } else {
                    work_ms(beta, uncached_tokens, fetch_ms)
                },
                ttft_ms: work_ms(1.0, uncached_tokens, fetch_ms),
            }
        })
        .collect();
    ranking.sort_by_cached_key(|candidate| {
        (
            whole(candidate.cost_ms),
            candidate.in_flight,
            scatter(candidate.key, seed),
            candidate.key,
        )
    });
    ranking
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

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Nearest whole number; negative and NaN are 0.
fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, NaN is 0"
    )]
    let whole = value.round() as u64;
    whole
}

/// A random order of endpoints that differs from seed to seed (splitmix64).
fn scatter(key: EndpointKey, seed: u64) -> u64 {
    let mut z =
        (key.0 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
