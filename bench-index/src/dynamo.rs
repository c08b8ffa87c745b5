//! `dynamo-kv-router` 1.6.1, `RadixTree`: the one of its indexes that runs on the calling thread.

use crate::Sample;
use crate::allocator::live_bytes;
use crate::clock::Instant;
use crate::generator::{BLOCK_TOKENS, History, Random, Store};
use crate::wire;
use dynamo_kv_router::RadixTree;
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent, WorkerWithDpRank,
};
use dynamo_kv_router::zmq_wire::{ZmqEventNormalizer, decode_event_batch};
use std::hint::black_box;
use std::time::Duration;

pub const NAME: &str = "dynamo-kv-router 1.6.1";
const PIECE: usize = 4096;

fn event(source: u32, event_id: u64, data: KvCacheEventData) -> RouterEvent {
    let event = KvCacheEvent {
        event_id,
        data,
        dp_rank: 0,
    };
    RouterEvent::new(u64::from(source), event)
}

fn ready(store: &Store, event_id: u64) -> RouterEvent {
    let blocks = store
        .blocks
        .iter()
        .map(|block| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(block.engine),
            tokens_hash: LocalBlockHash(block.content),
            mm_extra_info: None,
        })
        .collect();
    let data = KvCacheStoreData {
        parent_hash: store.parent.map(ExternalSequenceBlockHash),
        start_position: None,
        blocks,
    };
    event(store.source, event_id, KvCacheEventData::Stored(data))
}

fn store_all(tree: &mut RadixTree, history: &History) -> Duration {
    let mut time = Duration::ZERO;
    for (number, piece) in (0u64..).zip(history.stores.chunks(PIECE)) {
        let events: Vec<RouterEvent> = (number * PIECE as u64..)
            .zip(piece)
            .map(|(id, store)| ready(store, id))
            .collect();
        let start = Instant::now();
        for event in events {
            tree.apply_event(event).expect("history is whole");
        }
        time += start.elapsed();
    }
    time
}

pub fn store_and_remove(history: &History) -> Sample {
    let before = live_bytes();
    let mut tree = RadixTree::new();
    let store = store_all(&mut tree, history);
    let bytes = live_bytes() - before;
    let mut remove = Duration::ZERO;
    for piece in history.removals.chunks(PIECE) {
        let events: Vec<RouterEvent> = piece
            .iter()
            .map(|&(source, hash)| {
                let data = KvCacheRemoveData {
                    block_hashes: vec![ExternalSequenceBlockHash(hash)],
                };
                event(source, 0, KvCacheEventData::Removed(data))
            })
            .collect();
        let start = Instant::now();
        for event in events {
            let _ = black_box(tree.apply_event(event));
        }
        remove += start.elapsed();
    }
    Sample {
        store,
        remove,
        bytes,
        rungs: 0,
    }
}

pub fn ingest(history: &History) -> Duration {
    let mut tree = RadixTree::new();
    let mut normalizer = ZmqEventNormalizer::new(BLOCK_TOKENS as u32);
    let mut time = Duration::ZERO;
    let mut event_id = 0;
    for piece in history.stores.chunks(PIECE) {
        let payloads: Vec<Vec<u8>> = piece.iter().map(wire::store).collect();
        let start = Instant::now();
        for (payload, store) in payloads.iter().zip(piece) {
            let batch = decode_event_batch(payload).expect("payload is well-formed");
            let worker = WorkerWithDpRank::from_worker_id(u64::from(store.source));
            for raw in batch.events {
                event_id += 1;
                let placed = normalizer.normalize(raw, event_id, worker);
                if let Some(event) = placed.and_then(|placed| placed.into_router_event()) {
                    tree.apply_event(event).expect("history is whole");
                }
            }
        }
        time += start.elapsed();
    }
    time
}

pub fn lookups(history: &History, rounds: usize) -> Vec<(usize, f64)> {
    let mut tree = RadixTree::new();
    store_all(&mut tree, history);
    [64, 512]
        .map(|blocks| {
            let mut random = Random(7);
            let prompts: Vec<Vec<LocalBlockHash>> = (0..500)
                .map(|_| {
                    let prompt = history.prompt(&mut random, blocks);
                    prompt
                        .iter()
                        .map(|block| LocalBlockHash(block.content))
                        .collect()
                })
                .collect();
            let time = crate::kv_index::time_each(rounds, &prompts, |hashes| {
                drop(black_box(tree.find_matches(hashes.clone(), false)));
            });
            (blocks, time)
        })
        .to_vec()
}
