//! Rungs: what is published.
//!
//! ```text
//!  hash ─► Rung { prev, refs, holders: holder → live blocks, depths: tokens → live blocks }
//!                  │
//!                  └► the next shallower rung of the same text
//! ```
//!
//! A rung is kept as long as a node or a speculation refers to it, and published while a live block covers it or a speculation credits it.
//! Its holders and its token depth are counted, so both are functions of what is live and not of the order in which it came.
//! Speculative credit is counted apart.

use super::arena::{Arena, NONE};
use super::counts::Counts;
use super::{Changes, RungChange};
use crate::endpoint::HolderId;
use hashbrown::{HashMap, HashTable};

#[derive(Debug)]
struct Rung {
    hash: u64,
    prev: u32,
    refs: u32,
    holders: Counts,
    depths: Counts,
    dirty: bool,
    published: bool,
    speculated: bool,
}

/// Speculative credit of one rung.
#[derive(Debug, Default)]
struct Speculated {
    holders: Counts,
    depths: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Rungs {
    arena: Arena<Rung>,
    by_hash: HashTable<u32>,
    dirty: Vec<u32>,
    speculated: HashMap<u32, Speculated>,
    /// Holders that events newly put on rungs with speculative credit.
    confirmed: Vec<(u32, HolderId)>,
    /// Keys in all counts beyond those kept in place, about.
    listed: usize,
}

impl Rungs {
    /// Number of rungs kept.
    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        const PER_RUNG: usize = size_of::<Rung>() + 8;
        const PER_SPECULATED: usize = size_of::<(u32, Speculated)>() + 8;
        self.arena.len() * PER_RUNG + self.listed * 8 + self.speculated.len() * PER_SPECULATED
    }

    /// The next shallower rung of the same text, or `NONE`.
    pub(super) fn prev(&self, id: u32) -> u32 {
        self.arena[id].prev
    }

    /// Finds or makes the rung of `hash` and refers to it; `prev` is the next shallower one of the same text.
    pub(super) fn acquire(&mut self, hash: u64, prev: u32) -> u32 {
        let id = self.find_or_insert(hash);
        let rung = &mut self.arena[id];
        if rung.refs == 0 {
            rung.prev = prev;
        }
        rung.refs += 1;
        id
    }

    /// Gives a reference back.
    pub(super) fn release(&mut self, id: u32) {
        let rung = &mut self.arena[id];
        rung.refs -= 1;
        if rung.refs == 0 {
            self.mark(id);
        }
    }

    fn find_or_insert(&mut self, hash: u64) -> u32 {
        if let Some(&id) = self.by_hash.find(hash, |&id| self.arena[id].hash == hash) {
            return id;
        }
        let id = self.arena.insert(Rung {
            hash,
            prev: NONE,
            refs: 0,
            holders: Counts::Empty,
            depths: Counts::Empty,
            dirty: false,
            published: false,
            speculated: false,
        });
        self.by_hash
            .insert_unique(hash, id, |&id| self.arena[id].hash);
        id
    }

    fn mark(&mut self, id: u32) {
        let rung = &mut self.arena[id];
        if !rung.dirty {
            rung.dirty = true;
            self.dirty.push(id);
        }
    }

    /// One more live block of `holder` covers the rung.
    pub(super) fn cover(&mut self, id: u32, holder: HolderId) {
        let rung = &mut self.arena[id];
        if rung.holders.add(holder.0) {
            if rung.speculated {
                self.confirmed.push((id, holder));
            }
            self.listed += 1;
            self.mark(id);
        }
    }

    /// One live block of `holder` less covers the rung.
    pub(super) fn uncover(&mut self, id: u32, holder: HolderId) {
        if self.arena[id].holders.remove(holder.0) {
            self.listed -= 1;
            self.mark(id);
        }
    }

    /// One more live block gives the rung a token depth of `tokens`.
    pub(super) fn add_depth(&mut self, id: u32, tokens: u32) {
        let depths = &mut self.arena[id].depths;
        let before = depths.max();
        if depths.add(tokens) {
            self.listed += 1;
            if before.is_none_or(|before| before < tokens) {
                self.mark(id);
            }
        }
    }

    /// One live block less gives the rung a token depth of `tokens`.
    pub(super) fn remove_depth(&mut self, id: u32, tokens: u32) {
        let depths = &mut self.arena[id].depths;
        if depths.remove(tokens) {
            self.listed -= 1;
            if depths.max().is_none_or(|left| left < tokens) {
                self.mark(id);
            }
        }
    }

    /// Rungs with speculative credit and holders that events have put on them since the last call.
    pub(super) fn take_confirmed(&mut self) -> Vec<(u32, HolderId)> {
        core::mem::take(&mut self.confirmed)
    }

    /// Whether a live block of `holder` covers the rung.
    pub(super) fn is_covered(&self, id: u32, holder: HolderId) -> bool {
        self.arena[id].holders.contains(holder.0)
    }

    /// Credits `holder` speculatively with `tokens` at the rung of `hash`, and returns the rung.
    pub(super) fn speculate(&mut self, hash: u64, holder: HolderId, tokens: u32) -> u32 {
        let id = self.find_or_insert(hash);
        let credit = self.speculated.entry(id).or_default();
        let holder_new = credit.holders.add(holder.0);
        let depth_new = credit.depths.add(tokens);
        self.listed += usize::from(holder_new) + usize::from(depth_new);
        self.arena[id].speculated = true;
        self.mark(id);
        id
    }

    /// Takes back what `speculate` gave.
    pub(super) fn unspeculate(&mut self, id: u32, holder: HolderId, tokens: u32) {
        let Some(credit) = self.speculated.get_mut(&id) else {
            return;
        };
        let holder_gone = credit.holders.remove(holder.0);
        let depth_gone = credit.depths.remove(tokens);
        self.listed -= usize::from(holder_gone) + usize::from(depth_gone);
        if credit.holders.is_empty() {
            self.speculated.remove(&id);
            self.arena[id].speculated = false;
        }
        self.mark(id);
    }

    /// What changed since the last call, and frees rungs nothing refers to.
    pub(super) fn take_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for id in core::mem::take(&mut self.dirty) {
            let change = self.publishable(id);
            let rung = &mut self.arena[id];
            rung.dirty = false;
            if let Some(change) = change {
                rung.published = true;
                changes.upserts.push(change);
                continue;
            }
            if core::mem::take(&mut rung.published) {
                changes.removes.push(rung.hash);
            }
            if rung.refs == 0 {
                let hash = rung.hash;
                if let Ok(entry) = self.by_hash.find_entry(hash, |&other| other == id) {
                    entry.remove();
                }
                self.arena.free(id);
            }
        }
        changes
    }

    /// Every rung that is to be published, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = RungChange> {
        self.by_hash.iter().filter_map(|&id| self.publishable(id))
    }

    fn publishable(&self, id: u32) -> Option<RungChange> {
        let rung = &self.arena[id];
        let credit = if rung.speculated {
            self.speculated.get(&id)
        } else {
            None
        };
        // Live state says how deep the rung is; a speculation only where nothing is live.
        let token_depth = rung
            .depths
            .max()
            .or_else(|| credit.and_then(|credit| credit.depths.max()))?;
        let mut holders: Vec<HolderId> = rung.holders.keys().map(HolderId).collect();
        if let Some(credit) = credit {
            holders.extend(credit.holders.keys().map(HolderId));
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
