//! A trace as one seed makes it: arrivals spread, blocks cut to the engines' size and interned.
//!
//! ```text
//!  trace block (512 tokens)         A = [a0 a1 a2 a3 a4 a5 a6 a7]      first child of its parent
//!  its sibling, which differs       B = [a0 a1 a2 b3 b4 b5 b6 b7]      diverges after a random number of sub-blocks
//!  a prompt = a path of numbers     chains[start..end]; the last one may be cut, only full sub-blocks count
//! ```
//!
//! Equal numbers at equal depth mean equal prefixes, so what two prompts have in common is found by bisection. Requests of one quantised timestamp
//! are spread over the time until the next one: evenly, each at a random point of its share.

use hashbrown::HashMap;

use crate::rng::Rng;
use crate::trace::Trace;

/// A request as it will arrive.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Microseconds since the start, at load 1.
    pub at_us: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer, at least 1.
    pub output_tokens: u32,
    start: u32,
    end: u32,
}

/// Requests of one trace under one seed.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Seed that made it.
    pub seed: u64,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// In the order of their times.
    pub arrivals: Vec<Arrival>,
    chains: Vec<u32>,
    nodes: u32,
}

impl Workload {
    /// Spreads and expands a trace. `block_tokens` is rounded to what divides the trace's blocks: at most those.
    pub fn new(trace: &Trace, block_tokens: u32, seed: u64) -> Self {
        let per_block = (trace.block_tokens / block_tokens.max(1)).max(1);
        let block_tokens = (trace.block_tokens / per_block).max(1);
        let mut interner = Interner::new(per_block, seed);
        let mut workload = Self {
            seed,
            block_tokens,
            arrivals: Vec::with_capacity(trace.requests.len()),
            chains: Vec::new(),
            nodes: 0,
        };
        for (request, at_us) in trace.requests.iter().zip(spread(trace, seed)) {
            let start = workload.chains.len();
            let blocks = trace.ids.get(request.ids.clone()).unwrap_or_default();
            interner.expand(blocks, &mut workload.chains);
            let full = (request.prompt_tokens / block_tokens) as usize;
            workload.chains.truncate(start + full);
            workload.arrivals.push(Arrival {
                at_us,
                prompt_tokens: request.prompt_tokens,
                output_tokens: request.output_tokens.max(1),
                start: start as u32,
                end: workload.chains.len() as u32,
            });
        }
        workload.nodes = interner.next;
        workload
    }

    /// Blocks of a request, first to last.
    pub fn chain(&self, request: u32) -> &[u32] {
        let of = &self.arrivals[request as usize];
        &self.chains[of.start as usize..of.end as usize]
    }

    /// Place of a request's blocks among all.
    pub(crate) fn chain_start(&self, request: u32) -> u32 {
        self.arrivals[request as usize].start
    }

    /// Blocks of a stretch of all chains.
    pub(crate) fn blocks(&self, from: u32, to: u32) -> &[u32] {
        &self.chains[from as usize..to as usize]
    }

    /// Distinct blocks, and room for those that siblings share.
    pub fn nodes(&self) -> usize {
        self.nodes as usize
    }
}

