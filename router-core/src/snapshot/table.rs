//! The table of rungs: segments by the hash's top bits, found through a directory and split one at a time.
//!
//! ```text
//! directory (bits = 2)   00 ─► segment 0 (depth 2)      a segment of depth d serves 2^(bits - d) neighbouring places;
//!                        01 ─► segment 2 (depth 2)      a place may be uncovered while the table is being loaded
//!                        10 ─┬► segment 1 (depth 1)
//!                        11 ─┘
//! ```
//!
//! Every segment carries the version up to which it is current, so a change is applied to the segments that lack it and to no other:
//! segments that were read at different versions meet by applying the same deltas.

use super::{
    entry::{Entry, entries, hashes},
    segment::{MAX_DEPTH, Segment, SegmentError},
    thinning::Thinning,
};
use crate::proto;

const UNCOVERED: u32 = u32::MAX;

/// Why the table could not take an entry or a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table's budget is used up.
    #[error("table needs more than its {max_bytes} bytes")]
    OverBudget {
        /// The budget.
        max_bytes: usize,
    },
    /// A range was loaded twice.
    #[error("segment of first hash {first_hash:#018x} overlaps another")]
    Overlap {
        /// Start of the range.
        first_hash: u64,
    },
    /// From the segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Rung hash → holder set and token depth.
#[derive(Clone, Debug)]
pub struct Table {
    segments: Vec<Segment>,
    directory: Vec<u32>,
    bits: u8,
    bytes: usize,
    max_bytes: usize,
    thinning: Thinning,
}

impl Table {
    /// A table without entries that covers every hash and may grow to `max_bytes` of images.
    ///
    /// # Errors
    /// [`TableError::Segment`] when there is no memory at all.
    pub fn try_new(max_bytes: usize) -> Result<Self, TableError> {
        let mut table = Self::uncovered(max_bytes);
        table.adopt(Segment::try_new(0, 0, 0, 0)?)?;
        Ok(table)
    }

    /// A table that covers nothing yet: segments are [adopted](Self::adopt) one by one, and changes outside them are left out.
    pub fn uncovered(max_bytes: usize) -> Self {
        Self {
            segments: Vec::new(),
            directory: vec![UNCOVERED],
            bits: 0,
            bytes: 0,
            max_bytes,
            thinning: Thinning::NONE,
        }
    }

    /// The same table, of which it is known that it has only these rungs.
    #[must_use]
    pub fn thinned(self, thinning: Thinning) -> Self {
        Self { thinning, ..self }
    }

    /// From now on it may grow to so many bytes.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Which rungs it has: others are absent whoever holds them.
    pub fn thinning(&self) -> Thinning {
        self.thinning
    }

    /// Takes a segment for a range that is not covered yet.
    ///
    /// # Errors
    /// [`TableError::Overlap`], [`TableError::OverBudget`]; nothing is changed then.
    pub fn adopt(&mut self, segment: Segment) -> Result<(), TableError> {
        self.check_budget(segment.bytes())?;
        self.deepen(segment.depth());
        let first_hash = segment.first_hash();
        let places = self.places(&segment);
        let number = u32::try_from(self.segments.len()).unwrap_or(UNCOVERED);
        let range = self
            .directory
            .get_mut(places)
            .ok_or(TableError::Overlap { first_hash })?;
        if range.iter().any(|&place| place != UNCOVERED) {
            return Err(TableError::Overlap { first_hash });
        }
        range.fill(number);
        self.bytes += segment.bytes();
        self.segments.push(segment);
        Ok(())
    }

    /// Whether every hash is covered.
    pub fn is_complete(&self) -> bool {
        !self.directory.contains(&UNCOVERED)
    }

