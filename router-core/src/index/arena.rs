//! Slots with stable `u32` numbers.

use core::ops;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A vector whose freed slots are used again.
#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Arena<T> {
    /// Stores a value and returns its number.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = value;
            return id;
        }
        // The index's byte bound is reached long before 2^32 slots.
        let id = u32::try_from(self.slots.len()).unwrap_or(NONE);
        self.slots.push(value);
        id
    }

    /// Gives a slot back. Its old value stays in it until the slot is used again.
    pub(super) fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Occupied slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

impl<T> ops::Index<u32> for Arena<T> {
    type Output = T;

    #[expect(
        clippy::indexing_slicing,
        reason = "numbers come only from insert of the same arena"
    )]
    fn index(&self, id: u32) -> &T {
        &self.slots[id as usize]
    }
}

impl<T> ops::IndexMut<u32> for Arena<T> {
    #[expect(
        clippy::indexing_slicing,
        reason = "numbers come only from insert of the same arena"
    )]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.slots[id as usize]
    }
}
