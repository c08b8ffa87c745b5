//! What one source holds.
//!
//! ```text
//!  engine hash ─► Labels ─► block ── parent ──► block ...   one tree per prompt start
//!                             │ chain, depth                 content
//!                             │ copies per tier              in the main (full attention) group
//!                             │ limits                       bit per limiting group: a copy is there
//!                             └ level, credited              what follows from them
//! ```
//!
//! A block's *level* is the slowest tier on its path: the block's own fastest tier, or its parent's level if that is slower. It has none
//! unless the block and all its ancestors are there. A block counts for the holder of its level, and for no other, if besides every
//! limiting group (sliding windows and the like) has the last blocks of its window.
//!
//! A block without copies and children is forgotten at once. Where that is noticed on the way from another block, its label stays for a
//! while and counts as absent; labels of that kind are swept out when there are many.

mod levels;

use super::blocks::{Block, MANY_COPIES, NO_LEVEL, OpenPages};
use super::branches::Branches;
use super::chain::TokenChain;
use super::groups::Groups;
use super::labels::{Labels, Mixed, Position};
use super::slab::NONE;
use super::store::{Store, Turn};
use crate::endpoint::{HolderId, Tier};
use crate::event::EngineHash;
use hashbrown::HashMap;

/// Which copies a count is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// Blocks of the main group.
    Main(Tier),
    /// Blocks of a limiting group.
    Limit { slot: u8, tier: Tier },
}

/// Slot of the main group in the table of counts.
const MAIN_SLOT: u8 = u8::MAX;

/// One (endpoint, rank): its blocks by engine hash, and how many copies of each there are.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) holders: [HolderId; 3],
    pub(super) groups: Groups,
    pub(super) is_partial: bool,
    number: u32,
    labels: Labels,
    /// Labels of blocks that were forgotten.
    dead: usize,
    open: OpenPages,
    branches: Branches,
    /// Copies in limiting groups, and in the main group where there are many.
    counts: HashMap<(u32, u8, Tier), u32>,
    /// Token ids after the last chunk, of blocks that don't end with one: length and place in the tails.
    tails: HashMap<u32, (u8, u32)>,
}

/// Where a label was looked for.
pub(super) enum Found {
    Known(u32),
    /// Nothing is known of the label; it is there if it has a number.
    Unknown(Position, Option<u32>),
}

impl Source {
    /// A source without blocks. `number` tells sources apart; `key` is secret.
    pub(super) fn new(holders: [HolderId; 3], number: u32, key: u64) -> Self {
        Self {
            holders,
            groups: Groups::default(),
            is_partial: false,
            number,
            labels: Labels::new(key),
            dead: 0,
            open: OpenPages::default(),
            branches: Branches::default(),
            counts: HashMap::new(),
            tails: HashMap::new(),
        }
    }

    /// Blocks known, live or not.
    pub(super) fn len(&self) -> usize {
        self.labels.len() - self.dead
    }

    /// Bytes of what only this source uses, about.
    pub(super) fn bytes(&self) -> usize {
        const PER_COUNT: usize = size_of::<((u32, u8, Tier), u32)>() + 8;
        const PER_TAIL: usize = size_of::<(u32, (u8, u32))>() + 8;
        self.labels.bytes()
            + self.open.bytes()
            + self.branches.bytes()
            + self.counts.len() * PER_COUNT
            + self.tails.len() * PER_TAIL
    }

    /// Reads where labels will be looked for. See [`Labels::touch`].
    pub(super) fn touch_labels(&self, hashes: &[EngineHash]) -> u32 {
        let touch = |sum: u32, &hash: &EngineHash| sum.wrapping_add(self.labels.touch(hash));
        hashes.iter().fold(0, touch)
    }

    pub(super) fn touch_label(&self, hash: EngineHash) -> u32 {
        self.labels.touch(hash)
    }

    /// Block of a label, which may be forgotten.
    pub(super) fn find_label(&self, hash: EngineHash) -> Option<u32> {
        let found = self.labels.find(self.labels.mix(hash)).ok();
        found.map(|(_, id)| id)
    }

