//! KV events of vLLM engines: ZMQ frames and msgpack batches.
//!
//! ```text
//!  frames  [topic, seq (8 bytes BE), payload]             live
//!          ["", topic, seq, payload] | ["", seq, payload] replay: read from the END
//!  payload [ts, events, rank] | {ts, events, data_parallel_rank}
//!  event   ["BlockStored", hashes, parent, ...]           by position, up to vLLM 0.23
//!          {"type": "BlockStored", "block_hashes": ...}   by name, from vLLM 0.24
//! ```
//!
//! Checked against the structs of 18 vLLM releases, 0.10.2 to 0.33.0. Events are decoded straight from the payload: lists go into
//! buffers that are reused from batch to batch, everything else is borrowed. Claimed lengths never decide what is allocated, nesting
//! is not followed by recursion, unknown keys, elements and event types are skipped and counted, and an event that can't be read is
//! skipped without costing its batch.

mod batch;
mod cursor;
mod extra;
mod frames;
mod glimpse;

pub use batch::{BatchInfo, Decoder, decode_batch};
pub use cursor::MsgpackError;
pub use extra::{BlockKeys, ExtraKey, ExtraKeys};
pub use frames::{FrameError, Message, parse_frames};
pub(crate) use glimpse::glimpse;

use xxhash_rust::xxh3::xxh3_64;

#[cfg(test)]
pub(crate) mod encode;
#[cfg(test)]
mod tests;

/// An engine's own block hash: an opaque label, equal only to itself.
///
/// Integers keep their 64 bits (the same bits signed and unsigned are one label); byte strings are reduced to 64 bits by XXH3-64, as
/// the engine itself reduces its digests when it sends integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineHash(pub u64);

impl EngineHash {
    /// The label of a hash sent as a byte string.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(xxh3_64(bytes))
    }
}

/// One event of a batch, borrowed from the payload and the decoder's buffers.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Blocks were stored.
    Stored(Stored<'a>),
    /// Copies of blocks were dropped.
    Removed(Removed<'a>),
    /// The engine dropped everything in all tiers.
    Cleared,
}

/// `BlockStored`.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// Hashes of the stored blocks, parent first.
    pub hashes: &'a [EngineHash],
    /// Hash of the block before the first one; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// Token ids in prompt order: `hashes.len() * block_size` of them, more in a masked group, none in a placeholder.
    pub tokens: &'a [u32],
    /// Tokens per block; 0 in a placeholder.
    pub block_size: u32,
    /// Deprecated number of the adapter.
    pub lora_id: Option<i64>,
    /// Name of the adapter; `None` for the base model and for engines before 0.14.
    pub lora_name: Option<&'a str>,
    /// Storage medium as the engine spells it.
    pub medium: Option<&'a str>,
    /// Per-block keys besides the tokens.
    pub extra_keys: Option<ExtraKeys<'a>>,
    /// KV cache group.
    pub group: Option<u32>,
    /// Kind of the group's attention.
    pub kind: Option<&'a str>,
    /// Window of a sliding group, in tokens.
    pub sliding_window: Option<u32>,
    /// Tokens after each block that its hash covers too.
    pub lookahead: u32,
}

/// `BlockRemoved`.
#[derive(Clone, Copy, Debug)]
pub struct Removed<'a> {
    /// Hashes of which one copy each is gone.
    pub hashes: &'a [EngineHash],
    /// Storage medium as the engine spells it.
    pub medium: Option<&'a str>,
    /// KV cache group.
    pub group: Option<u32>,
}
