//! The run as people read it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::system::System;

/// What a round left behind.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) rungs: u64,
    /// Envoy's memory, the indexer's.
    pub(crate) memory_kib: [u64; 2],
}

/// Progress: one line a round.
pub(crate) fn round(number: usize, elapsed: Duration, round: &Round, ledger: &Ledger) {
    let [envoy, indexer] = round.memory_kib.map(|kib| kib / 1024);
    let (_, events) = ledger.summary();
    println!(
        "round {number:3}  {:5.0} s  {:7} requests  {:4} faults  in flight 0  all VMs have the indexer's {:6} rungs  Envoy {envoy} MiB  indexer {indexer} MiB",
        elapsed.as_secs_f64(),
        ledger.requests(),
        events.values().sum::<u64>(),
        round.rungs,
    );
}

/// Everything at the end.
pub(crate) async fn summary(seed: u64, rounds: &[Round], ledger: &Ledger, system: &System) {
    let (tallies, events) = ledger.summary();
    println!("\nSoak with seed {seed:#x}");
    let ends: BTreeSet<&String> = tallies.values().flat_map(|t| t.ends.keys()).collect();
    print!("{:24}", "requests");
    for end in &ends {
        print!("{end:>20}");
    }
    println!();
    for (kind, tally) in &tallies {
        print!("{:24}", kind.name());
        for end in &ends {
            print!("{:>20}", tally.ends.get(*end).copied().unwrap_or(0));
        }
        println!();
    }
    println!(
        "cached prompt tokens: {:.1} %\n",
        ledger.cached_ratio() * 100.0
    );
    for (event, times) in events {
        println!("{times:6} x {event}");
    }
    println!();
    for (what, stat) in [
        ("retries by Envoy", "cluster.engines.upstream_rq_retry"),
        (
            "retries that were answered",
            "cluster.engines.upstream_rq_retry_success",
        ),
        (
            "elections of a leader",
            "wasmcustom.prefixway_leader_elections_total",
        ),
        ("copies started over", "wasmcustom.prefixway_resyncs_total"),
        (
            "streams to an indexer that ended",
            "wasmcustom.prefixway_stream_ends_total",
        ),
        ("VMs started anew", "wasm.prefixway.vm_reload_success"),
    ] {
        println!("{:6} {what}", system.stat(stat).await);
    }
    println!(
        "\n{} times everything was at rest: nothing in flight, every VM's table the indexer's, nothing stale",
        rounds.len()
    );
    let wrong = ledger.wrong();
    println!("{} requests ended wrongly", wrong.len());
    for wrong in &wrong {
        println!("  {wrong}");
    }
}
