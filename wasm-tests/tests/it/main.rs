//! Scenarios on the built wasm filter, and tests of the host emulator itself.
#![expect(
    clippy::unwrap_used,
    reason = "a scenario that can't be set up has failed"
)]

mod approximate;
mod bodies;
mod collisions;
mod copies;
mod decisions;
mod emulator;
mod failure;
mod fuzz_inputs;
mod holds;
mod host_calls;
mod life;
mod load;
mod modes;
mod orca;
mod own_plugins;
mod refusals;
mod shards;
mod steering;
mod templates;
mod trust;
mod waiting;
mod wishes;
