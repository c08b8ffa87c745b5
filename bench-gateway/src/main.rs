//! What the filter costs in real Envoy, beside plain Envoy and a minimal `ext_proc` server.
//!
//! One Envoy with one worker for each variant, all in one run; rounds go through them one after the other, so that what the machine does
//! besides hits all alike. Engines answer at once. Chats are of prose in 20 messages, 16 of each size, all of them known to the table to
//! their ends. A percentile is over all rounds; "added" is against plain Envoy in the same cell.
//!
//! CPU is the kernel's account: of Envoy's process, and of the threads of the server beside it (`ext_proc`, or the indexer, which takes decisions and
//! publishes what changes). Rows go to `target/bench/gateway.json`:
//! `[{variant, body_bytes, concurrency, p50_us, p99_us, added_p50_us, rps, envoy_cpu_us, server_cpu_us}]`.
//!
//! With the argument `freshness` it measures something else: the time from an engine's event until every worker routes by it; with `fleet` what
//! one to eight gateways on one indexer make of a workload with shared prefixes; with `overload` what flow control makes of twice the load that
//! the engines can take.
//!
//! `BENCH_RUNGS`, `BENCH_BODIES` and `BENCH_CLIENTS` (lists), `BENCH_SECONDS` (of each cell in each round), `BENCH_ROUNDS` and `BENCH_OUT` narrow it.
//! `BENCH_MODULES` (a list of paths) adds variants with other wasm modules in the filter's place and the first table's indexer: earlier builds, or
//! parts of it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark reports"
)]

mod ext_proc;
mod fleet;
mod freshness;
mod http1;
mod load;
mod overload;
mod prompts;
mod report;
mod table;
mod usage;
mod variant;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use table::Table;
use tokio::runtime::Runtime;
use variant::{Kind, Variant};

/// Name of the served model.
const MODEL: &str = "tiny";
/// Engines behind each gateway.
const ENGINES: usize = 8;

struct Options {
    rungs: Vec<u64>,
    bodies: Vec<usize>,
    clients: Vec<usize>,
    seconds: Duration,
    rounds: usize,
    out: String,
    modules: Vec<String>,
}

impl Options {
    fn from_environment() -> anyhow::Result<Self> {
        let list = |name: &str, default: &str| -> anyhow::Result<Vec<u64>> {
            let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
            text.split(',')
                .map(|number| {
                    number
                        .trim()
                        .parse()
                        .with_context(|| format!("{name}={text}"))
                })
                .collect()
        };
        let sizes = |name: &str, default: &str| -> anyhow::Result<Vec<usize>> {
            Ok(list(name, default)?
                .into_iter()
                .filter_map(|number| usize::try_from(number).ok())
                .collect())
        };
        Ok(Self {
            rungs: list("BENCH_RUNGS", "100000,1000000,4000000")?,
            bodies: sizes("BENCH_BODIES", "2048,32768,225280,1048576")?,
            clients: sizes("BENCH_CLIENTS", "1,8")?,
            seconds: Duration::from_secs(list("BENCH_SECONDS", "1")?.first().copied().unwrap_or(1)),
            rounds: sizes("BENCH_ROUNDS", "5")?.first().copied().unwrap_or(5),
            out: std::env::var("BENCH_OUT")
                .unwrap_or_else(|_| "target/bench/gateway.json".to_owned()),
            modules: std::env::var("BENCH_MODULES")
                .map(|list| list.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
        })
    }
}

/// A runtime whose threads can be told apart by their name.
fn runtime(name: &str) -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()?)
}

/// A runtime for everything: clients, engines and indexer share the machine with the gateways in any case.
fn all() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?)
}

