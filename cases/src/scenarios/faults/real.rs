//! The faults in real Envoy.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use prefixway::demo::process::wait_for;
use prefixway_e2e::Listener;
use prefixway_wasm_tests::trap::{ON_REQUEST_TRAILERS, with_trap};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::real::{
    Client, LIMIT, MODEL, PATH, Parts, Plan, Planned, Play, Stand, block_on, words,
};
use super::{Expect, Fault, PODS};
use crate::error::CaseError;

/// Requests whose fastest answer is looked at.
const SAMPLES: usize = 20;
/// Clients of a load.
const CLIENTS: usize = 8;
/// Time for old listeners and their filters to go.
const SETTLE: Duration = Duration::from_secs(4);

/// Plays one fault; gives what could not be expressed.
pub(super) fn play(
    parts: &Parts,
    fault: Fault,
    expect: &Expect,
) -> Result<Option<String>, CaseError> {
    match fault {
        Fault::Refuses => block_on(refuses(parts, expect)),
        Fault::AnswersLate { after_s } => block_on(is_silent(parts, after_s)),
        Fault::AnswersNothing => block_on(answers_nothing(parts)),
        Fault::NamesGonePod => block_on(names_gone_pod(parts)),
        Fault::ClientCloses => Ok(Some("no request waits for a callout yet".to_owned())),
        Fault::ColdCaches { requests, workers } => block_on(cold_caches(parts, requests, workers)),
        Fault::Reconfigured { times } => block_on(reconfigured(parts, times)),
        Fault::Traps => block_on(traps(parts)),
        Fault::NoHolding => block_on(holds_nothing(parts)),
    }
}

fn plan(workers: u32) -> Plan {
    Plan::new(
        PODS.iter().map(|name| Planned::idle(name)).collect(),
        workers,
    )
}

fn body() -> String {
    json!({"model": MODEL, "prompt": words(0, 200)}).to_string()
}

/// The fastest of some answers.
async fn fastest(client: Client) -> anyhow::Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..SAMPLES {
        let answer = client.post(PATH, &body(), Play::Answer, 0).await?;
        ensure!(answer.status == 200, "status {}", answer.status);
        fastest = fastest.min(answer.waited);
    }
    Ok(fastest)
}

async fn refuses(parts: &Parts, expect: &Expect) -> anyhow::Result<Option<String>> {
    let plan = Plan {
        has_indexer: false,
        ..plan(2)
    };
    let mut stand = Stand::start(parts, &plan).await?;
    let direct = fastest(Client::new(stand.pod(PODS[0])?.address())).await?;
    let through = fastest(stand.client()).await?;
    let added_ms = u64::try_from(through.saturating_sub(direct).as_millis())?;
    let most = expect.added_latency_ms_max.unwrap_or(u64::MAX);
    ensure!(added_ms <= most, "{added_ms} ms are added");
    stand.check()?;
    Ok(None)
}

/// An indexer that takes connections and says nothing, or closes them.
async fn mute(closes: bool) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            if !closes {
                kept.push(connection);
            }
        }
    });
    Ok(address)
}

async fn is_silent(parts: &Parts, after_s: u64) -> anyhow::Result<Option<String>> {
    let plan = Plan {
        has_indexer: false,
        indexer: Some(mute(false).await?),
        ..plan(4)
    };
    let mut stand = Stand::start(parts, &plan).await?;
    let through = fastest(stand.client()).await?;
    ensure!(through < Duration::from_secs(1), "{through:?}");
    stand.check()?;
    Ok(Some(format!(
        "{after_s} s pass in the emulator only; here the indexer stays silent"
    )))
}

/// An HTTP/2 server that answers 200 and ends.
async fn empty() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(connection).await.ok()?;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let answer = http::Response::new(());
                    respond.send_response(answer, true).ok()?;
                }
                Some(())
            });
        }
    });
    Ok(address)
}

