//! Looking into the index: what sources take, and which prefixes are shared most. Not for the request path.
//!
//! ```text
//!  SharedScan:  mark  every rung that goes on with as many holders        slices of rungs, any number between changes
//!               pick  the others, best first, at most as many as asked for
//! ```
//!
//! While a scan goes on the index may change; what comes or goes meanwhile may be missed.

use super::rungs::Rungs;
use super::slab::NONE;
use super::{Index, SourceId};
use crate::endpoint::HolderId;
use core::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Most prefixes that a scan can be asked for.
pub const MAX_SHARED: usize = 1_000;
/// Longest chain of rungs that is walked; there are fewer rungs in any prompt.
const MAX_CHAIN: usize = 1_024;

/// What one source takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Blocks that it holds in any tier.
    pub blocks: usize,
    /// Bytes of what only this source uses, about; rungs are shared by all.
    pub bytes: usize,
    /// Blocks dropped to stay within the byte bound.
    pub is_partial: bool,
}

/// A prefix that several holders hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Chunk hash at its deepest rung.
    pub hash: u64,
    /// Tokens up to there.
    pub tokens: u32,
    /// Rungs up to there; 0 where some are no longer known.
    pub rungs: u32,
    /// Holders, ascending.
    pub holders: Vec<HolderId>,
}

/// A search for the prefixes that are worth most: holders times tokens.
#[derive(Debug)]
pub struct SharedScan {
    limit: usize,
    min_holders: usize,
    /// Bit per rung: a deeper one has as many holders.
    extended: Vec<u64>,
    next: u32,
    is_marking: bool,
    best: BinaryHeap<Reverse<(u64, u32)>>,
}

impl SharedScan {
    /// A search for the `limit` best prefixes with at least `min_holders` holders.
    pub fn new(limit: usize, min_holders: usize) -> Self {
        Self {
            limit: limit.min(MAX_SHARED),
            min_holders: min_holders.max(1),
            extended: Vec::new(),
            next: 0,
            is_marking: true,
            best: BinaryHeap::new(),
        }
    }

    fn mark(&mut self, rung: u32) {
        let word = rung as usize / 64;
        if self.extended.len() <= word {
            self.extended.resize(word + 1, 0);
        }
        if let Some(word) = self.extended.get_mut(word) {
            *word |= 1 << (rung % 64);
        }
    }

    fn is_marked(&self, rung: u32) -> bool {
        let word = self.extended.get(rung as usize / 64);
        word.is_some_and(|word| word >> (rung % 64) & 1 == 1)
    }

    /// Looks at up to `rungs` rungs; whether the search is over.
    fn advance(&mut self, table: &Rungs, rungs: u32) -> bool {
        let end = table.end();
        let stop = self.next.saturating_add(rungs).min(end);
        for rung in self.next..stop {
            let holders = table.holder_count(rung);
            if holders < self.min_holders {
                continue;
            }
            if self.is_marking {
                let above = table.above(rung);
                if above != NONE && table.holder_count(above) <= holders {
                    self.mark(above);
                }
            } else if !self.is_marked(rung)
                && let Some(tokens) = table.token_depth(rung)
            {
                let worth = holders as u64 * u64::from(tokens);
                self.best.push(Reverse((worth, rung)));
                if self.best.len() > self.limit {
                    self.best.pop();
                }
            }
        }
        self.next = stop;
        if stop < end {
            return false;
        }
        self.next = 0;
        !core::mem::replace(&mut self.is_marking, false)
    }
}

impl Index {
    /// What a source takes; `None` when it is not known.
    pub fn source_stats(&self, id: SourceId) -> Option<SourceStats> {
        let (_, source) = self.sources.get(&id)?;
        Some(SourceStats {
            blocks: source.len(),
            bytes: source.bytes(),
            is_partial: source.is_partial,
        })
    }

    /// Tokens up to the deepest rung of a prompt (hashes, shallowest first) that live blocks of one of the holders cover: what events say,
    /// without expectations. Costs a lookup for each rung below that one.
    pub fn covered_tokens(&self, holders: &[HolderId], rungs: &[u64]) -> u32 {
        let table = &self.store.rungs;
        let mut deepest = rungs.iter().rev().filter_map(|&hash| {
            let rung = table.find(hash)?;
            let is_covered = holders.iter().any(|&holder| table.is_covered(rung, holder));
            is_covered.then(|| table.token_depth(rung)).flatten()
        });
        deepest.next().unwrap_or(0)
    }

    /// Goes on with a search by up to `rungs` rungs; whether it is over.
    pub fn scan_shared(&self, scan: &mut SharedScan, rungs: u32) -> bool {
        scan.advance(&self.store.rungs, rungs)
    }

