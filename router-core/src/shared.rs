//! One copy of the snapshot per proxy, in the host's shared data.
//!
//! ```text
//!  pw/1/<scope>/vm-counter        u64: VM ids given out                     CAS
//!               vms               VMs that exist                            CAS
//!               vm/<id>           record of a VM                            written by that VM only
//!               copies/<id>       version and checksum of its copies         written by that VM only
//!               <shard>/head      term, leader, lease, epoch, version ...   CAS, the only key that terms share
//!               <shard>/<term>/meta, policy, endpoints, load
//!                              seg/<i>    images of the table's segments, each with its version
//!                              sets/<j>   pages of the set dictionary, each with its version
//!                              delta/<n>  ring of the newest deltas, n = version % RING_DELTAS
//! ```
//!
//! **Terms.** A VM leads while its term is in `head` and the lease runs; whoever finds the lease expired takes the next term by CAS. A leader
//! looks at `head` before it writes and writes `head` by CAS, so a stalled leader that wakes up touches only keys of its own dead term,
//! which nobody reads, and which it and its successor empty. Term numbers hold part of the leader's nonce, so two VMs never share one.
//!
//! **Items.** Segments and pages are items with a version of their own. An item at version v brought forward by the deltas v+1..n is the item
//! at version n, whatever the others are at. So a reader takes items one by one, a few per tick, and then applies the ring's
//! deltas to those that lack them. The leader publishes the oldest items again before the ring would wrap over a delta they lack.
//!
//! Values are little endian and start with four letters that say what they are; `delta/<n>` is a `Delta` message, and `policy`, `endpoints` and `load`
//! are a u64 (epoch; for `load` the ms it was received) and the message.

pub mod copies;
pub mod head;
mod items;
pub mod keys;
pub mod leader;
pub mod loading;
pub mod member;
pub mod meta;
pub mod reader;
pub mod record;
pub mod registry;
pub mod sweeper;
pub mod upstream;

pub use head::Head;
pub use keys::{Keys, ShardKeys};
pub use leader::Leader;
pub use member::{Action, Member, MemberConfig};
pub use meta::Meta;
pub use reader::Reader;
pub use record::{Message, VmRecord};
pub use registry::VmRegistry;

use crate::{hash::Seed, proto, snapshot::Endpoints};

/// Deltas kept in the ring. Few in this crate's own tests, so that it wraps often.
pub const RING_DELTAS: u64 = if cfg!(test) { 24 } else { 256 };

/// Most items that are read or written in one tick. Few in this crate's own tests, so that it takes many ticks.
pub const MAX_ITEMS_PER_TICK: usize = if cfg!(test) { 3 } else { 8 };

/// Most deltas that are read or written in one tick.
pub const MAX_DELTAS_PER_TICK: usize = 64;

/// Life of a leader's lease.
pub const LEASE_MS: u64 = 1_500;

/// Age at which a leader renews its lease though nothing changed.
pub const RENEW_MS: u64 = 250;

/// A value and its CAS number.
pub type Value = (Vec<u8>, Option<u32>);

/// Why shared data could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// The value is no longer the one that was read.
    #[error("value changed since it was read")]
    CasMismatch,
    /// The host refused.
    #[error("host status {status}")]
    Host {
        /// Its status code.
        status: u32,
    },
}

/// The host's shared data: a map of keys to values that all VMs of a proxy see.
pub trait SharedData {
    /// The value of a key; `None` when there is none or it is empty.
    ///
    /// # Errors
    /// When the host fails.
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError>;

    /// Sets a value; an empty one frees it. With `cas`, only when the value is still the one that was read with that number.
    ///
    /// # Errors
    /// [`SharedError::CasMismatch`], or when the host fails.
    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError>;
}

/// What a VM knows of a shard besides the table.
#[derive(Clone, Debug, Default)]
pub struct ShardInfo {
    /// Endpoints, when there were any.
    pub endpoints: Endpoints,
    /// The message they were read from.
    pub endpoints_message: Option<proto::Endpoints>,
    /// Epoch of the endpoints: with a snapshot of another epoch holder ids mean something else.
    pub endpoints_epoch: u64,
    /// Policy, when there was one.
    pub policy: Option<proto::Policy>,
    /// Load and the time in ms it was received.
    pub load: Option<(u64, proto::Load)>,
    /// Hash seed of the snapshot.
    pub seed: Option<Seed>,
    /// When the leader last heard from the indexer; 0 = never.
    pub heard_ms: u64,
}

impl ShardInfo {
    fn set_endpoints(&mut self, epoch: u64, message: proto::Endpoints) {
        self.endpoints = Endpoints::from_message(&message);
        self.endpoints_message = Some(message);
        self.endpoints_epoch = epoch;
    }
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "small numbers of the tests"
)]
pub(crate) mod tests;
