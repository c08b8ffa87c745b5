//! Scenarios on the built wasm filter, and tests of the host emulator itself.

mod bodies;
mod collisions;
mod emulator;
mod failure;
mod indexer;
mod load;
mod rig;
mod steering;
