//! What a leader has published of its copy in its term: which items, and at which versions.

use super::{RING_DELTAS, SharedData, SharedError, keys::ShardKeys, meta::Meta, sweeper::DeadTerm};
use crate::{hash::Seed, snapshot::Snapshot};

/// Keys of the shard and the term under which items go.
pub(super) type Place<'a> = (&'a ShardKeys, u64);

#[derive(Clone, Copy, Debug)]
enum Item {
    Segment(usize),
    Page(usize),
}

/// Versions at which items were published, by number.
#[derive(Debug, Default)]
pub(super) struct Items {
    segments: Vec<u64>,
    pages: Vec<u64>,
    meta: Option<Meta>,
}

impl Items {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// What has to be emptied when `term`, under which these items went, is over.
    pub(super) fn dead_term(&self, term: u64) -> DeadTerm {
        DeadTerm {
            term,
            segments: self.segments.len(),
            pages: self.pages.len(),
        }
    }

    /// Publishes items that were not published yet, as many as the budget allows. They come before old ones: the upper half of a split
    /// segment is then there before its lower half replaces the whole.
    pub(super) fn publish_new(
        &mut self,
        budget: &mut usize,
        snapshot: &mut Snapshot,
        place: Place<'_>,
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        while *budget > 0 && self.segments.len() < snapshot.table.segments().len() {
            publish(Item::Segment(self.segments.len()), snapshot, place, shared)?;
            self.segments.push(snapshot.version);
            *budget -= 1;
        }
        while *budget > 0 && self.pages.len() < snapshot.sets.pages() {
            publish(Item::Page(self.pages.len()), snapshot, place, shared)?;
            self.pages.push(snapshot.version);
            *budget -= 1;
        }
        Ok(())
    }

    /// Publishes old items again so that delta `next` may take its place in the ring: `2 * items / RING_DELTAS` of them, rounded up, so
    /// that in steady state none is older than half the ring; gives whether the place is free.
    pub(super) fn make_room(
        &mut self,
        next: u64,
        budget: &mut usize,
        snapshot: &mut Snapshot,
        place: Place<'_>,
        shared: &impl SharedData,
    ) -> Result<bool, SharedError> {
        let all = self.segments.len() + self.pages.len();
        let mut due = (2 * all).div_ceil(usize::try_from(RING_DELTAS).unwrap_or(1));
        loop {
            let oldest = self.oldest(snapshot.version);
            let must =
                oldest.is_some_and(|(version, _)| version.saturating_add(RING_DELTAS) < next);
            let Some((_, item)) = oldest.filter(|_| must || due > 0) else {
                return Ok(true);
            };
            if *budget == 0 {
                return Ok(!must);
            }
            publish(item, snapshot, place, shared)?;
            let version = match item {
                Item::Segment(number) => self.segments.get_mut(number),
                Item::Page(number) => self.pages.get_mut(number),
            };
            if let Some(version) = version {
                *version = snapshot.version;
            }
            *budget -= 1;
            due = due.saturating_sub(1);
        }
    }

    /// Publishes the list of items, when all are published and it changed; gives whether all can be read.
    pub(super) fn publish_meta(
        &mut self,
        snapshot: &Snapshot,
        seed: Seed,
        (keys, term): Place<'_>,
        shared: &impl SharedData,
    ) -> Result<bool, SharedError> {
        let is_complete = self.segments.len() == snapshot.table.segments().len()
            && self.pages.len() == snapshot.sets.pages();
        if is_complete {
            let meta = Meta::of(snapshot, seed);
            if self.meta.as_ref() != Some(&meta) {
                shared.set(&keys.of_term(term, "meta"), &meta.to_bytes(), None)?;
                self.meta = Some(meta);
            }
        }
        Ok(is_complete)
    }

    /// The item with the smallest version below that of the copy.
    fn oldest(&self, newest: u64) -> Option<(u64, Item)> {
        let segments = self
            .segments
            .iter()
            .zip(0..)
            .map(|(&version, number)| (version, Item::Segment(number)));
        let pages = self
            .pages
            .iter()
            .zip(0..)
            .map(|(&version, number)| (version, Item::Page(number)));
        let oldest = segments.chain(pages).min_by_key(|&(version, _)| version);
        oldest.filter(|&(version, _)| version < newest)
    }
}

fn publish(
    item: Item,
    snapshot: &mut Snapshot,
    (keys, term): Place<'_>,
    shared: &impl SharedData,
) -> Result<(), SharedError> {
    match item {
        Item::Segment(number) => match snapshot.table.image(number) {
            Some(image) => shared.set(&keys.segment(term, number), image, None),
            None => Ok(()),
        },
        Item::Page(number) => shared.set(
            &keys.page(term, number),
            &snapshot.sets.page_image(number),
            None,
        ),
    }
}
