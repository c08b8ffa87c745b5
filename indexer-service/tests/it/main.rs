//! The indexer's parts against real peers: libzmq publishers, gRPC clients, HTTP clients, and its own command line.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod approximate;
mod calibration;
mod cli;
mod closed_loop;
mod http;
mod kv_events;
mod query;
mod room;
mod simulate;
mod stream;
mod support;
mod switching;
