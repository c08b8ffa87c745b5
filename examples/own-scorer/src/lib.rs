//! Prefixway's filter with two plugins more: the scorer `fewest-tokens` and the filter `even-ranks`.
//!
//! Build it with `PREFIXWAY_WASM_PACKAGE=prefixway-own-scorer scripts/build-wasm.sh`, give gateways the module instead of the usual one, and
//! name the plugins in the policy (`docs/scheduling.md#plugins-of-your-own`).

use prefixway_core::schedule::registry::parameters;
use prefixway_core::schedule::{Field, Filter, Registry, Scorer};
use serde::Deserialize;

/// 1 where no prompt token waits, and less the more wait: `half` of them are worth 0.5.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FewestTokens {
    half: f64,
}

impl Scorer for FewestTokens {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = self.half / (self.half + contender.queued_tokens);
        }
    }
}

/// Endpoints without data-parallel rank, and those with an even one.
#[derive(Debug)]
struct EvenRanks;

impl Filter for EvenRanks {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= contender
                .endpoint()
                .rank
                .is_none_or(|rank| rank.is_multiple_of(2));
        }
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add_scorer("fewest-tokens", |value| {
        Ok(Box::new(parameters::<FewestTokens>(value)?))
    });
    registry.add_filter("even-ranks", |_| Ok(Box::new(EvenRanks)));
    registry
}

prefixway_filter::filter!(registry);
