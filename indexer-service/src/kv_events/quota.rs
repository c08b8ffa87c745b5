//! One source's share of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{SOURCE_QUOTA, SOURCE_QUOTA_BYTES};

/// What one source may have in the queue; clones are of the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Quota(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    batches: AtomicUsize,
    bytes: AtomicUsize,
    waits: AtomicU64,
}

impl Quota {
    /// Whether another batch may be read. Only the source's reader adds to it, so what is free now stays free until it takes it.
    pub(super) fn has_room(&self) -> bool {
        self.0.batches.load(Ordering::Acquire) < SOURCE_QUOTA
            && self.0.bytes.load(Ordering::Acquire) < SOURCE_QUOTA_BYTES
    }

    /// Takes a batch's part, whatever there is of it left.
    pub(super) fn take(&self, bytes: usize) -> Share {
        self.0.batches.fetch_add(1, Ordering::AcqRel);
        self.0.bytes.fetch_add(bytes, Ordering::AcqRel);
        Share {
            used: Arc::clone(&self.0),
            bytes,
        }
    }

    /// The source begins to wait.
    pub(super) fn count_wait(&self) {
        self.0.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Times that it has.
    pub(super) fn waits(&self) -> u64 {
        self.0.waits.load(Ordering::Relaxed)
    }
}

/// A batch's part of its source's quota, given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    used: Arc<Used>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.batches.fetch_sub(1, Ordering::AcqRel);
        self.used.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_used_up_by_number_or_by_bytes_and_comes_back() {
        let quota = Quota::default();
        let mut shares: Vec<Share> = (0..SOURCE_QUOTA).map(|_| quota.take(1)).collect();
        assert!(!quota.has_room());
        shares.pop();
        assert!(quota.has_room());
        drop(shares);
        // One batch may be larger than everything.
        let large = quota.take(2 * SOURCE_QUOTA_BYTES);
        assert!(!quota.has_room());
        drop(large);
        assert!(quota.has_room());
    }
}
