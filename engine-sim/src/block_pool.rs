//! The pool of KV blocks with prefix caching, as vLLM 0.32's `BlockPool` keeps it.
//!
//! ```text
//!  blocks   [0 null][1][2][3] ... [n-1]     references, hash (when full and cached), place in the free queue
//!  free     ticket -> block                 lowest ticket = taken next: blocks that cache nothing, then LRU; none while referenced
//!  cached   hash -> [block, block, ...]     copies in the order they were stored; the first one serves hits
//! ```
//!
//! A freed block keeps its hash: it stays in `cached` *and* in `free` until it is handed out again. That is when it is evicted,
//! and each evicted copy is reported on its own.

use std::collections::{BTreeMap, HashMap};

/// Identity of a full block *including its whole prefix*, its LoRA adapter and its cache salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u64);

/// Number of a physical block in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(u32);

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    references: u32,
    hash: Option<BlockHash>,
    /// Key in the free queue; `None` while in use.
    ticket: Option<i64>,
}

/// Fixed number of blocks, some referenced by running requests, the others free (and perhaps still cached).
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    free: BTreeMap<i64, BlockId>,
    cached: HashMap<BlockHash, Vec<BlockId>>,
    copies: usize,
    first_ticket: i64,
    next_ticket: i64,
}

impl BlockPool {
    /// Makes a pool of `num_blocks`; vLLM keeps the first for itself (the null block), so one less can be allocated.
    pub fn new(num_blocks: u32) -> Self {
        let mut pool = Self {
            blocks: vec![Block::default(); num_blocks as usize],
            free: BTreeMap::new(),
            cached: HashMap::new(),
            copies: 0,
            first_ticket: 0,
            next_ticket: 0,
        };
        for number in 1..num_blocks {
            pool.enqueue(BlockId(number));
        }
        pool
    }

    /// Gives how many blocks requests may hold at most.
    pub fn capacity(&self) -> usize {
        self.blocks.len().saturating_sub(1)
    }

    /// Gives how many blocks no request references (cached or not).
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Gives how many physical blocks hold cached content, copies included.
    pub fn cached_count(&self) -> usize {
        self.copies
    }

    /// Finds the oldest cached copy of `hash`.
    pub fn lookup(&self, hash: BlockHash) -> Option<BlockId> {
        self.cached
            .get(&hash)
            .and_then(|copies| copies.first())
            .copied()
    }

    /// Tells whether no request references `id`.
    pub fn is_free(&self, id: BlockId) -> bool {
        self.block(id).ticket.is_some()
    }

    /// Adds a reference to a cached block and takes it out of the free queue.
    pub fn touch(&mut self, id: BlockId) {
        let free = &mut self.free;
        if let Some(block) = self.blocks.get_mut(id.0 as usize) {
            if let Some(ticket) = block.ticket.take() {
                free.remove(&ticket);
            }
            block.references += 1;
        }
    }

    /// Takes `count` blocks from the front of the free queue, each with one reference. What they cached is evicted and its hashes
    /// are appended to `evicted`, one per block. `None` (and nothing changes) when fewer are free.
    pub fn allocate(&mut self, count: usize, evicted: &mut Vec<BlockHash>) -> Option<Vec<BlockId>> {
        if count > self.free.len() {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let (_, id) = self.free.pop_first()?;
            if let Some(block) = self.blocks.get_mut(id.0 as usize) {
                block.ticket = None;
                block.references = 1;
                if let Some(hash) = block.hash.take() {
                    self.forget(hash, id);
                    evicted.push(hash);
                }
            }
            taken.push(id);
        }
        Some(taken)
    }

    /// Marks a referenced block as holding `hash`. A second copy of a hash is kept beside the first.
    pub fn cache(&mut self, id: BlockId, hash: BlockHash) {
        if let Some(block) = self.blocks.get_mut(id.0 as usize) {
            debug_assert!(block.hash.is_none(), "a block is cached once");
            block.hash = Some(hash);
            self.cached.entry(hash).or_default().push(id);
            self.copies += 1;
        }
    }

    /// Drops one reference from each of a request's blocks, given in prompt order. Blocks without references join the free queue from
    /// the last to the first, so that the tail of a chain is evicted before its head; those that cache nothing go to its front.
    pub fn release(&mut self, chain: &[BlockId]) {
        for &id in chain.iter().rev() {
            let Some(block) = self.blocks.get_mut(id.0 as usize) else {
                continue;
            };
            debug_assert!(
                block.references > 0,
                "a block is released once per reference"
            );
            block.references = block.references.saturating_sub(1);
            if block.references == 0 {
                self.enqueue(id);
            }
        }
    }

    /// Forgets everything cached. Answers `false` and changes nothing while requests hold blocks.
    pub fn reset(&mut self) -> bool {
        if self.free.len() != self.capacity() {
            return false;
        }
        self.cached.clear();
        self.copies = 0;
        for block in &mut self.blocks {
            block.hash = None;
        }
        true
    }

    fn block(&self, id: BlockId) -> Block {
        self.blocks.get(id.0 as usize).copied().unwrap_or_default()
    }

    fn enqueue(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(id.0 as usize) {
            let ticket = if block.hash.is_some() {
                self.next_ticket += 1;
                self.next_ticket
            } else {
                self.first_ticket -= 1;
                self.first_ticket
            };
            block.ticket = Some(ticket);
            self.free.insert(ticket, id);
        }
    }

    fn forget(&mut self, hash: BlockHash, id: BlockId) {
        if let Some(copies) = self.cached.get_mut(&hash) {
            copies.retain(|&copy| copy != id);
            self.copies -= 1;
            if copies.is_empty() {
                self.cached.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests;
