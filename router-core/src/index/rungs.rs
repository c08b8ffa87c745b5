//! Rungs: what is published.
//!
//! ```text
//!  hash ─► Rung { hash 8, prev 4, refs and flags 4, holders 8: holder → live blocks, depths 8: tokens → live blocks }
//!                          │
//!                          └► the next shallower rung of the same text
//! ```
//!
//! A rung is kept as long as a node or a speculation refers to it, and published while a live block covers it or a speculation credits it.
//! Its holders and its token depth are counted, so both are functions of what is live and not of the order in which it came.
//! Speculative credit is counted apart.

use super::counts::{Counts, Lists};
use super::slab::{NONE, Slab};
use super::{Changes, RungChange};
use crate::endpoint::HolderId;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashSet, HashTable};

#[derive(Debug)]
struct Rung {
    hash: u64,
    prev: u32,
    /// References, and the flags below.
    state: u32,
    holders: Counts,
    depths: Counts,
}

const DIRTY: u32 = 1 << 31;
const PUBLISHED: u32 = 1 << 30;
const SPECULATED: u32 = 1 << 29;
const REFS: u32 = SPECULATED - 1;

impl Rung {
    fn has(&self, flag: u32) -> bool {
        self.state & flag != 0
    }

    fn refs(&self) -> u32 {
        self.state & REFS
    }

    /// Sets a flag; whether it was clear.
    fn set(&mut self, flag: u32) -> bool {
        let was_clear = !self.has(flag);
        self.state |= flag;
        was_clear
    }

    /// Clears a flag; whether it was set.
    fn clear(&mut self, flag: u32) -> bool {
        let was_set = self.has(flag);
        self.state &= !flag;
        was_set
    }
}

/// What a change of one block means for a rung.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// Holder that the block counts for now.
    pub(super) gained: Option<HolderId>,
    /// Holder that it no longer counts for.
    pub(super) lost: Option<HolderId>,
    /// Token depth that it gives from now on.
    pub(super) depth_given: Option<u32>,
    /// Token depth that it no longer gives.
    pub(super) depth_taken: Option<u32>,
    /// Whether it no longer refers to the rung.
    pub(super) is_released: bool,
}

/// Speculative credit of one rung.
#[derive(Debug, Default)]
struct Speculated {
    holders: Counts,
    depths: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Rungs {
    slots: Slab<Rung>,
    by_hash: HashTable<u32>,
    dirty: Vec<u32>,
    speculated: HashMap<u32, Speculated>,
    /// Holders that events newly put on rungs with speculative credit.
    confirmed: Vec<(u32, HolderId)>,
    /// Holders that the same events took off such rungs before: where they come back, that is no news.
    uncovered: HashSet<(u32, HolderId)>,
    lists: Lists,
}

impl Rungs {
    /// Number of rungs kept.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        const PER_RUNG: usize = size_of::<Rung>() + 8;
        const PER_SPECULATED: usize = size_of::<(u32, Speculated)>() + 8;
        self.slots.len() * PER_RUNG + self.lists.bytes() + self.speculated.len() * PER_SPECULATED
    }

    /// Finds or makes the rung of `hash` and refers to it; `prev` is the next shallower one of the same text.
    pub(super) fn acquire(&mut self, hash: u64, prev: u32) -> u32 {
        let id = self.find_or_insert(hash);
        self.refer(id, prev);
        id
    }

