//! Why a case does not hold.

use std::path::PathBuf;

/// Why a case fails, or can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not of the format: a key that nobody reads is an error too, so that nothing is passed over in silence.
    #[error("not of the format: {0}")]
    Format(#[from] serde_json::Error),
    /// A key, word or text has no meaning here.
    #[error("not understood: {what}")]
    NotUnderstood {
        /// What it is, and where.
        what: String,
    },
    /// Something is not as the case says.
    #[error("{what}: expected {expected}, got {actual}")]
    Mismatch {
        /// What was looked at.
        what: String,
        /// What the case says.
        expected: String,
        /// What it was.
        actual: String,
    },
}

impl CaseError {
    pub(crate) fn not_understood(what: impl Into<String>) -> Self {
        Self::NotUnderstood { what: what.into() }
    }

    pub(crate) fn mismatch(
        what: impl Into<String>,
        expected: &dyn core::fmt::Display,
        actual: &dyn core::fmt::Display,
    ) -> Self {
        Self::Mismatch {
            what: what.into(),
            expected: expected.to_string(),
            actual: actual.to_string(),
        }
    }
}
