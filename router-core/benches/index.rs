//! From msgpack bytes to the index, in time per block.
//!
//! One shared system prefix of 128 blocks on every source, then continuations of 64 to 256 blocks, one in ten of them a replica of an
//! earlier one; blocks of 16 tokens of about 4 bytes. Sources take turns, one event each. Removals take every second continuation, tail
//! first, one hash an event, as engines send them.
//!
//! Each measurement is of the whole history, so that tables grow in it; `Elements` are blocks. Sizes are printed first.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark may stop at a mistake and prints sizes"
)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use prefixway_core::endpoint::HolderId;
use prefixway_core::event::Decoder;
use prefixway_core::hash::Seed;
use prefixway_core::index::{Index, IndexConfig, ModelId, SourceId};
use prefixway_core::text::TokenBytes;
use std::hint::black_box;

const SOURCES: u32 = 64;
const PAIRS: usize = 200_000;
const BLOCK_TOKENS: u32 = 16;
const VOCABULARY: u64 = 50_000;
const MODEL: ModelId = ModelId(0);

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
        u64::try_from((u128::from(self.next()) * u128::from(limit)) >> 64).unwrap_or(0)
    }
}

#[derive(Clone)]
struct Block {
    hash: u64,
    tokens: Vec<u32>,
}

/// Payloads in the order in which they arrive.
struct History {
    stores: Vec<(SourceId, Vec<u8>)>,
    removes: Vec<(SourceId, Vec<u8>)>,
    stored: u64,
    removed: u64,
}

fn chain(random: &mut Random, blocks: u64) -> Vec<Block> {
    let token = |random: &mut Random| u32::try_from(random.below(VOCABULARY)).unwrap_or(0);
    (0..blocks)
        .map(|_| Block {
            hash: random.next(),
            tokens: (0..BLOCK_TOKENS).map(|_| token(random)).collect(),
        })
        .collect()
}

fn history(event_blocks: usize) -> History {
    let mut random = Random(42);
    let system = chain(&mut random, 128);
    let mut kept: Vec<Vec<Block>> = Vec::new();
    let (mut stored, mut removed) = (0, 0);
    let mut stores: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut removes: Vec<Vec<Vec<u8>>> = Vec::new();
    for _ in 0..SOURCES {
        let (mut of_source, mut gone) = (Vec::new(), Vec::new());
        let mut used = 0;
        push(&mut of_source, None, &system, event_blocks, &mut stored);
        used += system.len();
        let mut number = 0;
        while used < PAIRS / SOURCES as usize {
            let replica = !kept.is_empty() && random.below(10) == 0;
            let blocks = if replica {
                kept[usize::try_from(random.below(kept.len() as u64)).unwrap_or(0)].clone()
            } else {
                let length = 64 + random.below(193);
                chain(&mut random, length)
            };
            push(
                &mut of_source,
                system.last().map(|block| block.hash),
                &blocks,
                event_blocks,
                &mut stored,
            );
            used += blocks.len();
            if number % 2 == 0 {
                for block in blocks.iter().rev() {
                    gone.push(remove(block.hash));
                    removed += 1;
                }
            }
            if !replica {
                kept.push(blocks);
            }
            number += 1;
        }
        stores.push(of_source);
        removes.push(gone);
    }
    History {
        stores: in_turns(stores),
        removes: in_turns(removes),
        stored,
        removed,
    }
}

fn in_turns(of_sources: Vec<Vec<Vec<u8>>>) -> Vec<(SourceId, Vec<u8>)> {
    let mut all: Vec<(usize, u32, Vec<u8>)> = (0u32..)
        .zip(of_sources)
        .flat_map(|(source, payloads)| {
            payloads
                .into_iter()
                .enumerate()
                .map(move |(turn, payload)| (turn, source, payload))
        })
        .collect();
    all.sort_by_key(|&(turn, source, _)| (turn, source));
    all.into_iter()
        .map(|(_, source, payload)| (SourceId(source), payload))
        .collect()
}

fn push(
    out: &mut Vec<Vec<u8>>,
    parent: Option<u64>,
    blocks: &[Block],
    event_blocks: usize,
    stored: &mut u64,
) {
    let mut parent = parent;
    for event in blocks.chunks(event_blocks) {
        out.push(store(parent, event));
        parent = event.last().map(|block| block.hash);
        *stored += event.len() as u64;
    }
}

