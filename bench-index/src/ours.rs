//! Prefixway's index.

use crate::Sample;
use crate::allocator::live_bytes;
use crate::clock::Instant;
use crate::generator::{BLOCK_TOKENS, History, Random, Store};
use crate::wire;
use prefixway_core::endpoint::HolderId;
use prefixway_core::event::{EngineHash, Event, Removed, Stored};
use prefixway_core::hash::{Scope, Seed, Space as ScopeSpace};
use prefixway_core::index::{Index, IndexConfig, ModelId, SourceId};
use prefixway_core::proto;
use prefixway_core::snapshot::{Endpoints, PromptHashes, Publisher, PublisherConfig, probe};
use prefixway_core::text::TokenBytes;
use std::hint::black_box;
use std::time::Duration;

const MODEL: ModelId = ModelId(0);
const SEED: Seed = Seed(0x5eed);
/// Events that are made ahead of the clock at a time.
const PIECE: usize = 4096;

/// What is published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Token,
    Text,
    Both,
}

fn index(sources: u32, space: Space) -> Index {
    let mut index = Index::new(IndexConfig {
        seed: SEED,
        max_bytes: usize::MAX,
    });
    if space != Space::Text {
        index = index.with_token_space();
    }
    let vocabulary = (space != Space::Token).then(|| {
        let mut random = Random(7);
        let tokens: TokenBytes = (0..128_000)
            .map(|_| {
                let length = 1 + random.below(7) as usize;
                random.next().to_be_bytes()[..length].to_vec()
            })
            .collect();
        tokens
    });
    index.add_model(MODEL, "model", 0, vocabulary);
    for source in 0..sources {
        let holders = [0, 1, 2].map(|tier| HolderId(source * 3 + tier));
        index.add_source(SourceId(source), MODEL, holders);
    }
    index
}

/// A store decoded ahead of the clock.
struct Ready<'h> {
    store: &'h Store,
    hashes: Vec<EngineHash>,
    tokens: Vec<u32>,
}

impl<'h> Ready<'h> {
    fn new(store: &'h Store) -> Self {
        Self {
            store,
            hashes: store
                .blocks
                .iter()
                .map(|block| EngineHash(block.engine))
                .collect(),
            tokens: store
                .blocks
                .iter()
                .flat_map(|block| block.tokens())
                .collect(),
        }
    }

    fn event(&self) -> Event<'_> {
        Event::Stored(Stored {
            hashes: &self.hashes,
            parent: self.store.parent.map(EngineHash),
            tokens: &self.tokens,
            block_size: BLOCK_TOKENS as u32,
            lora_id: None,
            lora_name: None,
            medium: Some("GPU"),
            extra_keys: None,
            group: None,
            kind: None,
            sliding_window: None,
            lookahead: 0,
        })
    }
}

fn store_all(index: &mut Index, history: &History) -> Duration {
    let mut time = Duration::ZERO;
    for piece in history.stores.chunks(PIECE) {
        let ready: Vec<Ready<'_>> = piece.iter().map(Ready::new).collect();
        let start = Instant::now();
        index.apply_events(
            ready
                .iter()
                .map(|ready| (SourceId(ready.store.source), ready.event())),
        );
        time += start.elapsed();
    }
    time
}

pub fn store_and_remove(history: &History, space: Space) -> Sample {
    let mut index = index(history.sources, space);
    let before = live_bytes();
    let store = store_all(&mut index, history);
    drop(index.take_changes());
    let bytes = live_bytes() - before;
    let stats = index.stats();
    assert_eq!(stats.blocks, history.pairs);
    let hashes: Vec<EngineHash> = history
        .removals
        .iter()
        .map(|removal| EngineHash(removal.1))
        .collect();
    let start = Instant::now();
    index.apply_events(
        hashes
            .iter()
            .zip(&history.removals)
            .map(|(hash, &(source, _))| {
                let removed = Removed {
                    hashes: core::slice::from_ref(hash),
                    medium: Some("GPU"),
                    group: None,
                };
                (SourceId(source), Event::Removed(removed))
            }),
    );
    let remove = start.elapsed();
    drop(index.take_changes());
    assert_eq!(index.stats().blocks, history.pairs - history.removed);
    Sample {
        store,
        remove,
        bytes,
        rungs: stats.rungs,
    }
}

