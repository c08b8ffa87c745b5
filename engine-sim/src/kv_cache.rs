//! Gives blocks to sequences and tells what changed, as vLLM 0.32's `KVCacheManager` does for one full-attention group.

use crate::block_pool::{BlockHash, BlockId, BlockPool};
use crate::events::{BlockStored, KvEvent};
use crate::sequence::Sequence;

/// Block pool plus the events of the current step.
#[derive(Debug)]
pub(crate) struct KvCache {
    pool: BlockPool,
    block_size: usize,
    events: Vec<KvEvent>,
}

impl KvCache {
    pub(crate) fn new(num_blocks: u32, block_size: usize) -> Self {
        Self {
            pool: BlockPool::new(num_blocks),
            block_size,
            events: Vec::new(),
        }
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Finds the longest run of cached blocks at the start of `sequence`. The last token is always left to compute, so a hit covers at most
    /// `floor((P - 1) / block_size)` blocks.
    pub(crate) fn find_hit(&self, sequence: &Sequence) -> Vec<BlockId> {
        let most = sequence.tokens.len().saturating_sub(1) / self.block_size;
        sequence
            .hashes
            .iter()
            .take(most)
            .map_while(|&hash| self.pool.lookup(hash))
            .collect()
    }

    /// Makes room for `new_tokens` more tokens after `hit` (empty except at admission), and caches every block they fill. `false` (and
    /// nothing changes) when the pool lacks blocks.
    pub(crate) fn allocate(
        &mut self,
        sequence: &mut Sequence,
        hit: &[BlockId],
        new_tokens: usize,
    ) -> bool {
        let computed = sequence.computed + hit.len() * self.block_size;
        let target = computed + new_tokens;
        let missing = target
            .div_ceil(self.block_size)
            .saturating_sub(sequence.blocks.len() + hit.len());
        let reclaimed = hit.iter().filter(|&&id| self.pool.is_free(id)).count();
        if missing + reclaimed > self.pool.free_count() {
            return false;
        }
        for &id in hit {
            self.pool.touch(id);
        }
        let mut evicted = Vec::new();
        let fresh = self
            .pool
            .allocate(missing, &mut evicted)
            .unwrap_or_default();
        self.events
            .extend(evicted.into_iter().map(KvEvent::Removed));
        if !hit.is_empty() && sequence.request.reports_reused && sequence.hit_tokens.is_none() {
            self.announce(sequence, 0, hit.len());
        }
        sequence.blocks.extend_from_slice(hit);
        sequence.cached_blocks += hit.len();
        sequence.computed = computed;
        sequence.blocks.extend(fresh);
        self.cache_full_blocks(
            sequence,
            target.min(sequence.tokens.len()) / self.block_size,
        );
        true
    }

    /// Takes all blocks back from `sequence`; what they cached stays until evicted.
    pub(crate) fn release(&mut self, sequence: &mut Sequence) {
        self.pool.release(&sequence.blocks);
        sequence.blocks.clear();
        sequence.cached_blocks = 0;
        sequence.computed = 0;
    }

    /// Drops the whole cache; `false` while blocks are held. The event leaves with the next step's batch.
    pub(crate) fn reset(&mut self) -> bool {
        let done = self.pool.reset();
        if done {
            self.events.push(KvEvent::Cleared);
        }
        done
    }

    /// Takes the events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.events)
    }

    fn cache_full_blocks(&mut self, sequence: &mut Sequence, full: usize) {
        let from = sequence.cached_blocks;
        if from >= full {
            return;
        }
        let pairs: Vec<(BlockId, BlockHash)> = sequence
            .blocks
            .iter()
            .copied()
            .zip(sequence.hashes.iter().copied())
            .take(full)
            .skip(from)
            .collect();
        for (id, hash) in pairs {
            self.pool.cache(id, hash);
        }
        self.announce(sequence, from, full);
        sequence.cached_blocks = full;
    }

    /// Reports the blocks `from..to` of a sequence as stored.
    fn announce(&mut self, sequence: &Sequence, from: usize, to: usize) {
        let request = &sequence.request;
        let slice = |step: usize| from * step..to * step;
        self.events.push(KvEvent::Stored(BlockStored {
            hashes: sequence.hashes.get(slice(1)).unwrap_or_default().to_vec(),
            parent: from
                .checked_sub(1)
                .and_then(|before| sequence.hashes.get(before))
                .copied(),
            tokens: sequence
                .tokens
                .get(slice(self.block_size))
                .unwrap_or_default()
                .to_vec(),
            block_size: u32::try_from(self.block_size).unwrap_or(u32::MAX),
            lora: request.scope.lora.clone(),
            extra_keys: (from..to)
                .map(|position| request.scope.extra_keys(position))
                .collect(),
            session_id: request.session_id.clone(),
        }));
    }
}
