//! Churn for a long time: memory must end where it was after warm-up.
//!
//! 32 engines with room for 8,192 blocks each. Every turn one of them stores a conversation below one of a few system prompts and drops
//! its oldest conversations, tail first, one hash an event. System prompts and adapters change all the time, so that prefixes come and
//! go as well. `SOAK_OPS` says how many stores and removals there are to be; 50 million are what 32 busy engines do in an hour.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may stop at a mistake, and tells how it goes"
)]

#[path = "../../bench-index/src/allocator.rs"]
#[expect(
    unsafe_code,
    unreachable_pub,
    reason = "shared with a benchmark, for which an allocator is an unsafe trait"
)]
mod allocator;

use prefixway_core::endpoint::HolderId;
use prefixway_core::event::{EngineHash, Event, Removed, Stored};
use prefixway_core::hash::Seed;
use prefixway_core::index::{Index, IndexConfig, ModelId, SourceId};
use std::collections::VecDeque;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

const SOURCES: u32 = 32;
const BLOCKS_EACH: usize = 8192;
const BLOCK_TOKENS: usize = 16;
const PROMPTS: u64 = 24;
const VOCABULARY: u64 = 5000;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(limit)) >> 64).unwrap()
    }
}

/// An engine's cache: whole chains, oldest first.
#[derive(Default)]
struct Engine {
    chains: VecDeque<Vec<u64>>,
    blocks: usize,
    /// Chains that are held as the start of others: system prompts.
    shared: Vec<(u64, u64)>,
}

struct Soak {
    index: Index,
    random: Random,
    engines: Vec<Engine>,
    done: u64,
    turn: u64,
}

/// Bytes of the process in memory, where the system says so.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Bytes.
#[derive(Clone, Copy)]
struct Memory {
    /// As the index reckons.
    index: usize,
    /// Asked for and not given back, by the index and by this test.
    allocated: usize,
    /// Of the process, 0 where the system doesn't say.
    resident: usize,
}

impl Soak {
    /// Goes on up to so many operations.
    fn run_to(&mut self, operations: u64) -> Memory {
        while self.done < operations {
            self.turn();
        }
        let stats = self.index.stats();
        let memory = Memory {
            index: stats.bytes,
            allocated: allocator::live_bytes(),
            resident: resident_bytes().unwrap_or(0),
        };
        println!(
            "{:>9} operations: {} blocks, {} rungs, index {:.1} MB, allocated {:.1} MB, process {:.1} MB",
            self.done,
            stats.blocks,
            stats.rungs,
            memory.index as f64 / 1e6,
            memory.allocated as f64 / 1e6,
            memory.resident as f64 / 1e6,
        );
        memory
    }

    fn new() -> Self {
        let mut index = Index::new(IndexConfig {
            seed: Seed(3),
            max_bytes: usize::MAX,
        })
        .with_token_space();
        let vocabulary = (0..VOCABULARY).map(|token| format!(" {token}"));
        index.add_model(ModelId(0), "soak", 0, Some(vocabulary.collect()));
        for source in 0..SOURCES {
            let holders = [0, 1, 2].map(|tier| HolderId(source * 3 + tier));
            index.add_source(SourceId(source), ModelId(0), holders);
        }
        Self {
            index,
            random: Random(1),
            engines: (0..SOURCES).map(|_| Engine::default()).collect(),
            done: 0,
            turn: 0,
        }
    }

    fn tokens(content: u64, blocks: usize) -> Vec<u32> {
        let mut random = Random(content);
        (0..blocks * BLOCK_TOKENS)
            .map(|_| u32::try_from(random.below(VOCABULARY)).unwrap())
            .collect()
    }

    fn store(&mut self, source: u32, parent: Option<u64>, hashes: &[u64], content: u64) {
        let tokens = Self::tokens(content, hashes.len());
        let hashes: Vec<EngineHash> = hashes.iter().copied().map(EngineHash).collect();
        let adapter = content
            .is_multiple_of(7)
            .then(|| format!("adapter-{}", self.turn / 4096));
        let event = Event::Stored(Stored {
            hashes: &hashes,
            parent: parent.map(EngineHash),
            tokens: &tokens,
            block_size: 16,
            lora_id: None,
            lora_name: adapter.as_deref(),
            medium: Some("GPU"),
            extra_keys: None,
            group: None,
            kind: None,
            sliding_window: None,
            lookahead: 0,
        });
        self.done += hashes.len() as u64;
        self.index.apply_events([(SourceId(source), event)]);
    }