async fn answers_nothing(parts: &Parts) -> anyhow::Result<Option<String>> {
    for indexer in [empty().await?, mute(true).await?] {
        let plan = Plan {
            has_indexer: false,
            indexer: Some(indexer),
            ..plan(2)
        };
        let mut stand = Stand::start(parts, &plan).await?;
        wait_for("ended streams", LIMIT, async || {
            let ends = stand.gauge("prefixway_stream_ends_total").await?;
            (ends > 1).then_some(())
        })
        .await?;
        fastest(stand.client()).await?;
        stand.check()?;
    }
    Ok(None)
}

async fn names_gone_pod(parts: &Parts) -> anyhow::Result<Option<String>> {
    let mut plan = plan(2);
    for pod in plan.pods.iter_mut().take(1) {
        pod.is_gone = true;
    }
    let mut stand = Stand::start(parts, &plan).await?;
    for number in 0..SAMPLES {
        let prompt = words(1_000 * number, 200);
        let body = json!({"model": MODEL, "prompt": prompt}).to_string();
        let answer = stand.client().post(PATH, &body, Play::Answer, 0).await?;
        ensure!(answer.status == 200, "status {}", answer.status);
    }
    let gone = stand.pod(PODS[0])?.seen();
    ensure!(
        gone == 0,
        "{gone} requests to a pod that is not in the cluster"
    );
    stand.check()?;
    Ok(None)
}

async fn cold_caches(
    parts: &Parts,
    requests: usize,
    workers: usize,
) -> anyhow::Result<Option<String>> {
    let plan = Plan {
        has_indexer: false,
        ..plan(u32::try_from(workers)?)
    };
    let mut stand = Stand::start(parts, &plan).await?;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = stand.client();
        clients.spawn(async move {
            for request in (number..requests).step_by(CLIENTS) {
                let prompt = words(1_000 * request, 100);
                let body = json!({"model": MODEL, "prompt": prompt}).to_string();
                let answer = client.post(PATH, &body, Play::Answer, 0).await?;
                ensure!(answer.status == 200, "status {}", answer.status);
            }
            Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    stand.check()?;
    Ok(None)
}

/// Memory of a process in KiB.
fn memory_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("no VmRSS")
}

async fn reconfigured(parts: &Parts, times: u64) -> anyhow::Result<Option<String>> {
    let plan = Plan {
        is_dynamic: true,
        ..plan(4)
    };
    let mut stand = Stand::start(parts, &plan).await?;
    let done = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, done, answered) = (stand.client(), Arc::clone(&done), Arc::clone(&answered));
        clients.spawn(async move {
            let mut failures = Vec::new();
            while !done.load(Ordering::SeqCst) {
                match client.post(PATH, &body(), Play::Answer, 0).await {
                    Ok(answer) if answer.status == 200 => {}
                    Ok(answer) => failures.push(format!("status {}", answer.status)),
                    Err(error) => failures.push(format!("{error:#}")),
                }
                answered.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            failures
        });
    }
    let pid = stand.envoy.process_id().context("Envoy has ended")?;
    // What one update needs for a while is no growth.
    push(&mut stand, 0).await?;
    tokio::time::sleep(SETTLE).await;
    let before = memory_kib(pid)?;
    for number in 1..=times {
        push(&mut stand, number).await?;
        let in_flight = stand
            .gauge("prefixway_in_flight_requests")
            .await
            .unwrap_or(0);
        ensure!(in_flight <= CLIENTS as u64, "{in_flight} in flight");
    }
    done.store(true, Ordering::SeqCst);
    let failures: Vec<String> = clients.join_all().await.into_iter().flatten().collect();
    ensure!(
        failures.is_empty(),
        "of {answered:?} requests failed {failures:?}"
    );
    tokio::time::sleep(SETTLE).await;
    let after = memory_kib(pid)?;
    ensure!(
        after <= before + before / 10,
        "memory grew from {before} to {after} KiB"
    );
    stand
        .until_in_flight("nothing in flight", |pods| pods.values().all(|n| *n == 0))
        .await?;
    // Whoever leads now has the stream, and every VM that is left is counted once.
    let vms = u64::from(plan.workers) + 1;
    wait_for("one filter in each VM", LIMIT, async || {
        (stand.gauge("prefixway_ready_vms").await? == vms).then_some(())
    })
    .await?;
    stand.check()?;
    Ok(None)
}