/// Blocks that two prompts have in common.
pub fn shared_blocks(one: &[u32], other: &[u32]) -> usize {
    let (mut low, mut high) = (0, one.len().min(other.len()));
    while low < high {
        let middle = low.midpoint(high);
        if one[middle] == other[middle] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Times of the requests.
fn spread(trace: &Trace, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed, 0x5713);
    let times: Vec<u64> = trace.requests.iter().map(|request| request.at_us).collect();
    let mut spread = Vec::with_capacity(times.len());
    let mut gap_us = 0;
    for group in times.chunk_by(|one, other| one == other) {
        let at_us = group.first().copied().unwrap_or(0);
        let next = times.get(spread.len() + group.len());
        gap_us = next.map_or(gap_us, |next| next - at_us);
        let share = gap_us as f64 / group.len() as f64;
        for place in 0..group.len() {
            let offset = if group.len() == 1 {
                0.0
            } else {
                (place as f64 + rng.unit()) * share
            };
            spread.push(at_us + offset as u64);
        }
    }
    spread
}

/// Numbers for blocks.
struct Interner {
    per_block: u32,
    rng: Rng,
    next: u32,
    /// By parent and id: the first own number, and how many sub-blocks are the first sibling's.
    known: HashMap<(u32, u64), (u32, u32)>,
    /// First child of a parent.
    eldest: HashMap<u32, u32>,
}

impl Interner {
    fn new(per_block: u32, seed: u64) -> Self {
        Self {
            per_block,
            rng: Rng::new(seed, 0xD1FF),
            next: 0,
            known: HashMap::new(),
            eldest: HashMap::new(),
        }
    }

    fn expand(&mut self, blocks: &[u64], chains: &mut Vec<u32>) {
        let mut parent = u32::MAX;
        for &id in blocks {
            let (base, shared) = match self.known.get(&(parent, id)) {
                Some(&known) => known,
                None => self.intern(parent, id),
            };
            let eldest = self.eldest.get(&parent).copied().unwrap_or(base);
            chains.extend(
                (0..self.per_block).map(|at| if at < shared { eldest + at } else { base + at }),
            );
            parent = base;
        }
    }

    fn intern(&mut self, parent: u32, id: u64) -> (u32, u32) {
        let base = self.next;
        self.next += self.per_block;
        let shared = if self.eldest.contains_key(&parent) {
            self.rng.below(self.per_block)
        } else {
            self.eldest.insert(parent, base);
            0
        };
        self.known.insert((parent, id), (base, shared));
        (base, shared)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trace(lines: &[(u64, u32, &[u64])]) -> Trace {
        let text: Vec<String> = lines
            .iter()
            .map(|(at, tokens, ids)| {
                format!(r#"{{"timestamp": {at}, "input_length": {tokens}, "output_length": 1, "hash_ids": {ids:?}}}"#)
            })
            .collect();
        Trace::from_text("t", &text.join("\n")).unwrap()
    }

    #[test]
    fn siblings_share_less_than_a_block_and_equal_ids_all_of_it() {
        let trace = trace(&[
            (0, 1_300, &[1, 2, 3]),
            (1, 1_300, &[1, 2, 4]),
            (2, 1_024, &[1, 2]),
            (3, 700, &[9, 2]),
        ]);
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let work = Workload::new(&trace, 64, seed);
            assert_eq!(work.chain(0).len(), 20);
            assert_eq!(shared_blocks(work.chain(0), work.chain(2)), 16);
            let shared = shared_blocks(work.chain(0), work.chain(1));
            assert!((16..20).contains(&shared) || shared == 20, "{shared}");
            let roots = shared_blocks(work.chain(0), work.chain(3));
            assert!(roots < 8, "{roots}");
            lengths.insert(roots);
        }
        assert_eq!(lengths.len(), 8);
    }

    #[test]
    fn a_batch_is_spread_until_the_next_one() {
        let trace = trace(&[
            (0, 10, &[1]),
            (0, 10, &[2]),
            (0, 10, &[3]),
            (3_000, 10, &[4]),
            (3_000, 10, &[5]),
        ]);
        for seed in 0..32 {
            let work = Workload::new(&trace, 64, seed);
            let times: Vec<u64> = work.arrivals.iter().map(|of| of.at_us).collect();
            assert!(times.is_sorted(), "{times:?}");
            for (place, at_us) in (0u64..).zip(&times[..3]) {
                assert_eq!(at_us / 1_000_000, place);
            }
            assert!(times[3] >= 3_000_000 && times[4] < 6_000_000);
        }
    }

    proptest! {
        #[test]
        fn bisection_equals_counting(ids in prop::collection::vec(prop::collection::vec(0u64..3, 1..6), 2..6), seed in 0u64..9) {
            let lines: Vec<(u64, u32, &[u64])> = ids.iter().map(|ids| (0, ids.len() as u32 * 512, &ids[..])).collect();
            let work = Workload::new(&trace(&lines), 64, seed);
            for one in 0..ids.len() as u32 {
                for other in 0..ids.len() as u32 {
                    let (a, b) = (work.chain(one), work.chain(other));
                    let counted = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                    prop_assert_eq!(shared_blocks(a, b), counted);
                    // Equal numbers nowhere else: a path never meets another again.
                    prop_assert!(a.iter().zip(b).skip(counted).all(|(a, b)| a != b));
                }
            }
        }
    }
}
