//! By the request's targets.

use serde::Deserialize;

use super::super::{Contender, Field, Scorer, cost::DEFAULT_DECODE_MS_PER_TOKEN};

/// By predicted time to first token and per token after it, against the request's targets (`latency`).
///
/// With targets: the share of each that is left (`headroom`), where any endpoint meets them; the tightest that still meets them scores best
/// (`least`, which leaves fast endpoints to those who need them) or the one with most headroom (`most`). Where none meets them, and without
/// targets, the fastest scores best.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in super::super) struct Latency {
    ttft_weight: f64,
    tpot_weight: f64,
    headroom_selection_strategy: Strategy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Strategy {
    #[default]
    Least,
    Most,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            ttft_weight: 0.8,
            tpot_weight: 0.2,
            headroom_selection_strategy: Strategy::Least,
        }
    }
}

impl Latency {
    /// Weighted shares of the targets that are left; negative where one is missed.
    fn headroom(&self, field: &Field<'_>, contender: &Contender<'_>) -> Option<f64> {
        let left = |target_ms: Option<f64>, expected_ms: f64| {
            target_ms.map(|target_ms| (target_ms - expected_ms) / target_ms.max(1.0))
        };
        let ttft = left(field.need.ttft_ms, ttft_ms(contender));
        let tpot = left(field.need.tpot_ms, tpot_ms(contender));
        let shares = [(ttft, self.ttft_weight), (tpot, self.tpot_weight)];
        let known = || {
            shares
                .iter()
                .filter_map(|(share, weight)| Some((share.as_ref()?, weight)))
        };
        let missed = known()
            .map(|(share, _)| *share)
            .filter(|share| *share < 0.0);
        if let Some(worst) = missed.reduce(f64::min) {
            return Some(worst);
        }
        let weights: f64 = known().map(|(_, weight)| weight).sum();
        let sum: f64 = known().map(|(share, weight)| share * weight).sum();
        (weights > 0.0).then(|| sum / weights)
    }
}

fn ttft_ms(contender: &Contender<'_>) -> f64 {
    contender.work_ms(f64::from(contender.uncached_tokens))
}

fn tpot_ms(_: &Contender<'_>) -> f64 {
    DEFAULT_DECODE_MS_PER_TOKEN
}

impl Scorer for Latency {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let headroom: Vec<Option<f64>> = field
            .contenders
            .iter()
            .map(|contender| self.headroom(field, contender))
            .collect();
        let meets = |share: &Option<f64>| share.is_some_and(|share| share >= 0.0);
        if headroom.iter().any(meets) {
            for (score, share) in scores.iter_mut().zip(headroom) {
                let share = share.unwrap_or(0.0);
                *score = if share < 0.0 {
                    0.0
                } else {
                    match self.headroom_selection_strategy {
                        // Above what any endpoint scores that misses a target.
                        Strategy::Least => 1.0 - 0.9 * share,
                        Strategy::Most => 0.1 + 0.9 * share,
                    }
                };
            }
            return;
        }
        let least = field.least(ttft_ms);
        let greatest = field.greatest(ttft_ms);
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = if greatest > least {
                (greatest - ttft_ms(contender)) / (greatest - least)
            } else {
                1.0
            };
        }
    }
}
