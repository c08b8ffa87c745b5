//! Integration tests: parity with a captured vLLM, and whole engines over HTTP and ZMQ.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod capture;
mod client;
mod faults;
mod http;
mod msgpack;
mod parity;
