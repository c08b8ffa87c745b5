//! Dynamo's router with its defaults: prefill blocks that wait and would come, and distinct blocks of active requests.
//!
//! `cost = (prefill tokens in flight + uncached tokens) / block + active blocks with this request`, lowest wins; load by the router's account. Blocks of
//! answers are left out: they are a few hundredths of the prompts'.

use super::plain::scatter;
use super::{Asked, Choice, Chooser};
use crate::simulation::Setup;
use crate::workload::Workload;

#[derive(Debug)]
pub(super) struct Dynamo {
    /// By endpoint and block: active requests that use it.
    users: Vec<Vec<u16>>,
    active_blocks: Vec<u32>,
}

impl Dynamo {
    pub(super) fn new(setup: &Setup, work: &Workload) -> Self {
        let endpoints = setup.endpoints().count();
        Self {
            users: (0..endpoints).map(|_| vec![0; work.nodes()]).collect(),
            active_blocks: vec![0; endpoints],
        }
    }
}

impl Chooser for Dynamo {
    fn wants_prefixes(&self) -> bool {
        true
    }

    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let block = f64::from(asked.work.block_tokens);
        let cost = |of: usize| {
            let uncached = asked.prompt_tokens - asked.indexed[of].min(asked.prompt_tokens);
            let prefill = asked.usages[of].queued_prefill_tokens as f64 + f64::from(uncached);
            let users = &self.users[of];
            // A request that is active uses all that is before a block.
            let active = asked
                .chain
                .partition_point(|&node| users[node as usize] > 0);
            let blocks = self.active_blocks[of] + (asked.chain.len() - active) as u32;
            (
                (prefill / block + f64::from(blocks)) as u64,
                scatter(asked.seed, of),
                uncached,
            )
        };
        let best = asked.there().map(|of| (cost(of), of)).min();
        let Some(((_, _, uncached_tokens), endpoint)) = best else {
            return asked.blind(0);
        };
        let users = &mut self.users[endpoint];
        for &node in asked.chain {
            let users = &mut users[node as usize];
            self.active_blocks[endpoint] += u32::from(*users == 0);
            *users += 1;
        }
        Choice {
            endpoint,
            uncached_tokens,
        }
    }

    fn finished(&mut self, request: u32, endpoint: usize, work: &Workload) {
        let users = &mut self.users[endpoint];
        for &node in work.chain(request) {
            let users = &mut users[node as usize];
            *users -= 1;
            self.active_blocks[endpoint] -= u32::from(*users == 0);
        }
    }
}
