//! Rungs: the depths at which the index keeps an entry.
//!
//! Depth is counted in chunks from 1. Every chunk is a rung up to 64, then every 2nd up to 128, every 4th up to 256, and so on,
//! so that the relative error is at most 1/32 and entries grow with the logarithm of the prompt's length:
//!
//! ```text
//! text   1 2 3 ... 63 64 | 66 68 ... 128  | 132 136 ... 256 | 264 ...
//! token  1 2 3 ... 63 64 | 65 66 67 ..128 | 132 136 ... 256 | 264 ...
//! ```
//!
//! In token space chunks are as long as the blocks of most engines, so that a prompt's credit is exact where every chunk is a rung:
//! there that goes on up to 128 chunks, 2,048 tokens. In text space chunks don't end where blocks do, and more of them would gain little.

use crate::hash::Space;

/// Chunks up to which the distance of rungs in text space is one.
const DENSE_CHUNKS: u32 = 64;

/// Chunks up to which every depth is a rung.
pub fn dense_chunks(space: Space) -> u32 {
    match space {
        Space::Text => DENSE_CHUNKS,
        Space::Token => 2 * DENSE_CHUNKS,
    }
}

/// Distance between rungs around `depth` (in chunks): 1 as far as it is dense, 2 up to 128, 4 up to 256, ...
pub fn stride(space: Space, depth: u32) -> u32 {
    if depth <= dense_chunks(space) {
        1
    } else {
        // 65..=128 -> 2, 129..=256 -> 4
        let doublings = (depth - 1).ilog2() - DENSE_CHUNKS.ilog2() + 1;
        1 << doublings
    }
}

/// Whether the index keeps an entry at `depth` chunks (from 1).
pub fn is_rung(space: Space, depth: u32) -> bool {
    depth > 0 && depth.is_multiple_of(stride(space, depth))
}

/// The first rung at or after `depth`.
pub fn rung_at_or_after(space: Space, depth: u32) -> u32 {
    let depth = depth.max(1);
    depth.next_multiple_of(stride(space, depth))
}

/// The rung before `rung`, or 0 for the first.
pub fn rung_before(space: Space, rung: u32) -> u32 {
    let below = rung.saturating_sub(1);
    below - below % stride(space, below.max(1))
}

/// Number of rungs in `1..=chunks`.
pub fn rung_count(space: Space, chunks: u32) -> u32 {
    let dense = dense_chunks(space);
    if chunks <= dense {
        return chunks;
    }
    // 65..=128 has half as many rungs in text space as chunks, and so has every doubling: 32.
    let doublings = (chunks - 1).ilog2() - dense.ilog2();
    let below = dense << doublings;
    dense + doublings * (DENSE_CHUNKS / 2) + (chunks - below) / stride(space, chunks)
}

/// Rungs in `1..=chunks`, shallowest first.
pub fn rungs(space: Space, chunks: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(1u32), move |&rung| {
        rung.checked_add(1)
            .map(|next| rung_at_or_after(space, next))
    })
    .take_while(move |&rung| rung <= chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_dense_then_double_their_distance() {
        let sparse = (132..=256).step_by(4).chain((264..=300).step_by(8));
        let text: Vec<u32> = (1..=64)
            .chain((66..=128).step_by(2))
            .chain(sparse.clone())
            .collect();
        assert_eq!(rungs(Space::Text, 300).collect::<Vec<_>>(), text);
        let token: Vec<u32> = (1..=128).chain(sparse).collect();
        assert_eq!(rungs(Space::Token, 300).collect::<Vec<_>>(), token);
    }

    #[test]
    fn neighbours_agree_with_the_definition() {
        for space in [Space::Text, Space::Token] {
            let all: Vec<u32> = (1..5000).filter(|&depth| is_rung(space, depth)).collect();
            assert_eq!(rungs(space, 4999).collect::<Vec<_>>(), all);
            assert_eq!(rung_before(space, 1), 0);
            let mut count = 0;
            for chunks in 0..5000 {
                count += u32::from(is_rung(space, chunks));
                assert_eq!(rung_count(space, chunks), count, "{chunks}");
            }
            assert!(rung_count(space, u32::MAX) < 1000);
            for pair in all.windows(2) {
                assert_eq!(rung_before(space, pair[1]), pair[0]);
                assert_eq!(rung_at_or_after(space, pair[0] + 1), pair[1]);
                assert!(
                    f64::from(pair[1] - pair[0]) / f64::from(pair[0]) <= 1.0 / 32.0 || pair[0] < 32
                );
            }
        }
    }
}