/// `[ts, [{"type": "BlockStored", ...}], 0]` as vLLM 0.32 sends it.
fn store(parent: Option<u64>, blocks: &[Block]) -> Vec<u8> {
    let mut out = begin();
    out.push(0x87);
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    array(&mut out, blocks.len());
    for block in blocks {
        uint64(&mut out, block.hash);
    }
    text(&mut out, "parent_block_hash");
    match parent {
        Some(parent) => uint64(&mut out, parent),
        None => out.push(0xc0),
    }
    text(&mut out, "token_ids");
    array(
        &mut out,
        blocks.iter().map(|block| block.tokens.len()).sum(),
    );
    for &token in blocks.iter().flat_map(|block| &block.tokens) {
        out.push(0xcd);
        out.extend(&token.to_be_bytes()[2..]);
    }
    text(&mut out, "block_size");
    out.push(BLOCK_TOKENS.to_be_bytes()[3]);
    text(&mut out, "lora_id");
    out.push(0xc0);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    out.push(0);
    out
}

fn remove(hash: u64) -> Vec<u8> {
    let mut out = begin();
    out.push(0x83);
    text(&mut out, "type");
    text(&mut out, "BlockRemoved");
    text(&mut out, "block_hashes");
    array(&mut out, 1);
    uint64(&mut out, hash);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    out.push(0);
    out
}

fn begin() -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1.5f64.to_be_bytes());
    out.push(0x91);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | text.len().to_be_bytes()[7]);
    out.extend(text.as_bytes());
}

fn array(out: &mut Vec<u8>, len: usize) {
    out.push(0xdc);
    out.extend(&len.to_be_bytes()[6..]);
}

fn uint64(out: &mut Vec<u8>, value: u64) {
    out.push(0xcf);
    out.extend(value.to_be_bytes());
}

/// What is published of each block.
#[derive(Clone, Copy)]
enum Spaces {
    Text,
    Tokens,
}

fn index(spaces: Spaces) -> Index {
    let index = Index::new(IndexConfig {
        seed: Seed(1),
        max_bytes: usize::MAX,
    });
    let mut random = Random(7);
    let vocabulary: TokenBytes = (0..VOCABULARY)
        .map(|_| {
            let len = usize::try_from(1 + random.below(7)).unwrap_or(1);
            random.next().to_be_bytes()[..len].to_vec()
        })
        .collect();
    let (mut index, vocabulary) = match spaces {
        Spaces::Text => (index, Some(vocabulary)),
        Spaces::Tokens => (index.with_token_space(), None),
    };
    index.add_model(MODEL, "model", 0, vocabulary);
    for source in 0..SOURCES {
        index.add_source(
            SourceId(source),
            MODEL,
            [0, 1, 2].map(|tier| HolderId(source * 3 + tier)),
        );
    }
    index
}

fn apply(index: &mut Index, payloads: &[(SourceId, Vec<u8>)]) {
    for (source, payload) in payloads {
        black_box(index.apply(*source, payload));
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for blocks in [1, 16] {
        let history = history(blocks);
        group.throughput(Throughput::Elements(history.stored));
        group.bench_function(format!("{blocks}-block events"), |bencher| {
            let mut decoder = Decoder::default();
            bencher.iter(|| {
                for (_, payload) in &history.stores {
                    black_box(decoder.decode(payload, &mut |event| {
                        black_box(event);
                    }));
                }
            });
        });
    }
}

fn ingest(criterion: &mut Criterion) {
    for (name, spaces) in [("text", Spaces::Text), ("token", Spaces::Tokens)] {
        let mut group = criterion.benchmark_group(format!("ingest {name} space"));
        group.sample_size(10);
        for blocks in [1, 16] {
            let history = history(blocks);
            let mut full = index(spaces);
            apply(&mut full, &history.stores);
            let stats = full.stats();
            println!(
                "{name} space: {} pairs, {} rungs, {:.0} bytes a pair",
                stats.blocks,
                stats.rungs,
                stats.bytes as f64 / stats.blocks as f64
            );
            group.throughput(Throughput::Elements(history.stored));
            group.bench_function(format!("store, {blocks}-block events"), |bencher| {
                bencher.iter_batched(
                    || index(spaces),
                    |mut index| {
                        apply(&mut index, &history.stores);
                        index
                    },
                    BatchSize::PerIteration,
                );
            });
        }
        let history = history(16);
        group.throughput(Throughput::Elements(history.removed));
        group.bench_function("remove, 1-block events", |bencher| {
            bencher.iter_batched(
                || {
                    let mut index = index(spaces);
                    apply(&mut index, &history.stores);
                    index.take_changes();
                    index
                },
                |mut index| {
                    apply(&mut index, &history.removes);
                    index
                },
                BatchSize::PerIteration,
            );
        });
        group.throughput(Throughput::Elements(history.stored));
        group.bench_function("take changes", |bencher| {
            bencher.iter_batched(
                || {
                    let mut index = index(spaces);
                    apply(&mut index, &history.stores);
                    index
                },
                |mut index| {
                    black_box(index.take_changes());
                    index
                },
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(benches, decode, ingest);
criterion_main!(benches);
