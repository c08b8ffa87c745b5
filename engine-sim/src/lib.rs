//! A vLLM look-alike to test routers against: no weights, everything else in small.
//!
//! ```text
//!  HTTP ─► template ─► tokenizer ─► scheduler ─► block pool      pure: scheduler, block pool, sequence, template, event encoding
//!   ▲                                  │  │                      adapters: http, engine (loop and clock), events::publisher (ZMQ)
//!   └────────── tokens ◄── engine loop ┘  └─► events ─► ZMQ
//! ```
//!
//! It behaves like vLLM 0.32.0 where a router can tell: prompts are rendered and tokenized for real, blocks are cached, shared and evicted as
//! vLLM's block pool does, events and replays have its wire format, and time passes per uncached prompt token and per decode step. The text
//! it answers with is pseudo-random words. It shares no code with the router it tests.
//!
//! [`start`] runs an engine on the current tokio runtime; many fit into one process. The pure part ([`scheduler`], [`block_pool`]) can
//! be driven without it.

pub mod block_pool;
pub mod config;
mod engine;
pub mod events;
mod http;
mod kv_cache;
mod metrics;
pub mod models;
pub mod scheduler;
pub mod sequence;
pub mod template;
pub mod tokenizer;

pub use config::{EngineConfig, EventsConfig, Timing};
pub use engine::{Engine, EngineError, EngineStats, Fault, start};
