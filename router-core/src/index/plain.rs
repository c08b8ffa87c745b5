//! The common case of a store, in as few steps as it takes: new blocks of the main group, at the end of what is known, with nothing but
//! their tokens, whole chunks of them.
//!
//! The hashes of several blocks are worked out first, and all the memory that they lead to is read, since hashes follow from each other
//! by a few instructions but each leads to a line that is in no cache.
//!
//! What it does is what [`Apply::find_or_place`], `add_copy` and `update` would do one after the other; the oracle's histories go
//! through both.

use super::apply::{Apply, Place};
use super::blocks::{Block, NO_LEVEL};
use super::rungs::Rungs;
use super::slab::NONE;
use super::source::Found;
use super::store::Turn;
use crate::endpoint::{HolderId, Tier};
use crate::event::EngineHash;
use crate::hash::{CHUNK_TOKENS, Space};
use crate::rung::rung_at_or_after;

/// Blocks that are credited at the same rung, to be told it together.
pub(super) struct Run {
    rung: u32,
    holder: Option<HolderId>,
    blocks: u32,
}

impl Run {
    pub(super) fn new() -> Self {
        Self {
            rung: NONE,
            holder: None,
            blocks: 0,
        }
    }

    pub(super) fn end(&mut self, rungs: &mut Rungs) {
        if let (Some(holder), 1..) = (self.holder, self.blocks) {
            rungs.cover(self.rung, holder, self.blocks);
        }
        self.blocks = 0;
    }

    fn add(&mut self, rung: u32, holder: HolderId, rungs: &mut Rungs) {
        if (self.rung, self.holder) != (rung, Some(holder)) {
            self.end(rungs);
            self.rung = rung;
            self.holder = Some(holder);
        }
        self.blocks += 1;
    }
}

/// Blocks of which the hashes are worked out before the first of them is stored.
const TOGETHER: usize = 32;

/// The end of a chunk in a block that is to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkEnd {
    hash: u64,
    /// Its rung if there is one already, or `NONE`.
    rung: u32,
    /// Whether there is to be one.
    is_rung: bool,
}

impl Apply<'_> {
    /// Stores blocks of an event from its first one on, as far as they are of the common kind, and gives their number.
    pub(super) fn store_plain(
        &mut self,
        hashes: &[EngineHash],
        tokens: &[u32],
        block_size: usize,
        tier: Tier,
        place: &mut Place,
    ) -> usize {
        let is_whole = block_size.is_multiple_of(CHUNK_TOKENS) && place.chain.is_whole();
        let fits = u32::try_from(tokens.len())
            .ok()
            .and_then(|tokens| place.chain.depth.checked_add(tokens))
            .is_some_and(|depth| depth < u32::MAX);
        if !is_whole || !fits {
            return 0;
        }
        let mut ends = core::mem::take(&mut self.store.ends);
        let mut run = Run::new();
        let mut stored = 0usize;
        let pieces = hashes
            .chunks(TOGETHER)
            .zip(tokens.chunks(TOGETHER * block_size));
        'event: for (hashes, tokens) in pieces {
            self.work_out(tokens, place, &mut ends);
            let blocks = tokens.chunks_exact(block_size);
            let ends = ends.chunks_exact(block_size / CHUNK_TOKENS);
            for ((&hash, tokens), ends) in hashes.iter().zip(blocks).zip(ends) {
                if !self.store_block(hash, tokens, ends, tier, place, &mut run) {
                    break 'event;
                }
                stored += 1;
            }
        }
        run.end(&mut self.store.rungs);
        self.store.ends = ends;
        self.outcome.stored += stored as u64;
        stored
    }

    /// Works out the chunk ends of blocks that follow on `place`, and reads what storing them will need, so that the misses overlap.
    fn work_out(&mut self, tokens: &[u32], place: &Place, ends: &mut Vec<ChunkEnd>) {
        let (store, publishes) = (&mut *self.store, self.has_token_space);
        let mut chain = place.chain.clone();
        let mut next = rung_at_or_after(Space::Token, chain.chunks() + 1);
        ends.clear();
        chain.extend(tokens, None, store.seed, |number, hash| {
            let is_rung = publishes && number == next;
            if number == next {
                next = rung_at_or_after(Space::Token, number + 1);
            }
            ends.push(ChunkEnd {
                hash,
                rung: NONE,
                is_rung,
            });
        });
        let mut sum = store.blocks.touch_after(place.block);
        for end in ends.iter_mut().filter(|end| end.is_rung) {
            end.rung = store.rungs.find(end.hash).unwrap_or(NONE);
            sum = sum.wrapping_add(end.rung);
        }
        core::hint::black_box(sum);
    }

    /// Stores the next block if it is of the common kind; false, and nothing has happened, where it is not.
    #[inline]
    fn store_block(
        &mut self,
        hash: EngineHash,
        tokens: &[u32],
        ends: &[ChunkEnd],
        tier: Tier,
        place: &mut Place,
        run: &mut Run,
    ) -> bool {
        let (mixed, found) = self.source.look_up(hash, self.store);
        let (Found::Unknown(position, None), Some(last)) = (found, ends.last()) else {
            return false;
        };
        let (level_above, rung_above) = if place.block == NONE {
            (0, NONE)
        } else {
            let above = &self.store.blocks[place.block];
            (above.level(), above.rung)
        };
        let level = level_above.max(tier as u8);
        let holder = self.source.holders.get(usize::from(level)).copied();
        let above = place.chain.depth;
        // It was seen before that this is no overflow.
        let depth = u32::try_from(tokens.len()).map_or(above, |tokens| above + tokens);
        let mut rung = rung_above;
        let mut is_inside = false;
        for (left, end) in (0..ends.len()).rev().zip(ends) {
            if end.is_rung {
                is_inside = true;
                let own = if left == 0 { depth } else { above };
                let credit = holder.map(|holder| (holder, own));
                let rungs = &mut self.store.rungs;
                rung = rungs.cover_new((end.hash, end.rung), rung, credit);
            }
        }
        let mut block = Block::plain(last.hash, place.block, rung, depth);
        block.set_copy(tier, level);
        block.set_reaches(last.is_rung);
        block.touch(self.now);
        let id = self
            .source
            .add_written((mixed, position), block, self.store);
        place.chain.hash = last.hash;
        place.chain.depth = depth;
        if let (Some(holder), true, false) = (holder, rung != NONE, is_inside) {
            run.add(rung, holder, &mut self.store.rungs);
        }
        if self.model.vocabulary.is_some() {
            self.lift(id, tokens, 0, place);
            let turn = Turn {
                is_live: (level != NO_LEVEL).then_some(true),
                gained: holder,
                ..Turn::default()
            };
            self.store.turn_text(id, &turn);
        }
        place.block = id;
        true
    }
}
