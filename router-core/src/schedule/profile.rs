//! A profile: filters, then a cost or scorers, then a picker.
//!
//! **A hot prefix spills.** What an endpoint holds never makes it much busier than the others: from `max_imbalance` sequences more than the
//! least busy one on, and half as many again, it is judged as if it held nothing.

use super::{
    Candidate, Cost, Field, Filter, MAX_CHOICES, Need, Picker, Scorer, cost::Terms, picker::Judged,
    whole,
};
use crate::snapshot::{Credit, EndpointKey};

/// What becomes of a request when a filter leaves no endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNone {
    /// The filter doesn't count.
    #[default]
    Ignore,
    /// There is no endpoint for the request.
    Refuse,
}

/// A filter and what becomes of requests for which it leaves nothing.
#[derive(Debug)]
pub struct Selecting {
    /// The filter.
    pub filter: Box<dyn Filter>,
    /// When it leaves nothing.
    pub on_none: OnNone,
}

impl Selecting {
    fn apply(&self, field: &mut Field<'_>) {
        let mut kept = vec![true; field.contenders.len()];
        self.filter.keep(field, &mut kept);
        if self.on_none == OnNone::Refuse || kept.contains(&true) {
            let mut kept = kept.into_iter();
            field.contenders.retain(|_| kept.next().unwrap_or(true));
        }
    }
}

/// A scorer and what it weighs.
#[derive(Debug)]
pub struct Weighted {
    /// The scorer.
    pub scorer: Box<dyn Scorer>,
    /// Beside a cost: milliseconds that a score of 0 costs against one of 1. Otherwise its share in the sum of scores.
    pub weight: f64,
}

/// What endpoints are judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judge {
    /// Lowest cost; scorers add `weight * (1 - score)` milliseconds.
    Cost(Cost),
    /// Highest sum of `weight * score`.
    Scores,
}

/// How endpoints are chosen for a request.
#[derive(Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Applied in order.
    pub filters: Vec<Selecting>,
    /// What is judged by.
    pub judge: Judge,
    /// Scorers with their weights.
    pub scorers: Vec<Weighted>,
    /// How the first is chosen.
    pub picker: Picker,
    /// Sequences by which what it holds may make an endpoint busier than the least busy one.
    pub max_imbalance: u32,
}

/// `max_imbalance` when the policy has none.
pub const DEFAULT_MAX_IMBALANCE: u32 = 24;

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            filters: Vec::new(),
            judge: Judge::Cost(Cost::default()),
            scorers: Vec::new(),
            picker: Picker::MaxScore,
            max_imbalance: DEFAULT_MAX_IMBALANCE,
        }
    }
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

impl Profile {
    /// Request headers that its filters and scorers ask for, names in lower case, each once.
    pub fn headers(&self) -> Vec<String> {
        let mut names = Vec::new();
        for selecting in &self.filters {
            selecting.filter.headers(&mut names);
        }
        for weighted in &self.scorers {
            weighted.scorer.headers(&mut names);
        }
        names.sort();
        names.dedup();
        names
    }

    /// Orders the eligible candidates, the chosen one first and then best first; full ones only where all are. The result depends on nothing
    /// but the arguments, and not on their order.
    pub fn rank(
        &self,
        candidates: &[Candidate<'_>],
        need: &Need<'_>,
        seed: u64,
    ) -> Vec<Explanation> {
        let mut field = Field::new(candidates, need, seed);
        for filter in &self.filters {
            filter.apply(&mut field);
        }
        field.mark_overfull(self.max_imbalance);
        let count = field.contenders.len();
        let mut scores: Vec<Vec<f64>> = Vec::with_capacity(self.scorers.len());
        for weighted in &self.scorers {
            let mut of = vec![0.0; count];
            weighted.scorer.score(&field, &mut of);
            for score in &mut of {
                // A scorer that gives no number knows nothing.
                *score = if score.is_nan() {
                    0.0
                } else {
                    score.clamp(0.0, 1.0)
                };
            }
            scores.push(of);
        }
        let cost = match self.judge {
            Judge::Cost(cost) => cost,
            Judge::Scores => Cost::default(),
        };
        let setting = cost.setting(&field);
        let greatest: f64 = self.scorers.iter().map(|of| of.weight).sum();
        let mut terms: Vec<Terms> = Vec::with_capacity(count);
        let mut judged: Vec<Judged> = Vec::with_capacity(count);
        for (at, contender) in field.contenders.iter().enumerate() {
            let mut of = cost.terms(&field, contender, setting);
            let scored = self.scorers.iter().zip(&scores).map(|(weighted, scores)| {
                let score = scores.get(at).copied().unwrap_or(0.0);
                (weighted.weight, score)
            });
            let (rank, weight) = match self.judge {
                Judge::Cost(_) => {
                    of.cost_ms += scored
                        .map(|(weight, score)| weight * (1.0 - score))
                        .sum::<f64>();
                    (whole(of.cost_ms), 1.0 / (of.cost_ms + 1.0))
                }
                Judge::Scores => {
                    let sum: f64 = scored.map(|(weight, score)| weight * score).sum();
                    (whole((greatest - sum) * 1e6), sum)
                }
            };
            terms.push(of);
            judged.push(Judged {
                at,
                key: contender.endpoint().key,
                rank,
                in_flight: whole(contender.in_flight),
                weight,
            });
        }
        self.picker.order(&mut judged, seed);
        let explained = judged.iter().filter_map(|of| {
            let contender = field.contenders.get(of.at)?;
            let terms = terms.get(of.at)?;
            let endpoint = contender.endpoint();
            Some(Explanation {
                key: endpoint.key,
                address: endpoint.address.clone(),
                rank: endpoint.rank,
                shard: contender.candidate.shard,
                credit: contender.credit,
                indexed_tokens: contender.candidate.credit.indexed(),
                uncached_tokens: contender.uncached_tokens,
                queued_prefill_tokens: whole(contender.queued_tokens),
                in_flight: u32::try_from(of.in_flight).unwrap_or(u32::MAX),
                load_is_known: contender.load_is_known(),
                is_overfull: contender.is_overfull,
                is_full: contender.is_full,
                prefill_tokens_per_s: contender.prefill_tokens_per_s,
                fetch_ms: terms.fetch_ms,
                decode_ms: terms.decode_ms,
                cost_ms: terms.cost_ms,
                ttft_ms: terms.ttft_ms,
                score: match self.judge {
                    Judge::Cost(_) => None,
                    Judge::Scores => Some(of.weight),
                },
                scores: scores
                    .iter()
                    .map(|scores| scores.get(of.at).copied().unwrap_or(0.0))
                    .collect(),
            })
        });
        explained.collect()
    }
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
