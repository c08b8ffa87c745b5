//! The simulation held against what must be so, and the policies against the cases that they have to pass.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test fails by panicking, in its helpers too, and says what it skips; its numbers are small"
)]

mod invariants;
mod policies;
mod rates;
mod scenarios;
mod traces;
