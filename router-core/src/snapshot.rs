//! The published view of the index: table of rungs, holder sets, endpoints.
//!
//! ```text
//!  index ─► Changes ─► Publisher ══ Down messages ══► Replica ─► Snapshot (Table + Sets) ─► probe
//! ```
//!
//! Integrity: a checksum that is the wrapping sum of a hash over the logical entries, so it covers neither order nor layout. Entries
//! are summed with their set *ids* and the dictionary is summed apart: each side can then be brought up to date by itself, and
//! together they fix which holders every rung has.

pub mod endpoints;
pub mod entry;
pub mod probe;
pub mod publisher;
pub mod replica;
pub mod segment;
pub mod sets;
pub mod table;
pub mod thinning;

pub use endpoints::{EndpointInfo, EndpointKey, Endpoints, Role};
pub use entry::{Entry, SetId};
pub use probe::{Credit, Match, PromptHashes, Rung, matched};
pub use publisher::{PublishError, Publisher, PublisherConfig, Start};
pub use replica::{Replica, ReplicaError, Snapshot, Update};
pub use segment::{Segment, SegmentError};
pub use sets::{MAX_HOLDERS, Sets, SetsError};
pub use table::{Table, TableError};
pub use thinning::Thinning;

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "small numbers of the tests"
)]
mod tests;
