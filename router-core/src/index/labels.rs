//! A source's labels: engine hash → block number.
//!
//! ```text
//!  home of x = high half of mix(x) * homes / 2^32           (grows with mix(x))
//!
//!  slots   [ · ][a][b][ · ][c][d][e][ · ]... homes ...[f][g]  spill past the last home
//!               └── ascending by mix ──┘                      12 bytes each: mix (8), number (4)
//! ```
//!
//! Open addressing with the occupied slots in ascending order of the mixed hash over the whole table. Because homes ascend with the
//! mixed hash too, a search ends at the first greater slot, a removal leaves no tombstone, and growing is one pass through old and new
//! slots in order. So the table can grow in small steps and stay full: between 0.71 and 0.85 of it is in use.
//!
//! The mix is a bijection keyed with the deployment's secret, so equal mixes are equal hashes, and nobody can choose hashes that pile up.

use super::slab::NONE;
use crate::event::EngineHash;

/// Slots in use of a hundred before the table grows.
const MAX_LOAD_PERCENT: usize = 85;
/// Homes of the first table.
const MIN_HOMES: usize = 8;

/// Slots to a cache line, about.
const LINE: usize = 5;

/// A hash as the table orders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mixed(u64);

/// Low and high half of the mix, and the number's complement. Words keep it at twelve bytes, and a table of zeros is empty.
type Slot = [u32; 3];
const EMPTY: Slot = [0; 3];

#[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
fn slot(mixed: Mixed, id: u32) -> Slot {
    [mixed.0 as u32, (mixed.0 >> 32) as u32, !id]
}

fn mixed_of(&[low, high, _]: &Slot) -> Mixed {
    Mixed(u64::from(low) | u64::from(high) << 32)
}

/// Number of a slot, `NONE` if it is empty.
fn id_of(&[_, _, complement]: &Slot) -> u32 {
    !complement
}

/// Position of a label; void after the next change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position(usize);

#[derive(Debug, Default)]
pub(super) struct Labels {
    slots: Vec<Slot>,
    homes: usize,
    len: usize,
    key: u64,
}

impl Labels {
    /// An empty table whose order depends on `key`.
    pub(super) fn new(key: u64) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    pub(super) fn mix(&self, hash: EngineHash) -> Mixed {
        let mut x = hash.0 ^ self.key;
        x ^= x >> 32;
        x = x.wrapping_mul(0x9fb2_1c65_1e98_df25);
        x ^= x >> 29;
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Mixed(x ^ x >> 32)
    }

    fn home(homes: usize, mixed: Mixed) -> usize {
        (((mixed.0 >> 32) * homes as u64) >> 32) as usize
    }

    /// Where the label is, or where it belongs.
    #[inline]
    pub(super) fn find(&self, mixed: Mixed) -> Result<(Position, u32), Position> {
        let mut at = Self::home(self.homes, mixed);
        while let Some(slot) = self.slots.get(at) {
            let here = mixed_of(slot);
            if id_of(slot) == NONE || here > mixed {
                break;
            }
            if here == mixed {
                return Ok((Position(at), id_of(slot)));
            }
            at += 1;
        }
        Err(Position(at))
    }

    /// Reads the slots where a label will be looked for or inserted, so that the misses of several labels overlap. The sum means nothing.
    #[inline]
    pub(super) fn touch(&self, hash: EngineHash) -> u32 {
        let home = Self::home(self.homes, self.mix(hash));
        let slot = |at: usize| self.slots.get(at).map_or(0, id_of);
        slot(home)
            .wrapping_add(slot(home + LINE))
            .wrapping_add(slot(home + 2 * LINE))
    }

    /// Adds a label that is not there, at the position where [`Labels::find`] missed it.
    pub(super) fn insert(&mut self, position: Position, mixed: Mixed, id: u32) {
        let mut at = position.0;
        if (self.len + 1) * 100 > self.homes * MAX_LOAD_PERCENT {
            self.resize(self.homes + self.homes / 5 + MIN_HOMES);
            at = match self.find(mixed) {
                Ok((position, _)) | Err(position) => position.0,
            };
        }
        self.len += 1;
        // Every slot up to the next free one moves by one.
        let taken = self
            .slots
            .iter()
            .skip(at)
            .take_while(|slot| id_of(slot) != NONE)
            .count();
        let free = at + taken;
        if free == self.slots.len() {
            self.slots.push(EMPTY);
        }
        self.slots.copy_within(at..free, at + 1);
        if let Some(place) = self.slots.get_mut(at) {
            *place = slot(mixed, id);
        }
    }

