//! `kv-index` 2.0.0, `ChainIndex`. It has no decoder for these events, so from bytes it works behind ours, with its own content hash.

use crate::Sample;
use crate::allocator::live_bytes;
use crate::clock::Instant;
use crate::generator::{BLOCK_TOKENS, History, Random, Store};
use crate::wire;
use kv_index::{
    ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock, compute_content_hash,
};
use prefixway_core::event::{Decoder, Event};
use std::hint::black_box;
use std::time::Duration;

pub const NAME: &str = "kv-index 2.0.0";
pub const BEHIND_OURS: &str = "kv-index 2.0.0 behind our decoder";
const PIECE: usize = 4096;

struct Indexed {
    index: ChainIndex,
    maps: Vec<ChainBlockMap>,
    workers: Vec<u32>,
}

fn empty(sources: u32) -> Indexed {
    let index = ChainIndex::with_max_workers(sources as usize);
    let workers = (0..sources)
        .map(|source| {
            index
                .intern_worker(&format!("worker-{source}"))
                .expect("fits")
        })
        .collect();
    Indexed {
        index,
        maps: (0..sources).map(|_| ChainBlockMap::new()).collect(),
        workers,
    }
}

impl Indexed {
    fn store(&mut self, source: u32, blocks: &[StoredBlock], parent: Option<u64>) {
        let source = source as usize;
        self.index
            .apply_stored(
                self.workers[source],
                blocks,
                parent.map(SequenceHash),
                &mut self.maps[source],
            )
            .expect("history is whole");
    }
}

fn ready(store: &Store) -> Vec<StoredBlock> {
    store
        .blocks
        .iter()
        .map(|block| StoredBlock {
            seq_hash: SequenceHash(block.engine),
            content_hash: ContentHash(block.content),
        })
        .collect()
}

fn store_all(to: &mut Indexed, history: &History) -> Duration {
    let mut time = Duration::ZERO;
    for piece in history.stores.chunks(PIECE) {
        let ready: Vec<Vec<StoredBlock>> = piece.iter().map(ready).collect();
        let start = Instant::now();
        for (blocks, store) in ready.iter().zip(piece) {
            to.store(store.source, blocks, store.parent);
        }
        time += start.elapsed();
    }
    time
}

pub fn store_and_remove(history: &History) -> Sample {
    let before = live_bytes();
    let mut to = empty(history.sources);
    let store = store_all(&mut to, history);
    let bytes = live_bytes() - before;
    let start = Instant::now();
    for &(source, hash) in &history.removals {
        let map = &mut to.maps[source as usize];
        to.index
            .apply_removed(to.workers[source as usize], &[SequenceHash(hash)], map);
    }
    let remove = start.elapsed();
    Sample {
        store,
        remove,
        bytes,
        rungs: 0,
    }
}

pub fn ingest(history: &History) -> Duration {
    let mut to = empty(history.sources);
    let mut decoder = Decoder::default();
    let mut blocks: Vec<StoredBlock> = Vec::new();
    let mut time = Duration::ZERO;
    for piece in history.stores.chunks(PIECE) {
        let payloads: Vec<Vec<u8>> = piece.iter().map(wire::store).collect();
        let start = Instant::now();
        for (payload, store) in payloads.iter().zip(piece) {
            decoder.decode(payload, &mut |event| {
                let Event::Stored(stored) = event else {
                    return;
                };
                blocks.clear();
                blocks.extend(
                    stored
                        .hashes
                        .iter()
                        .zip(stored.tokens.chunks_exact(BLOCK_TOKENS))
                        .map(|(hash, tokens)| StoredBlock {
                            seq_hash: SequenceHash(hash.0),
                            content_hash: compute_content_hash(tokens),
                        }),
                );
                to.store(store.source, &blocks, stored.parent.map(|parent| parent.0));
            });
        }
        time += start.elapsed();
    }
    time
}

/// Least over the rounds of the mean time of `look_up`, in microseconds.
pub fn time_each<P>(rounds: usize, prompts: &[P], mut look_up: impl FnMut(&P)) -> f64 {
    (0..rounds.max(1))
        .map(|_| {
            let start = Instant::now();
            for prompt in prompts {
                look_up(prompt);
            }
            start.elapsed().as_secs_f64() * 1e6 / prompts.len() as f64
        })
        .fold(f64::INFINITY, f64::min)
}

pub fn lookups(history: &History, rounds: usize) -> Vec<(usize, f64)> {
    let mut to = empty(history.sources);
    store_all(&mut to, history);
    [64, 512]
        .map(|blocks| {
            let mut random = Random(7);
            let prompts: Vec<Vec<ContentHash>> = (0..500)
                .map(|_| {
                    let prompt = history.prompt(&mut random, blocks);
                    prompt
                        .iter()
                        .map(|block| ContentHash(block.content))
                        .collect()
                })
                .collect();
            let mut scores = vec![0u32; history.sources as usize + 1];
            let time = time_each(rounds, &prompts, |hashes| {
                to.index.score_into(
                    hashes,
                    |hash| hash.0,
                    false,
                    |worker, score| {
                        if let Some(slot) = scores.get_mut(worker as usize) {
                            *slot = score;
                        }
                    },
                );
                black_box(&mut scores);
            });
            (blocks, time)
        })
        .to_vec()
}