/// From bytes to index.
pub fn ingest(history: &History, space: Space) -> Duration {
    let mut index = index(history.sources, space);
    let mut time = Duration::ZERO;
    for piece in history.stores.chunks(PIECE) {
        let payloads: Vec<Vec<u8>> = piece.iter().map(wire::store).collect();
        let start = Instant::now();
        let batches = payloads.iter().zip(piece);
        index.apply_all(
            batches.map(|(payload, store)| (SourceId(store.source), payload.as_slice())),
            |_, outcome| {
                black_box(outcome);
            },
        );
        time += start.elapsed();
    }
    assert_eq!(index.stats().blocks, history.pairs);
    time
}

/// What a rebuild took besides.
pub struct Rebuilt {
    /// Making payloads, which is not part of it.
    pub making: Duration,
    pub publication: Duration,
}

/// An index from nothing, published once.
pub fn rebuild(history: &History) -> Rebuilt {
    let start = Instant::now();
    let mut index = index(history.sources, Space::Token);
    let mut making = start.elapsed();
    for piece in history.stores.chunks(PIECE) {
        let start = Instant::now();
        let payloads: Vec<Vec<u8>> = piece.iter().map(wire::store).collect();
        making += start.elapsed();
        let batches = payloads.iter().zip(piece);
        index.apply_all(
            batches.map(|(payload, store)| (SourceId(store.source), payload.as_slice())),
            |_, outcome| {
                black_box(outcome);
            },
        );
        let start = Instant::now();
        drop(payloads);
        making += start.elapsed();
    }
    let start = Instant::now();
    black_box(index.take_changes());
    let publication = start.elapsed();
    let start = Instant::now();
    drop(index);
    making += start.elapsed();
    Rebuilt {
        making,
        publication,
    }
}

/// Time of a lookup by the hashes of a prompt, in microseconds, by its blocks.
pub fn lookups(history: &History, rounds: usize) -> Vec<(usize, f64)> {
    let mut index = index(history.sources, Space::Token);
    store_all(&mut index, history);
    let mut publisher = Publisher::try_new(PublisherConfig {
        epoch: 1,
        seed: SEED,
        shard: "bench".to_owned(),
        ring_deltas: 64,
        max_bytes: 1 << 32,
        thinning: prefixway_core::snapshot::Thinning::NONE,
    })
    .expect("configuration is fine");
    publisher
        .apply(&index.take_changes())
        .expect("there is room");
    let endpoints = Endpoints::from_message(&proto::Endpoints {
        revision: 0,
        endpoints: (0..history.sources)
            .map(|source| proto::Endpoint {
                id: source,
                address: format!("10.0.0.{source}:80"),
                healthy: true,
                block_size: BLOCK_TOKENS as u32,
                holders: vec![proto::Holder {
                    id: source * 3,
                    tier: "gpu".to_owned(),
                }],
                ..proto::Endpoint::default()
            })
            .collect(),
    });
    let scope = Scope {
        space: ScopeSpace::Token,
        profile: "model",
        revision: 0,
        adapter: "",
        salt: "",
    }
    .hash(SEED);
    [64, 512]
        .map(|blocks| {
            let mut random = Random(7);
            let prompts: Vec<PromptHashes> = (0..500)
                .map(|_| {
                    let ids: Vec<u8> = history
                        .prompt(&mut random, blocks)
                        .iter()
                        .flat_map(|block| block.tokens())
                        // A block that ends with the prompt is no hit.
                        .chain([0])
                        .flat_map(u32::to_le_bytes)
                        .collect();
                    PromptHashes::of_token_ids(scope, &ids, SEED, usize::MAX)
                })
                .collect();
            let look_up = |hashes: &PromptHashes| {
                probe::matched(
                    publisher.table(),
                    publisher.sets(),
                    &endpoints,
                    &(),
                    &hashes.rungs,
                )
            };
            for hashes in &prompts {
                let best = look_up(hashes)
                    .credits
                    .iter()
                    .map(|credit| credit.tokens())
                    .max();
                assert_eq!(best, Some((blocks * BLOCK_TOKENS) as u32));
            }
            (
                blocks,
                crate::kv_index::time_each(rounds, &prompts, |hashes| {
                    drop(black_box(look_up(hashes)))
                }),
            )
        })
        .to_vec()
}
