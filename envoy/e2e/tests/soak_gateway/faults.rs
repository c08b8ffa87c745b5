//! What is done to the system while requests go on: one series of faults at the engines, one at indexer and gateway, both at random.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prefixway::demo::process::wait_for;
use prefixway::random::Random;
use prefixway_e2e::Listener;
use prefixway_e2e::rig::LIMIT;
use prefixway_engine_sim::{Engine, Fault};
use serde_json::json;
use tokio::time::sleep;

use crate::ledger::{Cut, Ledger};
use crate::system::{DRAIN_S, System};

/// Longest pause between two faults of a series.
const MAX_PAUSE_MS: usize = 2_500;

fn span(random: &mut Random, from_ms: usize, to_ms: usize) -> Duration {
    Duration::from_millis((from_ms + random.below(to_ms - from_ms)) as u64)
}

/// Faults at the engines until a moment; afterwards all of them are well. One at a time: requests have somewhere else to go.
pub(crate) async fn at_engines(
    engines: Vec<Arc<Engine>>,
    mut random: Random,
    until: Instant,
    ledger: Arc<Ledger>,
) -> anyhow::Result<()> {
    while Instant::now() < until {
        let number = random.below(engines.len());
        let Some(engine) = engines.get(number) else {
            continue;
        };
        let cut = Cut::Engine(engine.name().to_owned());
        match random.below(8) {
            0 | 1 => {
                ledger.event("engine crashed and came back");
                ledger.open(cut.clone());
                engine.inject(Fault::Refuse);
                engine.restart().await?;
                sleep(span(&mut random, 200, 2_500)).await;
                engine.inject(Fault::None);
                ledger.close(&cut);
            }
            2 => {
                ledger.event("engine answered 503");
                engine.inject(Fault::Status(503));
                sleep(span(&mut random, 200, 2_000)).await;
                engine.inject(Fault::None);
            }
            3 => {
                ledger.event("engine's connections broke");
                ledger.open(cut.clone());
                engine.drop_connections();
                ledger.close(&cut);
            }
            4 => {
                ledger.event("engine hung");
                engine.inject(Fault::Hang);
                sleep(span(&mut random, 100, 1_500)).await;
                engine.inject(Fault::None);
            }
            5 => {
                ledger.event("engine refused connections");
                engine.inject(Fault::Refuse);
                sleep(span(&mut random, 100, 1_500)).await;
                engine.inject(Fault::None);
            }
            6 => {
                ledger.event("event publisher started over");
                engine.restart_publisher().await?;
            }
            _ => {
                ledger.event("event batches were lost");
                engine.lose_batches(1 + random.below(20) as u64);
            }
        }
        sleep(span(&mut random, 100, MAX_PAUSE_MS)).await;
    }
    Ok(())
}

/// Faults at indexer and gateway until a moment; afterwards the indexer runs, and the built filter is the one that is configured.
pub(crate) async fn at_indexer_and_gateway(
    system: &mut System,
    random: &mut Random,
    until: Instant,
    ledger: &Ledger,
) -> anyhow::Result<()> {
    while Instant::now() < until {
        match random.below(8) {
            0 | 1 => {
                ledger.event("indexer crashed and came back");
                system.kill_indexer().await;
                sleep(span(random, 100, 4_000)).await;
                system.start_indexer().await?;
            }
            2..=4 => {
                ledger.event("filter configured anew");
                let before = Listener::updates(&system.envoy).await;
                let tick_ms = 6 + random.below(8);
                system.listener.push("tick_ms", json!(tick_ms))?;
                if random.below(3) == 0 {
                    // Nothing is shared with another scope.
                    let scope = format!("s{}", random.below(2));
                    system.listener.push("scope", json!(scope))?;
                }
                Listener::taken(&system.envoy, before).await?;
            }
            5 => {
                ledger.event("filter configured anew, with another vm_id");
                let before = Listener::updates(&system.envoy).await;
                let vm_id = format!("prefixway-{:x}", random.bits());
                system.listener.push_vm_id(&vm_id)?;
                Listener::taken(&system.envoy, before).await?;
            }
            6 => lead_trap(system, random, ledger).await?,
            _ => {
                // What comes down the stream just then is lost with it.
                ledger.event("indexer crashed twice");
                for _ in 0..2 {
                    system.kill_indexer().await;
                    system.start_indexer().await?;
                    sleep(span(random, 0, 300)).await;
                }
            }
        }
        system.check()?;
        sleep(span(random, 200, MAX_PAUSE_MS)).await;
    }
    Ok(())
}

/// The VM that leads traps, and another has to take over.
async fn lead_trap(
    system: &mut System,
    random: &mut Random,
    ledger: &Ledger,
) -> anyhow::Result<()> {
    ledger.event("leader trapped");
    ledger.open(Cut::Trap);
    let [built, trapping] = system.modules.clone();
    let before = Listener::updates(&system.envoy).await;
    system.listener.push_module(&trapping)?;
    Listener::taken(&system.envoy, before).await?;
    // Until those of before are gone, one of them may lead.
    sleep(Duration::from_secs(u64::from(DRAIN_S) + 1)).await;
    wait_for("a leader", LIMIT, async || {
        let page = system.page("gateways").await?;
        (page.get("gateways")?.as_array()?.len() == 1).then_some(())
    })
    .await?;
    let elections = system.gauge("prefixway_leader_elections_total").await;
    system.kill_indexer().await;
    system.start_indexer().await?;
    wait_for("another leader", LIMIT, async || {
        let now = system.gauge("prefixway_leader_elections_total").await;
        (now > elections).then_some(())
    })
    .await?;
    sleep(span(random, 0, 3_000)).await;
    let before = Listener::updates(&system.envoy).await;
    system.listener.push_module(&built)?;
    Listener::taken(&system.envoy, before).await?;
    sleep(Duration::from_secs(u64::from(DRAIN_S) + 1)).await;
    ledger.close(&Cut::Trap);
    Ok(())
}
