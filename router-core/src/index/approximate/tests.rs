//! Against a list that is sorted anew whenever something is dropped.

use super::*;
use crate::hash::Seed;
use crate::index::{IndexConfig, ModelId};
use crate::rung::rung_count;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const HOLDERS: [HolderId; 2] = [HolderId(0), HolderId(3)];

fn index(max_bytes: usize) -> Index {
    let mut index = Index::new(IndexConfig {
        seed: Seed(1),
        max_bytes,
    });
    for (id, holder) in (0..).zip(HOLDERS) {
        let holders = [0, 1, 2].map(|tier| HolderId(holder.0 + tier));
        index.add_source(SourceId(id), ModelId(0), holders);
    }
    index
}

/// Rungs of a prompt in a small tree: one of two beginnings, then one of four ways on.
fn hashes(way: u64, count: usize) -> Vec<u64> {
    let name = |at: usize| match at {
        0..8 => way % 2,
        8..40 => way % 4,
        _ => way,
    };
    (0..count)
        .map(|at| 1 + at as u64 + 1_000 * (name(at) + 1))
        .collect()
}

/// As many bytes as it has chunks up to that rung, and some more.
fn bytes(count: usize) -> u64 {
    let chunks = rungs(Space::Text, u32::MAX)
        .nth(count.saturating_sub(1))
        .unwrap_or(0);
    u64::from(chunks) * 64 + 17
}

#[derive(Clone, Debug)]
struct Item {
    tokens: u32,
    depth: u32,
    place: usize,
    first: usize,
    last: usize,
}

#[derive(Debug, Default)]
struct Oracle {
    items: BTreeMap<u64, Item>,
    capacity: u64,
}

fn share(prompt_tokens: u32, prompt_bytes: u64, place: usize) -> u32 {
    let chunks = rungs(Space::Text, u32::MAX).nth(place).unwrap();
    let share = u64::from(prompt_tokens) * u64::from(chunks) * 64 / prompt_bytes;
    u32::try_from(share).unwrap()
}

impl Oracle {
    fn decide(&mut self, number: usize, hashes: &[u64], prompt_tokens: u32) {
        let bytes = bytes(hashes.len());
        for (place, &hash) in hashes.iter().enumerate() {
            let depth = share(prompt_tokens, bytes, place);
            let above = place
                .checked_sub(1)
                .map_or(0, |above| share(prompt_tokens, bytes, above));
            let item = self.items.entry(hash).or_insert(Item {
                tokens: depth - above,
                depth,
                place,
                first: number,
                last: number,
            });
            item.last = number;
        }
        self.fit();
    }

    fn fit(&mut self) {
        while self
            .items
            .values()
            .map(|item| u64::from(item.tokens))
            .sum::<u64>()
            > self.capacity
        {
            // Of the prompt that was sent longest ago, its end.
            let (&hash, _) = self
                .items
                .iter()
                .min_by_key(|(_, item)| (item.last, std::cmp::Reverse(item.place)))
                .unwrap();
            self.items.remove(&hash);
        }
    }

    /// `hashes` end with the deepest one that fitted.
    fn cancel(&mut self, number: usize, hashes: &[u64]) {
        for hash in hashes.iter().rev() {
            match self.items.get(hash) {
                Some(item) if item.first == number && item.last == number => {
                    self.items.remove(hash);
                }
                _ => return,
            }
        }
    }

    /// `hashes` end with the deepest one that fitted.
    fn correct(&mut self, number: usize, hashes: &[u64], tokens: u32, bytes: u64) {
        for (place, hash) in hashes.iter().enumerate().rev() {
            let Some(item) = self.items.get_mut(hash) else {
                break;
            };
            if item.first != number {
                break;
            }
            let above = place.checked_sub(1);
            item.depth = share(tokens, bytes, place);
            item.tokens = item.depth - above.map_or(0, |above| share(tokens, bytes, above));
        }
        self.fit();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Decide {
        holder: usize,
        way: u64,
        rungs: usize,
        tokens: u32,
    },
    Cancel(usize),
    Correct(usize, u32),
    Resize(usize, u64),
    Forget(usize),
    Reset(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0usize..2, 0u64..8, 1usize..90, 1u32..3_000)
            .prop_map(|(holder, way, rungs, tokens)| Step::Decide { holder, way, rungs, tokens }),
        3 => (0usize..40).prop_map(Step::Cancel),
        3 => (0usize..40, 1u32..3_000).prop_map(|(which, tokens)| Step::Correct(which, tokens)),
        1 => (0usize..2, 0u64..6_000).prop_map(|(holder, tokens)| Step::Resize(holder, tokens)),
        1 => (0usize..2).prop_map(Step::Forget),
        1 => (0usize..2).prop_map(Step::Reset),
    ]
}

