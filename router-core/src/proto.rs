//! Messages of the snapshot stream, generated from `proto/prefixway/v1/snapshot.proto`.
//!
//! `tests/generated_proto.rs` regenerates them and fails on a difference; `UPDATE_GENERATED=1` rewrites them. The service stubs
//! are generated into the crate that serves them, so that this one needs no transport.

#[expect(
    clippy::doc_markdown,
    reason = "generated from the comments of the proto file"
)]
mod generated {
    include!("proto/generated/prefixway.v1.rs");
}

pub use generated::*;