    /// The rung of `hash`, if it is kept.
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        let is_it = |&id: &u32| self.slots[id].hash == hash;
        self.by_hash.find(hash, is_it).copied()
    }

    fn find_or_insert(&mut self, hash: u64) -> u32 {
        let Self { slots, by_hash, .. } = self;
        let entry = by_hash.entry(hash, |&id| slots[id].hash == hash, |&id| slots[id].hash);
        match entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let id = slots.insert(Rung {
                    hash,
                    prev: NONE,
                    state: 0,
                    holders: Counts::default(),
                    depths: Counts::default(),
                });
                entry.insert(id);
                id
            }
        }
    }

    /// [`Rungs::acquire`], and credits a holder with a depth as [`Rungs::change`] would. `known` is the rung if it is known already.
    pub(super) fn cover_new(
        &mut self,
        (hash, known): (u64, u32),
        prev: u32,
        credit: Option<(HolderId, u32)>,
    ) -> u32 {
        let id = if known == NONE {
            self.acquire(hash, prev)
        } else {
            self.refer(known, prev);
            known
        };
        if let Some((holder, depth)) = credit {
            let change = Change {
                gained: Some(holder),
                depth_given: Some(depth),
                ..Change::default()
            };
            self.change(id, &change);
        }
        id
    }

    fn refer(&mut self, id: u32, prev: u32) {
        let rung = &mut self.slots[id];
        if rung.refs() == 0 {
            rung.prev = prev;
        }
        rung.state += 1;
    }

    fn mark(&mut self, id: u32) {
        if self.slots[id].set(DIRTY) {
            self.dirty.push(id);
        }
    }

    /// Takes over what a change of one block means for the rung, and gives the rung before.
    pub(super) fn change(&mut self, id: u32, change: &Change) -> u32 {
        let Self { slots, lists, .. } = self;
        let rung = &mut slots[id];
        let mut is_new = false;
        let mut is_confirmed = false;
        if let Some(holder) = change.gained
            && rung.holders.add(holder.0, lists)
        {
            is_new = true;
            is_confirmed = rung.has(SPECULATED);
        }
        if let Some(holder) = change.lost
            && rung.holders.remove(holder.0, lists)
        {
            is_new = true;
            if rung.has(SPECULATED) {
                self.uncovered.insert((id, holder));
            }
        }
        if let Some(tokens) = change.depth_given {
            let before = rung.depths.max(lists);
            is_new |= rung.depths.add(tokens, lists) && before.is_none_or(|before| before < tokens);
        }
        if let Some(tokens) = change.depth_taken {
            is_new |= rung.depths.remove(tokens, lists)
                && rung.depths.max(lists).is_none_or(|left| left < tokens);
        }
        if change.is_released {
            rung.state -= 1;
            is_new |= rung.refs() == 0;
        }
        let prev = rung.prev;
        if is_new && rung.set(DIRTY) {
            self.dirty.push(id);
        }
        if let (true, Some(holder)) = (is_confirmed, change.gained) {
            self.confirm(id, holder);
        }
        prev
    }

    /// `blocks` more live blocks count for `holder` at the rung.
    pub(super) fn cover(&mut self, id: u32, holder: HolderId, blocks: u32) {
        let rung = &mut self.slots[id];
        if rung.holders.add_many(holder.0, blocks, &mut self.lists) {
            if rung.has(SPECULATED) {
                self.confirm(id, holder);
            }
            self.mark(id);
        }
    }

    fn confirm(&mut self, id: u32, holder: HolderId) {
        if !self.uncovered.contains(&(id, holder)) {
            self.confirmed.push((id, holder));
        }
    }

    /// Counts what was taken off rungs so far as before the events that follow.
    pub(super) fn forget_uncovered(&mut self) {
        self.uncovered.clear();
    }

    /// Reads a rung that will be changed, so that the misses of several overlap.
    pub(super) fn touch(&self, id: u32) -> u32 {
        self.slots[id].state
    }

    /// Rungs with speculative credit and holders that events have put on them since the last call.
    pub(super) fn take_confirmed(&mut self) -> Vec<(u32, HolderId)> {
        self.forget_uncovered();
        core::mem::take(&mut self.confirmed)
    }

    /// Whether a live block of `holder` covers the rung.
    pub(super) fn is_covered(&self, id: u32, holder: HolderId) -> bool {
        self.slots[id].holders.contains(holder.0, &self.lists)
    }

    /// Credits `holder` speculatively with `tokens` at the rung of `hash`, and returns the rung. `prev` is the next shallower one.
    pub(super) fn speculate(&mut self, hash: u64, prev: u32, holder: HolderId, tokens: u32) -> u32 {
        let id = self.find_or_insert(hash);
        let rung = &mut self.slots[id];
        if rung.refs() == 0 {
            rung.prev = prev;
        }
        let credit = self.speculated.entry(id).or_default();
        credit.holders.add(holder.0, &mut self.lists);
        credit.depths.add(tokens, &mut self.lists);
        self.slots[id].set(SPECULATED);
        self.mark(id);
        id
    }

    /// Has one that is credited speculatively be credited with other tokens.
    pub(super) fn respeculate(&mut self, id: u32, old: u32, new: u32) {
        if let Some(credit) = self.speculated.get_mut(&id) {
            credit.depths.add(new, &mut self.lists);
            credit.depths.remove(old, &mut self.lists);
            self.mark(id);
        }
    }

    /// Takes back what `speculate` gave.
    pub(super) fn unspeculate(&mut self, id: u32, holder: HolderId, tokens: u32) {
        let Some(credit) = self.speculated.get_mut(&id) else {
            return;
        };
        credit.holders.remove(holder.0, &mut self.lists);
        credit.depths.remove(tokens, &mut self.lists);
        if credit.holders.is_empty() {
            self.speculated.remove(&id);
            self.slots[id].clear(SPECULATED);
        }
        self.mark(id);
    }

    /// Number after the last rung, freed ones included.
    pub(super) fn end(&self) -> u32 {
        self.slots.end()
    }

    /// The next shallower rung as it was told last; a freed rung has its last one still.
    pub(super) fn above(&self, id: u32) -> u32 {
        self.slots[id].prev
    }

    /// Holders of a rung, those by events and by decisions; 0 for a freed one.
    pub(super) fn holder_count(&self, id: u32) -> usize {
        let rung = &self.slots[id];
        match self.speculated.get(&id).filter(|_| rung.has(SPECULATED)) {
            None => rung.holders.len(&self.lists),
            Some(_) => self.publishable(id).map_or(0, |rung| rung.holders.len()),
        }
    }

    /// Token depth of a rung that is to be published.
    pub(super) fn token_depth(&self, id: u32) -> Option<u32> {
        let rung = &self.slots[id];
        let credit = self.speculated.get(&id).filter(|_| rung.has(SPECULATED));
        rung.depths
            .max(&self.lists)
            .or_else(|| credit.and_then(|credit| credit.depths.max(&self.lists)))
    }

    /// What changed since the last call, and frees rungs nothing refers to.
    pub(super) fn take_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for id in core::mem::take(&mut self.dirty) {
            let change = self.publishable(id);
            let rung = &mut self.slots[id];
            rung.clear(DIRTY);
            if let Some(change) = change {
                rung.set(PUBLISHED);
                changes.upserts.push(change);
                continue;
            }
            if rung.clear(PUBLISHED) {
                changes.removes.push(rung.hash);
            }
            if rung.refs() == 0 {
                let hash = rung.hash;
                if let Ok(entry) = self.by_hash.find_entry(hash, |&other| other == id) {
                    entry.remove();
                }
                self.slots.free(id);
            }
        }
        changes
    }

    /// Every rung that is to be published, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = RungChange> {
        self.by_hash.iter().filter_map(|&id| self.publishable(id))
    }

    pub(super) fn publishable(&self, id: u32) -> Option<RungChange> {
        let rung = &self.slots[id];
        let credit = if rung.has(SPECULATED) {
            self.speculated.get(&id)
        } else {
            None
        };
        // Live state says how deep the rung is; a speculation only where nothing is live.
        let token_depth = self.token_depth(id)?;
        let mut holders: Vec<HolderId> = rung.holders.keys(&self.lists).map(HolderId).collect();
        if let Some(credit) = credit {
            holders.extend(credit.holders.keys(&self.lists).map(HolderId));
            holders.sort_unstable();
            holders.dedup();
        }
        Some(RungChange {
            hash: rung.hash,
            token_depth,
            holders,
        })
    }
}
