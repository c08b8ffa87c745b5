//! What one source holds.
//!
//! ```text
//!  engine hash ─► Entry ── parent ──► Entry ...      one tree per prompt start
//!                   │ node                            content, shared between sources
//!                   │ counts[tier]                    copies in the main (full attention) group
//!                   │ limits                          bit per limiting group: a copy is there
//!                   └ level, credited                 what follows from them
//! ```
//!
//! A block's *level* is the slowest tier on its path: the block's own fastest tier, or its parent's level if that is slower. It has none
//! unless the block and all its ancestors are there. A block counts for the holder of its level, and for no other, if besides every
//! limiting group (sliding windows and the like) has the last blocks of its window.

use super::arena::{Arena, NONE};
use super::forest::Forest;
use super::groups::Groups;
use crate::endpoint::{HolderId, Tier};
use crate::event::EngineHash;
use hashbrown::{HashMap, HashTable};

/// No tier.
const NO_LEVEL: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct Entry {
    hash: EngineHash,
    /// Content, or `NONE` while only the hash is known.
    pub(super) node: u32,
    parent: u32,
    first_child: u32,
    next_sibling: u32,
    prev_sibling: u32,
    pub(super) touched: u32,
    counts: [u16; 3],
    limits: u16,
    level: u8,
    credited: u8,
}

/// Which copies a count is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// Blocks of the main group.
    Main(Tier),
    /// Blocks of a limiting group.
    Limit { slot: u8, tier: Tier },
}

/// One (endpoint, rank): its blocks by engine hash, and how many copies of each there are.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) holders: [HolderId; 3],
    pub(super) groups: Groups,
    pub(super) is_partial: bool,
    entries: Arena<Entry>,
    by_hash: HashTable<u32>,
    limit_counts: HashMap<(u32, u8, Tier), u32>,
}

