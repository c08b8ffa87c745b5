//! Pure routing logic of Prefixway.
//!
//! ```text
//!  request ─► admission ─► text ─► canonical text ─► hash ─► snapshot (probe) ─► schedule ─► decision
//!  engine events ─► event ─► sequence ─► index ─► snapshot (segments, deltas) ─► shared (one copy per proxy)
//! ```
//!
//! Nothing here performs input or output, reads a clock, draws random numbers or starts threads:
//! time and seeds come in as arguments. The crate compiles for the host and for `wasm32-unknown-unknown`.

pub mod admission;
pub mod endpoint;
pub mod event;
pub mod flow;
pub mod hash;
pub mod index;
pub mod lifecycle;
pub mod load;
pub mod mode;
pub mod prompters;
pub mod proto;
pub mod rung;
pub mod schedule;
pub mod sequence;
pub mod shard;
pub mod shared;
pub mod snapshot;
pub mod text;
pub mod trust;
pub mod view;
