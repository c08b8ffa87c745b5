//! KV events: what an engine tells about its cache, and how it is sent.

pub mod encode;
pub mod publisher;
pub mod replay;

use crate::block_pool::BlockHash;

/// A LoRA adapter as events name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lora {
    /// Number of the adapter, from 1 in the order of the configuration.
    pub id: u32,
    /// Name under which it is served.
    pub name: String,
}

/// One change of the cache.
#[derive(Debug, Clone, PartialEq)]
pub enum KvEvent {
    /// Full blocks became reusable.
    Stored(BlockStored),
    /// One physical block was evicted.
    Removed(BlockHash),
    /// Everything was dropped.
    Cleared,
}

/// A run of consecutive full blocks of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockStored {
    /// Hashes in prompt order.
    pub hashes: Vec<BlockHash>,
    /// Hash of the block before the first one; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// Token ids, `block_size` per hash.
    pub tokens: Vec<u32>,
    /// Tokens per block.
    pub block_size: u32,
    /// Adapter the blocks were computed with.
    pub lora: Option<Lora>,
    /// Per block, what its hash covers besides tokens: adapter name, then (first block only) the cache salt.
    pub extra_keys: Vec<Option<Vec<String>>>,
    /// Session of the request, where it named one.
    pub session_id: Option<String>,
}

/// Events of one engine step, in the order in which they happened.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    /// Seconds since the Unix epoch.
    pub timestamp_s: f64,
    /// At least one event.
    pub events: Vec<KvEvent>,
    /// Data-parallel rank.
    pub rank: u32,
}
