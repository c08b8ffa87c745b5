//! The cache of an engine, as vLLM's block pool has it: one queue of free blocks, cached ones among them, the longest unused first.
//!
//! ```text
//!  head ─► oldest ─► … ─► freed last ─► tail      a block is taken from the head, and forgets what it held
//!            a request's own blocks are freed last first, so that prefixes outlive what follows them
//! ```
//!
//! Blocks of answers are freed into the same queue and are never found again.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// What it holds; [`NONE`] = nothing that can be found.
    node: u32,
    /// Requests that use it.
    users: u32,
    prev: u32,
    /// In the queue the next one; of a request's own blocks the next of its list.
    next: u32,
}

/// Blocks that only one request can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Private {
    first: u32,
}

impl Private {
    /// No blocks.
    pub(crate) const NONE: Self = Self { first: NONE };
}

/// A pool of blocks.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    /// By node: its block + 1, 0 = none.
    block_of: Vec<u32>,
    blocks: Vec<Block>,
    /// Place of the queue's ends in `blocks`.
    ends: u32,
    free: u32,
}

impl BlockPool {
    pub(crate) fn new(capacity: u32, nodes: usize) -> Self {
        let blocks = (0..=capacity).map(|at| Block {
            node: NONE,
            users: 0,
            prev: at.checked_sub(1).unwrap_or(capacity),
            next: if at == capacity { 0 } else { at + 1 },
        });
        Self {
            block_of: vec![0; nodes],
            blocks: blocks.collect(),
            ends: capacity,
            free: capacity,
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.ends
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> u32 {
        self.ends - self.free
    }

    /// How many of the first blocks of a prompt it holds.
    pub(crate) fn depth(&self, chain: &[u32]) -> usize {
        chain.partition_point(|&node| self.holds(node))
    }

    pub(crate) fn holds(&self, node: u32) -> bool {
        self.block_of[node as usize] != 0
    }

    /// Whether there is room for a prompt and `private` blocks more.
    pub(crate) fn fits(&self, chain: &[u32], private: u32) -> bool {
        let held = self.depth(chain);
        let idle = chain[..held]
            .iter()
            .filter(|&&node| self.block(node).users == 0);
        let missing = (chain.len() - held) as u32 + private;
        missing + idle.count() as u32 <= self.free
    }

    /// Takes a prompt's blocks, those that are there and those that are not, and `private` blocks more. What had to go for it is told to `evicted`.
    /// There must be room.
    pub(crate) fn acquire(
        &mut self,
        chain: &[u32],
        private: u32,
        mut evicted: impl FnMut(u32),
    ) -> Private {
        let held = self.depth(chain);
        let (there, missing) = chain.split_at(held);
        for &node in there {
            let at = self.block_of[node as usize] - 1;
            if self.blocks[at as usize].users == 0 {
                self.unlink(at);
            }
            self.blocks[at as usize].users += 1;
        }
        for &node in missing {
            let at = self.take(&mut evicted);
            let block = &mut self.blocks[at as usize];
            (block.node, block.users) = (node, 1);
            self.block_of[node as usize] = at + 1;
        }
        let mut first = NONE;
        for _ in 0..private {
            let at = self.take(&mut evicted);
            self.blocks[at as usize].next = first;
            first = at;
        }
        Private { first }
    }

    /// Gives back what was acquired.
    pub(crate) fn release(&mut self, chain: &[u32], private: Private) {
        let mut at = private.first;
        while at != NONE {
            let next = self.blocks[at as usize].next;
            self.append(at);
            at = next;
        }
        for &node in chain.iter().rev() {
            let at = self.block_of[node as usize] - 1;
            let block = &mut self.blocks[at as usize];
            block.users -= 1;
            if block.users == 0 {
                self.append(at);
            }
        }
    }

    /// Uses a prompt and lets it go, as a history of prompts does. Only as much as fits is kept.
    pub(crate) fn touch(&mut self, chain: &[u32]) {
        let kept = &chain[..chain.len().min(self.ends as usize)];
        let private = self.acquire(kept, 0, |_| {});
        self.release(kept, private);
    }

    fn block(&self, node: u32) -> &Block {
        &self.blocks[self.block_of[node as usize] as usize - 1]
    }

    fn take(&mut self, evicted: &mut impl FnMut(u32)) -> u32 {
        let at = self.blocks[self.ends as usize].next;
        debug_assert_ne!(at, self.ends, "there is room");
        self.unlink(at);
        let node = std::mem::replace(&mut self.blocks[at as usize].node, NONE);
        if node != NONE {
            self.block_of[node as usize] = 0;
            evicted(node);
        }
        at
    }

    fn unlink(&mut self, at: u32) {
        let Block { prev, next, .. } = self.blocks[at as usize];
        self.blocks[prev as usize].next = next;
        self.blocks[next as usize].prev = prev;
        self.free -= 1;
    }

    fn append(&mut self, at: u32) {
        let last = self.blocks[self.ends as usize].prev;
        let block = &mut self.blocks[at as usize];
        (block.prev, block.next) = (last, self.ends);
        self.blocks[last as usize].next = at;
        self.blocks[self.ends as usize].prev = at;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// The queue, written down: every block with what it holds.
    #[derive(Default)]
    struct Model {
        queue: VecDeque<Option<u32>>,
        users: std::collections::BTreeMap<u32, u32>,
    }

    impl Model {
        fn holds(&self, node: u32) -> bool {
            self.users.contains_key(&node) || self.queue.contains(&Some(node))
        }

        fn take(&mut self, evicted: &mut Vec<u32>) {
            evicted.extend(self.queue.pop_front().unwrap());
        }

        fn acquire(&mut self, chain: &[u32], private: u32) -> Vec<u32> {
            let mut evicted = Vec::new();
            let held = chain.iter().take_while(|&&node| self.holds(node)).count();
            for &node in &chain[..held] {
                self.queue.retain(|of| *of != Some(node));
                *self.users.entry(node).or_default() += 1;
            }
            for &node in &chain[held..] {
                self.take(&mut evicted);
                self.users.insert(node, 1);
            }
            (0..private).for_each(|_| self.take(&mut evicted));
            evicted
        }

        fn release(&mut self, chain: &[u32], private: u32) {
            (0..private).for_each(|_| self.queue.push_back(None));
            for &node in chain.iter().rev() {
                let users = self.users.get_mut(&node).unwrap();
                *users -= 1;
                if *users == 0 {
                    self.users.remove(&node);
                    self.queue.push_back(Some(node));
                }
            }
        }
    }

    /// Paths in a tree of 3 children each, as numbers.
    fn path(steps: &[u32]) -> Vec<u32> {
        let place = |at: u32, step: &u32| at * 3 + step + 1;
        steps
            .iter()
            .scan(0, |at, step| {
                *at = place(*at, step);
                Some(*at)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_pool_equals_its_queue_written_down(
            calls in prop::collection::vec((prop::collection::vec(0u32..3, 0..5), 0u32..3, any::<bool>()), 1..60)
        ) {
            let mut pool = BlockPool::new(16, 400);
            let mut model = Model { queue: vec![None; 16].into(), ..Model::default() };
            let mut running: VecDeque<(Vec<u32>, u32, Private)> = VecDeque::new();
            for (steps, private, finish) in calls {
                let chain = path(&steps);
                let needed = chain.len() as u32 + private;
                let idle_room = model.queue.len() as u32;
                if pool.fits(&chain, private) {
                    let mut evicted = Vec::new();
                    let of = pool.acquire(&chain, private, |node| evicted.push(node));
                    prop_assert_eq!(evicted, model.acquire(&chain, private));
                    running.push_back((chain, private, of));
                } else {
                    prop_assert!(needed > idle_room.saturating_sub(needed));
                }
                if finish && let Some((chain, private, of)) = running.pop_front() {
                    pool.release(&chain, of);
                    model.release(&chain, private);
                }
                prop_assert_eq!(pool.used() as usize, 16 - model.queue.len());
                for node in 0..400u32 {
                    prop_assert_eq!(pool.holds(node), model.holds(node));
                    // Prefixes outlive what follows them.
                    prop_assert!(node < 4 || !pool.holds(node) || pool.holds((node - 1) / 3));
                }
            }
        }
    }

    #[test]
    fn a_history_keeps_what_was_used_last() {
        let mut pool = BlockPool::new(4, 10);
        pool.touch(&[1, 2]);
        pool.touch(&[3, 4]);
        pool.touch(&[1, 2]);
        pool.touch(&[5]);
        assert_eq!(pool.depth(&[1, 2]), 2);
        assert_eq!(pool.depth(&[3, 4]), 1);
        pool.touch(&[6, 7, 8, 9, 0]);
        assert_eq!((pool.depth(&[6, 7, 8, 9]), pool.depth(&[1])), (4, 0));
    }
}
