//! A soak of everything in real Envoy: random load and faults, and between them moments of rest at which nothing may be left.
//!
//! ```text
//!  16 clients (HTTP/1.1, HTTP/2) ─► Envoy, 4 workers ─► 4 simulated engines   crash, hang, refuse, answer 503, lose events
//!   stay, read slowly, leave          │  listener from a file: configured anew, another vm_id, leader trapped
//!                                     └── indexer (child)                     crashes
//! ```
//! A round is load with faults, then rest: every request was answered as it should be, nothing is in flight anywhere, every VM's table is the
//! indexer's (a checksum that each VM counts anew from its entries), and nothing claims a block that its engine has not. At the end memory is
//! what it was after warm-up.
//!
//! `SOAK_SECONDS` (120) says how long, `SOAK_SEED` repeats the drawing of a run; what falls on what differs with the machine's timing.

#![expect(clippy::print_stdout, reason = "a soak tells how it goes")]

mod checks;
mod client;
mod corpus;
mod faults;
mod ledger;
mod load;
mod report;
mod system;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use prefixway::random::Random;

use ledger::Ledger;
use load::Load;
use report::Round;
use system::System;

/// Longest time of load in a round.
const MAX_ROUND: Duration = Duration::from_mins(1);
/// Rounds of a short run.
const MIN_ROUNDS: u32 = 5;
/// What memory may grow by from the second quarter of the rounds to the last.
const MAX_GROWTH: f64 = 0.10;
/// What it may grow by in any case: a few pages here and there are no leak.
const SLACK_KIB: u64 = 24 << 10;

fn number(name: &str, default: u64) -> anyhow::Result<u64> {
    let Ok(text) = std::env::var(name) else {
        return Ok(default);
    };
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.with_context(|| format!("{name}={text} is no number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_wrong_stale_or_leaked_after_any_load_and_faults() -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = number(
        "SOAK_SEED",
        u64::from(now.subsec_nanos()) << 20 ^ now.as_secs(),
    )?;
    let time = Duration::from_secs(number("SOAK_SECONDS", 120)?);
    println!("soak for {time:?}; SOAK_SEED={seed:#x} draws the same again");
    let ledger = Arc::new(Ledger::default());
    let mut system = System::start().await?;
    let mut rounds = Vec::new();
    let played = play(&mut system, seed, time, &ledger, &mut rounds).await;
    report::summary(seed, &rounds, &ledger, &system).await;
    played?;
    anyhow::ensure!(ledger.wrong().is_empty(), "requests ended wrongly");
    memory_is_flat(&rounds)
}

async fn play(
    system: &mut System,
    seed: u64,
    time: Duration,
    ledger: &Arc<Ledger>,
    rounds: &mut Vec<Round>,
) -> anyhow::Result<()> {
    let mut random = Random::new(seed);
    let load = Load::new(system.gateway(), seed, ledger);
    let begin = Instant::now();
    while begin.elapsed() < time {
        let span = (time / MIN_ROUNDS).min(MAX_ROUND);
        let until = Instant::now() + span;
        load.resume();
        let engines = faults::at_engines(
            system.engines.clone(),
            Random::new(random.bits()),
            until,
            Arc::clone(ledger),
        );
        let engines = tokio::spawn(engines);
        faults::at_indexer_and_gateway(system, &mut random, until, ledger).await?;
        engines.await??;
        load.pause().await?;
        system.check()?;
        let rungs = checks::hold(system).await?;
        let round = Round {
            rungs,
            memory_kib: system.memory_kib(),
        };
        rounds.push(round.clone());
        report::round(rounds.len(), begin.elapsed(), &round, ledger);
        let log = system.envoy_log();
        let traps = log.matches("the filter has trapped").count();
        anyhow::ensure!(traps == 0, "the filter has trapped:\n{log}");
        anyhow::ensure!(
            !system.indexer_log().contains("is not what was published"),
            "a copy was different"
        );
    }
    Ok(())
}

/// Compares the second quarter of the rounds with the last: the first is warm-up.
fn memory_is_flat(rounds: &[Round]) -> anyhow::Result<()> {
    if rounds.len() < 3 {
        println!("too few rounds to say anything of memory");
        return Ok(());
    }
    let quarter = (rounds.len() / 4).max(1);
    let median = |rounds: &[Round], of: usize| {
        let mut kib: Vec<u64> = rounds
            .iter()
            .filter_map(|round| round.memory_kib.get(of).copied())
            .collect();
        kib.sort_unstable();
        kib.get(kib.len() / 2).copied().unwrap_or(0)
    };
    for (of, name) in ["Envoy", "the indexer"].iter().enumerate() {
        let early = rounds.get(quarter..2 * quarter).unwrap_or_default();
        let late = rounds.get(rounds.len() - quarter..).unwrap_or_default();
        let (early, late) = (median(early, of), median(late, of));
        let most = (early as f64 * (1.0 + MAX_GROWTH)).max((early + SLACK_KIB) as f64);
        println!("memory of {name}: {early} KiB after warm-up, {late} KiB at the end");
        anyhow::ensure!(
            late as f64 <= most,
            "memory of {name} grew from {early} to {late} KiB"
        );
    }
    Ok(())
}