/// Replaces the filter's configuration, and waits until Envoy has taken it.
async fn push(stand: &mut Stand, number: u64) -> anyhow::Result<()> {
    let before = Listener::updates(&stand.envoy).await;
    let listener = stand.listener.as_mut().context("no listener")?;
    listener.push("tick_ms", json!(10 + number % 2))?;
    Listener::taken(&stand.envoy, before).await
}

/// Envoy without the setting that lets filters hold headers while the body is read.
async fn holds_nothing(parts: &Parts) -> anyhow::Result<Option<String>> {
    let plan = Plan {
        can_hold: false,
        ..plan(2)
    };
    let stand = Stand::start(parts, &plan).await?;
    // Connections of their own reach all workers; each notices by itself.
    wait_for("every worker to notice", LIMIT, async || {
        let answer = stand.client().post(PATH, &body(), Play::Answer, 0).await;
        answer.ok().filter(|answer| answer.status == 200)?;
        let noticed = stand.gauge("prefixway_wrong_hold_at_vms").await?;
        (noticed == u64::from(plan.workers)).then_some(())
    })
    .await?;
    let log = std::fs::read_to_string(stand.folder.path().join("envoy.log"))?;
    ensure!(log.contains("set allow_on_headers_stop_iteration"), "{log}");
    let through = fastest(stand.client()).await?;
    ensure!(through < Duration::from_secs(1), "{through:?}");
    Ok(Some(
        "until a worker has noticed, a held request is let go after a second".to_owned(),
    ))
}

async fn traps(parts: &Parts) -> anyhow::Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    let module = folder.path().join("trap.wasm");
    let bytes = with_trap(&parts.module, ON_REQUEST_TRAILERS);
    std::fs::write(
        &module,
        bytes.map_err(|error| anyhow::anyhow!("{error:#}"))?,
    )?;
    let plan = Plan {
        module: Some(module),
        ..plan(2)
    };
    let stand = Stand::start(parts, &plan).await?;
    // A stream on each worker, most likely; those of the one that traps are reset, as the host does it.
    let status = with_trailers(stand.envoy.http()).await;
    ensure!(status != Some(200), "the trap did not happen");
    let trapped = Instant::now();
    // Connections of their own reach the worker whose VM is gone, too.
    let reloaded = wait_for("the VM's reload", LIMIT, async || {
        for _ in 0..2 * plan.workers {
            let answer = stand.client().post(PATH, &body(), Play::Answer, 0).await;
            let is_served = answer.is_ok_and(|answer| answer.status == 200);
            if !is_served && trapped.elapsed() > Duration::from_secs(1) {
                return Some(false);
            }
        }
        let reloads = stand.envoy.stats("vm_reload_success").await;
        let is_reloaded = reloads.iter().any(|(_, count)| *count > 0);
        is_reloaded.then_some(true)
    });
    let is_served = reloaded
        .await
        .with_context(|| format!("answered with {status:?}; {}", stand.envoy.log_tail()))?;
    ensure!(
        is_served,
        "requests still fail a second after the trap; {}",
        stand.envoy.log_tail()
    );
    stand
        .until_in_flight("nothing in flight", |pods| pods.values().all(|n| *n == 0))
        .await?;
    Ok(None)
}

/// Sends a request that ends with trailers; gives the status, if there is an answer.
async fn with_trailers(gateway: SocketAddr) -> Option<u16> {
    let connection = tokio::net::TcpStream::connect(gateway).await.ok()?;
    let (client, connection) = h2::client::handshake(connection).await.ok()?;
    tokio::spawn(connection);
    let head = http::Request::builder()
        .method("POST")
        .uri(format!("http://gateway.test{PATH}"))
        .header("content-type", "application/json")
        .body(())
        .ok()?;
    let mut client = client.ready().await.ok()?;
    let (answer, mut body_of) = client.send_request(head, false).ok()?;
    body_of.send_data(body().into(), false).ok()?;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-end", http::HeaderValue::from_static("yes"));
    body_of.send_trailers(trailers).ok()?;
    let answer = tokio::time::timeout(LIMIT, answer).await.ok()?.ok()?;
    Some(answer.status().as_u16())
}
