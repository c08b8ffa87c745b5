//! Prefixway's index beside `dynamo-kv-router` and `kv-index`, in one process run.
//!
//! Every index gets the same history (generator G1: one shared system prefix, long chains, continuations of which one in ten is a
//! replica). Histories are made in pieces outside the clocks. Rounds go through the indexes one after the other, and the least CPU time of all
//! rounds counts, because the machine may be shared. All indexes are compared in token space; what lifting to text costs beside that is
//! stated on its own, since the others lift nothing.
//!
//! Rows go to `target/bench/index.json`: `[{name, value, unit, peer, peer_value, ratio}]`; a ratio below 1 is in our favour. Beside store and
//! removal stands their floor: what the machine asks for the cache lines that they touch and the hashes, measured in the same run.
//!
//! `BENCH_PAIRS`, `BENCH_ENDPOINTS` (lists), `BENCH_ROUNDS`, `BENCH_PEERS=0` and `BENCH_OUT` narrow it; what it is at is told on standard error.

mod allocator;
mod clock;
mod dynamo;
mod floor;
mod generator;
mod kv_index;
mod ours;
mod report;
mod wire;

use crate::clock::Instant;
use generator::{History, Shape};
use report::Report;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// What is measured of one index in one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub store: Duration,
    pub remove: Duration,
    pub bytes: usize,
    /// Rungs after the stores.
    pub rungs: usize,
}

/// Least of each.
fn least(samples: &[Sample]) -> Option<Sample> {
    samples.iter().copied().reduce(|a, b| Sample {
        store: a.store.min(b.store),
        remove: a.remove.min(b.remove),
        bytes: a.bytes.min(b.bytes),
        rungs: a.rungs.min(b.rungs),
    })
}

struct Options {
    pairs: Vec<usize>,
    sources: Vec<u32>,
    rounds: usize,
    out: String,
    peers: bool,
}

impl Options {
    fn from_environment() -> Self {
        let list = |name: &str, default: &str| -> Vec<usize> {
            std::env::var(name)
                .unwrap_or_else(|_| default.to_owned())
                .split(',')
                .filter_map(|number| number.trim().parse().ok())
                .collect()
        };
        Self {
            pairs: list("BENCH_PAIRS", "1000000,4000000"),
            sources: list("BENCH_ENDPOINTS", "8,64,256")
                .into_iter()
                .filter_map(|number| u32::try_from(number).ok())
                .collect(),
            rounds: list("BENCH_ROUNDS", "3").first().copied().unwrap_or(3),
            out: std::env::var("BENCH_OUT")
                .unwrap_or_else(|_| "../target/bench/index.json".to_owned()),
            peers: std::env::var("BENCH_PEERS").map_or(true, |value| value != "0"),
        }
    }
}

fn main() {
    if let Ok(part) = std::env::var("BENCH_PROFILE") {
        return profile(&part);
    }
    let options = Options::from_environment();
    let mut report = Report::default();
    for &pairs in &options.pairs {
        for &sources in &options.sources {
            measure(pairs, sources, &options, &mut report);
        }
    }
    report.write(&options.out);
}

/// Runs one part of ours again and again, for a profiler.
fn profile(part: &str) {
    let options = Options::from_environment();
    let history = History::generate(&Shape {
        sources: options.sources[0],
        pairs: options.pairs[0],
        event_blocks: if part.ends_with('1') { 1 } else { 16 },
    });
    for _ in 0..options.rounds {
        let space = if part.starts_with("text") {
            ours::Space::Text
        } else {
            ours::Space::Token
        };
        let time = if part.contains("bytes") {
            ours::ingest(&history, space).as_nanos() as f64 / history.pairs as f64
        } else {
            let sample = ours::store_and_remove(&history, space);
            println!(
                "removal {:.1} ns",
                sample.remove.as_nanos() as f64 / history.removed as f64
            );
            println!(
                "memory {:.1} bytes",
                sample.bytes as f64 / history.pairs as f64
            );
            sample.store.as_nanos() as f64 / history.pairs as f64
        };
        println!("{part} {time:.1} ns");
    }
}

