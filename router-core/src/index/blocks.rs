//! All blocks of all sources, 24 bytes each.
//!
//! ```text
//!  number   0 ........ 63 | 64 ....... 127 | ...         pages of 64; a page belongs to one source
//!  blocks   chain 8 · parent 4 · rung 4 · depth 4 · meta 4
//!  texts    chain 8 · rung 4 · place 4 · tail 4          once a model has a vocabulary
//!  limits   bit per limiting group                       once an engine has several KV cache groups
//! ```
//!
//! A block is put into the slot after its parent's if that is free, so that most of a chain lies in consecutive slots, and which block is
//! the child of which need not be kept. A page without blocks goes back to all sources.

use super::slab::{NONE, make_room};
use crate::endpoint::Tier;
use core::ops;

/// Slots of a page.
const PAGE: u32 = 64;
/// No tier.
pub(super) const NO_LEVEL: u8 = 3;
/// Copies of a tier that are counted in the block itself; from here on the source's table says how many there are.
pub(super) const MANY_COPIES: u32 = 3;

const LEVEL: u32 = 6;
const CREDITED: u32 = 8;
const TWO_BITS: u32 = 3;
const PLACED: u32 = 1 << 10;
const BRANCHES: u32 = 1 << 11;
const OPAQUE: u32 = 1 << 12;
const REACHES: u32 = 1 << 13;
const IN_USE: u32 = 1 << 14;
const LOOKS_AHEAD: u32 = 1 << 15;
const TOUCHED: u32 = 16;

/// A block of one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Hash of everything from the start of the prompt to the block's last whole chunk of token ids: its identity.
    pub(super) chain: u64,
    /// Block above, `NONE` for the first of a prompt.
    pub(super) parent: u32,
    /// Deepest token-space rung at or before the block's end, or `NONE`.
    pub(super) rung: u32,
    /// Tokens from the start of the prompt to the block's end.
    pub(super) depth: u32,
    /// ```text
    ///  0..6    copies per tier, two bits each    10  content is known     13  gives its own depth to its rung
    ///  6..8    level                             11  has children that    14  slot in use
    ///  8..10   tier it counts for                    are not in the next  15  its hash covers tokens after its end
    ///                                                slot                 16..32  when it was stored last
    ///                                            12  image on its path
    /// ```
    meta: u32,
}

impl Block {
    /// A block of which nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        chain: 0,
        parent: NONE,
        rung: NONE,
        depth: 0,
        meta: IN_USE | (NO_LEVEL as u32) << LEVEL | (NO_LEVEL as u32) << CREDITED,
    };

    const FREE: Self = Self {
        chain: 0,
        parent: NONE,
        rung: NONE,
        depth: 0,
        meta: 0,
    };

    /// A block whose content is known.
    pub(super) fn plain(chain: u64, parent: u32, rung: u32, depth: u32) -> Self {
        Self {
            chain,
            parent,
            rung,
            depth,
            meta: IN_USE | PLACED,
        }
    }

    /// Gives a block without copies one in `tier`, and its level, for which it counts.
    pub(super) fn set_copy(&mut self, tier: Tier, level: u8) {
        self.set_copies(tier, 1);
        self.set_state(level, level);
    }

    fn set(&mut self, flag: u32, is_set: bool) {
        self.meta = if is_set {
            self.meta | flag
        } else {
            self.meta & !flag
        };
    }

    fn has(&self, flag: u32) -> bool {
        self.meta & flag != 0
    }

    fn two_bits(&self, at: u32) -> u32 {
        self.meta >> at & TWO_BITS
    }

    fn set_two_bits(&mut self, at: u32, value: u32) {
        self.meta = self.meta & !(TWO_BITS << at) | (value & TWO_BITS) << at;
    }

    /// Copies of the tier, or [`MANY_COPIES`].
    pub(super) fn copies(&self, tier: Tier) -> u32 {
        self.two_bits(tier as u32 * 2)
    }

    pub(super) fn set_copies(&mut self, tier: Tier, copies: u32) {
        self.set_two_bits(tier as u32 * 2, copies);
    }

    pub(super) fn has_copies(&self) -> bool {
        self.meta & 0x3f != 0
    }

    /// Fastest tier with a copy.
    pub(super) fn fastest(&self) -> Option<u8> {
        let lowest = (self.meta & 0x3f).trailing_zeros() / 2;
        u8::try_from(lowest).ok().filter(|&tier| tier < 3)
    }

    #[expect(clippy::cast_possible_truncation, reason = "two bits")]
    pub(super) fn level(&self) -> u8 {
        self.two_bits(LEVEL) as u8
    }

    #[expect(clippy::cast_possible_truncation, reason = "two bits")]
    pub(super) fn credited(&self) -> u8 {
        self.two_bits(CREDITED) as u8
    }

    pub(super) fn set_state(&mut self, level: u8, credited: u8) {
        self.set_two_bits(LEVEL, u32::from(level));
        self.set_two_bits(CREDITED, u32::from(credited));
    }

    pub(super) fn is_placed(&self) -> bool {
        self.has(PLACED)
    }

    pub(super) fn set_placed(&mut self) {
        self.set(PLACED, true);
    }

    pub(super) fn has_branches(&self) -> bool {
        self.has(BRANCHES)
    }

    pub(super) fn set_branches(&mut self, has_branches: bool) {
        self.set(BRANCHES, has_branches);
    }

    pub(super) fn is_opaque(&self) -> bool {
        self.has(OPAQUE)
    }

    pub(super) fn set_opaque(&mut self, is_opaque: bool) {
        self.set(OPAQUE, is_opaque);
    }

    pub(super) fn reaches(&self) -> bool {
        self.has(REACHES)
    }

    pub(super) fn set_reaches(&mut self, reaches: bool) {
        self.set(REACHES, reaches);
    }

    pub(super) fn looks_ahead(&self) -> bool {
        self.has(LOOKS_AHEAD)
    }

    pub(super) fn set_looks_ahead(&mut self, looks_ahead: bool) {
        self.set(LOOKS_AHEAD, looks_ahead);
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.has(IN_USE)
    }

    pub(super) fn touched(&self) -> u16 {
        (self.meta >> TOUCHED) as u16
    }

    pub(super) fn touch(&mut self, now: u16) {
        self.meta = self.meta & 0xffff | u32::from(now) << TOUCHED;
    }
}

