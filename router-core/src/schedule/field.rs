//! Who may serve a request, and what each is judged by.

use super::{Candidate, Need, Phase, mean, scatter};
use crate::{
    load::EndpointLoad,
    snapshot::{Credit, EndpointInfo, EndpointKey, Role},
};

/// Prefill rate when no candidate's is known.
pub const DEFAULT_PREFILL_TOKENS_PER_S: f64 = 8_000.0;

/// One of so many decisions counts all credit of distrusted endpoints: only replies to claims can show that the index is right again.
pub const TRIALS: u64 = 32;

/// An endpoint that may serve the request, with what it is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// The endpoint, its shard and load, and what the index says it holds.
    pub candidate: &'a Candidate<'a>,
    /// What it holds of the prompt, as far as that counts: see [`EndpointInfo::trusted`].
    pub credit: Credit,
    /// Tokens it would have to compute.
    pub uncached_tokens: u32,
    /// Tokens that wait before this prompt (the usual ones when load is unknown).
    pub queued_tokens: f64,
    /// Sequences in flight (likewise).
    pub in_flight: f64,
    /// Requests that wait in the engine (likewise).
    pub waiting: f64,
    /// Requests that the engine runs (likewise).
    pub running: f64,
    /// Share of KV cache in use (likewise).
    pub kv_usage_ratio: f64,
    /// Prefill rate reckoned with, in tokens per second.
    pub prefill_tokens_per_s: f64,
    /// Whether it is full.
    pub is_full: bool,
    /// Whether it is so much busier than others that what it holds does not count.
    pub is_overfull: bool,
}

impl<'a> Contender<'a> {
    /// The endpoint.
    pub fn endpoint(&self) -> &'a EndpointInfo {
        self.candidate.endpoint
    }

    /// Whether its load is known.
    pub fn load_is_known(&self) -> bool {
        self.candidate.load.is_known()
    }

    /// Time until the first token when `uncached_tokens` are computed after what waits, in ms.
    pub fn work_ms(&self, uncached_tokens: f64) -> f64 {
        1_000.0 * (self.queued_tokens + uncached_tokens) / self.prefill_tokens_per_s
    }
}

/// The contenders for one request.
#[derive(Debug)]
pub struct Field<'a> {
    /// The request.
    pub need: &'a Need<'a>,
    /// In the order of the candidates.
    pub contenders: Vec<Contender<'a>>,
    /// Mean of the known prefill rates, in tokens per second.
    pub common_rate: f64,
    /// Decides between equals.
    pub seed: u64,
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

/// A load as it is reckoned with.
#[derive(Clone, Copy, Debug, Default)]
struct Reckoned {
    queued_tokens: f64,
    in_flight: f64,
    waiting: f64,
    running: f64,
    kv_usage_ratio: f64,
}

impl Reckoned {
    fn of(load: &EndpointLoad, need: &Need<'_>) -> Self {
        let strangers = f64::from(load.waiting_strangers()) * f64::from(need.prompt_tokens);
        let running = load.engine.map_or(0, |engine| engine.running);
        Self {
            queued_tokens: load.usage.queued_prefill_tokens as f64 + strangers,
            in_flight: f64::from(load.in_flight()),
            waiting: f64::from(load.waiting().unwrap_or(0)),
            running: f64::from(running),
            kv_usage_ratio: load.kv_usage_ratio().unwrap_or(0.0),
        }
    }

    fn fold(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            queued_tokens: with(self.queued_tokens, other.queued_tokens),
            in_flight: with(self.in_flight, other.in_flight),
            waiting: with(self.waiting, other.waiting),
            running: with(self.running, other.running),
            kv_usage_ratio: with(self.kv_usage_ratio, other.kv_usage_ratio),
        }
    }

    /// Means of what is known.
    fn usual(loads: impl Iterator<Item = Self>) -> Self {
        let (sum, count) = loads.fold((Self::default(), 0.0), |(sum, count), load| {
            (sum.fold(load, |a, b| a + b), count + 1.0)
        });
        sum.fold(
            Self::default(),
            |sum, _| {
                if count > 0.0 { sum / count } else { 0.0 }
            },
        )
    }
}

impl<'a> Field<'a> {
    /// The eligible of the candidates; full ones only where all are.
    pub fn new(candidates: &'a [Candidate<'a>], need: &'a Need<'a>, seed: u64) -> Self {
        let mut eligible: Vec<&Candidate<'_>> = Vec::with_capacity(candidates.len());
        eligible.extend(
            candidates
                .iter()
                .filter(|candidate| is_eligible(candidate.endpoint, need)),
        );
        let rates = eligible
            .iter()
            .filter_map(|candidate| candidate.endpoint.prefill_tokens_per_s);
        let common_rate = mean(rates).unwrap_or(DEFAULT_PREFILL_TOKENS_PER_S);
        let known = eligible
            .iter()
            .filter(|candidate| candidate.load.is_known())
            .map(|candidate| Reckoned::of(&candidate.load, need));
        let usual = Reckoned::usual(known);
        let is_full = |candidate: &Candidate<'_>| need.limits.is_full(&candidate.load);
        if !eligible.iter().all(|candidate| is_full(candidate)) {
            eligible.retain(|candidate| !is_full(candidate));
        }
        let is_trial = scatter(EndpointKey(0), seed).is_multiple_of(TRIALS);
        let contenders = eligible.into_iter().map(|candidate| {
            let own = Reckoned::of(&candidate.load, need);
            // What is not known is at least what is usual.
            let load = if candidate.load.is_known() {
                own
            } else {
                own.fold(usual, f64::max)
            };
            let credit = if is_trial {
                candidate.credit
            } else {
                candidate.endpoint.trusted(candidate.credit)
            };
            Contender {
                candidate,
                credit,
                uncached_tokens: need.prompt_tokens.saturating_sub(credit.tokens()),
                queued_tokens: load.queued_tokens,
                in_flight: load.in_flight,
                waiting: load.waiting,
                running: load.running,
                kv_usage_ratio: load.kv_usage_ratio,
                prefill_tokens_per_s: candidate
                    .endpoint
                    .prefill_tokens_per_s
                    .unwrap_or(common_rate),
                is_full: is_full(candidate),
                is_overfull: false,
            }
        });
        Self {
            need,
            contenders: contenders.collect(),
            common_rate,
            seed,
        }
    }

    /// Marks those that one more would make too much busier than the least busy one: by so many sequences, and half as many again.
    pub(super) fn mark_overfull(&mut self, max_imbalance: u32) {
        let least = self.least(|contender| contender.in_flight);
        for contender in &mut self.contenders {
            let then = contender.in_flight + 1.0;
            contender.is_overfull = then >= least + f64::from(max_imbalance) && then >= 1.5 * least;
        }
    }

    /// The least of a figure; infinite when there is no contender.
    pub fn least(&self, figure: impl Fn(&Contender<'_>) -> f64) -> f64 {
        let figures = self.contenders.iter().map(figure);
        figures.fold(f64::INFINITY, f64::min)
    }

    /// The greatest of a figure; 0 when there is no contender.
    pub fn greatest(&self, figure: impl Fn(&Contender<'_>) -> f64) -> f64 {
        let figures = self.contenders.iter().map(figure);
        figures.fold(0.0, f64::max)
    }

    /// Tokens of the prompt as the ones who hold most of it count them, at least 1.
    pub fn prompt_tokens(&self) -> f64 {
        f64::from(self.need.prompt_tokens.max(1))
    }
}