fn measure(pairs: usize, sources: u32, options: &Options, report: &mut Report) {
    let label = format!("{}M pairs, {sources} endpoints", pairs / 1_000_000);
    eprintln!("{label}");
    for blocks in [16, 64, 1] {
        let history = History::generate(&Shape {
            sources,
            pairs,
            event_blocks: blocks,
        });
        let per_pair = |time: Duration, count: usize| time.as_nanos() as f64 / count as f64;
        if blocks == 16 {
            store_and_remove(&history, options, report, &label);
        }
        let (mut own, mut dynamo, mut kv) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..options.rounds {
            eprintln!("  {blocks}-block events from bytes, round {}", round + 1);
            own.push(ours::ingest(&history, ours::Space::Token));
            if options.peers {
                dynamo.push(dynamo::ingest(&history));
                kv.push(kv_index::ingest(&history));
            }
        }
        let name = format!("bytes to index, {blocks}-block events, {label}");
        let least = |times: &[Duration]| {
            times
                .iter()
                .min()
                .map(|&time| per_pair(time, history.pairs))
        };
        let value = least(&own).unwrap_or(f64::NAN);
        report.row(
            &name,
            value,
            "ns/block",
            &[
                (dynamo::NAME, least(&dynamo)),
                (kv_index::BEHIND_OURS, least(&kv)),
            ],
        );
        if blocks != 64 {
            let texts: Vec<Duration> = (0..options.rounds)
                .map(|_| ours::ingest(&history, ours::Space::Text))
                .collect();
            let with_text = least(&texts).unwrap_or(f64::NAN);
            report.row(
                &format!(
                    "the same with text in place of token rungs, {blocks}-block events, {label}"
                ),
                with_text,
                "ns/block",
                &[("without text", Some(value))],
            );
        }
        if blocks == 16 {
            let start = Instant::now();
            let changes = ours::rebuild(&history);
            let seconds = start.elapsed().as_secs_f64() - changes.making.as_secs_f64();
            report.row(
                &format!("rebuild from bytes and first publication, {label}"),
                seconds,
                "s",
                &[],
            );
            report.row(
                &format!("of which publication, {label}"),
                changes.publication.as_secs_f64(),
                "s",
                &[],
            );
        }
    }
}

fn store_and_remove(history: &History, options: &Options, report: &mut Report, label: &str) {
    let (mut own, mut text, mut both, mut dynamo, mut kv) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        eprintln!("  stores and removals, round {}", round + 1);
        own.push(ours::store_and_remove(history, ours::Space::Token));
        if options.peers {
            dynamo.push(dynamo::store_and_remove(history));
            kv.push(kv_index::store_and_remove(history));
        }
        text.push(ours::store_and_remove(history, ours::Space::Text));
        both.push(ours::store_and_remove(history, ours::Space::Both));
    }
    let pair = |time: Duration, count: usize| time.as_nanos() as f64 / count as f64;
    let (own, text, both) = (least(&own), least(&text), least(&both));
    let (dynamo_least, kv_least) = (least(&dynamo), least(&kv));
    let peers = |of: &dyn Fn(Sample) -> f64| {
        [
            (dynamo::NAME, dynamo_least.map(of)),
            (kv_index::NAME, kv_least.map(of)),
        ]
    };
    let store = |sample: Sample| pair(sample.store, history.pairs);
    let remove = |sample: Sample| pair(sample.remove, history.removed);
    let bytes = |sample: Sample| sample.bytes as f64 / history.pairs as f64;
    if let (Some(own), Some(text), Some(both)) = (own, text, both) {
        let prices = floor::measure(own.bytes, options.rounds);
        for (name, price) in [
            ("a random line that waits for the one before", prices.chase),
            ("a random line that waits for none", prices.line),
            ("a chunk's hash", prices.hash),
        ] {
            report.row(&format!("{name}, {label}"), price, "ns", &[]);
        }
        for (name, sample) in [("token rungs", own), ("text rungs", text)] {
            let rungs = sample.rungs as f64 / history.pairs as f64;
            report.row(&format!("{name}, {label}"), rungs, "per pair", &[]);
        }
        let rungs_per_pair = own.rungs as f64 / history.pairs as f64;
        let beside_floor = |of: &dyn Fn(Sample) -> f64, floor: f64| {
            let [dynamo, kv] = peers(of);
            [dynamo, kv, ("floor", Some(floor))]
        };
        report.row(
            &format!("store, 16-block events, {label}"),
            store(own),
            "ns/pair",
            &beside_floor(&store, prices.store(rungs_per_pair)),
        );
        report.row(
            &format!("removal, one hash an event, {label}"),
            remove(own),
            "ns/pair",
            &beside_floor(&remove, prices.removal(rungs_per_pair)),
        );
        report.row(
            &format!("memory, {label}"),
            bytes(own),
            "bytes/pair",
            &peers(&bytes),
        );
        for (name, sample) in [("text", text), ("text and token rungs", both)] {
            let beside = |of: &dyn Fn(Sample) -> f64| [("token rungs only", Some(of(own)))];
            report.row(
                &format!("store with {name}, {label}"),
                store(sample),
                "ns/pair",
                &beside(&store),
            );
            report.row(
                &format!("removal with {name}, {label}"),
                remove(sample),
                "ns/pair",
                &beside(&remove),
            );
            report.row(
                &format!("memory with {name}, {label}"),
                bytes(sample),
                "bytes/pair",
                &beside(&bytes),
            );
        }
    }
    let own = ours::lookups(history, options.rounds);
    let (dynamo, kv) = if options.peers {
        (
            Some(dynamo::lookups(history, options.rounds)),
            Some(kv_index::lookups(history, options.rounds)),
        )
    } else {
        (None, None)
    };
    for blocks in [64usize, 512] {
        let of = |times: &[(usize, f64)]| {
            times
                .iter()
                .find(|time| time.0 == blocks)
                .map(|time| time.1)
        };
        report.row(
            &format!("lookup of {blocks} blocks in a gateway's table, {label}"),
            of(&own).unwrap_or(f64::NAN),
            "us",
            &[
                (dynamo::NAME, dynamo.as_deref().and_then(of)),
                (kv_index::NAME, kv.as_deref().and_then(of)),
            ],
        );
    }
}