    pub(super) fn find(&self, hash: EngineHash, store: &Store) -> Option<u32> {
        let (_, id) = self.labels.find(self.labels.mix(hash)).ok()?;
        store.blocks[id].is_in_use().then_some(id)
    }

    pub(super) fn look_up(&self, hash: EngineHash, store: &Store) -> (Mixed, Found) {
        let mixed = self.labels.mix(hash);
        let found = match self.labels.find(mixed) {
            Ok((_, id)) if store.blocks[id].is_in_use() => Found::Known(id),
            Ok((position, id)) => Found::Unknown(position, Some(id)),
            Err(position) => Found::Unknown(position, None),
        };
        (mixed, found)
    }

    /// Makes the block of a label of which nothing is known, close to its parent.
    pub(super) fn add(
        &mut self,
        mixed: Mixed,
        (position, dead): (Position, Option<u32>),
        parent: u32,
        store: &mut Store,
    ) -> u32 {
        if let Some(id) = dead {
            self.dead -= 1;
            store.blocks.revive();
            store.blocks.write(id, Block::UNKNOWN);
            return id;
        }
        self.add_block((mixed, position), Block::UNKNOWN, parent, store)
    }

    /// Makes `block` of a label that is not there, close to the block above and hung under it.
    #[inline]
    pub(super) fn add_written(
        &mut self,
        label: (Mixed, Position),
        block: Block,
        store: &mut Store,
    ) -> u32 {
        let id = self.add_block(label, block, block.parent, store);
        self.branch(id, block.parent, store);
        id
    }

    #[inline]
    fn add_block(
        &mut self,
        (mixed, position): (Mixed, Position),
        block: Block,
        parent: u32,
        store: &mut Store,
    ) -> u32 {
        let id = store.blocks.allocate(parent, &mut self.open, self.number);
        store.blocks.write(id, block);
        self.labels.insert(position, mixed, id);
        id
    }

    pub(super) fn find_or_add(&mut self, hash: EngineHash, store: &mut Store) -> u32 {
        match self.look_up(hash, store) {
            (_, Found::Known(id)) => id,
            (mixed, Found::Unknown(position, dead)) => {
                self.add(mixed, (position, dead), NONE, store)
            }
        }
    }

    /// Hangs a block under its parent (`NONE` for the first block of a prompt).
    pub(super) fn link(&mut self, id: u32, parent: u32, store: &mut Store) {
        store.blocks[id].parent = parent;
        self.branch(id, parent, store);
    }

    /// Keeps which block is the child, where that doesn't follow from the slots.
    #[inline]
    fn branch(&mut self, id: u32, parent: u32, store: &mut Store) {
        if parent != NONE && parent + 1 != id {
            self.branches.insert(parent, id);
            store.blocks[parent].set_branches(true);
        }
    }

    fn unlink(&mut self, id: u32, store: &mut Store) {
        let parent = store.blocks[id].parent;
        if parent != NONE && parent + 1 != id && self.branches.remove(parent, id) {
            store.blocks[parent].set_branches(false);
        }
    }

    /// Whether no other block hangs below.
    pub(super) fn is_leaf(id: u32, store: &Store) -> bool {
        !store.blocks[id].has_branches() && store.blocks.next_child(id).is_none()
    }

    fn is_unused(id: u32, store: &Store) -> bool {
        !store.blocks[id].has_copies() && store.blocks.limits(id) == 0 && Self::is_leaf(id, store)
    }

    /// Where a placed block's token ids end.
    pub(super) fn chain(&self, id: u32, store: &Store) -> TokenChain {
        let block = &store.blocks[id];
        let mut chain = TokenChain::at(block.chain, block.depth, block.is_opaque());
        if chain.tail_len() > 0
            && let Some(&(len, at)) = self.tails.get(&id)
        {
            store.tails.read(usize::from(len), at, chain.tail_mut());
        }
        chain
    }

