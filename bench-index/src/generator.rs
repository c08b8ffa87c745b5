//! Generator G1: histories of stores and removals, deterministic.
//!
//! - One system prefix of 128 blocks, held by every source. After it, `min(128, pairs / 4 / 1920)` long chains of 1920 blocks, one source each.
//! - Then every source gets continuations of 64 to 256 blocks after the system prefix until its share of the pairs is used; one in ten,
//!   from the second source on, is a replica of one of 64 earlier ones.
//! - Sources take turns, one event each. Removals take every second continuation, tail first.

use std::collections::HashSet;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub const BLOCK_TOKENS: usize = 16;
/// Token ids are below this; about half of them take five bytes on the wire.
const VOCABULARY: u64 = 128_000;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

/// A block: hash of its content alone, and the engine's hash of it with its prefix.
#[derive(Clone, Copy)]
pub struct Block {
    pub content: u64,
    pub engine: u64,
}

impl Block {
    /// Token ids that stand for the content.
    pub fn tokens(self) -> [u32; BLOCK_TOKENS] {
        let mut random = Random(self.content);
        std::array::from_fn(|_| random.below(VOCABULARY) as u32)
    }
}

pub struct Store {
    pub source: u32,
    pub parent: Option<u64>,
    pub blocks: Vec<Block>,
}

pub struct Shape {
    pub sources: u32,
    pub pairs: usize,
    pub event_blocks: usize,
}

pub struct History {
    pub sources: u32,
    pub stores: Vec<Store>,
    /// One hash an event.
    pub removals: Vec<(u32, u64)>,
    pub pairs: usize,
    pub removed: usize,
    pub system: Vec<Block>,
    pub long: Vec<Vec<Block>>,
}

fn extend(random: &mut Random, parent: Option<u64>, count: usize) -> Vec<Block> {
    let mut parent = parent;
    (0..count)
        .map(|_| {
            let content = random.next();
            let engine = parent.map_or(content, |parent| {
                let mut bytes = [0u8; 16];
                bytes[..8].copy_from_slice(&parent.to_le_bytes());
                bytes[8..].copy_from_slice(&content.to_le_bytes());
                xxh3_64_with_seed(&bytes, 1337)
            });
            parent = Some(engine);
            Block { content, engine }
        })
        .collect()
}

fn push(stores: &mut Vec<Store>, source: u32, parent: Option<u64>, blocks: &[Block], size: usize) {
    let mut parent = parent;
    for blocks in blocks.chunks(size) {
        stores.push(Store {
            source,
            parent,
            blocks: blocks.to_vec(),
        });
        parent = blocks.last().map(|block| block.engine);
    }
}

fn in_turns<T>(of_sources: Vec<Vec<T>>) -> Vec<T> {
    let mut iterators: Vec<_> = of_sources.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(iterators.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

impl History {
    pub fn generate(shape: &Shape) -> Self {
        let mut random = Random(42);
        let system = extend(&mut random, None, 128);
        let tail = system[127].engine;
        let count = 128.min(shape.pairs / 4 / 1920).max(1);
        let long: Vec<Vec<Block>> = (0..count)
            .map(|_| extend(&mut random, Some(tail), 1920))
            .collect();
        let budget = shape.pairs / shape.sources as usize;
        let (mut stores, mut removals) = (Vec::new(), Vec::new());
        let mut reservoir: Vec<Rc<Vec<Block>>> = Vec::new();
        let mut pairs = 0;
        for source in 0..shape.sources {
            let (mut stored, mut removed) = (Vec::new(), Vec::new());
            push(&mut stored, source, None, &system, shape.event_blocks);
            let mut used = 128;
            for chain in long
                .iter()
                .skip(source as usize)
                .step_by(shape.sources as usize)
            {
                push(&mut stored, source, Some(tail), chain, shape.event_blocks);
                used += 1920;
            }
            let mut own: HashSet<*const Vec<Block>> = HashSet::new();
            let mut number = 0;
            while used < budget {
                let chain = if source > 0 && !reservoir.is_empty() && random.below(10) == 0 {
                    let chain = reservoir[random.below(reservoir.len() as u64) as usize].clone();
                    if own.contains(&Rc::as_ptr(&chain)) {
                        continue;
                    }
                    chain
                } else {
                    let length = 64 + random.below(193) as usize;
                    let chain = Rc::new(extend(&mut random, Some(tail), length));
                    if reservoir.len() < 64 {
                        reservoir.push(chain.clone());
                    } else {
                        let at = random.below(64) as usize;
                        reservoir[at] = chain.clone();
                    }
                    chain
                };
                own.insert(Rc::as_ptr(&chain));
                let length = chain.len().min(budget - used);
                push(
                    &mut stored,
                    source,
                    Some(tail),
                    &chain[..length],
                    shape.event_blocks,
                );
                used += length;
                if number % 2 == 0 {
                    removed.extend(
                        chain[..length]
                            .iter()
                            .rev()
                            .map(|block| (source, block.engine)),
                    );
                }
                number += 1;
            }
            pairs += used;
            stores.push(stored);
            removals.push(removed);
        }
        let removals = in_turns(removals);
        Self {
            sources: shape.sources,
            stores: in_turns(stores),
            pairs,
            removed: removals.len(),
            removals,
            system,
            long,
        }
    }

    /// The first `blocks` blocks of the system prefix and a long chain.
    pub fn prompt(&self, random: &mut Random, blocks: usize) -> Vec<Block> {
        let chain = &self.long[random.below(self.long.len() as u64) as usize];
        self.system
            .iter()
            .chain(chain)
            .take(blocks)
            .copied()
            .collect()
    }
}