    /// Entries in the table. Costs a step per segment, as the next two.
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(Segment::is_empty)
    }

    /// Wrapping sum of [`Entry::sum`] over the entries.
    pub fn checksum(&self) -> u64 {
        self.segments
            .iter()
            .fold(0, |sum, segment| sum.wrapping_add(segment.checksum()))
    }

    /// Bytes of all images.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Segments by number. A number stays with its range's lower half when a segment is split; the upper half gets a new one.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segment's image under a version, ready to be stored; `None` when there is no such segment.
    pub fn image(&mut self, number: usize) -> Option<&[u8]> {
        self.segments.get_mut(number).map(Segment::image)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.segments.iter().flat_map(Segment::iter)
    }

    /// The entry of a rung.
    pub fn get(&self, hash: u64) -> Option<Entry> {
        self.segments.get(self.number(hash)?)?.get(hash)
    }

    /// Has the memory of entries loaded that are about to be asked for. A large table is in no cache: one after the other, each entry is
    /// waited for, and together not much longer than one.
    pub fn load(&self, hashes: impl Iterator<Item = u64>) {
        let segment = |hash| self.segments.get(self.number(hash)?);
        let first = |hash| segment(hash).map_or(0, |segment: &Segment| segment.home_word(hash));
        core::hint::black_box(hashes.fold(0, |sum, hash| sum ^ first(hash)));
    }

    /// Puts an entry in, splitting its segment when that is full; gives the one it replaces. Entries of hash 0 or outside the covered
    /// range are left out.
    ///
    /// # Errors
    /// [`TableError::OverBudget`] or no memory; nothing is changed then.
    pub fn insert(&mut self, entry: Entry) -> Result<Option<Entry>, TableError> {
        loop {
            let Some(number) = self.number(entry.hash) else {
                return Ok(None);
            };
            let Some(segment) = self.segments.get_mut(number) else {
                return Ok(None);
            };
            let before = segment.bytes();
            let room = self.bytes < self.max_bytes;
            if !room && segment.get(entry.hash).is_none() {
                return Err(TableError::OverBudget {
                    max_bytes: self.max_bytes,
                });
            }
            match segment.insert(entry) {
                Ok(old) => {
                    self.bytes = self.bytes - before + segment.bytes();
                    return Ok(old);
                }
                Err(SegmentError::Full) => self.split(number)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, hash: u64) -> Option<Entry> {
        let number = self.number(hash)?;
        self.segments.get_mut(number)?.remove(hash)
    }

    /// Applies a delta to the segments that are older than it. Deltas have to come in order of their versions, none left out that
    /// some segment lacks.
    ///
    /// # Errors
    /// As [`Self::insert`]; the table is useless then.
    pub fn apply(&mut self, delta: &proto::Delta) -> Result<(), TableError> {
        for hash in hashes(&delta.removes) {
            if self.is_older(hash, delta.version) {
                self.remove(hash);
            }
        }
        for entry in entries(&delta.upserts) {
            if self.is_older(entry.hash, delta.version) {
                self.insert(entry)?;
            }
        }
        self.set_version(delta.version);
        Ok(())
    }

    /// Says that every segment is current up to at least `version`.
    pub fn set_version(&mut self, version: u64) {
        for segment in &mut self.segments {
            segment.set_version(segment.version().max(version));
        }
    }

    fn is_older(&self, hash: u64, version: u64) -> bool {
        self.number(hash)
            .and_then(|number| self.segments.get(number))
            .is_some_and(|segment| segment.version() < version)
    }

    fn number(&self, hash: u64) -> Option<usize> {
        let place = hash.checked_shr(64 - u32::from(self.bits)).unwrap_or(0);
        let number = *self.directory.get(usize::try_from(place).ok()?)?;
        (number != UNCOVERED).then_some(number as usize)
    }

    fn places(&self, segment: &Segment) -> core::ops::Range<usize> {
        let place = |hash: u64| {
            usize::try_from(hash.checked_shr(64 - u32::from(self.bits)).unwrap_or(0)).unwrap_or(0)
        };
        place(segment.first_hash())..place(segment.last_hash()) + 1
    }

    /// Doubles the directory until it tells segments of `depth` apart.
    fn deepen(&mut self, depth: u8) {
        while self.bits < depth.min(MAX_DEPTH) {
            self.directory = self
                .directory
                .iter()
                .flat_map(|&number| [number, number])
                .collect();
            self.bits += 1;
        }
    }

    fn check_budget(&self, more: usize) -> Result<(), TableError> {
        if self.bytes + more > self.max_bytes {
            return Err(TableError::OverBudget {
                max_bytes: self.max_bytes,
            });
        }
        Ok(())
    }

    fn split(&mut self, number: usize) -> Result<(), TableError> {
        let Some(segment) = self.segments.get(number) else {
            return Ok(());
        };
        let before = segment.bytes();
        let (lower, upper) = segment.split()?;
        self.deepen(upper.depth());
        let places = self.places(&upper);
        let new = u32::try_from(self.segments.len()).unwrap_or(UNCOVERED);
        self.bytes = self.bytes - before + lower.bytes() + upper.bytes();
        if let Some(range) = self.directory.get_mut(places) {
            range.fill(new);
        }
        if let Some(place) = self.segments.get_mut(number) {
            *place = lower;
        }
        self.segments.push(upper);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::snapshot::entry::SetId;

    fn scramble(key: u64) -> u64 {
        (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn entry(hash: u64, set: u32) -> Entry {
        Entry {
            hash,
            set: SetId(set),
            token_depth: set,
        }
    }

    #[test]
    fn equals_a_map_through_splits_and_removals() {
        let mut table = Table::try_new(usize::MAX).unwrap();
        let mut model = BTreeMap::new();
        for step in 0..300_000u64 {
            let hash = scramble(step % 220_000);
            if step % 7 == 3 {
                assert_eq!(
                    table.remove(scramble(step / 2)),
                    model.remove(&scramble(step / 2))
                );
            }
            let new = entry(hash, u32::try_from(step).unwrap());
            assert_eq!(table.insert(new).unwrap(), model.insert(hash, new));
        }
        assert!(
            table.segments().len() > 2,
            "{} segments",
            table.segments().len()
        );
        assert_eq!(table.len(), model.len());
        assert!(
            model
                .values()
                .all(|entry| table.get(entry.hash) == Some(*entry))
        );
        assert_eq!(
            table.checksum(),
            model
                .values()
                .fold(0u64, |sum, entry| sum.wrapping_add(entry.sum()))
        );
        assert_eq!(
            table.bytes(),
            table.segments().iter().map(Segment::bytes).sum::<usize>()
        );
        // Shuffled segments put together again are the same table.
        let mut copy = Table::uncovered(usize::MAX);
        for segment in table.segments().iter().rev() {
            copy.adopt(segment.clone()).unwrap();
        }
        assert!(copy.is_complete());
        assert_eq!(copy.checksum(), table.checksum());
        assert!(
            model
                .values()
                .all(|entry| copy.get(entry.hash) == Some(*entry))
        );
        assert!(matches!(
            copy.adopt(table.segments()[0].clone()),
            Err(TableError::Overlap { .. })
        ));
    }

    #[test]
    fn budget_refuses_new_entries_and_keeps_old_ones() {
        let mut table = Table::try_new(200_000).unwrap();
        let mut kept = 0;
        let error = loop {
            match table.insert(entry(scramble(kept), 1)) {
                Ok(_) => kept += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, TableError::OverBudget { max_bytes: 200_000 });
        assert_eq!(table.len() as u64, kept);
        assert!(table.insert(entry(scramble(0), 9)).unwrap().is_some());
    }

    #[test]
    fn uncovered_ranges_take_nothing() {
        let mut table = Table::uncovered(usize::MAX);
        table
            .adopt(Segment::try_new(1 << 63, 1, 4, 0).unwrap())
            .unwrap();
        assert!(!table.is_complete());
        table.insert(entry(5, 1)).unwrap();
        assert_eq!(table.get(5), None);
        let delta = |version| proto::Delta {
            version,
            upserts: [entry((1 << 63) | 5, 1).to_bytes(), entry(6, 1).to_bytes()]
                .concat()
                .into(),
            ..proto::Delta::default()
        };
        table.apply(&delta(4)).unwrap();
        assert!(table.is_empty(), "the segment was read at version 4");
        table.apply(&delta(5)).unwrap();
        assert_eq!(table.len(), 1);
    }
}
