//! Prefixway's indexer as a library, and its command line.
//!
//! ```text
//!  engines ── KVEvents ─► kv_events ─┐                        ┌─► publish ─► grpc ─► gateways
//!          ── /metrics ─► scrape ────┼─► ingest (owns index) ─┤
//!          ── /tokenize ► calibration ┘                        │
//!  gateways ── usage, routed, outcome ──► ingest              └─► http (health, metrics, API)
//! ```
//!
//! One task owns the index; all others send it commands on bounded queues. The logic is in `prefixway_core`;
//! each module here touches one part of the outside world.

pub mod calibration;
pub mod cli;
pub mod config;
pub mod demo;
pub mod grpc;
pub mod http;
pub mod ingest;
pub mod kv_events;
pub mod metrics;
pub mod model_dir;
pub mod profile;
pub mod publish;
pub mod random;
mod reload;
pub mod replay;
pub mod scrape;
pub mod serve;
pub mod shutdown;
pub mod time_zone;
