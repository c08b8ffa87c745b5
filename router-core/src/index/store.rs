//! What all sources share: blocks, tails and rungs, and what a block means for its rungs.
//!
//! A block is *inside* the rungs that end in it and, while it is live, gives them a token depth; while it counts for a holder it is
//! credited at the rungs inside it, or at the last one before its end where there is none. The token depth of a rung is the maximum of
//! what it is given: the deepest live block, among the blocks whose chain covers the rung, that ends at most half a chunk after it. For
//! a block that ends later it is the parent's depth, and the parent is live whenever the block is.

use super::blocks::{Block, Blocks, Text};
use super::chain::{TokenChain, chunks_of};
use super::lift::Lift;
use super::plain::ChunkEnd;
use super::rungs::{Change, Rungs};
use super::slab::NONE;
use super::tails::Tails;
use crate::endpoint::HolderId;
use crate::hash::{ChunkHash, Seed, Space};
use crate::rung::rung_count;

/// Blocks of all sources and the rungs they cover.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) seed: Seed,
    pub(super) blocks: Blocks,
    pub(super) tails: Tails,
    pub(super) rungs: Rungs,
    pub(super) lift: Lift,
    /// Room to work in.
    pub(super) ends: Vec<ChunkEnd>,
}

/// The rungs of a block in one space: the deepest one at or before its end, how many of them are inside, and whether the block gives its
/// own depth to the deepest.
#[derive(Clone, Copy, Debug)]
struct Span {
    rung: u32,
    inside: u32,
    reaches: bool,
}

/// What becomes of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// Whether it becomes live, or is no longer.
    pub(super) is_live: Option<bool>,
    /// Holder that it counts for now.
    pub(super) gained: Option<HolderId>,
    /// Holder that it no longer counts for.
    pub(super) lost: Option<HolderId>,
    /// Whether it is given up, and all that it refers to with it.
    pub(super) is_released: bool,
}

impl Store {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            blocks: Blocks::default(),
            tails: Tails::default(),
            rungs: Rungs::default(),
            lift: Lift::default(),
            ends: Vec::new(),
        }
    }

    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.bytes() + self.tails.bytes() + self.rungs.bytes()
    }

    fn depth_above(&self, block: &Block) -> u32 {
        if block.parent == NONE {
            0
        } else {
            self.blocks[block.parent].depth
        }
    }

    fn token_span(block: &Block, above: u32) -> Option<Span> {
        (block.rung != NONE).then(|| Span {
            rung: block.rung,
            inside: rung_count(Space::Token, chunks_of(block.depth))
                - rung_count(Space::Token, chunks_of(above)),
            reaches: block.reaches(),
        })
    }

    fn text_span(&self, text: &Text, parent: u32) -> Option<Span> {
        let known = text.is_known() && text.rung != NONE;
        known.then(|| {
            let above = if parent == NONE {
                0
            } else {
                self.blocks.text(parent).chunks()
            };
            Span {
                rung: text.rung,
                inside: rung_count(Space::Text, text.chunks()) - rung_count(Space::Text, above),
                reaches: text.reaches(),
            }
        })
    }

    /// Takes over to the rungs what becomes of a block.
    pub(super) fn turn(&mut self, id: u32, turn: &Turn) {
        let (own, above) = {
            let block = &self.blocks[id];
            (block.depth, self.depth_above(block))
        };
        if let Some(span) = Self::token_span(&self.blocks[id], above) {
            self.turn_span(&span, (own, above), turn);
        }
        if self.blocks.has_texts() {
            self.turn_text(id, turn);
        }
    }

    /// [`Store::turn`] in text space only.
    pub(super) fn turn_text(&mut self, id: u32, turn: &Turn) {
        let text = self.blocks.text(id);
        let block = &self.blocks[id];
        let (own, above) = (block.depth, self.depth_above(block));
        if let Some(span) = self.text_span(&text, block.parent) {
            self.turn_span(&span, (own, above), turn);
        }
        if turn.is_released && text.is_known() {
            self.tails.free(usize::from(text.tail_len()), text.tail);
        }
    }

    fn turn_span(&mut self, span: &Span, (own, above): (u32, u32), turn: &Turn) {
        let is_inside = span.inside > 0;
        let mut rung = span.rung;
        for step in 0..span.inside.max(1) {
            let depth = if step == 0 && span.reaches {
                Some(own)
            } else {
                is_inside.then_some(above)
            };
            let change = Change {
                gained: turn.gained,
                lost: turn.lost,
                depth_given: depth.filter(|_| turn.is_live == Some(true)),
                depth_taken: depth.filter(|_| turn.is_live == Some(false)),
                is_released: turn.is_released && is_inside,
            };
            rung = self.rungs.change(rung, &change);
        }
    }

    /// Reads what a turn of the block will need, so that the misses of several overlap. The sum means nothing.
    pub(super) fn touch(&self, id: u32) -> u32 {
        let rungs = [self.blocks[id].rung, self.blocks.text(id).rung];
        rungs
            .into_iter()
            .filter(|&rung| rung != NONE)
            .fold(0u32, |sum, rung| sum.wrapping_add(self.rungs.touch(rung)))
    }

    /// Whether a block's text is a prefix of `text`, whose chunk hashes, starting with the scope, are `hashes`.
    pub(super) fn spells_prefix(&self, id: u32, text: &[u8], hashes: &[ChunkHash]) -> bool {
        let own = self.blocks.text(id);
        if !own.is_known() {
            return false;
        }
        let mut tail = [0u8; 64];
        let len = usize::from(own.tail_len());
        self.tails.read(len, own.tail, &mut tail);
        let tail = tail.get(..len).unwrap_or_default();
        ends_at(own.chunks(), own.chain(), tail, text, hashes)
    }

    /// Whether a chain of token ids is a prefix of `ids` (u32 LE), whose chunk hashes, starting with the scope, are `hashes`.
    pub(super) fn is_prefix(chain: &TokenChain, ids: &[u8], hashes: &[ChunkHash]) -> bool {
        !chain.is_opaque && ends_at(chain.chunks(), chain.hash, chain.tail(), ids, hashes)
    }
}

fn ends_at(chunks: u32, hash: u64, tail: &[u8], bytes: &[u8], hashes: &[ChunkHash]) -> bool {
    let chunks = chunks as usize;
    hashes.get(chunks).is_some_and(|here| here.0 == hash)
        && bytes
            .get(chunks * crate::hash::CHUNK_BYTES..)
            .is_some_and(|rest| rest.starts_with(tail))
}