/// What is published, by hash: holders and tokens.
type Published = BTreeMap<u64, (BTreeSet<HolderId>, u32)>;

fn expected(oracles: &[Oracle; 2]) -> Published {
    let mut table = Published::new();
    for (oracle, holder) in oracles.iter().zip(HOLDERS) {
        for (&hash, item) in &oracle.items {
            let (holders, depth) = table.entry(hash).or_default();
            holders.insert(holder);
            *depth = item.depth.max(*depth);
        }
    }
    table
}

proptest! {
    #[test]
    fn the_list_is_the_one_that_is_sorted_anew(steps in prop::collection::vec(step(), 1..60)) {
        let mut index = index(usize::MAX);
        let mut oracles: [Oracle; 2] = Default::default();
        let mut decisions: Vec<(usize, Vec<u64>, DecisionId, bool)> = Vec::new();
        let mut table = Published::new();
        for oracle in &mut oracles {
            oracle.capacity = 4_000;
        }
        for step in steps {
            match step {
                Step::Decide { holder, way, rungs, tokens } => {
                    let hashes = hashes(way, rungs);
                    let decided = Decided {
                        holder: HOLDERS[holder],
                        space: Space::Text,
                        rungs: &hashes,
                        prompt_tokens: tokens,
                        prompt_bytes: bytes(rungs),
                    };
                    let id = index.remember(&decided, oracles[holder].capacity);
                    oracles[holder].decide(decisions.len() + 1, &hashes, tokens);
                    decisions.push((holder, hashes, id, true));
                }
                Step::Cancel(which) => {
                    let Some((holder, hashes, id, is_open)) = decisions.get_mut(which) else { continue };
                    // A request ends once, and a holder that is gone is another one afterwards.
                    if std::mem::take(is_open) {
                        index.cancel_decision(id);
                        oracles[*holder].cancel(which + 1, &hashes[..id.rungs as usize]);
                    }
                }
                Step::Correct(which, tokens) => {
                    let Some((holder, hashes, id, true)) = decisions.get(which) else { continue };
                    index.correct_decision(id, tokens);
                    let fitted = &hashes[..id.rungs as usize];
                    oracles[*holder].correct(which + 1, fitted, tokens, bytes(hashes.len()));
                }
                Step::Resize(holder, capacity) => {
                    oracles[holder].capacity = capacity;
                    oracles[holder].fit();
                    index.resize_decisions(HOLDERS[holder], capacity);
                }
                Step::Forget(holder) => {
                    oracles[holder].items.clear();
                    index.forget_decisions(HOLDERS[holder]);
                }
                Step::Reset(holder) => {
                    oracles[holder].items.clear();
                    let holders = [0, 1, 2].map(|tier| HolderId(HOLDERS[holder].0 + tier));
                    index.reset_source(SourceId(u32::try_from(holder).unwrap()), holders);
                }
            }
            let changes = index.take_changes();
            for upsert in changes.upserts {
                table.insert(upsert.hash, (upsert.holders.into_iter().collect(), upsert.token_depth));
            }
            for hash in changes.removes {
                prop_assert!(table.remove(&hash).is_some());
            }
            prop_assert_eq!(&table, &expected(&oracles));
            for (holder, oracle) in HOLDERS.into_iter().zip(&oracles) {
                let stats = index.approximate_stats(holder).unwrap_or_default();
                prop_assert_eq!(stats.rungs, oracle.items.len());
                let used: u64 = oracle.items.values().map(|item| u64::from(item.tokens)).sum();
                prop_assert_eq!(stats.used_tokens, used);
            }
        }
        for holder in HOLDERS {
            index.forget_decisions(holder);
        }
        index.take_changes();
        prop_assert_eq!((index.stats().rungs, index.stats().bytes), (0, 0));
    }
}

fn decide(index: &mut Index, holder: HolderId, first: u64, count: u64, capacity: u64) {
    let hashes: Vec<u64> = (first..first + count).collect();
    let bytes = bytes(hashes.len());
    let decided = Decided {
        holder,
        space: Space::Text,
        rungs: &hashes,
        prompt_tokens: u32::try_from(bytes / 4).unwrap(),
        prompt_bytes: bytes,
    };
    index.remember(&decided, capacity);
}

