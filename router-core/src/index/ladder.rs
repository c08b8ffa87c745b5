//! The rungs of one chain of blocks, in one space.
//!
//! ```text
//!  bytes   0        64       128      192
//!          ├────────┼────────┼────────┼──
//!  blocks     │  A     │  B              │
//!                               ▲      ▲
//!                 B: chunk ─────┘      └── end; tail = what lies between
//! ```
//!
//! A ladder holds what it takes to go on where a block ends. The rungs inside the block are `rung` and its `covered - 1` predecessors.

use super::arena::NONE;
use super::rungs::Rungs;
use crate::hash::{CHUNK_BYTES, ChunkHash, Seed};
use crate::rung::is_rung;

/// A block may end this many bytes after a rung and still count for it.
const SLACK_BYTES: usize = CHUNK_BYTES / 2;

#[derive(Clone, Debug)]
pub(super) struct Ladder {
    /// Chunk hash at the last chunk end at or before the block's end.
    chunk: u64,
    /// Whole chunks from the start of the prompt to the block's end.
    chunks: u32,
    /// Deepest rung at or before the block's end, or `NONE`.
    rung: u32,
    /// Rungs inside the block.
    covered: u32,
    tail_len: u8,
    tail: [u8; CHUNK_BYTES - 1],
}

impl Ladder {
    /// The ladder at the start of a scope's prompts.
    pub(super) fn new(scope: ChunkHash) -> Self {
        Self {
            chunk: scope.0,
            chunks: 0,
            rung: NONE,
            covered: 0,
            tail_len: 0,
            tail: [0; CHUNK_BYTES - 1],
        }
    }

    fn tail(&self) -> &[u8] {
        self.tail
            .get(..usize::from(self.tail_len))
            .unwrap_or_default()
    }

    /// The ladder one block further, whose bytes come in `pieces`; refers to the rungs inside the block. Also gives the number of bytes.
    pub(super) fn extend<P: AsRef<[u8]>>(
        &self,
        pieces: impl IntoIterator<Item = P>,
        seed: Seed,
        rungs: &mut Rungs,
    ) -> (Self, u64) {
        let mut next = Self {
            covered: 0,
            ..self.clone()
        };
        let mut chunk = [0u8; CHUNK_BYTES];
        let mut filled = usize::from(self.tail_len);
        for (to, from) in chunk.iter_mut().zip(self.tail()) {
            *to = *from;
        }
        let mut hash = ChunkHash(self.chunk);
        let mut total = 0;
        for piece in pieces {
            let mut bytes = piece.as_ref();
            total += bytes.len() as u64;
            while let Some(room) = chunk.get_mut(filled..) {
                let (now, later) = bytes.split_at(bytes.len().min(room.len()));
                for (to, from) in room.iter_mut().zip(now) {
                    *to = *from;
                }
                filled += now.len();
                bytes = later;
                if filled < CHUNK_BYTES {
                    break;
                }
                filled = 0;
                hash = hash.extend(&chunk, seed);
                next.chunks = next.chunks.saturating_add(1);
                if is_rung(next.chunks) {
                    next.rung = rungs.acquire(hash.0, next.rung);
                    next.covered += 1;
                }
            }
        }
        next.chunk = hash.0;
        for (to, from) in next.tail.iter_mut().zip(chunk.iter().take(filled)) {
            *to = *from;
        }
        // `filled` is below the chunk's length after the loop.
        next.tail_len = u8::try_from(filled).unwrap_or_default();
        (next, total)
    }

    /// Gives the references to the rungs inside the block back.
    pub(super) fn release(&self, rungs: &mut Rungs) {
        let mut rung = self.rung;
        for _ in 0..self.covered {
            let prev = rungs.prev(rung);
            rungs.release(rung);
            rung = prev;
        }
    }

    /// Calls `with` for each rung that the block, while live, gives a token depth to: its own, `tokens`, where it ends at most half a
    /// chunk after the rung, else its parent's, `above`.
    pub(super) fn each_depth(
        &self,
        tokens: u32,
        above: u32,
        mut with: impl FnMut(u32, u32) -> u32,
    ) {
        if self.rung == NONE {
            return;
        }
        let reaches = is_rung(self.chunks) && usize::from(self.tail_len) <= SLACK_BYTES;
        let mut rung = self.rung;
        if reaches && self.covered == 0 {
            with(rung, tokens);
        }
        for step in 0..self.covered {
            rung = with(rung, if step == 0 && reaches { tokens } else { above });
        }
    }

    /// Calls `with` for each rung that the block is credited at: those inside it, or the last one before its end. `with` gives the rung before.
    pub(super) fn each_covered(&self, mut with: impl FnMut(u32) -> u32) {
        if self.rung == NONE {
            return;
        }
        let mut rung = self.rung;
        for _ in 0..self.covered.max(1) {
            rung = with(rung);
        }
    }

    /// Whether the chain spells a prefix of `text`, whose chunk hashes, starting with the scope, are `hashes`.
    pub(super) fn is_prefix(&self, text: &[u8], hashes: &[ChunkHash]) -> bool {
        let chunks = self.chunks as usize;
        hashes.get(chunks).is_some_and(|hash| hash.0 == self.chunk)
            && text
                .get(chunks * CHUNK_BYTES..)
                .is_some_and(|rest| rest.starts_with(self.tail()))
    }
}
