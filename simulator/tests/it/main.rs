//! The simulation held against what must be so, and the policies against the cases that they have to pass.
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is one"
)]

mod invariants;
mod policies;
mod rates;
mod scenarios;
mod traces;