    /// What a search has found, best first.
    pub fn shared(&self, scan: &SharedScan) -> Vec<SharedPrefix> {
        let table = &self.store.rungs;
        let mut best: Vec<(u64, u32)> = scan.best.iter().map(|entry| entry.0).collect();
        best.sort_unstable_by_key(|&(worth, rung)| (Reverse(worth), rung));
        // Another rung may have taken a place since.
        let mut seen = BTreeSet::new();
        best.into_iter()
            .filter_map(|(_, rung)| {
                let state = table.publishable(rung)?;
                let is_new = seen.insert(state.hash);
                (is_new && state.holders.len() >= scan.min_holders).then(|| SharedPrefix {
                    hash: state.hash,
                    tokens: state.token_depth,
                    rungs: table.chain(rung),
                    holders: state.holders,
                })
            })
            .collect()
    }
}

impl Rungs {
    /// Rungs from the first of a text down to this one; 0 where the way up is not known.
    fn chain(&self, rung: u32) -> u32 {
        let way = core::iter::successors(Some(rung), |&rung| {
            Some(self.above(rung)).filter(|&above| above != NONE)
        });
        let length = way.take(MAX_CHAIN + 1).count();
        match length {
            0..=MAX_CHAIN => u32::try_from(length).unwrap_or(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Seed;
    use crate::index::{Decided, IndexConfig};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn decide(index: &mut Index, holder: u32, rungs: &[u64]) {
        let decided = Decided {
            holder: HolderId(holder),
            space: crate::hash::Space::Text,
            rungs,
            prompt_tokens: 16 * u32::try_from(rungs.len()).unwrap(),
            prompt_bytes: 64 * rungs.len() as u64,
        };
        index.remember(&decided, u64::MAX);
    }

    fn index() -> Index {
        Index::new(IndexConfig {
            seed: Seed(1),
            max_bytes: usize::MAX,
        })
    }

    /// Scans in slices, and counts them.
    fn scan(index: &Index, limit: usize, min_holders: usize, slice: u32) -> Vec<SharedPrefix> {
        let mut scan = SharedScan::new(limit, min_holders);
        while !index.scan_shared(&mut scan, slice) {}
        index.shared(&scan)
    }

    #[test]
    fn of_a_prefix_that_many_share_only_its_end_is_told() {
        let mut index = index();
        // Three share three rungs, two of them five; one goes on alone.
        for holder in 0..3 {
            decide(&mut index, holder, &[1, 2, 3]);
        }
        for holder in 0..2 {
            decide(&mut index, holder, &[1, 2, 3, 4, 5]);
        }
        decide(&mut index, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let found = scan(&index, 10, 2, 3);
        let of = |prefix: &SharedPrefix| {
            (
                prefix.hash,
                prefix.tokens,
                prefix.rungs,
                prefix.holders.len(),
            )
        };
        assert_eq!(
            found.iter().map(of).collect::<Vec<_>>(),
            [(5, 80, 5, 2), (3, 48, 3, 3)]
        );
        assert_eq!(scan(&index, 1, 2, 100).len(), 1);
        assert_eq!(scan(&index, 10, 3, 1).len(), 1);
        assert_eq!(scan(&index, 10, 1, 100)[0].hash, 5);
        assert!(scan(&index, 10, 4, 100).is_empty());
    }

    proptest! {
        #[test]
        fn slices_find_what_sorting_all_finds(
            prompts in prop::collection::vec((0u32..5, 0u64..4, 1u64..30), 1..30),
            slice in 1u32..20,
        ) {
            let mut index = index();
            let name = |way: u64, at: u64| if at < 10 { 1 + at } else { 100 * (way + 1) + at };
            let mut holders: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
            let mut above: BTreeMap<u64, u64> = BTreeMap::new();
            for &(holder, way, length) in &prompts {
                let rungs: Vec<u64> = (0..length).map(|at| name(way, at)).collect();
                decide(&mut index, holder, &rungs);
                for pair in rungs.windows(2) {
                    above.insert(pair[1], pair[0]);
                }
                for rung in rungs {
                    holders.entry(rung).or_default().insert(holder);
                }
            }
            let count = |rung: u64| holders[&rung].len();
            let extended: BTreeSet<u64> = above.iter()
                .filter(|&(&rung, &above)| count(rung) >= 2 && count(above) <= count(rung))
                .map(|(_, &above)| above)
                .collect();
            let expected: BTreeSet<u64> = holders.keys().copied()
                .filter(|&rung| count(rung) >= 2 && !extended.contains(&rung))
                .collect();
            let found = scan(&index, MAX_SHARED, 2, slice);
            let hashes: BTreeSet<u64> = found.iter().map(|prefix| prefix.hash).collect();
            prop_assert_eq!(hashes, expected);
            for pair in found.windows(2) {
                let worth = |prefix: &SharedPrefix| prefix.holders.len() * prefix.tokens as usize;
                prop_assert!(worth(&pair[0]) >= worth(&pair[1]));
            }
        }
    }
}
