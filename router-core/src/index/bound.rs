//! The byte bound.

use super::arena::NONE;
use super::{Index, SourceId};
use std::collections::BinaryHeap;

impl Index {
    /// Drops the least recently stored leaves when the index is over its bound, down to 7/8 of it, so that the cost of finding them is
    /// spread over many batches.
    pub(super) fn keep_within_bound(&mut self) {
        if self.used_bytes() <= self.config.max_bytes {
            return;
        }
        let target = self.config.max_bytes / 8 * 7;
        let clock = self.clock;
        let age = |touched: u32| clock.wrapping_sub(touched);
        let mut leaves: BinaryHeap<(u32, SourceId, u32)> = BinaryHeap::new();
        for (&id, (_, source)) in &self.sources {
            for entry in source.ids().filter(|&entry| source.is_leaf(entry)) {
                leaves.push((age(source.entry(entry).touched), id, entry));
            }
        }
        while self.used_bytes() > target {
            let Some((_, id, entry)) = leaves.pop() else {
                return;
            };
            let Some((_, source)) = self.sources.get_mut(&id) else {
                continue;
            };
            let bytes_before = source.bytes();
            let parent = source.evict(entry, &mut self.forest);
            self.source_bytes = self.source_bytes + source.bytes() - bytes_before;
            self.counters.evicted_blocks += 1;
            // An ancestor that was only kept for its descendants is gone with them.
            if parent != NONE && source.is_known(parent) && source.is_leaf(parent) {
                leaves.push((age(source.entry(parent).touched), id, parent));
            }
        }
    }
}