#[test]
fn a_flood_of_new_prompts_takes_no_more_memory_than_the_room_of_the_engine() {
    let mut index = index(usize::MAX);
    let mut most = 0;
    for prompt in 0..2_000 {
        decide(&mut index, HOLDERS[0], 1 + 1_000 * prompt, 40, 10_000);
        index.take_changes();
        most = most.max(index.stats().rungs);
    }
    // Forty rungs are 640 tokens.
    assert!(most <= 10_000 / 16 + 40, "{most}");
    let stats = index.approximate_stats(HOLDERS[0]).unwrap();
    assert!(stats.used_tokens <= 10_000 && stats.used_tokens > 9_900);
    assert!(!stats.is_cut && stats.evicted_rungs > 70_000);
}

#[test]
fn credit_of_decisions_takes_half_of_the_bytes_at_most_and_the_longest_list_gives() {
    let max_bytes = 200_000;
    let mut index = index(max_bytes);
    decide(&mut index, HOLDERS[1], 1 << 40, 10, u64::MAX);
    for prompt in 0..200 {
        decide(&mut index, HOLDERS[0], 1 + 1_000 * prompt, 40, u64::MAX);
        index.take_changes();
        let bytes = index.stats().bytes;
        assert!(bytes <= max_bytes * 6 / 10, "{bytes}");
    }
    let stats = |holder| index.approximate_stats(holder).unwrap();
    assert!(stats(HOLDERS[0]).is_cut && stats(HOLDERS[0]).rungs > 200);
    assert_eq!(stats(HOLDERS[1]).rungs, 10);
    assert!(!stats(HOLDERS[1]).is_cut);
}

#[test]
fn hashes_that_do_not_follow_from_each_other_do_no_harm() {
    let mut index = index(usize::MAX);
    let remember = |index: &mut Index, rungs: &[u64], capacity| {
        let decided = Decided {
            holder: HOLDERS[0],
            space: Space::Text,
            rungs,
            prompt_tokens: 16 * u32::try_from(rungs.len()).unwrap(),
            prompt_bytes: 64 * rungs.len() as u64,
        };
        index.remember(&decided, capacity)
    };
    let first = remember(&mut index, &[1, 2, 3], 1_000);
    remember(&mut index, &[3], 1_000);
    let second = remember(&mut index, &[3, 3, 9, 3, 9], 1_000);
    let third = remember(&mut index, &[2, 1], 1_000);
    // Only the newest is left; what it stood on is gone.
    remember(&mut index, &[3, 2], 32);
    index.take_changes();
    for id in [first, second, third] {
        index.correct_decision(&id, u32::MAX);
        index.cancel_decision(&id);
    }
    index.forget_decisions(HOLDERS[0]);
    index.take_changes();
    assert_eq!((index.stats().rungs, index.stats().bytes), (0, 0));
}

#[test]
fn tokens_of_a_prompt_are_corrected_once_they_are_known() {
    let mut index = index(usize::MAX);
    let hashes: Vec<u64> = (1..=100).collect();
    let chunks = rungs(Space::Text, u32::MAX).nth(99).unwrap();
    assert_eq!(rung_count(Space::Text, chunks), 100);
    let decided = Decided {
        holder: HOLDERS[0],
        space: Space::Text,
        rungs: &hashes,
        prompt_tokens: 1_000,
        prompt_bytes: u64::from(chunks) * 64,
    };
    let id = index.remember(&decided, 10_000);
    let depth = |index: &Index| {
        let deepest = index.all_rungs().find(|rung| rung.hash == 100);
        deepest.map(|rung| rung.token_depth)
    };
    assert_eq!(depth(&index), Some(1_000));
    index.correct_decision(&id, 2_500);
    assert_eq!(depth(&index), Some(2_500));
    let stats = index.approximate_stats(HOLDERS[0]).unwrap();
    assert_eq!(stats.used_tokens, 2_500);
    // More than there is room for: its end goes.
    index.correct_decision(&id, 11_000);
    assert_eq!(depth(&index), None);
    let stats = index.approximate_stats(HOLDERS[0]).unwrap();
    assert!(stats.used_tokens <= 10_000 && stats.used_tokens > 9_700);
}
