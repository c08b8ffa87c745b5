//! Reading a whole copy, a few items per tick.

use prost::Message as _;

use super::{
    MAX_DELTAS_PER_TICK, MAX_ITEMS_PER_TICK, RING_DELTAS, SharedData, head::Head, keys::ShardKeys,
    meta::Meta,
};
use crate::{
    hash::Seed,
    proto,
    snapshot::{Segment, Sets, Snapshot, Table},
};

/// What a step of loading came to.
#[derive(Debug)]
pub enum Step {
    /// More to do.
    More,
    /// All there, at the head's version.
    Done(Box<Snapshot>, Seed),
    /// The copy changed under the reader, or can't be read: begin again.
    Restart,
}

/// A copy being read: pages first, then segments from the lowest hash up. The ring's deltas are applied all along to the items that
/// lack them.
#[derive(Debug)]
pub struct Loading {
    term: u64,
    seed: Seed,
    copy: Snapshot,
    next_page: usize,
    /// First hash that is not covered; `None` = all are.
    next_hash: Option<u64>,
    /// Newest version of an item that was read: the copy is whole only from there on.
    newest: u64,
    /// Whether the last step left deltas to apply.
    is_behind: bool,
    /// Checksum after the delta at `copy.version`, when one was applied.
    checksum: Option<u64>,
}

impl Loading {
    /// Begins to read the copy of `head`; `None` when it can't be read yet.
    pub fn begin(
        head: &Head,
        keys: &ShardKeys,
        shared: &impl SharedData,
        max_bytes: usize,
    ) -> Option<Self> {
        let meta = read_meta(head, keys, shared)?;
        Some(Self {
            term: head.term.0,
            seed: meta.seed,
            copy: Snapshot {
                epoch: meta.epoch,
                version: meta.version,
                table: Table::uncovered(max_bytes).thinned(meta.thinning),
                sets: Sets::default(),
            },
            next_page: 0,
            next_hash: Some(0),
            newest: meta.version,
            is_behind: false,
            checksum: None,
        })
    }

    /// Reads some items and applies some deltas.
    pub fn step(&mut self, head: &Head, keys: &ShardKeys, shared: &impl SharedData) -> Step {
        if head.term.0 != self.term || head.epoch != self.copy.epoch {
            return Step::Restart;
        }
        let Some(meta) = read_meta(head, keys, shared) else {
            return Step::Restart;
        };
        // More items only once those at hand are current, so that one pass over the ring does for all that were taken together.
        let items = if self.is_behind {
            0
        } else {
            MAX_ITEMS_PER_TICK
        };
        for _ in 0..items {
            let taken = if self.next_page < meta.pages as usize {
                self.take_page(keys, shared)
            } else if let Some(hash) = self.next_hash {
                self.take_segment(hash, &meta, keys, shared)
            } else {
                break;
            };
            match taken {
                Some(Taken::Item(version)) => {
                    // Deltas that the new item lacks are applied again; the others have them and leave them out.
                    self.copy.version = self.copy.version.min(version);
                    self.newest = self.newest.max(version);
                }
                Some(Taken::Later) => break,
                None => return Step::Restart,
            }
        }
        self.catch_up(head, keys, shared, meta.pages as usize)
    }

    fn catch_up(
        &mut self,
        head: &Head,
        keys: &ShardKeys,
        shared: &impl SharedData,
        pages: usize,
    ) -> Step {
        for _ in 0..MAX_DELTAS_PER_TICK {
            if self.copy.version >= head.version {
                break;
            }
            let Some(delta) =
                read_delta(self.term, self.copy.version.saturating_add(1), keys, shared)
            else {
                return Step::Restart;
            };
            if self.copy.sets.apply(&delta).is_err() || self.copy.table.apply(&delta).is_err() {
                return Step::Restart;
            }
            self.copy.version = delta.version;
            self.checksum = Some(delta.checksum);
        }
        self.is_behind = self.copy.version < head.version;
        let is_whole = self.next_page >= pages
            && self.next_hash.is_none()
            && self.copy.version >= self.newest.max(head.version);
        if !is_whole {
            return Step::More;
        }
        if self
            .checksum
            .is_some_and(|checksum| checksum != self.copy.checksum())
        {
            return Step::Restart;
        }
        Step::Done(
            Box::new(core::mem::replace(&mut self.copy, Snapshot::empty())),
            self.seed,
        )
    }

    fn take_page(&mut self, keys: &ShardKeys, shared: &impl SharedData) -> Option<Taken> {
        let (image, _) = shared.get(&keys.page(self.term, self.next_page)).ok()??;
        let version = self.copy.sets.load_page(self.next_page, &image).ok()?;
        self.next_page += 1;
        Some(Taken::Item(version))
    }

    fn take_segment(
        &mut self,
        hash: u64,
        meta: &Meta,
        keys: &ShardKeys,
        shared: &impl SharedData,
    ) -> Option<Taken> {
        let number = meta.segment_of(hash)?;
        let (image, _) = shared.get(&keys.segment(self.term, number)).ok()??;
        let segment = Segment::try_from_image(image).ok()?;
        if segment.first_hash() != hash {
            // It was split after `meta` was read; the next tick sees the new list.
            return Some(Taken::Later);
        }
        let version = segment.version();
        self.next_hash = segment.last_hash().checked_add(1);
        self.copy.table.adopt(segment).ok()?;
        Some(Taken::Item(version))
    }
}

enum Taken {
    /// An item of this version.
    Item(u64),
    /// Not now.
    Later,
}

fn read_meta(head: &Head, keys: &ShardKeys, shared: &impl SharedData) -> Option<Meta> {
    if !head.is_complete {
        return None;
    }
    let (bytes, _) = shared.get(&keys.of_term(head.term.0, "meta")).ok()??;
    Meta::from_bytes(&bytes).filter(|meta| meta.epoch == head.epoch)
}

/// The delta of a version, when the ring still has it.
pub(super) fn read_delta(
    term: u64,
    version: u64,
    keys: &ShardKeys,
    shared: &impl SharedData,
) -> Option<proto::Delta> {
    let (bytes, _) = shared
        .get(&keys.delta(term, version % RING_DELTAS))
        .ok()??;
    proto::Delta::decode(bytes.as_slice())
        .ok()
        .filter(|delta| delta.version == version)
}
