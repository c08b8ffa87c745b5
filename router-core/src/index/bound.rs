//! The byte bound.

use super::slab::NONE;
use super::source::Source;
use super::{Index, SourceId};
use std::collections::BinaryHeap;

/// A clock of stored blocks, coarse enough for sixteen bits: it wraps after the index could have been filled sixteen times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    ticks: u16,
    blocks: u64,
    blocks_per_tick: u64,
}

/// Ticks in which an index of small blocks is filled.
const TICKS_PER_FILL: u64 = 4096;
/// Bytes of a small block.
const BLOCK_BYTES: u64 = 64;

impl Clock {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            ticks: 0,
            blocks: 0,
            blocks_per_tick: (max_bytes as u64 / BLOCK_BYTES / TICKS_PER_FILL).max(1),
        }
    }

    pub(super) fn now(&self) -> u16 {
        self.ticks
    }

    pub(super) fn advance(&mut self, stored: u64) {
        self.blocks += stored;
        if self.blocks >= self.blocks_per_tick {
            self.blocks = 0;
            self.ticks = self.ticks.wrapping_add(1);
        }
    }
}

impl Index {
    /// Drops the least recently stored leaves when the index is over its bound, down to 7/8 of it, so that the cost of finding them is
    /// spread over many batches.
    pub(super) fn keep_within_bound(&mut self) {
        if self.used_bytes() <= self.config.max_bytes {
            return;
        }
        let target = self.config.max_bytes / 8 * 7;
        let now = self.clock.now();
        let Self { sources, store, .. } = self;
        let mut leaves: BinaryHeap<(u16, SourceId, u32)> = BinaryHeap::new();
        for (&id, (_, source)) in sources.iter() {
            for block in source
                .ids(store)
                .filter(|&block| Source::is_leaf(block, store))
            {
                let age = now.wrapping_sub(store.blocks[block].touched());
                leaves.push((age, id, block));
            }
        }
        while self.used_bytes() > target {
            let Some((_, id, block)) = leaves.pop() else {
                break;
            };
            let Some((_, source)) = self.sources.get_mut(&id) else {
                continue;
            };
            let bytes_before = source.bytes();
            let parent = source.evict(block, &mut self.store);
            self.source_bytes = self.source_bytes + source.bytes() - bytes_before;
            self.counters.evicted_blocks += 1;
            // Ancestors that were only kept for their descendants are gone with them.
            if parent != NONE && Source::is_leaf(parent, &self.store) {
                let age = now.wrapping_sub(self.store.blocks[parent].touched());
                leaves.push((age, id, parent));
            }
        }
        for (_, source) in self.sources.values_mut() {
            let bytes_before = source.bytes();
            source.sweep(true, &mut self.store);
            self.source_bytes = self.source_bytes + source.bytes() - bytes_before;
        }
    }
}
