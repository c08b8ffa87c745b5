//! The table and what stands around it: probing, updating, loading, deciding.
//!
//! State: 4 million rungs (about 95 MB of images), 64 endpoints with one holder each, seeds fixed. Chains of 160 rungs, as of a 32 KiB
//! prompt; keys are spread so that every lookup misses the CPU caches, as between requests.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a bench says what failed by panicking"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use prefixway_core::{
    endpoint::HolderId,
    hash::{ChunkHash, Seed},
    index::{Changes, RungChange},
    load::EndpointLoad,
    proto::{Endpoint, Endpoints as EndpointsMessage, Holder},
    schedule::{Candidate, Need, Phase, rank},
    snapshot::{
        Endpoints, Entry, PromptHashes, Publisher, PublisherConfig, Rung, Segment, SetId, Table,
        matched,
    },
};

const RUNGS: u64 = 4_000_000;
const CHAIN: u64 = 160;
const ENDPOINTS: u32 = 64;

fn hash(key: u64) -> u64 {
    let z = (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (z ^ (z >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn entry(key: u64) -> Entry {
    let set = SetId(u32::try_from(key % 1_000).unwrap());
    Entry {
        hash: hash(key),
        set,
        token_depth: 16,
    }
}

fn chain(first: u64, is_hit: bool) -> Vec<Rung> {
    let offset = if is_hit { 0 } else { RUNGS };
    let rung = |(chunks, at)| Rung {
        chunks,
        hash: hash(offset + (first * CHAIN + at) % RUNGS),
    };
    (1..).zip(0..CHAIN).map(rung).collect()
}

fn endpoints() -> Endpoints {
    let endpoint = |id| Endpoint {
        id,
        address: format!("10.0.0.{id}:8000"),
        healthy: true,
        block_size: 16,
        prefill_tokens_per_s: 8_000.0,
        holders: vec![Holder {
            id,
            tier: "gpu".into(),
        }],
        ..Endpoint::default()
    };
    Endpoints::from_message(&EndpointsMessage {
        revision: 1,
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
    })
}

/// Rung `key` is held by up to three endpoints, the same along a chain.
fn change(key: u64) -> RungChange {
    let of_chain = u32::try_from(key / CHAIN % 1_000).unwrap();
    let holders = (0..=of_chain % 3)
        .map(|at| HolderId((of_chain * 7 + at * 11) % ENDPOINTS))
        .collect();
    RungChange {
        hash: hash(key),
        token_depth: u32::try_from(key % CHAIN).unwrap() * 16,
        holders,
    }
}

fn publisher() -> Publisher {
    let config = PublisherConfig {
        epoch: 1,
        seed: Seed(1),
        shard: "s".into(),
        ring_deltas: 64,
        max_bytes: 1 << 30,
        thinning: prefixway_core::snapshot::Thinning::NONE,
    };
    let mut publisher = Publisher::try_new(config).unwrap();
    for first in (0..RUNGS).step_by(100_000) {
        let upserts = (first..first + 100_000).map(change).collect();
        publisher
            .apply(&Changes {
                upserts,
                removes: vec![],
            })
            .unwrap();
    }
    publisher
}

fn probing(c: &mut Criterion) {
    let mut publisher = publisher();
    let endpoints = endpoints();
    let bytes = publisher.table().bytes();
    eprintln!(
        "{RUNGS} rungs: {bytes} bytes of images, {:.1} a rung",
        bytes as f64 / RUNGS as f64
    );
    let mut group = c.benchmark_group("probe");
    let mut next = 0u64;
    let mut step = move || {
        next = (next + 7_919) % (RUNGS / CHAIN);
        next
    };
    group.throughput(Throughput::Elements(CHAIN));
    group.bench_function("160 rungs held, one holder set a chain", |b| {
        let (table, sets) = (publisher.table(), publisher.sets());
        b.iter_batched(
            || chain(step(), true),
            |rungs| black_box(matched(table, sets, &endpoints, &(), &rungs)),
            BatchSize::SmallInput,
        );
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("first rung absent", |b| {
        let (table, sets) = (publisher.table(), publisher.sets());
        b.iter_batched(
            || chain(step(), false),
            |rungs| black_box(matched(table, sets, &endpoints, &(), &rungs)),
            BatchSize::SmallInput,
        );
    });
    group.finish();

    let mut group = c.benchmark_group("publish");
    group.throughput(Throughput::Elements(2_000));
    let mut fresh = RUNGS;
    group.bench_function("1,000 new and 1,000 gone rungs", |b| {
        b.iter_batched(
            || {
                fresh += 1_000;
                let removes = (fresh - RUNGS - 1_000..fresh - RUNGS).map(hash).collect();
                Changes {
                    upserts: (fresh - 1_000..fresh).map(change).collect(),
                    removes,
                }
            },
            |changes| black_box(publisher.apply(&changes).unwrap()),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn table(c: &mut Criterion) {
    let mut table = Table::try_new(1 << 30).unwrap();
    for key in 0..RUNGS {
        table.insert(entry(key)).unwrap();
    }
    let mut group = c.benchmark_group("table");
    let mut key = 0u64;
    let mut step = move || {
        key = (key + 1_000_003) % RUNGS;
        key
    };
    group.bench_function("get, present", |b| b.iter(|| table.get(hash(step()))));
    group.bench_function("get, absent", |b| {
        b.iter(|| table.get(hash(RUNGS + step())));
    });
    group.bench_function("remove and insert", |b| {
        b.iter(|| {
            let key = step();
            table.remove(hash(key));
            table.insert(entry(key)).unwrap();
        });
    });
    let image = table.image(0).unwrap().to_vec();
    group.throughput(Throughput::Bytes(image.len() as u64));
    group.bench_function("take a segment's image", |b| {
        b.iter_batched(
            || image.clone(),
            |image| black_box(Segment::try_from_image(image).unwrap()),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn deciding(c: &mut Criterion) {
    let endpoints = endpoints();
    let load = EndpointLoad {
        has_others: true,
        engine: Some(prefixway_core::load::Figures::default()),
        ..EndpointLoad::default()
    };
    let candidates: Vec<_> = endpoints
        .list()
        .iter()
        .map(|endpoint| Candidate {
            endpoint,
            shard: 0,
            credit: prefixway_core::snapshot::Credit::default(),
            load,
        })
        .collect();
    let need = Need {
        model: "",
        adapter: None,
        pool: "",
        phase: Phase::Decode,
        prompt_tokens: 8_000,
        ..Need::default()
    };
    let mut group = c.benchmark_group("request");
    let mut seed = 0;
    group.bench_function("rank 64 endpoints", |b| {
        b.iter(|| {
            seed += 1;
            black_box(rank(&candidates, &need, seed))
        });
    });
    let text = vec![b'x'; 32 << 10];
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("hash 32 KiB", |b| {
        b.iter(|| black_box(PromptHashes::new(ChunkHash(1), &text, Seed(1), usize::MAX)));
    });
    group.finish();
}

criterion_group!(benches, probing, table, deciding);
criterion_main!(benches);