/// Where a block's text ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    chain: [u32; 2],
    /// Deepest text-space rung at or before the block's end, or `NONE`.
    pub(super) rung: u32,
    /// Whole chunks (25 bits), whether the block gives its own depth to its rung (1 bit), bytes after the last chunk (6 bits); all ones
    /// where the text is not known.
    place: u32,
    /// Where the bytes after the last chunk are kept.
    pub(super) tail: u32,
}

/// Deepest chunk count that is kept; what is deeper has no text.
pub(super) const MAX_CHUNKS: u32 = (1 << 25) - 2;

impl Text {
    pub(super) const UNKNOWN: Self = Self {
        chain: [0; 2],
        rung: NONE,
        place: u32::MAX,
        tail: NONE,
    };

    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
    pub(super) fn new(chain: u64, rung: u32, chunks: u32, reaches: bool, tail: (u8, u32)) -> Self {
        debug_assert!(chunks <= MAX_CHUNKS && tail.0 < 64);
        Self {
            chain: [chain as u32, (chain >> 32) as u32],
            rung,
            place: chunks << 7 | u32::from(reaches) << 6 | u32::from(tail.0),
            tail: tail.1,
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.place != u32::MAX
    }

    /// Chunk hash at the last chunk end at or before the block's end.
    pub(super) fn chain(&self) -> u64 {
        let [low, high] = self.chain;
        u64::from(low) | u64::from(high) << 32
    }

    pub(super) fn chunks(&self) -> u32 {
        self.place >> 7
    }

    pub(super) fn reaches(&self) -> bool {
        self.place & 1 << 6 != 0
    }

    pub(super) fn tail_len(&self) -> u8 {
        (self.place & 0x3f) as u8
    }
}

#[derive(Clone, Copy, Debug)]
struct Page {
    owner: u32,
    /// Whether the owner's list has it.
    is_listed: bool,
    /// A bit for each free slot.
    free: u64,
}

/// A source's pages with free slots. Pages that filled up or went back since are dropped when they come up.
#[derive(Debug, Default)]
pub(super) struct OpenPages(Vec<u32>);

/// Open pages that are looked at for the one with most room.
const LOOKED_AT: usize = 8;

impl OpenPages {
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * 4
    }
}

/// All blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    texts: Vec<Text>,
    limits: Vec<u16>,
    pages: Vec<Page>,
    free_pages: Vec<u32>,
    len: usize,
    has_texts: bool,
    has_limits: bool,
}

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "numbers come only from `allocate`, and a page has 64 slots"
)]
impl Blocks {
    /// Bytes of the blocks in use, about.
    pub(super) fn bytes(&self) -> usize {
        let each = size_of::<Block>()
            + usize::from(self.has_texts) * size_of::<Text>()
            + usize::from(self.has_limits) * size_of::<u16>();
        self.len * each
    }

    /// A slot for a block of `owner`, which counts as in use and must be written: the one after its parent's, if it is free.
    #[inline]
    pub(super) fn allocate(&mut self, parent: u32, open: &mut OpenPages, owner: u32) -> u32 {
        self.len += 1;
        let next = parent.wrapping_add(1);
        if parent != NONE
            && let Some(page) = self.pages.get_mut((next / PAGE) as usize)
            && page.owner == owner
            && page.free >> (next % PAGE) & 1 != 0
        {
            page.free &= !(1 << (next % PAGE));
            return next;
        }
        self.allocate_anywhere(open, owner)
    }

