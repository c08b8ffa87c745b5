//! Time from an engine's publish until every worker of a gateway routes by it.
//!
//! 64 engines publish 20 batches a second each. Some of the prompts are asked for at once, on so many connections that every worker has
//! some, again and again until the filter says that the engine holds them. The filter only watches (`shadow`), since what it steers it
//! would know from its own decisions.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use prefixway::config::{Config, Overrides};
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings};
use prefixway::demo::process::wait_for;
use prefixway::serve;
use serde_json::json;

use crate::MODEL;
use crate::http1::{self, Client};
use crate::table::{MODEL_DIR, unique};

const ENGINES: u32 = 64;
const BATCHES_PER_S: u32 = 20;
const WORKERS: u32 = 4;
const CONNECTIONS: usize = 16;
const BLOCK_TOKENS: u32 = 16;
const BLOCKS: u32 = 8;
/// Of so many batches one is asked for.
const ASKED: u32 = 128;

/// A batch that is asked for, and when it was published.
struct Sample {
    tokens: Vec<u32>,
    at: Instant,
}

/// Measures for `span`, and prints percentiles.
///
/// # Errors
/// When a part doesn't start or a batch doesn't arrive.
pub(crate) async fn run(upstream: SocketAddr, folder: &Path, span: Duration) -> anyhow::Result<()> {
    let context = zmq::Context::new();
    let mut sockets = Vec::new();
    for _ in 0..ENGINES {
        let socket = context.socket(zmq::PUB)?;
        socket.bind("tcp://127.0.0.1:*")?;
        sockets.push(socket);
    }
    let running = serve::start(config(&sockets, folder)?).await?;
    let envoy = start_envoy(upstream, running.grpc(), folder).await?;
    wait_for(
        "the filter in every worker",
        Duration::from_mins(1),
        async || {
            let vms = envoy.stats("prefixway_ready_vms").await;
            let ready = vms.iter().any(|(_, vms)| *vms > u64::from(WORKERS));
            ready.then_some(())
        },
    )
    .await
    .with_context(|| format!("envoy's log ends:\n{}", envoy.log_tail()))?;
    // Subscriptions reach the publishers.
    tokio::time::sleep(Duration::from_secs(1)).await;

    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(envoy.http()).await?);
    }
    let (samples, queue) = mpsc::channel();
    let sender = std::thread::spawn(move || publish(&sockets, span, &samples).map(|()| sockets));
    let (mut each, mut last) = (Vec::new(), Vec::new());
    while let Ok(sample) = tokio::task::block_in_place(|| queue.recv()) {
        let mut asking = tokio::task::JoinSet::new();
        let request = request(&sample.tokens);
        for mut client in clients.drain(..) {
            let request = request.clone();
            asking.spawn(async move {
                let known = until_known(&mut client, &request).await?;
                anyhow::Ok((client, known.saturating_duration_since(sample.at)))
            });
        }
        let mut slowest = Duration::ZERO;
        while let Some(asked) = asking.join_next().await {
            let (client, delay) = asked??;
            clients.push(client);
            each.push(delay);
            slowest = slowest.max(delay);
        }
        last.push(slowest);
    }
    let published = sender
        .join()
        .map_err(|_| anyhow::anyhow!("the publisher panicked"))?;
    drop(published?);
    running.shut_down().await?;
    println!(
        "\nEvent published to routable: {ENGINES} engines x {BATCHES_PER_S} batches/s, {WORKERS} workers, {} prompts on {CONNECTIONS} connections each",
        last.len()
    );
    println!("on a connection      {}", percentiles(each));
    println!("on all connections   {}", percentiles(last));
    Ok(())
}

fn percentiles(mut delays: Vec<Duration>) -> String {
    delays.sort_unstable();
    let at = |permille: usize| {
        let at = delays.len().saturating_sub(1) * permille / 1000;
        delays
            .get(at)
            .map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
    };
    format!(
        "p50 {:.1}  p99 {:.1}  max {:.1} ms",
        at(500),
        at(990),
        at(1000)
    )
}

fn config(sockets: &[zmq::Socket], folder: &Path) -> anyhow::Result<Config> {
    let mut text = format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nstate_dir: '{}'\npolicy: {{explain: true, mode: shadow}}\n\
         models: [{{id: {MODEL}, model_dir: '{MODEL_DIR}', calibration: off}}]\nendpoints:",
        folder.display()
    );
    for (number, socket) in sockets.iter().enumerate() {
        let events = socket.get_last_endpoint()?;
        let events = events.map_err(|_| anyhow::anyhow!("zmq's address is no text"))?;
        let port = 10_000 + number;
        write!(
            text,
            "\n- {{address: '127.0.0.1:{port}', model: {MODEL}, scrape: false, events: {{connect: '{events}'}}}}"
        )?;
    }
    Ok(Config::parse(
        &text,
        &PathBuf::new(),
        &Overrides::default(),
    )?)
}

async fn start_envoy(
    upstream: SocketAddr,
    indexer: SocketAddr,
    folder: &Path,
) -> anyhow::Result<Envoy> {
    let settings = Settings {
        balancing: Balancing::Prefixway(Filter {
            module: prefixway_e2e::rig::module()?,
            plugin: json!({"indexers": [INDEXER], "explain": true}),
            indexers: vec![(INDEXER.to_owned(), indexer)],
        }),
        engines: vec![upstream],
        concurrency: WORKERS,
    };
    Ok(Envoy::start(&prefixway_e2e::rig::envoy_binary()?, folder, &settings).await?)
}

/// Publishes for a while, and tells which batches are to be asked for.
fn publish(
    sockets: &[zmq::Socket],
    span: Duration,
    samples: &mpsc::Sender<Sample>,
) -> anyhow::Result<()> {
    let gap = Duration::from_secs(1) / (ENGINES * BATCHES_PER_S);
    let start = Instant::now();
    for (number, socket) in (0u32..).zip(sockets.iter().cycle()) {
        std::thread::sleep((gap * number).saturating_sub(start.elapsed()));
        if start.elapsed() > span {
            return Ok(());
        }
        let (tokens, payload) = unique::stored(number, BLOCKS, BLOCK_TOKENS);
        let seq = u64::from(number / ENGINES).to_be_bytes();
        socket.send_multipart([&b""[..], &seq, &payload], 0)?;
        if number % ASKED == ASKED - 1 {
            let at = Instant::now();
            samples.send(Sample { tokens, at })?;
        }
    }
    Ok(())
}

/// A prompt of token ids, one longer than what is cached.
fn request(tokens: &[u32]) -> Vec<u8> {
    let prompt: Vec<u32> = tokens.iter().copied().chain([299]).collect();
    http1::post(
        "/v1/completions",
        &json!({"model": MODEL, "max_tokens": 1, "prompt": prompt}).to_string(),
    )
}

/// Asks until the filter says that somebody holds the prompt.
async fn until_known(client: &mut Client, request: &[u8]) -> anyhow::Result<Instant> {
    let wanted = format!("cached={}", BLOCKS * BLOCK_TOKENS);
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        let head = client.send(request).await?;
        let now = Instant::now();
        if head.contains(&wanted) {
            return Ok(now);
        }
        anyhow::ensure!(
            now < give_up,
            "the filter doesn't get to know of a batch; it says: {head}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