fn main() -> anyhow::Result<()> {
    let options = Options::from_environment()?;
    prefixway_e2e::rig::module()?;
    let folder = tempfile::tempdir()?;
    let client = runtime("client")?;
    if std::env::args().nth(1).as_deref() == Some("fleet") {
        let rounds = std::env::var("BENCH_ROUNDS").map_or(Ok(2), |rounds| rounds.parse())?;
        return all()?.block_on(fleet::run(folder.path(), rounds, &options.out));
    }
    if std::env::args().nth(1).as_deref() == Some("overload") {
        let span = options.seconds * 60;
        return all()?.block_on(overload::run(folder.path(), span, &options.out));
    }
    let upstream = runtime("upstream")?;
    let engines = upstream.block_on(async {
        let mut engines = Vec::new();
        for _ in 0..ENGINES {
            engines.push(http1::serve().await?);
        }
        anyhow::Ok(engines)
    })?;
    let first = *engines.first().context("there are engines")?;
    if std::env::args().nth(1).as_deref() == Some("freshness") {
        return client.block_on(freshness::run(first, folder.path(), options.seconds * 20));
    }
    let picker = runtime("ext_proc")?;
    let ext_proc = picker.block_on(ext_proc::serve(first))?;

    let mut kinds = vec![
        ("plain Envoy".to_owned(), Kind::Plain, String::new()),
        ("buffering only".to_owned(), Kind::Buffer, String::new()),
        (
            "ext_proc".to_owned(),
            Kind::ExtProc(ext_proc),
            "ext_proc".to_owned(),
        ),
    ];
    let mut tables = Vec::new();
    for &rungs in &options.rungs {
        // Thread names have room for 15 bytes.
        let threads = format!("idx-{rungs}");
        let indexer = runtime(&threads)?;
        let table = indexer.block_on(async {
            let mut table = Table::start(&engines, folder.path()).await?;
            eprintln!("filling a table of {rungs} entries");
            table.fill(rungs).await?;
            anyhow::Ok(table)
        })?;
        let name = format!("Prefixway {}", report::count(rungs));
        kinds.push((name, Kind::Prefixway(table.grpc()), threads));
        tables.push((indexer, table));
    }
    if let Some((_, table)) = tables.first() {
        for module in &options.modules {
            let name = Path::new(module).file_stem().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            let kind = Kind::Module(module.into(), table.grpc());
            kinds.push((name, kind, String::new()));
        }
    }
    let mut variants = Vec::new();
    for (name, kind, threads) in &kinds {
        eprintln!("starting {name}");
        variants.push(client.block_on(variant::start(
            name,
            kind.clone(),
            threads,
            &engines,
            folder.path(),
        ))?);
    }
    client.block_on(load::wait_for_tables(&variants, &options.rungs))?;
    let rows = measure(&client, &variants, &options)?;
    report::print(&rows);
    report::write(&rows, &options.out)?;
    println!("rows written to {}", options.out);
    Ok(())
}

fn measure(
    client: &Runtime,
    variants: &[Variant],
    options: &Options,
) -> anyhow::Result<Vec<report::Row>> {
    let mut rows = Vec::new();
    for &bytes in &options.bodies {
        let requests: Vec<Vec<u8>> = prompts::bodies(MODEL, bytes)
            .iter()
            .map(|body| http1::post("/v1/chat/completions", body))
            .collect();
        for variant in variants {
            client.block_on(load::warm_up(variant, &requests))?;
        }
        for &clients in &options.clients {
            let mut cells: Vec<load::Cell> =
                variants.iter().map(|_| load::Cell::default()).collect();
            for round in 1..=options.rounds {
                eprintln!(
                    "{} bytes, {clients} clients, round {round}",
                    requests.first().map_or(0, Vec::len)
                );
                for (variant, cell) in variants.iter().zip(&mut cells) {
                    let run = load::run(variant, &requests, clients, options.seconds, cell);
                    client.block_on(run).with_context(|| {
                        let log = variant.envoy.log_tail();
                        format!("{}; its log ends:\n{log}", variant.name)
                    })?;
                }
            }
            let plain = cells.first().map_or(0.0, |cell| cell.percentile_us(500));
            for (variant, cell) in variants.iter().zip(&cells) {
                rows.push(report::Row::new(&variant.name, bytes, clients, cell, plain));
            }
        }
    }
    Ok(rows)
}