    /// Takes a label away.
    pub(super) fn remove(&mut self, position: Position) {
        let at = position.0;
        let moves_up = |(next, slot): &(usize, &Slot)| {
            id_of(slot) != NONE && Self::home(self.homes, mixed_of(slot)) < *next
        };
        let end = self
            .slots
            .iter()
            .enumerate()
            .skip(at + 1)
            .take_while(moves_up)
            .count()
            + at;
        self.slots.copy_within(at + 1..=end, at);
        if let Some(slot) = self.slots.get_mut(end) {
            *slot = EMPTY;
        }
        self.len -= 1;
    }

    /// Keeps the labels of numbers for which `keep` holds, and gives memory back when much of it is free.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for slot in &mut self.slots {
            if id_of(slot) != NONE && !keep(id_of(slot)) {
                *slot = EMPTY;
                self.len -= 1;
            }
        }
        let fitting = self.len * 100 / MAX_LOAD_PERCENT + self.len / 8 + MIN_HOMES;
        self.resize(fitting.min(self.homes));
    }

    /// Moves all labels to a table of `homes`, or more where they would not fit.
    fn resize(&mut self, homes: usize) {
        let homes = homes.max(self.len + 1);
        let mut slots = vec![EMPTY; homes + homes / 64 + MIN_HOMES];
        let mut next = 0;
        for slot in self.slots.iter().filter(|slot| id_of(slot) != NONE) {
            let at = Self::home(homes, mixed_of(slot)).max(next);
            match slots.get_mut(at) {
                Some(place) => *place = *slot,
                None => slots.push(*slot),
            }
            next = at + 1;
        }
        self.slots = slots;
        self.homes = homes;
    }

    /// Takes all labels away.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.key);
    }

    /// Numbers of all blocks with labels, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(id_of).filter(|&id| id != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn labels_behave_like_a_map(
            operations in prop::collection::vec((0u64..400, 0u8..8), 0..900),
            spread in prop_oneof![Just(1u64), Just(1 << 40), Just(0x9e37_79b9_7f4a_7c15)],
        ) {
            let mut labels = Labels::new(7);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (number, (key, what)) in (0u32..).zip(operations) {
                let hash = EngineHash(key.wrapping_mul(spread));
                let mixed = labels.mix(hash);
                let found = labels.find(mixed);
                prop_assert_eq!(found.ok().map(|(_, id)| id), model.get(&key).copied());
                match (what, found) {
                    (0..5, Err(position)) => {
                        labels.insert(position, mixed, number);
                        model.insert(key, number);
                    }
                    (5.., Ok((position, _))) => {
                        labels.remove(position);
                        model.remove(&key);
                    }
                    (7, Err(_)) if key < 20 => {
                        labels.retain(|id| id % 3 != 0);
                        model.retain(|_, id| *id % 3 != 0);
                    }
                    _ => {}
                }
                prop_assert_eq!(labels.len(), model.len());
            }
            let mut ids: Vec<u32> = labels.ids().collect();
            ids.sort_unstable();
            let mut expected: Vec<u32> = model.values().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(ids, expected);
            for (key, id) in model {
                let mixed = labels.mix(EngineHash(key.wrapping_mul(spread)));
                prop_assert_eq!(labels.find(mixed).ok().map(|(_, id)| id), Some(id));
            }
        }
    }

    #[test]
    fn full_table_stays_between_its_bounds() {
        let mut labels = Labels::new(1);
        for number in 0..100_000u32 {
            let mixed = labels.mix(EngineHash(u64::from(number)));
            let position = labels.find(mixed).unwrap_err();
            labels.insert(position, mixed, number);
            if number > 1000 {
                let load = f64::from(number + 1) / labels.homes as f64;
                assert!((0.66..=0.85).contains(&load), "{load}");
            }
        }
        assert!(labels.bytes() < 100_000 * 19);
    }
}
