//! The list of a term's items.
//!
//! ```text
//! offset 0   4 bytes  "PWM2"
//!        4   u32      pages of sets
//!        8   u64      epoch
//!       16   u64      version: all items listed existed at it, and it is in reach of the ring
//!       24   u64      seed of the chunk hash
//!       32   u64      thinning of the table
//!       40   u64 ...  first hash of segment 0, 1, 2, ...
//! ```

use super::read_u64;
use crate::{
    hash::Seed,
    snapshot::{Snapshot, Thinning},
};

const MAGIC: &[u8; 4] = b"PWM2";
const FIXED_BYTES: usize = 40;

/// Contents of `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Pages of the set dictionary.
    pub pages: u32,
    /// Epoch of the copy.
    pub epoch: u64,
    /// Version of the copy when this was written.
    pub version: u64,
    /// Seed of the chunk hash.
    pub seed: Seed,
    /// Rungs that the table has.
    pub thinning: Thinning,
    /// First hash of every segment, by number.
    pub first_hashes: Vec<u64>,
}

impl Meta {
    /// The list of a snapshot's items.
    pub fn of(snapshot: &Snapshot, seed: Seed) -> Self {
        Self {
            pages: u32::try_from(snapshot.sets.pages()).unwrap_or(u32::MAX),
            epoch: snapshot.epoch,
            version: snapshot.version,
            seed,
            thinning: snapshot.table.thinning(),
            first_hashes: snapshot
                .table
                .segments()
                .iter()
                .map(crate::snapshot::Segment::first_hash)
                .collect(),
        }
    }

    /// Number of the segment that covers `hash`.
    pub fn segment_of(&self, hash: u64) -> Option<usize> {
        let below = self
            .first_hashes
            .iter()
            .enumerate()
            .filter(|&(_, &first)| first <= hash);
        below
            .max_by_key(|&(_, &first)| first)
            .map(|(number, _)| number)
    }

    /// Bytes of the list.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + 8 * self.first_hashes.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.pages.to_le_bytes());
        let thinning = u64::from(self.thinning.level());
        for word in [self.epoch, self.version, self.seed.0, thinning]
            .iter()
            .chain(&self.first_hashes)
        {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a list; `None` when the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (hashes, rest) = bytes.get(FIXED_BYTES..)?.as_chunks();
        if bytes.get(..4)? != MAGIC || !rest.is_empty() {
            return None;
        }
        Some(Self {
            pages: super::read_u32(bytes, 4)?,
            epoch: read_u64(bytes, 8)?,
            version: read_u64(bytes, 16)?,
            seed: Seed(read_u64(bytes, 24)?),
            thinning: Thinning::from_level(u32::try_from(read_u64(bytes, 32)?).ok()?)?,
            first_hashes: hashes
                .iter()
                .map(|hash| u64::from_le_bytes(*hash))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_meta() {
        let meta = Meta {
            pages: 2,
            epoch: 3,
            version: 4,
            seed: Seed(5),
            thinning: Thinning::from_level(6).unwrap(),
            first_hashes: vec![0, 1 << 63, 1 << 62],
        };
        let mut expected = b"PWM2\x02\0\0\0".to_vec();
        for word in [3u64, 4, 5, 6, 0, 1 << 63, 1 << 62] {
            expected.extend(word.to_le_bytes());
        }
        assert_eq!(meta.to_bytes(), expected);
        assert_eq!(Meta::from_bytes(&expected), Some(meta.clone()));
        assert_eq!(Meta::from_bytes(&expected[..39]), None);
        assert_eq!(Meta::from_bytes(&expected[..41]), None);
        let of = |hash| meta.segment_of(hash);
        assert_eq!(
            [of(0), of((1 << 62) - 1), of(1 << 62), of(u64::MAX)],
            [Some(0), Some(0), Some(2), Some(1)]
        );
    }
}