    /// Whether the block is the one whose token ids end there.
    pub(super) fn is_chain(&self, id: u32, chain: &TokenChain, store: &Store) -> bool {
        let block = &store.blocks[id];
        (block.chain, block.depth, block.is_opaque()) == (chain.hash, chain.depth, chain.is_opaque)
            && (chain.tail_len() == 0 || self.chain(id, store).tail() == chain.tail())
    }

    /// Keeps the end of a block's token ids.
    pub(super) fn set_chain(&mut self, id: u32, chain: &TokenChain, store: &mut Store) {
        let block = &mut store.blocks[id];
        block.chain = chain.hash;
        block.depth = chain.depth;
        block.set_opaque(chain.is_opaque);
        block.set_placed();
        self.keep_tail(id, chain, store);
    }

    /// Keeps the token ids after a chain's last chunk.
    pub(super) fn keep_tail(&mut self, id: u32, chain: &TokenChain, store: &mut Store) {
        let tail = chain.tail();
        if tail.is_empty() {
            return;
        }
        // Shorter than a chunk.
        let len = u8::try_from(tail.len()).unwrap_or_default();
        self.tails.insert(id, (len, store.tails.insert(tail)));
    }

    /// Copies counted.
    pub(super) fn count(&self, id: u32, copies: Copies, store: &Store) -> u32 {
        let key = match copies {
            Copies::Main(tier) => match store.blocks[id].copies(tier) {
                MANY_COPIES => (id, MAIN_SLOT, tier),
                few => return few,
            },
            Copies::Limit { slot, tier } => (id, slot, tier),
        };
        self.counts.get(&key).copied().unwrap_or(0)
    }

    /// Sets how many copies of a tier of the main group there are.
    fn set_main_count(&mut self, id: u32, tier: Tier, count: u32, store: &mut Store) {
        let key = (id, MAIN_SLOT, tier);
        if count >= MANY_COPIES {
            self.counts.insert(key, count);
        } else if store.blocks[id].copies(tier) == MANY_COPIES {
            self.counts.remove(&key);
        }
        store.blocks[id].set_copies(tier, count.min(MANY_COPIES));
    }

    /// Counts one copy more. `is_placed_now` says that the block's content has just become known.
    pub(super) fn add_copy(
        &mut self,
        id: u32,
        copies: Copies,
        is_placed_now: bool,
        store: &mut Store,
    ) {
        let count = self.count(id, copies, store).saturating_add(1);
        match copies {
            Copies::Main(tier) => {
                self.set_main_count(id, tier, count, store);
                if count == 1 || is_placed_now {
                    self.refresh(id, 0, store);
                }
            }
            Copies::Limit { slot, tier } => {
                self.counts.insert((id, slot, tier), count);
                let limits = store.blocks.limits(id);
                store.blocks.set_limits(id, limits | 1 << slot);
                self.refresh(id, self.groups.reach(), store);
            }
        }
    }

    /// Counts one copy of a label's block less and forgets the block if nothing is left of it; false if there was none.
    pub(super) fn remove(&mut self, hash: EngineHash, copies: Copies, store: &mut Store) -> bool {
        let Ok((position, id)) = self.labels.find(self.labels.mix(hash)) else {
            return false;
        };
        if !store.blocks[id].is_in_use() || !self.remove_copy(id, copies, store) {
            return false;
        }
        self.forget_unused(id, Some(position), store);
        true
    }

    fn remove_copy(&mut self, id: u32, copies: Copies, store: &mut Store) -> bool {
        let Some(count) = self.count(id, copies, store).checked_sub(1) else {
            return false;
        };
        match copies {
            Copies::Main(tier) => {
                self.set_main_count(id, tier, count, store);
                // What is not needed any more will be given up as a whole.
                if count == 0 && !Self::is_unused(id, store) {
                    self.refresh(id, 0, store);
                }
            }
            Copies::Limit { slot, tier } => {
                if count > 0 {
                    self.counts.insert((id, slot, tier), count);
                    return true;
                }
                self.counts.remove(&(id, slot, tier));
                let is_elsewhere = |tier| self.counts.contains_key(&(id, slot, tier));
                if !Tier::ALL.into_iter().any(is_elsewhere) {
                    let limits = store.blocks.limits(id);
                    store.blocks.set_limits(id, limits & !(1 << slot));
                    self.refresh(id, self.groups.reach(), store);
                }
            }
        }
        true
    }

