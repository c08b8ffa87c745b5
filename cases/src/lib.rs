//! Cases from files: inputs, and what has to come of them.
//!
//! ```text
//!  $PREFIXWAY_CASES/events/*.json ── frames ─► sequence ─► index ─► matched tokens, counters
//! ```
//!
//! The files are read strictly: a key, relation or word that is not known fails its case, so that nothing is passed over in silence.
//! New files of the same format run without new code. `make cases` prints one line per case.

pub mod error;
pub mod events;
pub mod folder;
pub mod report;

pub use error::CaseError;
pub use report::{Line, Report, Status};
