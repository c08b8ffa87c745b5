//! Chunk hashes along a chain of blocks.
//!
//! ```text
//!  bytes   0        64       128      192
//!          ├────────┼────────┼────────┼──
//!  blocks     │  A     │  B              │
//!                               ▲      ▲
//!                B: hash ───────┘      └── end; tail = what lies between
//! ```
//!
//! A chain of token ids is also the identity of a block: its hash at the last chunk, the depth and the tail stand for every token from the
//! start of the prompt, and the scope. With blocks of a multiple of sixteen tokens there is no tail. From an image on there are no more
//! chunks: each block's hash is over the one before, its tokens and its extra keys. The hash is 64 bits under the deployment's secret,
//! the one that is published for rungs, so that telling blocks apart by it adds no risk to what a rung's hash already carries.

use super::tails::MAX_TAIL;
use crate::hash::{CHUNK_BYTES, CHUNK_TOKENS, ChunkHash, ChunkHasher, Seed};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Tokens of a tail, as bytes.
const TOKEN_BYTES: usize = 4;

/// Where a block's token ids end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenChain {
    pub(super) hash: u64,
    /// Tokens from the start of the prompt.
    pub(super) depth: u32,
    /// Whether there was an image on the way.
    pub(super) is_opaque: bool,
    /// Token ids after the last chunk, u32 LE.
    tail: [u8; MAX_TAIL + 1],
}

impl TokenChain {
    /// The start of a scope's prompts.
    pub(super) fn new(scope: ChunkHash) -> Self {
        Self::at(scope.0, 0, false)
    }

    /// A chain without its tail.
    pub(super) fn at(hash: u64, depth: u32, is_opaque: bool) -> Self {
        Self {
            hash,
            depth,
            is_opaque,
            tail: [0; MAX_TAIL + 1],
        }
    }

    /// Bytes after the last chunk.
    pub(super) fn tail_len(&self) -> usize {
        if self.is_opaque {
            0
        } else {
            self.depth as usize % CHUNK_TOKENS * TOKEN_BYTES
        }
    }

    /// Whether it ends with a whole chunk, and goes on by chunks.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_opaque && self.tail_len() == 0
    }

    pub(super) fn tail(&self) -> &[u8] {
        self.tail.get(..self.tail_len()).unwrap_or_default()
    }

    /// Room for the tail, of which [`TokenChain::tail_len`] bytes count.
    pub(super) fn tail_mut(&mut self) -> &mut [u8; MAX_TAIL + 1] {
        &mut self.tail
    }

    /// Whole chunks.
    pub(super) fn chunks(&self) -> u32 {
        chunks_of(self.depth)
    }

    /// Goes on by one block. `extra` is a digest of keys that say that the block holds more than its tokens. Every chunk that ends in
    /// the block is told, with its number from 1. False, and nothing changes, where a prompt would get too deep to count.
    pub(super) fn extend(
        &mut self,
        tokens: &[u32],
        extra: Option<u64>,
        seed: Seed,
        mut chunk_ends: impl FnMut(u32, u64),
    ) -> bool {
        let deeper = u32::try_from(tokens.len())
            .ok()
            .and_then(|tokens| self.depth.checked_add(tokens))
            .filter(|&depth| depth < u32::MAX);
        let Some(depth) = deeper else {
            return false;
        };
        if self.is_opaque || extra.is_some() {
            self.extend_opaque(tokens, extra, seed);
        } else if let (0, Some(tokens)) = (self.tail_len(), whole_chunks(tokens)) {
            let hasher = ChunkHasher::new(seed);
            for (chunk, number) in tokens.iter().zip(self.chunks() + 1..) {
                self.hash = hasher.extend(self.hash, &bytes_of(chunk));
                chunk_ends(number, self.hash);
            }
        } else {
            self.extend_unaligned(tokens, seed, chunk_ends);
        }
        self.depth = depth;
        true
    }

    fn extend_opaque(&mut self, tokens: &[u32], extra: Option<u64>, seed: Seed) {
        let mut hash = xxh3_64_with_seed(self.tail(), self.hash ^ seed.0);
        if let Some(extra) = extra {
            hash = xxh3_64_with_seed(&extra.to_le_bytes(), hash);
        }
        for tokens in tokens.chunks(CHUNK_TOKENS) {
            let mut bytes = [0u8; CHUNK_BYTES];
            for (to, token) in bytes
                .as_chunks_mut::<TOKEN_BYTES>()
                .0
                .iter_mut()
                .zip(tokens)
            {
                *to = token.to_le_bytes();
            }
            let used = bytes.get(..tokens.len() * TOKEN_BYTES).unwrap_or_default();
            hash = xxh3_64_with_seed(used, hash);
        }
        self.hash = hash;
        self.is_opaque = true;
    }

    fn extend_unaligned(
        &mut self,
        tokens: &[u32],
        seed: Seed,
        mut chunk_ends: impl FnMut(u32, u64),
    ) {
        let mut filled = self.tail_len();
        let mut number = self.chunks();
        for token in tokens {
            if let Some(room) = self.tail.get_mut(filled..filled + TOKEN_BYTES) {
                room.copy_from_slice(&token.to_le_bytes());
            }
            filled += TOKEN_BYTES;
            if filled == CHUNK_BYTES {
                filled = 0;
                number += 1;
                self.hash = ChunkHash(self.hash).extend(&self.tail, seed).0;
                chunk_ends(number, self.hash);
            }
        }
    }
}

