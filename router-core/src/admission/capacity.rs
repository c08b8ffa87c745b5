//! When endpoints take no more, and what becomes of requests that nobody can take.
//!
//! ```text
//!  no endpoint may serve it ─► 503     all that may are full ─► 429, with the time after which to try again     else ─► it is served
//! ```
//!
//! Without limits nothing is ever full: engines queue by themselves. What is not known of an endpoint does not make it full.

use serde::Deserialize;

use super::{Fault, Held, Refusal};
use crate::{load::EndpointLoad, proto, view::Decision};

/// Seconds after which clients of a full pool are told to try again, when the policy says nothing.
pub const DEFAULT_RETRY_AFTER_S: u32 = 1;

/// When an endpoint is full; a bound that is absent is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Sequences in flight, by all accounts.
    pub max_in_flight: Option<u32>,
    /// Waiting requests, by the engine's own figures.
    pub max_waiting: Option<u32>,
    /// Prompt tokens sent and not yet prefilled.
    pub max_queued_tokens: Option<u64>,
    /// Share of KV cache in use by running requests.
    pub max_kv_usage_ratio: Option<f64>,
    /// Seconds after which clients are told to try again; 0 = [`DEFAULT_RETRY_AFTER_S`].
    pub retry_after_s: u32,
}

impl Limits {
    /// Those of a policy.
    pub fn of(policy: &proto::Policy) -> Self {
        let Some(admission) = policy.admission else {
            return Self::default();
        };
        Self {
            max_in_flight: admission.max_in_flight,
            max_waiting: admission.max_waiting,
            max_queued_tokens: admission.max_queued_tokens,
            max_kv_usage_ratio: admission.max_kv_usage_ratio,
            retry_after_s: admission.retry_after_s,
        }
    }

    /// Whether an endpoint under this load takes no more.
    pub fn is_full(&self, load: &EndpointLoad) -> bool {
        let reaches = |bound: Option<u32>, figure: Option<u32>| {
            bound
                .zip(figure)
                .is_some_and(|(bound, figure)| figure >= bound)
        };
        let queued_tokens = load.usage.queued_prefill_tokens;
        reaches(self.max_in_flight, Some(load.in_flight()))
            || reaches(self.max_waiting, load.waiting())
            || self
                .max_queued_tokens
                .is_some_and(|bound| queued_tokens >= bound)
            || self
                .max_kv_usage_ratio
                .zip(load.kv_usage_ratio())
                .is_some_and(|(bound, ratio)| ratio >= bound)
    }

    fn retry_after_s(&self) -> u32 {
        match self.retry_after_s {
            0 => DEFAULT_RETRY_AFTER_S,
            seconds => seconds,
        }
    }
}

/// What becomes of requests that nothing is known for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureMode {
    /// They pass, to whatever the proxy falls back on.
    #[default]
    Open,
    /// They are answered with 503.
    Closed,
}

impl FailureMode {
    /// Reads a mode's name; `None` when it has no such name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "open" => Some(Self::Open),
            "closed" => Some(Self::Closed),
            _ => None,
        }
    }

    /// The mode's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl Held {
    /// Whether a decision can be carried out: `None`, or why not. `is_current` says that the list of endpoints is whole and not too old;
    /// with another one nobody can tell that there is no endpoint.
    pub fn place(&self, decision: &Decision, limits: &Limits, is_current: bool) -> Option<Refusal> {
        match decision.ranking.first() {
            None if is_current => Some(self.refuse(Fault::NoEndpoint)),
            Some(best) if best.is_full => Some(self.refuse(Fault::Full {
                retry_after_s: limits.retry_after_s(),
            })),
            Some(_) if decision.target.is_some_and(|target| target.refuses()) => {
                Some(self.refuse(Fault::TargetUnmet {
                    retry_after_s: limits.retry_after_s(),
                }))
            }
            None | Some(_) => None,
        }
    }

    /// The refusal of a request that has waited for so long that it need not wait on.
    pub fn timed_out(&self, limits: &Limits, waited_ms: u64) -> Refusal {
        self.refuse(Fault::QueueTimeout {
            waited_ms,
            retry_after_s: limits.retry_after_s(),
        })
    }

    /// The refusal of a request for which there is no room to wait.
    pub fn full(&self, limits: &Limits) -> Refusal {
        self.refuse(Fault::Full {
            retry_after_s: limits.retry_after_s(),
        })
    }

    /// The refusal of a request that nothing is known for, where the failure mode is closed.
    pub fn unknown(&self) -> Refusal {
        self.refuse(Fault::NoSnapshot)
    }
}
