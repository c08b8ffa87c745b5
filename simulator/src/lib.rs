//! Discrete-event simulation of routing policies on request traces, with the production scheduler.
//!
//! ```text
//!  trace ─► workload (one a seed) ─┐
//!  setup: endpoints, freshness ────┼─► run: routers, engines ─► figures ─┐
//!  policy, load ───────────────────┘                                     ├─► grid of cells ─► table, CSV, SVG
//!                     every trace, load, policy and seed ────────────────┘
//! ```
//!
//! No input or output, no clock: a run depends on its arguments alone. What is modelled and what is not is in `docs/simulation.md`.
#![expect(
    clippy::indexing_slicing,
    reason = "numbers of requests, endpoints and blocks come from the tables that they index; a checked access for each block would tell nothing new"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "simulated times and counts are far inside their types, and float casts saturate"
)]

mod block_pool;
pub mod engine;
pub mod grid;
pub mod knowledge;
pub mod plot;
pub mod policy;
pub mod report;
pub mod rng;
pub mod simulation;
pub mod summary;
pub mod trace;
pub mod workload;
