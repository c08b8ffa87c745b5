//! A stateful proxy-wasm (ABI 0.2.1) host that runs the *built* wasm filter through scenarios.
//!
//! ```text
//!  Host ── one proxy process: clock, shared data, metrics, logs, faults
//!   ├─ Vm 0  (main thread: ticks and gRPC streams, serves no request)
//!   ├─ Vm 1  (worker: requests, ticks, streams)          each Vm = one wasm instance with its own memory
//!   └─ Vm 2  (worker)
//! ```
//!
//! It emulates what Envoy's host was measured to do (which calls are legal in which phase, what a missing value looks like, how CAS treats a
//! missing key), so that a scenario asserts outcomes: where a request went, with which headers, and what the metrics say.
//! [`Rig`] adds a scripted [`Indexer`]. Host calls can be made to fail with [`Fault`]s, and a trap is kept as a fact of the [`Vm`] instead of ending the test.

mod abi;
mod exchange;
mod fault;
mod grpc;
mod headers;
mod host;
pub mod indexer;
mod module;
mod process;
mod request;
pub mod rig;
mod samples;
mod state;
mod status;
mod tally;
pub mod trap;
mod vm;

pub use exchange::{Ending, LocalReply, StreamId};
pub use fault::Fault;
pub use grpc::{GrpcStream, StreamToken};
pub use headers::Headers;
pub use host::{Host, HostBuilder};
pub use indexer::Indexer;
pub use module::{
    MODULE_VARIABLE, built_module, example_module, module_from_bytes, module_from_wat, module_path,
};
pub use process::{LogLine, Metric, MetricKind, Process};
pub use request::{Outcome, RequestBuilder, ResponseBuilder};
pub use rig::Rig;
pub use samples::{Classify, Samples};
pub use status::{LogLevel, Status};
pub use tally::{Calls, Tally};
pub use vm::Vm;
pub use wasmtime::Error;
