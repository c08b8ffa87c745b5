//! By load.

use serde::Deserialize;

use super::super::{Attribute, Contender, Field, Scorer};

/// `(max - x) / (max - min)`; all equal = 1 (`queue`, `running-requests`).
#[derive(Debug)]
pub(in super::super) struct FewerIsBetter(pub(in super::super) Attribute);

impl Scorer for FewerIsBetter {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let least = field.least(|contender| self.0.of(contender));
        let greatest = field.greatest(|contender| self.0.of(contender));
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = if greatest > least {
                (greatest - self.0.of(contender)) / (greatest - least)
            } else {
                1.0
            };
        }
    }
}

/// Half of what is left until so many wait: `0.5 * (1 - waiting / threshold)` (`load-aware`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in super::super) struct LoadAware {
    threshold: f64,
}

impl Default for LoadAware {
    fn default() -> Self {
        Self { threshold: 128.0 }
    }
}

impl Scorer for LoadAware {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = 0.5 * (1.0 - contender.waiting / self.threshold.max(1.0)).max(0.0);
        }
    }
}

/// Fewer requests in flight are better (`active-request`): 1 up to `idleThreshold`, else `maxBusyScore * (1 - in_flight / max)`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in super::super) struct ActiveRequests {
    idle_threshold: f64,
    max_busy_score: f64,
}

impl Default for ActiveRequests {
    fn default() -> Self {
        Self {
            idle_threshold: 0.0,
            max_busy_score: 1.0,
        }
    }
}

impl Scorer for ActiveRequests {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let greatest = field.greatest(|contender| contender.in_flight).max(1.0);
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = if contender.in_flight <= self.idle_threshold {
                1.0
            } else {
                self.max_busy_score * (1.0 - contender.in_flight / greatest)
            };
        }
    }
}

/// Fewer prompt tokens that wait are better: `1 - min(1, queued / threshold)` (`token-load`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in super::super) struct TokenLoad {
    queue_threshold_tokens: f64,
}

impl Default for TokenLoad {
    fn default() -> Self {
        Self {
            queue_threshold_tokens: 4_194_304.0,
        }
    }
}

impl Scorer for TokenLoad {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let threshold = self.queue_threshold_tokens.max(1.0);
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = 1.0 - (contender.queued_tokens / threshold).min(1.0);
        }
    }
}

/// Any figure, in proportion to a range (`endpoint-attribute`, `kv-cache-utilization`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct ByAttribute {
    attribute: Attribute,
    #[serde(default)]
    better: Better,
    /// Range that scores from 0 to 1; absent = from the least to the greatest of the contenders.
    fixed_range: Option<[f64; 2]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Better {
    #[default]
    Lower,
    Higher,
}

impl ByAttribute {
    /// What is left of a figure from 0 to 1.
    pub(in super::super) const fn rest(attribute: Attribute) -> Self {
        Self {
            attribute,
            better: Better::Lower,
            fixed_range: Some([0.0, 1.0]),
        }
    }
}

impl Scorer for ByAttribute {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let figure = |contender: &Contender<'_>| self.attribute.of(contender);
        let [least, greatest] = self
            .fixed_range
            .unwrap_or_else(|| [field.least(figure), field.greatest(figure)]);
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            let share = if greatest > least {
                ((figure(contender) - least) / (greatest - least)).clamp(0.0, 1.0)
            } else {
                0.0
            };
            *score = match self.better {
                Better::Lower => 1.0 - share,
                Better::Higher => {
                    if greatest > least {
                        share
                    } else {
                        1.0
                    }
                }
            };
        }
    }
}