    fn remove(&mut self, source: u32, chain: &[u64]) {
        let hashes: Vec<EngineHash> = chain.iter().rev().copied().map(EngineHash).collect();
        let events = hashes.iter().map(|hash| {
            let removed = Removed {
                hashes: std::slice::from_ref(hash),
                medium: Some("GPU"),
                group: None,
            };
            (SourceId(source), Event::Removed(removed))
        });
        self.done += hashes.len() as u64;
        self.index.apply_events(events);
    }

    fn turn(&mut self) {
        self.turn += 1;
        let source = u32::try_from(self.random.below(u64::from(SOURCES))).unwrap();
        // A system prompt of sixteen blocks; which ones there are changes slowly.
        let content = self.turn / 2000 * PROMPTS + self.random.below(PROMPTS) + 1;
        let prefix: Vec<u64> = (1..=16).map(|at| content << 8 | at).collect();
        let engine = &mut self.engines[source as usize];
        let is_new = engine.shared.iter().all(|shared| shared.0 != content);
        if is_new {
            engine.shared.push((content, self.turn));
            engine.blocks += prefix.len();
            self.store(source, None, &prefix, content);
        }
        let length = 4 + usize::try_from(self.random.below(60)).unwrap();
        let chain: Vec<u64> = (0..length).map(|_| self.random.next() | 1 << 63).collect();
        let mut parent = prefix.last().copied();
        for blocks in chain.chunks(16) {
            let content = self.random.next();
            self.store(source, parent, blocks, content);
            parent = blocks.last().copied();
        }
        let engine = &mut self.engines[source as usize];
        engine.blocks += chain.len();
        engine.chains.push_back(chain);
        self.make_room(source);
        if self.turn.is_multiple_of(200) {
            self.index.take_changes();
        }
    }

    fn make_room(&mut self, source: u32) {
        loop {
            let engine = &mut self.engines[source as usize];
            if engine.blocks <= BLOCKS_EACH {
                return;
            }
            if let Some(chain) = engine.chains.pop_front() {
                engine.blocks -= chain.len();
                self.remove(source, &chain);
            }
            let engine = &mut self.engines[source as usize];
            if engine.shared.len() > 2 * usize::try_from(PROMPTS).unwrap() {
                let (content, _) = engine.shared.remove(0);
                engine.blocks -= 16;
                let prefix: Vec<u64> = (1..=16).map(|at| content << 8 | at).collect();
                self.remove(source, &prefix);
            }
        }
    }
}

#[test]
fn memory_ends_where_it_was_after_warm_up() {
    let operations: u64 = std::env::var("SOAK_OPS")
        .ok()
        .and_then(|operations| operations.parse().ok())
        .unwrap_or(3_000_000);
    // By then tables and caches are full, and system prompts have come and gone.
    let warm_up = 10_000_000.min(operations / 2);
    let mut soak = Soak::new();
    let warm = soak.run_to(warm_up);
    let mut last = warm;
    while soak.done < operations {
        last = soak.run_to((soak.done + 5_000_000).min(operations));
    }
    assert_eq!(soak.index.stats().counters.unknown_removes, 0);
    let ratio = |of: fn(&Memory) -> usize| of(&last) as f64 / of(&warm) as f64;
    let index = ratio(|memory| memory.index);
    assert!(index < 1.05, "the index has grown: {index}");
    // What the index reckons settles first, then its tables' room and the allocator's own share; the long form sees them.
    if operations >= 20_000_000 {
        let allocated = ratio(|memory| memory.allocated);
        assert!(allocated < 1.05, "what is allocated has grown: {allocated}");
    }
    if operations >= 20_000_000 && warm.resident > 0 {
        let resident = ratio(|memory| memory.resident);
        assert!(resident < 1.05, "the process has grown: {resident}");
    }
}