/// Whole chunks of token ids before a depth.
#[expect(clippy::cast_possible_truncation, reason = "sixteen")]
pub(super) fn chunks_of(depth: u32) -> u32 {
    depth / CHUNK_TOKENS as u32
}

fn whole_chunks(tokens: &[u32]) -> Option<&[[u32; CHUNK_TOKENS]]> {
    let (chunks, rest) = tokens.as_chunks::<CHUNK_TOKENS>();
    rest.is_empty().then_some(chunks)
}

fn bytes_of(tokens: &[u32; CHUNK_TOKENS]) -> [u8; CHUNK_BYTES] {
    let words = tokens.map(u32::to_le_bytes);
    words
        .as_flattened()
        .first_chunk()
        .copied()
        .unwrap_or([0; CHUNK_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::chunk_hashes;
    use proptest::prelude::*;

    const SEED: Seed = Seed(11);
    const SCOPE: ChunkHash = ChunkHash(12);

    proptest! {
        #[test]
        fn chunks_are_those_of_the_whole_prompt_however_it_is_cut(
            tokens in prop::collection::vec(any::<u32>(), 0..120),
            sizes in prop::collection::vec(prop_oneof![Just(16usize), 1usize..40], 1..20),
        ) {
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            let expected: Vec<u64> = chunk_hashes(SCOPE, &bytes, SEED).map(|hash| hash.0).collect();
            let mut chain = TokenChain::new(SCOPE);
            let mut told = Vec::new();
            let mut rest = tokens.as_slice();
            for size in sizes.into_iter().cycle().take(200) {
                let (block, after) = rest.split_at(size.min(rest.len()));
                rest = after;
                let extended = chain.extend(block, None, SEED, |number, hash| told.push((number, hash)));
                prop_assert!(extended);
            }
            let numbers: Vec<u32> = told.iter().map(|told| told.0).collect();
            let count = u32::try_from(expected.len()).unwrap();
            prop_assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
            prop_assert_eq!(told.iter().map(|told| told.1).collect::<Vec<_>>(), expected);
            prop_assert_eq!(chain.tail(), &bytes[chain.chunks() as usize * 64..]);
        }
    }

    #[test]
    fn blocks_after_an_image_differ_in_every_part_and_tell_no_chunk() {
        let extended = |start: &[u32], extra, then: &[u32]| {
            let mut chain = TokenChain::new(SCOPE);
            chain.extend(start, None, SEED, |_, _| {});
            chain.extend(&[7; 16], extra, SEED, |_, _| panic!("no chunk"));
            chain.extend(then, None, SEED, |_, _| panic!("no chunk"));
            chain.hash
        };
        let all = [
            extended(&[1; 16], Some(1), &[2; 16]),
            extended(&[1; 16], Some(2), &[2; 16]),
            extended(&[3; 16], Some(1), &[2; 16]),
            extended(&[1; 17], Some(1), &[2; 16]),
            extended(&[1; 18], Some(1), &[2; 16]),
            extended(&[1; 16], Some(1), &[2; 17]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn a_depth_that_can_not_be_counted_is_refused() {
        let mut chain = TokenChain::at(1, u32::MAX - 3, false);
        assert!(!chain.extend(&[1, 2, 3], None, SEED, |_, _| {}));
        assert_eq!(chain.depth, u32::MAX - 3);
    }
}
