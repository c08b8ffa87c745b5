//! Filters: which endpoints come into question.
//!
//! Each is named in a policy by its type, with parameters; see [`super::registry`] for the names. What every policy wants (health, model,
//! pool, role, adapter) is no filter: see [`super::is_eligible`].

use core::fmt;

use serde::Deserialize;

use super::{Attribute, Field, LabelSelector, scatter};
use crate::snapshot::EndpointKey;

/// Chooses which endpoints come into question for a request.
pub trait Filter: fmt::Debug + Send + Sync {
    /// Sets `kept`, one for each of the field's contenders and true at first, to false where one is out of the question.
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]);

    /// Adds the request headers that it asks for, names in lower case.
    fn headers(&self, names: &mut Vec<String>) {
        let _ = names;
    }
}

/// Endpoints with certain labels (`label-selector`).
#[derive(Debug)]
pub(super) struct ByLabels(pub(super) LabelSelector);

impl Filter for ByLabels {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= self.0.matches(contender.endpoint());
        }
    }
}

/// Endpoints that have one of several values of a label (`by-label`).
#[derive(Debug)]
pub(super) struct ByLabel {
    pub(super) label: String,
    pub(super) values: Vec<String>,
    pub(super) allows_none: bool,
}

impl Filter for ByLabel {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= match contender.endpoint().label(&self.label) {
                Some(value) => self.values.iter().any(|of| of == value),
                None => self.allows_none,
            };
        }
    }
}

/// Endpoints of certain accelerator classes (`accelerator`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByAccelerator {
    classes: Vec<String>,
}

impl Filter for ByAccelerator {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= self.classes.contains(&contender.endpoint().accelerator);
        }
    }
}

/// Endpoints of which a figure is within bounds (`endpoint-attribute`, `utilization`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WithinBounds {
    conditions: Vec<Bound>,
    /// Whether an endpoint whose own figures are not known is kept.
    #[serde(default)]
    keep_unknown: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bound {
    metric: Attribute,
    min_value: Option<f64>,
    max_value: Option<f64>,
}

impl Filter for WithinBounds {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= self.conditions.iter().all(|bound| {
                if bound.metric.is_reported() && !contender.load_is_known() {
                    return self.keep_unknown;
                }
                let figure = bound.metric.of(contender);
                bound.min_value.is_none_or(|min| figure >= min)
                    && bound.max_value.is_none_or(|max| figure <= max)
            });
        }
    }
}

/// Endpoints about which enough is known (`staleness`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fresh {
    /// Whether their load must be known.
    #[serde(default = "yes")]
    load: bool,
    /// Whether their events must be arriving.
    #[serde(default)]
    events: bool,
}

fn yes() -> bool {
    true
}

impl Filter for Fresh {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= !self.load || contender.load_is_known();
            *kept &= !self.events || contender.endpoint().state == "live";
        }
    }
}

/// Endpoints that hold much of the prompt, unless waiting for them costs too much (`prefix-cache-affinity`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PrefixAffinity {
    affinity_threshold: f64,
    exploration_probability: f64,
    #[serde(rename = "maxTTFTPenaltyMs")]
    max_ttft_penalty_ms: f64,
}

impl Default for PrefixAffinity {
    fn default() -> Self {
        Self {
            affinity_threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 18_000.0,
        }
    }
}

impl Filter for PrefixAffinity {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        if chance(field.seed) < self.exploration_probability {
            return;
        }
        let prompt_tokens = field.prompt_tokens();
        let mut best = [f64::INFINITY; 2];
        let is_sticky = |tokens: u32| f64::from(tokens) / prompt_tokens >= self.affinity_threshold;
        for contender in &field.contenders {
            let sticky = usize::from(is_sticky(contender.credit.tokens()));
            // The queue alone, by each endpoint's own rate.
            let ttft_ms = contender.work_ms(0.0);
            if let Some(best) = best.get_mut(sticky) {
                *best = best.min(ttft_ms);
            }
        }
        let [other_ms, sticky_ms] = best;
        if sticky_ms.is_infinite() || sticky_ms - other_ms > self.max_ttft_penalty_ms {
            return;
        }
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= is_sticky(contender.credit.tokens());
        }
    }
}

/// Endpoints that are expected to meet the request's targets, where there are any (`slo-headroom-tier`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct MeetsTargets {
    epsilon_explore_neg: f64,
}

impl Default for MeetsTargets {
    fn default() -> Self {
        Self {
            epsilon_explore_neg: 0.01,
        }
    }
}

impl Filter for MeetsTargets {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        let Some(target_ms) = field.need.ttft_ms else {
            return;
        };
        if chance(field.seed) < self.epsilon_explore_neg {
            return;
        }
        let meets: Vec<bool> = field
            .contenders
            .iter()
            .map(|contender| contender.work_ms(f64::from(contender.uncached_tokens)) <= target_ms)
            .collect();
        if meets.contains(&true) {
            for (kept, meets) in kept.iter_mut().zip(meets) {
                *kept &= meets;
            }
        }
    }
}

/// The endpoint of the request's session (`session-affinity` as a filter): see [`super::scorer`].
#[derive(Debug)]
pub(super) struct PinnedToSession;

impl Filter for PinnedToSession {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        let Some(pinned) = super::scorer::of_session(field) else {
            return;
        };
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= contender.endpoint().key == pinned;
        }
    }
}

/// Endpoints whose label has a range of prompt lengths that the prompt is in (`context-length-aware` with `enableFiltering`).
#[derive(Debug)]
pub(super) struct WithinContext(pub(super) String);

impl Filter for WithinContext {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        let tokens = field.need.prompt_tokens;
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            let label = contender.endpoint().label(&self.0);
            let range = label.and_then(super::scorer::range);
            *kept &= range.is_none_or(|(min, max)| (min..=max).contains(&tokens));
        }
    }
}

/// A number from 0 to 1 that belongs to the request.
fn chance(seed: u64) -> f64 {
    (scatter(EndpointKey(1), seed) >> 11) as f64 / (1u64 << 53) as f64
}