/// Engine hashes are opaque, so they are mixed before they pick a slot.
fn slot_hash(hash: EngineHash) -> u64 {
    let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl Source {
    pub(super) fn new(holders: [HolderId; 3]) -> Self {
        Self {
            holders,
            groups: Groups::default(),
            is_partial: false,
            entries: Arena::default(),
            by_hash: HashTable::new(),
            limit_counts: HashMap::new(),
        }
    }

    /// Blocks known, live or not.
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.by_hash.len() * (size_of::<Entry>() + 8) + self.limit_counts.len() * 24
    }

    pub(super) fn entry(&self, id: u32) -> &Entry {
        &self.entries[id]
    }

    pub(super) fn find(&self, hash: EngineHash) -> Option<u32> {
        self.by_hash
            .find(slot_hash(hash), |&id| self.entries[id].hash == hash)
            .copied()
    }

    /// Finds or makes the entry of a hash.
    pub(super) fn find_or_insert(&mut self, hash: EngineHash) -> u32 {
        if let Some(id) = self.find(hash) {
            return id;
        }
        let id = self.entries.insert(Entry {
            hash,
            node: NONE,
            parent: NONE,
            first_child: NONE,
            next_sibling: NONE,
            prev_sibling: NONE,
            touched: 0,
            counts: [0; 3],
            limits: 0,
            level: NO_LEVEL,
            credited: NO_LEVEL,
        });
        self.by_hash
            .insert_unique(slot_hash(hash), id, |&id| slot_hash(self.entries[id].hash));
        id
    }

    pub(super) fn touch(&mut self, id: u32, now: u32) {
        self.entries[id].touched = now;
    }

    /// Gives an entry without content its node and its place under `parent` (`NONE` for the first block of a prompt).
    pub(super) fn place(&mut self, id: u32, parent: u32, node: u32, forest: &mut Forest) {
        forest.acquire(node);
        let entry = &mut self.entries[id];
        entry.node = node;
        entry.parent = parent;
        if parent != NONE {
            let first = core::mem::replace(&mut self.entries[parent].first_child, id);
            self.entries[id].next_sibling = first;
            if first != NONE {
                self.entries[first].prev_sibling = id;
            }
        }
    }

    /// Copies counted.
    pub(super) fn count(&self, id: u32, copies: Copies) -> u32 {
        match copies {
            Copies::Main(tier) => self.entries[id]
                .counts
                .get(tier as usize)
                .map_or(0, |&count| u32::from(count)),
            Copies::Limit { slot, tier } => self
                .limit_counts
                .get(&(id, slot, tier))
                .copied()
                .unwrap_or(0),
        }
    }

    /// Counts one copy more.
    pub(super) fn add_copy(&mut self, id: u32, copies: Copies, forest: &mut Forest) {
        match copies {
            Copies::Main(tier) => {
                if let Some(count) = self.entries[id].counts.get_mut(tier as usize) {
                    *count = count.saturating_add(1);
                }
                self.refresh(id, 0, forest);
            }
            Copies::Limit { slot, tier } => {
                *self.limit_counts.entry((id, slot, tier)).or_default() += 1;
                self.entries[id].limits |= 1 << slot;
                self.refresh(id, self.groups.reach(), forest);
            }
        }
    }

    /// Counts one copy less and forgets the entry if nothing is left of it; false if there was none.
    pub(super) fn remove_copy(&mut self, id: u32, copies: Copies, forest: &mut Forest) -> bool {
        match copies {
            Copies::Main(tier) => {
                let Some(count @ 1..) = self.entries[id].counts.get_mut(tier as usize) else {
                    return false;
                };
                *count -= 1;
                if *count == 0 {
                    self.refresh(id, 0, forest);
                }
            }
            Copies::Limit { slot, tier } => {
                let Some(count) = self.limit_counts.get_mut(&(id, slot, tier)) else {
                    return false;
                };
                *count -= 1;
                if *count == 0 {
                    self.limit_counts.remove(&(id, slot, tier));
                    if Tier::ALL
                        .iter()
                        .all(|&tier| !self.limit_counts.contains_key(&(id, slot, tier)))
                    {
                        self.entries[id].limits &= !(1 << slot);
                        self.refresh(id, self.groups.reach(), forest);
                    }
                }
            }
        }
        self.forget_unused(id, forest);
        true
    }

    /// Drops all copies of an entry that has no children.
    pub(super) fn evict(&mut self, id: u32, forest: &mut Forest) -> u32 {
        let parent = self.entries[id].parent;
        self.entries[id].counts = [0; 3];
        if self.entries[id].limits != 0 {
            self.entries[id].limits = 0;
            self.limit_counts.retain(|key, _| key.0 != id);
        }
        self.refresh(id, 0, forest);
        self.forget_unused(id, forest);
        self.is_partial = true;
        parent
    }

    /// Forgets an entry without copies and children, and then its ancestors likewise.
    pub(super) fn forget_unused(&mut self, id: u32, forest: &mut Forest) {
        let mut at = id;
        while at != NONE {
            let entry = &self.entries[at];
            if entry.counts != [0; 3] || entry.limits != 0 || entry.first_child != NONE {
                return;
            }
            let (hash, node, parent) = (entry.hash, entry.node, entry.parent);
            self.unlink(at);
            if let Ok(slot) = self
                .by_hash
                .find_entry(slot_hash(hash), |&other| other == at)
            {
                slot.remove();
            }
            self.entries.free(at);
            if node != NONE {
                forest.release(node);
            }
            at = parent;
        }
    }

    fn unlink(&mut self, id: u32) {
        let entry = &self.entries[id];
        let (parent, prev, next) = (entry.parent, entry.prev_sibling, entry.next_sibling);
        if prev != NONE {
            self.entries[prev].next_sibling = next;
        } else if parent != NONE {
            self.entries[parent].first_child = next;
        }
        if next != NONE {
            self.entries[next].prev_sibling = prev;
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, forest: &mut Forest) {
        for &id in &self.by_hash {
            let entry = &self.entries[id];
            if entry.node == NONE {
                continue;
            }
            if let Some(holder) = self.holders.get(usize::from(entry.credited)) {
                forest.uncover(entry.node, *holder);
            }
            if entry.level != NO_LEVEL {
                forest.remove_live(entry.node);
            }
            forest.release(entry.node);
        }
        self.by_hash.clear();
        self.entries.clear();
        self.limit_counts.clear();
    }

    /// Works out again what follows from the counts: for `id`, for its descendants while levels change, and for those less than `reach` blocks below it.
    pub(super) fn refresh(&mut self, id: u32, reach: u32, forest: &mut Forest) {
        let changed = self.update(id, forest);
        let first_child = self.entries[id].first_child;
        if first_child == NONE || (!changed && reach <= 1) {
            return;
        }
        let mut stack = vec![(first_child, reach.saturating_sub(1))];
        while let Some((at, reach)) = stack.pop() {
            if at == NONE {
                continue;
            }
            stack.push((self.entries[at].next_sibling, reach));
            if self.update(at, forest) || reach > 1 {
                stack.push((self.entries[at].first_child, reach.saturating_sub(1)));
            }
        }
    }

    /// Works out everything again, after a group was met for the first time.
    pub(super) fn refresh_all(&mut self, forest: &mut Forest) {
        let ids: Vec<u32> = self.by_hash.iter().copied().collect();
        for id in ids {
            self.update(id, forest);
        }
    }

    /// Works out one entry; whether its level changed.
    fn update(&mut self, id: u32, forest: &mut Forest) -> bool {
        let level = self.level(id);
        let credited = if level != NO_LEVEL && self.has_windows(id) {
            level
        } else {
            NO_LEVEL
        };
        let entry = &mut self.entries[id];
        let node = entry.node;
        let old_level = core::mem::replace(&mut entry.level, level);
        let old_credited = core::mem::replace(&mut entry.credited, credited);
        if (old_level == NO_LEVEL) != (level == NO_LEVEL) {
            if level == NO_LEVEL {
                forest.remove_live(node);
            } else {
                forest.add_live(node);
            }
        }
        if old_credited != credited {
            if let Some(&holder) = self.holders.get(usize::from(credited)) {
                forest.cover(node, holder);
            }
            if let Some(&holder) = self.holders.get(usize::from(old_credited)) {
                forest.uncover(node, holder);
            }
        }
        old_level != level
    }

    fn level(&self, id: u32) -> u8 {
        let entry = &self.entries[id];
        let own = Tier::ALL
            .into_iter()
            .zip(entry.counts)
            .find(|&(_, count)| count > 0);
        let (Some((own, _)), true) = (own, entry.node != NONE) else {
            return NO_LEVEL;
        };
        let above = if entry.parent == NONE {
            0
        } else {
            self.entries[entry.parent].level
        };
        above.max(own as u8)
    }

    /// Whether every limiting group has the last blocks of its window before the entry's end.
    fn has_windows(&self, id: u32) -> bool {
        let mut at = id;
        let mut depth = 0;
        while at != NONE {
            let required = self.groups.required(depth);
            if required == 0 {
                return true;
            }
            let entry = &self.entries[at];
            if entry.limits & required != required {
                return false;
            }
            at = entry.parent;
            depth += 1;
        }
        true
    }

    /// Tier of the holder that the entry counts for.
    pub(super) fn credited(&self, id: u32) -> Option<HolderId> {
        self.holders
            .get(usize::from(self.entries[id].credited))
            .copied()
    }

    /// Whether the number still stands for an entry; numbers are used again when entries are added.
    pub(super) fn is_known(&self, id: u32) -> bool {
        self.find(self.entries[id].hash) == Some(id)
    }

    /// All entries, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.by_hash.iter().copied()
    }

    /// Whether no other entry hangs below.
    pub(super) fn is_leaf(&self, id: u32) -> bool {
        self.entries[id].first_child == NONE
    }
}
