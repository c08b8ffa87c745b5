//! The head of a shard: who leads and how far the copy is.
//!
//! ```text
//! offset 0   4 bytes  "PWH1"
//!        4   u32      number of stale terms
//!        8   u64      term: counter in the high half, part of the leader's nonce in the low half
//!       16   u64      leader: its nonce
//!       24   u64      lease: ms until which the leader leads
//!       32   u64      epoch of the copy, 0 = none yet
//!       40   u64      version: newest delta in the ring
//!       48   u64      ring base: the ring holds every delta newer than this (as long as it has not wrapped)
//!       56   u64      1 when all items of the term can be read, else 0
//!       64   u64      ms when the leader last heard from the indexer
//!       72   u32 x 3  revisions of policy, endpoints and load within the term, 0 = none yet
//!       84   u32      0
//!       88   u64 ...  stale terms: those whose keys are not emptied yet
//! ```

use super::{read_u32, read_u64};

const MAGIC: &[u8; 4] = b"PWH1";
const FIXED_BYTES: usize = 88;

/// Most stale terms that are kept.
pub const MAX_STALE: usize = 8;

/// Number of a term; larger counters are later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub u64);

impl Term {
    /// The term after this one, led by the VM with the nonce.
    #[must_use]
    pub fn next(self, nonce: u64) -> Self {
        let counter = (self.0 >> 32).wrapping_add(1);
        Self(counter << 32 | (nonce & u64::from(u32::MAX)))
    }
}

/// Contents of `head`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Term.
    pub term: Term,
    /// Nonce of the leader.
    pub leader: u64,
    /// Time in ms until which it leads.
    pub lease_ms: u64,
    /// Epoch of the copy; 0 = none yet.
    pub epoch: u64,
    /// Version of the newest delta in the ring.
    pub version: u64,
    /// The ring holds every delta newer than this, as long as it has not wrapped.
    pub ring_base: u64,
    /// Whether all items can be read.
    pub is_complete: bool,
    /// When the leader last heard from the indexer.
    pub heard_ms: u64,
    /// Revision of the policy; 0 = none yet.
    pub policy: u32,
    /// Revision of the endpoints; 0 = none yet.
    pub endpoints: u32,
    /// Revision of the load; 0 = none yet.
    pub load: u32,
    /// Terms whose keys are not emptied yet; at most [`MAX_STALE`].
    pub stale: Vec<u64>,
}

impl Head {
    /// Bytes of the head.
    pub fn to_bytes(&self) -> Vec<u8> {
        let stale = self.stale.iter().take(MAX_STALE);
        let mut bytes = Vec::with_capacity(FIXED_BYTES + 8 * stale.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&u32::try_from(stale.len()).unwrap_or(0).to_le_bytes());
        let words = [
            self.term.0,
            self.leader,
            self.lease_ms,
            self.epoch,
            self.version,
            self.ring_base,
            u64::from(self.is_complete),
            self.heard_ms,
        ];
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let revisions = [self.policy, self.endpoints, self.load, 0];
        for word in revisions {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        stale.for_each(|term| bytes.extend_from_slice(&term.to_le_bytes()));
        bytes
    }

    /// Reads a head; `None` when the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let stale = read_u32(bytes, 4)? as usize;
        if bytes.get(..4)? != MAGIC || stale > MAX_STALE || bytes.len() != FIXED_BYTES + 8 * stale {
            return None;
        }
        Some(Self {
            term: Term(read_u64(bytes, 8)?),
            leader: read_u64(bytes, 16)?,
            lease_ms: read_u64(bytes, 24)?,
            epoch: read_u64(bytes, 32)?,
            version: read_u64(bytes, 40)?,
            ring_base: read_u64(bytes, 48)?,
            is_complete: read_u64(bytes, 56)? == 1,
            heard_ms: read_u64(bytes, 64)?,
            policy: read_u32(bytes, 72)?,
            endpoints: read_u32(bytes, 76)?,
            load: read_u32(bytes, 80)?,
            stale: (0..stale)
                .map_while(|at| read_u64(bytes, FIXED_BYTES + 8 * at))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_head() {
        let head = Head {
            term: Term((1 << 32) + 0xAB),
            leader: 0xAB,
            lease_ms: 3,
            epoch: 4,
            version: 5,
            ring_base: 6,
            is_complete: true,
            heard_ms: 7,
            policy: 8,
            endpoints: 9,
            load: 10,
            stale: vec![11],
        };
        let mut expected = b"PWH1\x01\0\0\0".to_vec();
        expected.extend([0xAB, 0, 0, 0, 1, 0, 0, 0]);
        for word in [0xAB, 3, 4, 5, 6, 1, 7] {
            expected.extend([word, 0, 0, 0, 0, 0, 0, 0]);
        }
        expected.extend([
            8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0,
        ]);
        assert_eq!(head.to_bytes(), expected);
        assert_eq!(Head::from_bytes(&expected), Some(head));
        for length in 0..expected.len() {
            assert_eq!(Head::from_bytes(&expected[..length]), None);
        }
    }

    #[test]
    fn terms_grow_and_differ_between_leaders() {
        let first = Term::default().next(0xFFFF_FFFF_0000_0001);
        assert_eq!(first, Term((1 << 32) + 1));
        assert!(first.next(0) > first);
        assert_ne!(first.next(1), first.next(2));
    }
}
