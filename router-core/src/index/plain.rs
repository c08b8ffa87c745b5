//! The common case of a store, in as few steps as it takes: new blocks of the main group, at the end of what is known, with nothing but
//! their tokens.
//!
//! What it does is what [`Apply::find_or_place`], `add_copy` and `update` would do one after the other; the oracle's histories go
//! through both.

use super::apply::{Apply, Place};
use super::blocks::{Block, NO_LEVEL};
use super::lift::SLACK_BYTES;
use super::rungs::{Change, Rungs};
use super::slab::NONE;
use super::source::Found;
use super::store::Turn;
use crate::endpoint::{HolderId, Tier};
use crate::event::EngineHash;
use crate::hash::Space;
use crate::rung::is_rung;

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

impl Apply<'_> {
    /// Stores the next block of an event if it is of the common kind; `None`, and nothing has happened, where it is not.
    #[inline]
    pub(super) fn store_plain(
        &mut self,
        hash: EngineHash,
        tokens: &[u32],
        tier: Tier,
        place: &mut Place,
        run: &mut Run,
    ) -> Option<u32> {
        if place.chain.is_opaque || place.chain.tail_len() != 0 {
            return None;
        }
        let (mixed, found) = self.source.look_up(hash, self.store);
        let Found::Unknown(position, None) = found else {
            return None;
        };
        let (above, level_above, rung_above) = if place.block == NONE {
            (0, 0, NONE)
        } else {
            let above = &self.store.blocks[place.block];
            (above.depth, above.level(), above.rung)
        };
        let mut rung = rung_above;
        let mut inside = 0;
        let (publishes, rungs) = (self.has_token_space, &mut self.store.rungs);
        let fits = place
            .chain
            .extend(tokens, None, self.store.seed, |number, hash| {
                if publishes && is_rung(Space::Token, number) {
                    rung = rungs.acquire(hash, rung);
                    inside += 1;
                }
            });
        if !fits {
            return None;
        }
        let chain = &place.chain;
        let level = level_above.max(tier as u8);
        let reaches = is_rung(Space::Token, chain.chunks()) && chain.tail_len() <= SLACK_BYTES;
        let mut block = Block::plain(chain.hash, rung, chain.depth, tier, level);
        block.set_reaches(reaches);
        block.touch(self.now);
        let id = self
            .source
            .add_written((mixed, position), block, place.block, self.store);
        if chain.tail_len() > 0 {
            self.source.keep_tail(id, chain, self.store);
        }
        self.source.link(id, place.block, self.store);
        self.outcome.stored += 1;
        let holder = self.source.holders.get(usize::from(level)).copied();
        if let (Some(holder), true) = (holder, rung != NONE) {
            if inside == 0 && !reaches {
                run.add(rung, holder, &mut self.store.rungs);
            } else {
                self.cover_inside(rung, inside, holder, (place.chain.depth, above, reaches));
            }
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
        Some(id)
    }

    fn cover_inside(
        &mut self,
        rung: u32,
        inside: u32,
        holder: HolderId,
        (own, above, reaches): (u32, u32, bool),
    ) {
        let mut rung = rung;
        for step in 0..inside.max(1) {
            let change = Change {
                gained: Some(holder),
                depth_given: Some(if step == 0 && reaches { own } else { above }),
                ..Change::default()
            };
            rung = self.store.rungs.change(rung, &change);
        }
    }
}