    fn allocate_anywhere(&mut self, open: &mut OpenPages, owner: u32) -> u32 {
        while let Some(&last) = open.0.last() {
            let room = |&page: &u32| {
                let state = &self.pages[page as usize];
                if state.owner == owner {
                    state.free.count_ones()
                } else {
                    0
                }
            };
            let page = open
                .0
                .iter()
                .rev()
                .take(LOOKED_AT)
                .copied()
                .max_by_key(room);
            if let Some(page) = page.filter(|page| room(page) > 0) {
                let state = &mut self.pages[page as usize];
                let slot = state.free.trailing_zeros();
                state.free &= state.free - 1;
                return page * PAGE + slot;
            }
            open.0.pop();
            let state = &mut self.pages[last as usize];
            state.is_listed &= state.owner != owner;
        }
        let page = self.take_page(owner);
        open.0.push(page);
        page * PAGE
    }

    /// A page of `owner` of which the first slot is taken.
    fn take_page(&mut self, owner: u32) -> u32 {
        let taken = Page {
            owner,
            is_listed: true,
            free: !1,
        };
        let page = self.free_pages.pop().unwrap_or_else(|| {
            let page = self.pages.len() as u32;
            make_room(&mut self.pages);
            self.pages.push(taken);
            self.grow_columns();
            page
        });
        self.pages[page as usize] = taken;
        page
    }

    fn grow_columns(&mut self) {
        fn grow<T: Clone>(column: &mut Vec<T>, len: usize, value: T) {
            while column.len() < len {
                make_room(column);
                let room = column.capacity().min(len) - column.len();
                column.extend(core::iter::repeat_n(value.clone(), room));
            }
        }
        let len = self.pages.len() * PAGE as usize;
        grow(&mut self.slots, len, Block::FREE);
        if self.has_texts {
            grow(&mut self.texts, len, Text::UNKNOWN);
        }
        if self.has_limits {
            grow(&mut self.limits, len, 0);
        }
    }

    /// Takes a block out of use. What it said besides its parent can be read until it is used again.
    pub(super) fn kill(&mut self, id: u32) {
        let block = &mut self[id];
        block.set(IN_USE, false);
        block.parent = NONE;
        self.len -= 1;
    }

    /// Counts a block that was out of use as in use again; it must be written.
    pub(super) fn revive(&mut self) {
        self.len += 1;
    }

    /// Writes a block of which no text is known.
    pub(super) fn write(&mut self, id: u32, block: Block) {
        self[id] = block;
        self.set_text(id, Text::UNKNOWN);
    }

    /// Gives the slot of a block that is out of use back.
    pub(super) fn free(&mut self, id: u32, open: &mut OpenPages) {
        let page = id / PAGE;
        let state = &mut self.pages[page as usize];
        state.free |= 1 << (id % PAGE);
        if state.free == u64::MAX {
            state.owner = NONE;
            self.free_pages.push(page);
        } else if !state.is_listed {
            state.is_listed = true;
            open.0.push(page);
        }
    }

    /// Reads the slots after a block's, where those that follow on it will be written. The sum means nothing.
    pub(super) fn touch_after(&self, id: u32) -> u32 {
        const LINE: usize = 64 / size_of::<Block>();
        let slot = |at: usize| self.slots.get(id as usize + at).map_or(0, |slot| slot.meta);
        (1..=16)
            .step_by(LINE)
            .fold(0, |sum: u32, at| sum.wrapping_add(slot(at)))
    }

    /// The child in the next slot.
    pub(super) fn next_child(&self, id: u32) -> Option<u32> {
        let next = id + 1;
        self.slots
            .get(next as usize)
            .is_some_and(|block| block.parent == id && block.is_in_use())
            .then_some(next)
    }

    /// Keeps a text column from now on.
    pub(super) fn need_texts(&mut self) {
        self.has_texts = true;
        self.grow_columns();
    }

    pub(super) fn has_texts(&self) -> bool {
        self.has_texts
    }

    pub(super) fn text(&self, id: u32) -> Text {
        self.texts
            .get(id as usize)
            .copied()
            .unwrap_or(Text::UNKNOWN)
    }

    pub(super) fn set_text(&mut self, id: u32, text: Text) {
        if let Some(slot) = self.texts.get_mut(id as usize) {
            *slot = text;
        }
    }

    /// Bits of the limiting groups that have the block.
    pub(super) fn limits(&self, id: u32) -> u16 {
        self.limits.get(id as usize).copied().unwrap_or(0)
    }

    pub(super) fn set_limits(&mut self, id: u32, limits: u16) {
        if limits != 0 && !self.has_limits {
            self.has_limits = true;
            self.grow_columns();
        }
        if let Some(slot) = self.limits.get_mut(id as usize) {
            *slot = limits;
        }
    }
}

impl ops::Index<u32> for Blocks {
    type Output = Block;

    #[expect(clippy::indexing_slicing, reason = "numbers come only from `allocate`")]
    fn index(&self, id: u32) -> &Block {
        &self.slots[id as usize]
    }
}

impl ops::IndexMut<u32> for Blocks {
    #[expect(clippy::indexing_slicing, reason = "numbers come only from `allocate`")]
    fn index_mut(&mut self, id: u32) -> &mut Block {
        &mut self.slots[id as usize]
    }
}

#[cfg(test)]
mod tests;
