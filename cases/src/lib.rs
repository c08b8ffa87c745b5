//! Cases from files: inputs, and what has to come of them.
//!
//! ```text
//!  $PREFIXWAY_CASES/events/*.json ─── frames ─► sequence ─► index ─► matched tokens, counters
//!                   requests/*.json ┐ native: admission ─► prompts ─► routing view
//!                   requests/*.http ┘ wasm: the built filter in the host emulator; envoy: the same in real Envoy
//!                   scenarios/*.json   bursts, endings and faults, at the levels wasm and envoy, and some of them sim (the simulator)
//! ```
//!
//! The files are read strictly: a key, relation or word that is not known fails its case, and so does an expectation that no level
//! could check. New files of the same format run without new code. `make cases` prints one line per case.
//!
//! Features, both on by default: `wasm` and `envoy` for those levels. Without them only the native level is built.

pub mod error;
pub mod events;
pub mod folder;
pub mod report;
pub mod requests;
#[cfg(feature = "wasm")]
pub mod scenarios;

use std::path::Path;

pub use error::CaseError;
pub use report::{Line, Report, Status};

/// Runs all cases of a folder, requests first.
///
/// # Errors
/// A file of this repository that every case needs can't be used.
pub fn run(folder: &Path) -> Result<Report, CaseError> {
    let mut lines = requests::run(&folder.join("requests"))?;
    lines.extend(events::run(&folder.join("events")));
    #[cfg(feature = "wasm")]
    lines.extend(scenarios::run(&folder.join("scenarios")));
    // R2 before R10, and the two kinds apart.
    lines.sort_by_key(|line| {
        let digits = line.id.trim_start_matches(|c: char| !c.is_ascii_digit());
        let kind = line.id.strip_suffix(digits).unwrap_or_default();
        let number = digits.parse::<u64>().unwrap_or(0);
        // Requests come first, as in the path of a request.
        (kind != "R", kind.to_owned(), number, line.file.clone())
    });
    Ok(Report { lines })
}
