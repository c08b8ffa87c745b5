//! Policies that know nothing of prefixes.

use super::{Asked, Choice, Chooser};
use crate::rng::{Rng, mix};
use crate::simulation::Setup;

impl Asked<'_> {
    pub(super) fn there(&self) -> impl Iterator<Item = usize> {
        (0..self.is_there.len()).filter(|&endpoint| self.is_there[endpoint])
    }

    /// All of the prompt is to be computed.
    pub(super) fn blind(&self, endpoint: usize) -> Choice {
        Choice {
            endpoint,
            uncached_tokens: self.prompt_tokens,
        }
    }
}

/// One after the other, each router for itself.
#[derive(Debug)]
pub(super) struct RoundRobin {
    next: Vec<usize>,
}

impl RoundRobin {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            next: (0..setup.replicas as usize).collect(),
        }
    }
}

impl Chooser for RoundRobin {
    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let next = &mut self.next[asked.router as usize];
        let there: Vec<usize> = asked.there().collect();
        let endpoint = there[*next % there.len()];
        *next += 1;
        asked.blind(endpoint)
    }
}

/// Any.
#[derive(Debug)]
pub(super) struct Random;

impl Chooser for Random {
    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let there: Vec<usize> = asked.there().collect();
        let at = Rng::new(asked.seed, 0).below(there.len() as u32);
        asked.blind(there[at as usize])
    }
}

/// The fewest requests in flight, any of several.
#[derive(Debug)]
pub(super) struct LeastRequest;

impl Chooser for LeastRequest {
    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let best = asked
            .there()
            .min_by_key(|&of| (asked.usages[of].in_flight, scatter(asked.seed, of)));
        asked.blind(best.unwrap_or(0))
    }
}

/// An order of endpoints that differs from seed to seed.
pub(super) fn scatter(seed: u64, endpoint: usize) -> u64 {
    mix(seed ^ mix(endpoint as u64 + 1))
}