    /// Drops all copies of a block that has no children. Gives the ancestor that is still there.
    pub(super) fn evict(&mut self, id: u32, store: &mut Store) -> u32 {
        for tier in Tier::ALL {
            self.set_main_count(id, tier, 0, store);
        }
        if store.blocks.limits(id) != 0 {
            store.blocks.set_limits(id, 0);
            let slots = self.groups.limit_slots();
            for (slot, tier) in slots.flat_map(|slot| Tier::ALL.map(|tier| (slot, tier))) {
                self.counts.remove(&(id, slot, tier));
            }
        }
        self.is_partial = true;
        self.forget_unused(id, None, store)
    }

    /// Forgets a block without copies and children, and then its ancestors likewise. `label` is where its label is, if that is known.
    /// Gives the first one that is still needed.
    fn forget_unused(&mut self, id: u32, label: Option<Position>, store: &mut Store) -> u32 {
        let mut label = label;
        let mut at = id;
        while at != NONE {
            let block = store.blocks[at];
            if !Self::is_unused(at, store) {
                break;
            }
            if block.is_placed() {
                self.give_up(at, store);
                self.unlink(at, store);
                self.drop_tail(at, store);
            }
            store.blocks.kill(at);
            if let Some(position) = label.take() {
                self.labels.remove(position);
                store.blocks.free(at, &mut self.open);
            } else {
                self.dead += 1;
            }
            at = block.parent;
        }
        at
    }

    fn drop_tail(&mut self, id: u32, store: &mut Store) {
        if !self.tails.is_empty()
            && let Some((len, at)) = self.tails.remove(&id)
        {
            store.tails.free(usize::from(len), at);
        }
    }

    /// Gives back what forgotten blocks still take, if it is much or `now`.
    pub(super) fn sweep(&mut self, now: bool, store: &mut Store) {
        if self.dead == 0 || (!now && self.dead <= 64 + self.labels.len() / 8) {
            return;
        }
        let open = &mut self.open;
        self.labels.retain(|id| {
            let is_in_use = store.blocks[id].is_in_use();
            if !is_in_use {
                store.blocks.free(id, open);
            }
            is_in_use
        });
        self.dead = 0;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, store: &mut Store) {
        for id in self.labels.ids() {
            let block = store.blocks[id];
            if block.is_in_use() && block.is_placed() {
                self.give_up(id, store);
            }
        }
        for &(len, at) in self.tails.values() {
            store.tails.free(usize::from(len), at);
        }
        for id in self.labels.ids() {
            if store.blocks[id].is_in_use() {
                store.blocks.set_limits(id, 0);
                store.blocks.kill(id);
            }
            store.blocks.free(id, &mut self.open);
        }
        self.labels.clear();
        self.open = OpenPages::default();
        self.branches.clear();
        self.counts = HashMap::new();
        self.tails = HashMap::new();
        self.dead = 0;
    }

    /// Takes back all that a block stands for, and all that it refers to.
    fn give_up(&self, id: u32, store: &mut Store) {
        let block = store.blocks[id];
        let turn = Turn {
            is_live: (block.level() != NO_LEVEL).then_some(false),
            gained: None,
            lost: self.holders.get(usize::from(block.credited())).copied(),
            is_released: true,
        };
        store.turn(id, &turn);
    }

    /// Holder that the block counts for.
    pub(super) fn credited(&self, id: u32, store: &Store) -> Option<HolderId> {
        let credited = store.blocks[id].credited();
        self.holders.get(usize::from(credited)).copied()
    }

    /// All blocks, in no order.
    pub(super) fn ids(&self, store: &Store) -> impl Iterator<Item = u32> {
        self.labels.ids().filter(|&id| store.blocks[id].is_in_use())
    }
}
