//! What the machine asks for at least: the memory that a step must touch, and the hash that it must work out.
//!
//! ```text
//!  chase    a cycle through all lines in random order: each read waits for the one before
//!  line     random lines read and written, none waiting for another: what a cache miss costs when misses overlap
//! ```
//!
//! A floor is a count of cache lines that any index of this kind touches, at the price of a line whose miss overlaps with others, and the
//! hashes. It leaves out all instructions but those.

use crate::clock::Instant;
use crate::generator::Random;
use prefixway_core::hash::{ChunkHash, Seed, chunk_hashes};
use std::hint::black_box;

const WORDS: usize = 16;
type Line = [u32; WORDS];

/// Prices in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    pub chase: f64,
    pub line: f64,
    pub hash: f64,
}

/// Measures them in `bytes` of memory, the least of some rounds.
pub fn measure(bytes: usize, rounds: usize) -> Prices {
    let count = (bytes / size_of::<Line>()).max(1024);
    let mut lines: Vec<Line> = vec![[0; WORDS]; count];
    let mut random = Random(11);
    for (at, line) in (0u32..).zip(lines.iter_mut()) {
        line[0] = at;
    }
    // Sattolo: one cycle.
    for at in (1..count).rev() {
        let other = random.below(at as u64) as usize;
        let (a, b) = (lines[at][0], lines[other][0]);
        lines[at][0] = b;
        lines[other][0] = a;
    }
    let text: Vec<u8> = (0..4096 * 64).map(|_| random.next() as u8).collect();
    let least = |measured: &mut dyn FnMut() -> f64| {
        (0..rounds.max(3))
            .map(|_| measured())
            .fold(f64::INFINITY, f64::min)
    };
    let chase = least(&mut || {
        const HOPS: usize = 1 << 20;
        let start = Instant::now();
        let mut at = 0;
        for _ in 0..HOPS {
            at = lines[at as usize][0];
        }
        black_box(at);
        start.elapsed().as_nanos() as f64 / HOPS as f64
    });
    let line = least(&mut || {
        const TOUCHES: u64 = 1 << 22;
        let mut random = Random(13);
        let start = Instant::now();
        for _ in 0..TOUCHES {
            let at = random.below(count as u64) as usize;
            lines[at][1] = lines[at][1].wrapping_add(1);
        }
        start.elapsed().as_nanos() as f64 / TOUCHES as f64
    });
    let hash = least(&mut || {
        let start = Instant::now();
        black_box(chunk_hashes(ChunkHash(1), &text, Seed(2)).last());
        start.elapsed().as_nanos() as f64 / 4096.0
    });
    Prices { chase, line, hash }
}

impl Prices {
    /// A store: the line of its label, its share of the block's lines, and for each new rung two lines of the table of hashes and a part
    /// of the slots' lines; one hash.
    pub fn store(&self, rungs_per_pair: f64) -> f64 {
        self.hash + self.line * (1.0 + 24.0 / 64.0 + rungs_per_pair * 2.5)
    }

    /// A removal: the same lines, but no hash.
    pub fn removal(&self, rungs_per_pair: f64) -> f64 {
        self.line * (1.0 + 24.0 / 64.0 + rungs_per_pair * 3.0)
    }
}
