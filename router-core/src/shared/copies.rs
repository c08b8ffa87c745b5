//! What each VM of a proxy has of the shards' tables: version and checksum of its copies, for whoever holds them against the indexer's.
//!
//! ```text
//!  every VM ── copies/<id>, once a second ──► shared data ── read by the leader of a shard ──► Copies ══► indexer
//!
//! offset 0   4 bytes  "PWC1"
//!        4   u32      VM id
//!        8   u64      nonce of the VM
//!       16   u64      ms at which this was written
//!       24   for each shard, in order: u64 epoch (0: no copy), u64 version, u64 checksum, u64 rungs
//! ```
//!
//! The checksum is kept up to date with each change and costs nothing to tell. A VM that audits counts it anew from the entries and sets that
//! it has, which tells of a memory that is not what the kept sum says, and takes some 10 ns for each entry.

use super::{read_u32, read_u64};
use crate::{proto, snapshot::Snapshot};

const MAGIC: &[u8; 4] = b"PWC1";
const FIXED_BYTES: usize = 24;
const COPY_BYTES: usize = 32;

/// Time between two looks at the copies.
pub const COPIES_MS: u64 = 1_000;

/// Age at which what a VM said of its copies no longer counts: it is gone.
pub const MAX_COPIES_AGE_MS: u64 = 5_000;

/// One VM's copy of a shard's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCopy {
    /// Version line; 0 = there is no copy.
    pub epoch: u64,
    /// Version.
    pub version: u64,
    /// Checksum of table and dictionary.
    pub checksum: u64,
    /// Entries.
    pub rungs: u64,
}

impl TableCopy {
    /// What is to be said of a snapshot; `audits`: by its contents, not by the sums that are kept with them.
    pub fn of(snapshot: &Snapshot, audits: bool) -> Self {
        let checksum = if audits {
            snapshot.recounted_checksum()
        } else {
            snapshot.checksum()
        };
        Self {
            epoch: snapshot.epoch,
            version: snapshot.version,
            checksum,
            rungs: snapshot.table.len() as u64,
        }
    }
}

/// Contents of `copies/<id>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiesRecord {
    /// Number of the VM.
    pub id: u32,
    /// Its nonce.
    pub nonce: u64,
    /// When it was written.
    pub time_ms: u64,
    /// Its copy of each shard's table.
    pub copies: Vec<TableCopy>,
}

impl CopiesRecord {
    /// Bytes of the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.copies.len() * COPY_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.to_le_bytes());
        bytes.extend_from_slice(&self.time_ms.to_le_bytes());
        for copy in &self.copies {
            for number in [copy.epoch, copy.version, copy.checksum, copy.rungs] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a record; `None` when the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..4)? != MAGIC {
            return None;
        }
        let (copies, rest) = bytes.get(FIXED_BYTES..)?.as_chunks::<COPY_BYTES>();
        let copies = copies.iter().map_while(|copy| {
            Some(TableCopy {
                epoch: read_u64(copy, 0)?,
                version: read_u64(copy, 8)?,
                checksum: read_u64(copy, 16)?,
                rungs: read_u64(copy, 24)?,
            })
        });
        rest.is_empty().then_some(Self {
            id: read_u32(bytes, 4)?,
            nonce: read_u64(bytes, 8)?,
            time_ms: read_u64(bytes, 16)?,
            copies: copies.collect(),
        })
    }

    /// What the indexer of a shard is told.
    pub fn message(&self, shard: usize, now_ms: u64) -> Option<proto::VmCopy> {
        let copy = self.copies.get(shard)?;
        let age_ms = now_ms.saturating_sub(self.time_ms);
        Some(proto::VmCopy {
            vm: self.id,
            epoch: copy.epoch,
            version: copy.version,
            checksum: copy.checksum,
            rungs: copy.rungs,
            age_ms: u32::try_from(age_ms).unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_record() {
        let record = CopiesRecord {
            id: 2,
            nonce: 3,
            time_ms: 4,
            copies: vec![
                TableCopy::default(),
                TableCopy {
                    epoch: 5,
                    version: 6,
                    checksum: 7,
                    rungs: 8,
                },
            ],
        };
        let mut expected = b"PWC1\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
        expected.extend([0; 32]);
        for number in [5, 6, 7, 8u64] {
            expected.extend(number.to_le_bytes());
        }
        assert_eq!(record.to_bytes(), expected);
        assert_eq!(CopiesRecord::from_bytes(&expected), Some(record));
        for length in (0..expected.len()).filter(|length| (length + 8) % 32 != 0) {
            let cut = CopiesRecord::from_bytes(&expected[..length]);
            assert_eq!(cut, None, "{length}");
        }
    }

    #[test]
    fn an_audit_goes_by_the_contents() {
        let copy = Snapshot::empty();
        assert_eq!(TableCopy::of(&copy, true), TableCopy::of(&copy, false));
    }
}
