//! Pods and arrivals, as the files write them.

use serde::Deserialize;

use crate::error::CaseError;

/// Age of figures that the files call usual.
const USUAL_AGE_MS: u32 = 200;
/// Share of KV cache in use where a pod has figures but not this one.
const USUAL_KV: f64 = 0.1;

/// One pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) ready: Option<bool>,
    running: Option<u32>,
    waiting: Option<u32>,
    kv_used: Option<f64>,
    metrics_age_ms: Option<u32>,
    metrics: Option<String>,
    pub(super) prefix_tokens_matched: Option<u32>,
    deletion_timestamp: Option<bool>,
    pub(super) update: Option<Update>,
    pub(super) pool: Option<String>,
    pub(super) saturated: Option<bool>,
    circuit_open: Option<bool>,
}

/// What happens to a pod while requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Update {
    #[serde(rename = "address cleared")]
    AddressCleared,
    #[serde(rename = "label no longer matches the selector")]
    LabelChanged,
}

/// Requests that come.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arrivals {
    pub(super) count: u32,
    pub(super) within_ms: Option<u64>,
    none_finishes: Option<bool>,
    metrics_refresh: Option<String>,
}

/// What an engine says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) running: u32,
    pub(super) waiting: u32,
    pub(super) kv_used: f64,
    pub(super) age_ms: u32,
}

impl Pod {
    /// A pod with nothing to say but its name.
    pub(super) fn idle(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The same pod, with so many tokens of the shared prefix.
    pub(super) fn holding(&self, tokens: Option<u32>) -> Self {
        Self {
            prefix_tokens_matched: tokens,
            ..self.clone()
        }
    }

    /// Whether requests may be sent to it once everything in the file has happened.
    pub(super) fn is_healthy(&self) -> bool {
        self.ready.unwrap_or(true) && !self.is_going() && !self.circuit_open.unwrap_or(false)
    }

    /// Whether it is being deleted.
    pub(super) fn is_going(&self) -> bool {
        self.deletion_timestamp.unwrap_or(false)
    }

    /// Whether its figures are older than anybody would believe.
    #[cfg(feature = "envoy")]
    pub(super) fn is_stale(&self) -> bool {
        self.metrics_age_ms
            .is_some_and(|age| age > 100 * USUAL_AGE_MS)
    }

    /// Its engine's figures; `None`: they were never read.
    ///
    /// # Errors
    /// It says something of them that has no meaning here.
    pub(super) fn figures(&self, limit_waiting: u32) -> Result<Option<Said>, CaseError> {
        match self.metrics.as_deref() {
            Some("never scraped") => return Ok(None),
            Some(other) => return Err(CaseError::not_understood(format!("metrics {other:?}"))),
            None => {}
        }
        let is_full = self.saturated.unwrap_or(false);
        Ok(Some(Said {
            running: self.running.unwrap_or(0),
            waiting: self
                .waiting
                .unwrap_or(if is_full { limit_waiting } else { 0 }),
            kv_used: self.kv_used.unwrap_or(USUAL_KV),
            age_ms: self.metrics_age_ms.unwrap_or(USUAL_AGE_MS),
        }))
    }
}

impl Arrivals {
    /// So many more, as fast.
    pub(super) fn again(&self, count: u32) -> Self {
        Self {
            count,
            ..self.clone()
        }
    }

    /// So many, with the same time between two.
    pub(super) fn as_fast(&self, count: u32) -> Self {
        let within_ms = u64::from(count) * self.gap_us() / 1_000;
        Self {
            count,
            within_ms: Some(within_ms),
            ..self.clone()
        }
    }

    /// Checks that they say nothing that is not done.
    ///
    /// # Errors
    /// They do.
    pub(super) fn check(&self) -> Result<(), CaseError> {
        if self.none_finishes == Some(false) {
            return Err(CaseError::not_understood("arrivals that finish"));
        }
        match self.metrics_refresh.as_deref() {
            None | Some("none during the burst") => Ok(()),
            Some(other) => Err(CaseError::not_understood(format!(
                "metrics_refresh {other:?}"
            ))),
        }
    }

    /// Time in which they come.
    #[cfg(feature = "envoy")]
    pub(super) fn within(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.within_ms.unwrap_or(1_000))
    }

    /// Microseconds between two of them.
    pub(super) fn gap_us(&self) -> u64 {
        let within_us = self.within_ms.unwrap_or(1_000) * 1_000;
        within_us / u64::from(self.count.max(1))
    }
}

/// A number in a text, in digits or as a word.
pub(super) fn number(text: &str) -> Option<u64> {
    const WORDS: [&str; 11] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    ];
    let word = text.to_ascii_lowercase();
    match WORDS.iter().position(|known| *known == word) {
        Some(at) => u64::try_from(at).ok(),
        None => text.replace(',', "").parse().ok(),
    }
}
