//! A profile: filters, then a cost or scorers, then a picker.
//!
//! **A hot prefix spills.** What an endpoint holds never makes it much busier than the others: from `max_imbalance` sequences more than the
//! least busy one on, and half as many again, it is judged as if it held nothing.

use super::{
    Candidate, Contender, Cost, Explanation, Field, Filter, Holding, Need, Picker, Ranking, Scorer,
    cost::{Setting, Terms},
    picker::Judged,
    ranking::with_retries,
    scatter, whole,
};

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

    /// Orders all eligible candidates, the chosen one first and then best first; full ones only where all are. The result depends on
    /// nothing but the arguments, and not on their order.
    pub fn rank(
        &self,
        candidates: &[Candidate<'_>],
        need: &Need<'_>,
        seed: u64,
    ) -> Vec<Explanation> {
        self.best(candidates, need, seed, usize::MAX).best
    }

    /// The first `most` of [`Self::rank`], what retries may go to besides, and who else holds some of the prompt. Costs a few steps for each
    /// candidate, and an explanation only for those that are given.
    pub fn best(
        &self,
        candidates: &[Candidate<'_>],
        need: &Need<'_>,
        seed: u64,
        most: usize,
    ) -> Ranking {
        let mut field = Field::new(candidates, need, seed);
        for filter in &self.filters {
            filter.apply(&mut field);
        }
        field.mark_overfull(self.max_imbalance);
        let scores = self.scores(&field);
        let cost = match self.judge {
            Judge::Cost(cost) => cost,
            Judge::Scores => Cost::default(),
        };
        let judging = Judging {
            profile: self,
            setting: cost.setting(&field),
            greatest: self.scorers.iter().map(|of| of.weight).sum(),
            field: &field,
            scores: &scores,
            cost,
        };
        let contenders = field.contenders.iter().enumerate();
        let mut judged: Vec<Judged> = Vec::with_capacity(field.contenders.len());
        judged.extend(contenders.map(|(at, contender)| judging.judge(at, contender)));
        self.picker.order(&mut judged, seed, most);
        let rank_of = |of: &Judged| {
            let contender = field.contenders.get(of.at);
            contender.and_then(|contender| contender.endpoint().rank)
        };
        let named = with_retries(&mut judged, most, rank_of);
        let (best, others) = judged.split_at_checked(named).unwrap_or((&judged, &[]));
        Ranking {
            best: best.iter().filter_map(|of| judging.explain(of)).collect(),
            eligible: judged.len(),
            others: others.iter().filter_map(|of| judging.holding(of)).collect(),
        }
    }

    /// Scores of each scorer, in the order of the contenders.
    fn scores(&self, field: &Field<'_>) -> Vec<Vec<f64>> {
        let score = |weighted: &Weighted| {
            let mut scores = vec![0.0; field.contenders.len()];
            weighted.scorer.score(field, &mut scores);
            for score in &mut scores {
                // A scorer that gives no number knows nothing.
                *score = if score.is_nan() {
                    0.0
                } else {
                    score.clamp(0.0, 1.0)
                };
            }
            scores
        };
        self.scorers.iter().map(score).collect()
    }
}

/// Judging the contenders of one request.
struct Judging<'a> {
    profile: &'a Profile,
    field: &'a Field<'a>,
    /// By scorer, in the order of the contenders.
    scores: &'a [Vec<f64>],
    cost: Cost,
    setting: Setting,
    /// Greatest sum of weighted scores.
    greatest: f64,
}

impl Judging<'_> {
    /// Weights and scores of a contender.
    fn scored(&self, at: usize) -> impl Iterator<Item = (f64, f64)> {
        let scorers = self.profile.scorers.iter().zip(self.scores);
        scorers.map(move |(weighted, scores)| {
            let score = scores.get(at).copied().unwrap_or(0.0);
            (weighted.weight, score)
        })
    }

    /// The terms of its cost, with what scorers add where the cost decides.
    fn terms(&self, at: usize, contender: &Contender<'_>) -> Terms {
        let mut terms = self.cost.terms(self.field, contender, self.setting);
        if let Judge::Cost(_) = self.profile.judge {
            let added = self
                .scored(at)
                .map(|(weight, score)| weight * (1.0 - score));
            terms.cost_ms += added.sum::<f64>();
        }
        terms
    }

    fn judge(&self, at: usize, contender: &Contender<'_>) -> Judged {
        let (rank, weight) = match self.profile.judge {
            Judge::Cost(_) => {
                let cost_ms = self.terms(at, contender).cost_ms;
                (whole(cost_ms), 1.0 / (cost_ms + 1.0))
            }
            Judge::Scores => {
                let sum: f64 = self.scored(at).map(|(weight, score)| weight * score).sum();
                (whole((self.greatest - sum) * 1e6), sum)
            }
        };
        let key = contender.endpoint().key;
        Judged {
            at,
            key,
            rank,
            in_flight: whole(contender.in_flight),
            tie: scatter(key, self.field.seed),
            weight,
        }
    }

    fn holding(&self, of: &Judged) -> Option<Holding> {
        let contender = self.field.contenders.get(of.at)?;
        let indexed_tokens = contender.candidate.credit.indexed();
        let tokens = contender.credit.tokens();
        (indexed_tokens > 0 || tokens > 0).then_some(Holding {
            key: of.key,
            tokens,
            indexed_tokens,
        })
    }

    fn explain(&self, of: &Judged) -> Option<Explanation> {
        let contender = self.field.contenders.get(of.at)?;
        let terms = self.terms(of.at, contender);
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
            score: match self.profile.judge {
                Judge::Cost(_) => None,
                Judge::Scores => Some(of.weight),
            },
            scores: self.scored(of.at).map(|(_, score)| score).collect(),
        })
    }
}
