//! Numbered slots in one vector that grows gently.

use core::ops;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Elements from which on vectors grow in smaller steps: by then they are mapped, and growing moves pages and not bytes.
const MANY: usize = 1 << 18;

/// Makes room for one more element by an eighth or a thirty-second at a time: doubling would leave a third of the memory unused on average.
pub(super) fn make_room<T>(slots: &mut Vec<T>) {
    if slots.len() == slots.capacity() {
        let step = if slots.len() < MANY { 8 } else { 32 };
        slots.reserve_exact(slots.len() / step + 64);
    }
}

/// A vector whose freed slots are used again, the last one freed first.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores a value and returns its number.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = value;
            return id;
        }
        make_room(&mut self.slots);
        // The index's byte bound is reached long before 2^32 slots.
        let id = u32::try_from(self.slots.len()).unwrap_or(NONE);
        self.slots.push(value);
        id
    }

    /// Gives a slot back. Its old value stays in it until the slot is used again.
    pub(super) fn free(&mut self, id: u32) {
        make_room(&mut self.free);
        self.free.push(id);
    }

    /// Number after the last slot, freed ones included.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    /// Occupied slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<T> ops::Index<u32> for Slab<T> {
    type Output = T;

    #[expect(
        clippy::indexing_slicing,
        reason = "numbers come only from insert of the same slab"
    )]
    fn index(&self, id: u32) -> &T {
        &self.slots[id as usize]
    }
}

impl<T> ops::IndexMut<u32> for Slab<T> {
    #[expect(
        clippy::indexing_slicing,
        reason = "numbers come only from insert of the same slab"
    )]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.slots[id as usize]
    }
}
