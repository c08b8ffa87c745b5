//! Labels of the metric families: addresses and ids from settings, and fixed lists.

use std::fmt::Write;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// An endpoint, as `address` or `address#rank`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndpointLabel {
    /// The endpoint.
    pub endpoint: String,
}

/// An endpoint and an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndpointResult {
    /// The endpoint.
    pub endpoint: String,
    /// What came of it.
    pub result: Outcome,
}

/// An endpoint and the state of its source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndpointState {
    /// The endpoint.
    pub endpoint: String,
    /// Name of a state.
    pub state: &'static str,
}

/// Only a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabel {
    /// Name of a state.
    pub state: &'static str,
}

/// An endpoint and what one of its replies says of its cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndpointEvidence {
    /// The endpoint.
    pub endpoint: String,
    /// What it says.
    pub kind: EvidenceKind,
}

/// What a reply says of the engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvidenceKind {
    /// How many tokens were cached.
    CachedTokens,
    /// That none were: an engine that tells it leaves it out then.
    NoneCached,
    /// Token counts without the cached ones.
    NoDetails,
    /// No token counts.
    NoUsage,
}

/// Only an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabel {
    /// What came of it.
    pub result: Outcome,
}

/// Why something happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason.
    pub reason: Reason,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did what it should.
    Ok,
    /// It did not.
    Failed,
    /// It was asked for what it rightly refuses.
    Refused,
}

/// Reasons of resyncs and closed streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The gateway had nothing yet.
    New,
    /// The gateway's copy is of another epoch.
    Epoch,
    /// The gateway's version is no longer kept.
    Version,
    /// The gateway's queue was full.
    Slow,
    /// The gateway ended the stream, or broke its rules.
    Ended,
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Refused => "refused",
        })
    }
}

impl EncodeLabelValue for EvidenceKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(match self {
            Self::CachedTokens => "cached_tokens",
            Self::NoneCached => "none_cached",
            Self::NoDetails => "no_details",
            Self::NoUsage => "no_usage",
        })
    }
}

impl EncodeLabelValue for Reason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(match self {
            Self::New => "new",
            Self::Epoch => "epoch",
            Self::Version => "version",
            Self::Slow => "slow",
            Self::Ended => "ended",
        })
    }
}

/// A model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ModelLabel {
    /// Its id.
    pub model: String,
}

/// A model and a state of its prompt text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ModelState {
    /// Its id.
    pub model: String,
    /// Name of a state.
    pub state: &'static str,
}

/// A model and what a look at one of its engines came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CalibrationLabel {
    /// Its id.
    pub model: String,
    /// Name of an outcome.
    pub result: &'static str,
}
