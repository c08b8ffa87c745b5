//! Rungs: the depths at which the index keeps an entry.
//!
//! Depth is counted in chunks from 1. Every chunk is a rung up to 64, then every 2nd up to 128, every 4th up to 256, and so on,
//! so that the relative error is at most 1/32 and entries grow with the logarithm of the prompt's length:
//!
//! ```text
//! 1 2 3 ... 63 64 | 66 68 ... 128 | 132 136 ... 256 | 264 ...
//! ```

/// Chunks up to which every depth is a rung.
pub const DENSE_CHUNKS: u32 = 64;

/// Distance between rungs around `depth` (in chunks): 1 up to 64, 2 up to 128, 4 up to 256, ...
pub fn stride(depth: u32) -> u32 {
    if depth <= DENSE_CHUNKS {
        1
    } else {
        // 65..=128 -> 2, 129..=256 -> 4
        let doublings = (depth - 1).ilog2() - DENSE_CHUNKS.ilog2() + 1;
        1 << doublings
    }
}

/// Whether the index keeps an entry at `depth` chunks (from 1).
pub fn is_rung(depth: u32) -> bool {
    depth > 0 && depth.is_multiple_of(stride(depth))
}

/// The first rung at or after `depth`.
pub fn rung_at_or_after(depth: u32) -> u32 {
    let depth = depth.max(1);
    depth.next_multiple_of(stride(depth))
}

/// The rung before `rung`, or 0 for the first.
pub fn rung_before(rung: u32) -> u32 {
    let below = rung.saturating_sub(1);
    below - below % stride(below.max(1))
}

/// Number of rungs in `1..=chunks`.
pub fn rung_count(chunks: u32) -> u32 {
    if chunks <= DENSE_CHUNKS {
        return chunks;
    }
    // 65..=128 has half as many rungs as chunks, and so has every doubling: 32.
    let doublings = (chunks - 1).ilog2() - DENSE_CHUNKS.ilog2();
    let below = DENSE_CHUNKS << doublings;
    DENSE_CHUNKS + doublings * (DENSE_CHUNKS / 2) + (chunks - below) / stride(chunks)
}

/// Rungs in `1..=chunks`, shallowest first.
pub fn rungs(chunks: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(1u32), |&r| r.checked_add(1).map(rung_at_or_after))
        .take_while(move |&r| r <= chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_dense_then_double_their_distance() {
        let all: Vec<u32> = rungs(300).collect();
        let expected: Vec<u32> = (1..=64)
            .chain((66..=128).step_by(2))
            .chain((132..=256).step_by(4))
            .chain((264..=300).step_by(8))
            .collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn neighbours_agree_with_the_definition() {
        let all: Vec<u32> = (1..5000).filter(|&d| is_rung(d)).collect();
        assert_eq!(rungs(4999).collect::<Vec<_>>(), all);
        assert_eq!(rung_before(1), 0);
        let mut count = 0;
        for chunks in 0..5000 {
            count += u32::from(is_rung(chunks));
            assert_eq!(rung_count(chunks), count, "{chunks}");
        }
        assert!(rung_count(u32::MAX) < 1000);
        for pair in all.windows(2) {
            assert_eq!(rung_before(pair[1]), pair[0]);
            assert_eq!(rung_at_or_after(pair[0] + 1), pair[1]);
            assert!(f64::from(pair[1] - pair[0]) / f64::from(pair[0]) <= 1.0 || pair[0] < 32);
        }
    }
}
