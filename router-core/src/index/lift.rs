//! Text of blocks: token ids to bytes, chunks and rungs, as blocks are stored.

use super::blocks::{Blocks, MAX_CHUNKS, Text};
use super::rungs::Rungs;
use super::slab::NONE;
use super::tails::{MAX_TAIL, Tails};
use crate::hash::{CHUNK_BYTES, ChunkHash, Seed, Space};
use crate::rung::is_rung;
use crate::text::TokenBytes;

/// A block may end this many bytes after a rung and still give its own depth to it.
pub(super) const SLACK_BYTES: usize = CHUNK_BYTES / 2;

/// Goes along a chain; keeps the end of the last block, so that the next one need not be looked up.
#[derive(Debug)]
pub(super) struct Lift {
    /// Block at whose end this is, or `NONE`.
    block: u32,
    chain: u64,
    chunks: u32,
    rung: u32,
    /// Bytes after the last chunk.
    bytes: Vec<u8>,
}

impl Default for Lift {
    fn default() -> Self {
        Self {
            block: NONE,
            chain: 0,
            chunks: 0,
            rung: NONE,
            bytes: Vec::new(),
        }
    }
}

impl Lift {
    /// Forgets where it is: blocks may have changed.
    pub(super) fn forget(&mut self) {
        self.block = NONE;
    }

    /// Goes to the start of a scope's prompts.
    pub(super) fn start(&mut self, scope: ChunkHash) {
        self.block = NONE;
        self.chain = scope.0;
        self.chunks = 0;
        self.rung = NONE;
        self.bytes.clear();
    }

    /// Goes to the end of a block; false where its text is not known.
    pub(super) fn go_to(&mut self, block: u32, blocks: &Blocks, tails: &Tails) -> bool {
        if self.block == block {
            return true;
        }
        let text = blocks.text(block);
        if !text.is_known() {
            return false;
        }
        self.block = block;
        self.chain = text.chain();
        self.chunks = text.chunks();
        self.rung = text.rung;
        let mut tail = [0u8; MAX_TAIL + 1];
        let len = usize::from(text.tail_len());
        tails.read(len, text.tail, &mut tail);
        self.bytes.clear();
        self.bytes
            .extend_from_slice(tail.get(..len).unwrap_or_default());
        true
    }

    /// Goes on by the tokens of `block`, refers to the rungs inside it, and gives its text and number of bytes.
    pub(super) fn extend(
        &mut self,
        block: u32,
        tokens: &[u32],
        vocabulary: &TokenBytes,
        lookahead_bytes: usize,
        seed: Seed,
        (rungs, tails): (&mut Rungs, &mut Tails),
    ) -> (Text, u64) {
        let before = self.bytes.len();
        vocabulary.append(tokens, &mut self.bytes);
        let added = (self.bytes.len() - before) as u64;
        let (chunks, tail) = self.bytes.as_chunks::<CHUNK_BYTES>();
        let deeper = u32::try_from(chunks.len())
            .ok()
            .and_then(|more| self.chunks.checked_add(more))
            .is_some_and(|chunks| chunks <= MAX_CHUNKS);
        if !deeper {
            self.block = NONE;
            return (Text::UNKNOWN, 0);
        }
        for chunk in chunks {
            self.chain = ChunkHash(self.chain).extend(chunk, seed).0;
            self.chunks += 1;
            if is_rung(Space::Text, self.chunks) {
                self.rung = rungs.acquire(self.chain, self.rung);
            }
        }
        let (start, tail_len) = (chunks.len() * CHUNK_BYTES, tail.len());
        self.bytes.copy_within(start.., 0);
        self.bytes.truncate(tail_len);
        self.block = block;
        let reaches =
            is_rung(Space::Text, self.chunks) && tail_len + lookahead_bytes <= SLACK_BYTES;
        let at = tails.insert(&self.bytes);
        // A tail is shorter than a chunk.
        let tail = (u8::try_from(tail_len).unwrap_or_default(), at);
        let text = Text::new(self.chain, self.rung, self.chunks, reaches, tail);
        (text, added)
    }
}
