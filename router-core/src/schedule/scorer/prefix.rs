//! By what endpoints hold.

use serde::Deserialize;

use super::super::{Field, Scorer};

/// Share of the prompt that is held (`prefix-cache`):
/// `w * min(1, matched / scale)^2 + (1 - w) * matched / prompt`, both in tokens.
///
/// In proportion, and not stretched between the least and the greatest: where one endpoint holds a single block that everybody's prompt
/// begins with, that block must not be worth as much as a whole prompt. 0 where an endpoint is much busier than others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in super::super) struct PrefixCache {
    match_length_weight: f64,
    match_length_scale_tokens: f64,
}

impl Default for PrefixCache {
    fn default() -> Self {
        Self {
            match_length_weight: 0.0,
            match_length_scale_tokens: 8_192.0,
        }
    }
}

impl Scorer for PrefixCache {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let prompt_tokens = field.prompt_tokens();
        let weight = self.match_length_weight;
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            if contender.is_overfull {
                continue;
            }
            let matched = f64::from(contender.credit.tokens());
            let length = (matched / self.match_length_scale_tokens.max(1.0)).min(1.0);
            *score = weight * length * length + (1.0 - weight) * (matched / prompt_tokens).min(1.0);
        }
    }
}

/// Spreads requests of which nobody holds anything (`no-hit-lru`): 1 for the endpoint that was given such a request longest ago, less by
/// equal steps, 0 for the one that was given the last. Endpoints that were never given one come first. Where anybody holds something, all score 0.5.
#[derive(Debug)]
pub(in super::super) struct NoHitLru;

impl Scorer for NoHitLru {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let is_cold = field
            .contenders
            .iter()
            .all(|contender| contender.credit.tokens() == 0);
        if !is_cold {
            scores.fill(0.5);
            return;
        }
        let last = |at: usize| {
            let contender = field.contenders.get(at)?;
            field
                .need
                .last_cold?
                .get(&contender.endpoint().key)
                .copied()
        };
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by_key(|&at| last(at));
        let steps = order.len().saturating_sub(1).max(1) as f64;
        let mut place = 0.0;
        let mut before = None;
        for (at, count) in order.into_iter().zip(0u32..) {
            // Equals score the same: those that were never given one, above all.
            if before != Some(last(at)) {
                place = f64::from(count);
                before = Some(last(at));
            }
            if let Some(score) = scores.get_mut(at) {
                *score = 1.0 - place / steps;
            }
        }
    }
}
