//! Sending requests and taking times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use prefixway::demo::process::wait_for;

use crate::http1::Client;
use crate::usage::cpu_time;
use crate::variant::{Kind, Variant};

/// Longest wait for a table to reach every VM.
const LIMIT: Duration = Duration::from_mins(1);

/// What was measured of one variant in one cell, over all rounds.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    times: Vec<Duration>,
    /// Time in which they were sent.
    pub span: Duration,
    pub envoy: Duration,
    pub server: Duration,
    /// Requests that a gateway other than ours gave no answer to.
    pub lost: usize,
}

/// A client that goes on where a gateway other than ours breaks its connection: Envoy's `ext_proc` does so now and then with long bodies.
struct Sender {
    client: Client,
    address: SocketAddr,
    may_lose: bool,
    lost: usize,
}

impl Sender {
    async fn connect(variant: &Variant) -> anyhow::Result<Self> {
        let address = variant.envoy.http();
        Ok(Self {
            client: Client::connect(address).await?,
            address,
            may_lose: !matches!(variant.kind, Kind::Prefixway(_) | Kind::Module(..)),
            lost: 0,
        })
    }

    /// Sends a request; gives whether there was an answer.
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<bool> {
        match self.client.send(request).await {
            Ok(_) => Ok(true),
            Err(error) if !self.may_lose => Err(error),
            Err(_) => {
                self.lost += 1;
                self.client = Client::connect(self.address).await?;
                Ok(false)
            }
        }
    }
}

impl Cell {
    pub(crate) fn count(&self) -> f64 {
        self.times.len() as f64
    }

    /// Microseconds that so many of a thousand requests took at most.
    pub(crate) fn percentile_us(&self, permille: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = times.len().saturating_sub(1) * permille / 1000;
        times
            .get(at)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }
}

/// Waits until the filter's VMs have their copies of the tables.
///
/// # Errors
/// When that takes longer than a minute, with the end of Envoy's log.
pub(crate) async fn wait_for_tables(variants: &[Variant], rungs: &[u64]) -> anyhow::Result<()> {
    let filters = variants
        .iter()
        .filter(|variant| matches!(variant.kind, Kind::Prefixway(_)));
    for (variant, &rungs) in filters.zip(rungs) {
        let copied = wait_for("the table in every VM", LIMIT, async || {
            let rows = variant.envoy.stats("prefixway_index_rungs").await;
            let vms = variant.envoy.stats("prefixway_ready_vms").await;
            let has = rows.iter().any(|(_, copied)| *copied >= rungs);
            let all = vms.iter().any(|(_, vms)| *vms > 1);
            (has && all).then_some(())
        });
        copied
            .await
            .with_context(|| format!("envoy's log ends:\n{}", variant.envoy.log_tail()))?;
    }
    Ok(())
}

/// Sends every request a few times, so that each is known where it can be.
///
/// # Errors
/// When one fails, or our filter doesn't find them then.
pub(crate) async fn warm_up(variant: &Variant, requests: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut client = Sender::connect(variant).await?;
    for _ in 0..3 {
        for request in requests {
            client.send(request).await?;
        }
        // A decision comes back as credit within this time.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    if let Kind::Prefixway(_) = variant.kind {
        let hits = async || -> u64 {
            let counts = variant.envoy.stats("prefixway_decisions_total").await;
            let is_hit = |name: &str| name.contains("reason=prefix");
            counts
                .iter()
                .filter(|(name, _)| is_hit(name))
                .map(|(_, count)| count)
                .sum()
        };
        let before = hits().await;
        for request in requests {
            client.send(request).await?;
        }
        let found = hits().await - before;
        ensure!(
            found == requests.len() as u64,
            "{} finds {found} of {} prompts that it has sent before",
            variant.name,
            requests.len()
        );
    }
    Ok(())
}

/// Sends requests from so many connections for a while, and adds to `cell` what was measured.
///
/// # Errors
/// When one fails.
pub(crate) async fn run(
    variant: &Variant,
    requests: &[Vec<u8>],
    clients: usize,
    span: Duration,
    cell: &mut Cell,
) -> anyhow::Result<()> {
    let requests: Arc<[Vec<u8>]> = requests.into();
    let mut connected = Vec::new();
    for _ in 0..clients {
        let mut client = Sender::connect(variant).await?;
        client
            .send(requests.first().context("there are requests")?)
            .await?;
        connected.push(client);
    }
    let envoy = variant.envoy.process_id();
    let cpu = || anyhow::Ok((cpu_time(envoy, "")?, server_time(variant)?));
    let (envoy_before, server_before) = cpu()?;
    let start = Instant::now();
    let workers: Vec<_> = connected
        .into_iter()
        .enumerate()
        .map(|(number, mut client)| {
            let requests = Arc::clone(&requests);
            tokio::spawn(async move {
                let mut times = Vec::new();
                let turns = requests.iter().cycle().skip(number * 5);
                for request in turns {
                    let sent = Instant::now();
                    if client.send(request).await? {
                        times.push(sent.elapsed());
                    }
                    if start.elapsed() >= span {
                        break;
                    }
                }
                anyhow::Ok((times, client.lost))
            })
        })
        .collect();
    for worker in workers {
        let (times, lost) = worker.await??;
        cell.times.extend(times);
        cell.lost += lost;
    }
    cell.span += start.elapsed();
    let (envoy_after, server_after) = cpu()?;
    cell.envoy += envoy_after.saturating_sub(envoy_before);
    cell.server += server_after.saturating_sub(server_before);
    Ok(())
}

fn server_time(variant: &Variant) -> anyhow::Result<Duration> {
    if variant.threads.is_empty() {
        return Ok(Duration::ZERO);
    }
    cpu_time(None, &variant.threads)
}
