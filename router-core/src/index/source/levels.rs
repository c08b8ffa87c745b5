//! What follows from a block's copies: its level, and the holder that it counts for.

use super::Source;
use crate::index::blocks::{Block, NO_LEVEL};
use crate::index::slab::NONE;
use crate::index::store::{Store, Turn};

impl Source {
    /// Works out again what follows from the copies: for `id`, for its descendants while levels change, and for those less than `reach`
    /// blocks below it.
    pub(in crate::index) fn refresh(&mut self, id: u32, reach: u32, store: &mut Store) {
        let changed = self.update(id, store);
        if (!changed && reach <= 1) || Self::is_leaf(id, store) {
            return;
        }
        let mut stack = vec![(id, reach)];
        while let Some((parent, reach)) = stack.pop() {
            let reach = reach.saturating_sub(1);
            let next = store.blocks.next_child(parent);
            let branches = store.blocks[parent]
                .has_branches()
                .then(|| self.branches.of(parent));
            for child in next.into_iter().chain(branches.into_iter().flatten()) {
                if self.update(child, store) || reach > 1 {
                    stack.push((child, reach));
                }
            }
        }
    }

    /// Works out everything again, after a group was met for the first time.
    pub(in crate::index) fn refresh_all(&mut self, store: &mut Store) {
        for id in self.ids(store).collect::<Vec<u32>>() {
            self.update(id, store);
        }
    }

    /// Works out one block; whether its level changed.
    fn update(&self, id: u32, store: &mut Store) -> bool {
        let block = store.blocks[id];
        let level = Self::level_of(&block, store);
        let credited = if level != NO_LEVEL && self.has_windows(id, store) {
            level
        } else {
            NO_LEVEL
        };
        let (old_level, old_credited) = (block.level(), block.credited());
        if (old_level, old_credited) == (level, credited) {
            return false;
        }
        store.blocks[id].set_state(level, credited);
        let was_live = old_level != NO_LEVEL;
        let is_live = level != NO_LEVEL;
        let credit = |credited: u8| self.holders.get(usize::from(credited)).copied();
        let moves = old_credited != credited;
        let turn = Turn {
            is_live: (was_live != is_live).then_some(is_live),
            gained: credit(credited).filter(|_| moves),
            lost: credit(old_credited).filter(|_| moves),
            is_released: false,
        };
        store.turn(id, &turn);
        old_level != level
    }

    fn level_of(block: &Block, store: &Store) -> u8 {
        let (Some(own), true) = (block.fastest(), block.is_placed()) else {
            return NO_LEVEL;
        };
        if block.parent == NONE {
            return own;
        }
        store.blocks[block.parent].level().max(own)
    }

    /// Whether every limiting group has the last blocks of its window before the block's end.
    fn has_windows(&self, id: u32, store: &Store) -> bool {
        if !self.groups.has_limits() {
            return true;
        }
        let mut at = id;
        let mut depth = 0;
        while at != NONE {
            let required = self.groups.required(depth);
            if required == 0 {
                return true;
            }
            if store.blocks.limits(at) & required != required {
                return false;
            }
            at = store.blocks[at].parent;
            depth += 1;
        }
        true
    }
}
