//! The whole system on loopback: simulated engines, the indexer, real Envoy and a workload.
//!
//! ```text
//!  load (client) ──► envoy ──► engines (in this process) ──KVEvents──► indexer (child) ──snapshot──► envoy's filter
//! ```
//!
//! `prefixway demo` compares policies with it, and the end-to-end tests are built from the same parts. Every child process belongs to a
//! guard: whatever ends the owner early ends the children too.

pub mod client;
pub mod compare;
pub mod engines;
pub mod envoy;
pub mod indexer;
pub mod load;
pub mod process;
pub mod report;
pub mod workload;
