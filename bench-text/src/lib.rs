//! What is measured of the text path, in one form for every engine.
//!
//! ```text
//!  body ─ parse ─► request ─ render ─► prompt text ─ canonicalise ─► text ─ hash ─► rungs
//!  peers, over the same bytes in the same engine: memcpy, serde_json, XXH3
//! ```
//!
//! The same functions run natively, and as a wasm module in wasmtime and in node's V8 (see `guest`). The program `main.rs` runs them side
//! by side. Nothing of this crate is shipped.

pub mod bodies;
pub mod counting;
pub mod subject;

#[cfg(target_family = "wasm")]
mod guest;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
