//! Parts of the end-to-end tests: a pool of engines, the indexer and real Envoy on free loopback ports.
//!
//! ```text
//!  test ──► Envoy (child, 2 workers, built filter) ──► engines (in process) or recorders
//!                        ▲                                   │ KVEvents over libzmq
//!                        └────────── indexer (child) ◄───────┘
//! ```
//! Everything ends with the [`Rig`] that owns it, also when a test fails.

pub mod gateway;
pub mod listener;
pub mod recorder;
pub mod rig;
pub mod sharded;

pub use gateway::Gateway;
pub use listener::Listener;
pub use recorder::{Recorded, Recorder};
pub use rig::{Pool, Rig};
pub use sharded::Sharded;
