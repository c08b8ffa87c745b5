//! Figures of an endpoint by name, for plugins that take any of them.

use serde::Deserialize;

use super::Contender;

/// A figure of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attribute {
    /// Requests that wait in the engine.
    WaitingQueue,
    /// Requests that the engine runs.
    RunningRequests,
    /// Sequences in flight, by the gateways' own count.
    ActiveRequests,
    /// Share of KV cache in use, 0 to 1.
    KvCacheUtilization,
    /// Prompt tokens sent and not yet prefilled.
    QueuedTokens,
    /// Prefill rate in tokens per second.
    PrefillRate,
    /// Tokens of this prompt that it holds.
    MatchedTokens,
}

impl Attribute {
    /// The figure, or the usual one where it is not known.
    pub fn of(self, contender: &Contender<'_>) -> f64 {
        match self {
            Self::WaitingQueue => contender.waiting,
            Self::RunningRequests => contender.running,
            Self::ActiveRequests => contender.in_flight,
            Self::KvCacheUtilization => contender.kv_usage_ratio,
            Self::QueuedTokens => contender.queued_tokens,
            Self::PrefillRate => contender.prefill_tokens_per_s,
            Self::MatchedTokens => f64::from(contender.credit.tokens()),
        }
    }

    /// Whether it comes from the engine's own figures, which may not be known.
    pub fn is_reported(self) -> bool {
        matches!(
            self,
            Self::WaitingQueue | Self::RunningRequests | Self::KvCacheUtilization
        )
    }
}
