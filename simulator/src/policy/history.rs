//! What a router believes of caches from its own decisions alone.

use crate::block_pool::BlockPool;
use crate::simulation::Setup;
use crate::workload::Workload;

/// For each router and endpoint, the prompts sent there, the longest unused forgotten first.
#[derive(Debug)]
pub(super) struct History {
    pools: Vec<BlockPool>,
    endpoints: usize,
}

impl History {
    /// As large as the caches.
    pub(super) fn of_caches(setup: &Setup, work: &Workload) -> Self {
        Self::new(setup, work, |cache_tokens| cache_tokens)
    }

    pub(super) fn new(setup: &Setup, work: &Workload, tokens: impl Fn(u32) -> u32) -> Self {
        let caches: Vec<u32> = setup.endpoints().map(|class| class.cache_tokens).collect();
        let pools = (0..setup.replicas).flat_map(|_| {
            caches.iter().map(|&cache_tokens| {
                BlockPool::new(
                    (tokens(cache_tokens) / work.block_tokens).max(1),
                    work.nodes(),
                )
            })
        });
        Self {
            pools: pools.collect(),
            endpoints: caches.len(),
        }
    }

    pub(super) fn blocks(&self, router: u32, endpoint: usize, chain: &[u32]) -> u32 {
        self.pools[router as usize * self.endpoints + endpoint].depth(chain) as u32
    }

    pub(super) fn sent(&mut self, router: u32, endpoint: usize, chain: &[u32]) {
        self.pools[router as usize * self.endpoints + endpoint].touch(chain);
    }
}
