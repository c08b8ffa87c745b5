//! Time from an engine's publish to a gateway's table: 64 engines on real libzmq, 20 batches a second each, 4 gateways.
//!
//! Prints percentiles over all batches of the run.
//! `cargo bench -p prefixway --bench fanout -- [ENGINES] [BATCHES_PER_S] [SECONDS]`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and reports on standard output"
)]

#[path = "../tests/it/support/msgpack.rs"]
#[expect(dead_code, reason = "shared with the tests, which use more of it")]
mod msgpack;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prefixway::config::{Config, Overrides};
use prefixway::grpc::snapshot_client::SnapshotClient;
use prefixway::profile::Profile;
use prefixway_core::hash::{Scope, Seed, Space};
use prefixway_core::proto::{self, down, up};
use prefixway_core::snapshot::PromptHashes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

const GATEWAYS: usize = 4;
const BLOCKS: u32 = 8;
const BLOCK_TOKENS: u32 = 16;
const SEED: Seed = Seed(0x5eed);

type Published = Arc<Mutex<HashMap<u64, Instant>>>;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse::<u32>().ok());
    let engines = arguments.next().unwrap_or(64);
    let rate = arguments.next().unwrap_or(20);
    let seconds = arguments.next().unwrap_or(10);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(engines, rate, seconds));
}

async fn run(engines: u32, rate: u32, seconds: u32) {
    let context = zmq::Context::new();
    let sockets: Vec<zmq::Socket> = (0..engines)
        .map(|_| {
            let socket = context.socket(zmq::PUB).unwrap();
            socket.bind("tcp://127.0.0.1:*").unwrap();
            socket
        })
        .collect();
    let config = config(&sockets);
    let profile = Profile::load(&config.models[0]).unwrap();
    let running = prefixway::serve::start(config).await.unwrap();
    let published = Published::default();
    let mut gateways = Vec::new();
    for number in 0..GATEWAYS {
        gateways.push(tokio::spawn(watch(
            running.grpc(),
            number,
            Arc::clone(&published),
        )));
    }
    // Subscriptions reach the publishers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let batches = engines * rate * seconds;
    let gap = Duration::from_secs(1) / (engines * rate);
    let sender = std::thread::spawn(move || {
        let start = Instant::now();
        for batch in 0..batches {
            std::thread::sleep((gap * batch).saturating_sub(start.elapsed()));
            let (payload, rung) = payload(batch, &profile);
            published.lock().unwrap().insert(rung, Instant::now());
            let seq = u64::from(batch / engines).to_be_bytes();
            let socket = &sockets[(batch % engines) as usize];
            socket
                .send_multipart([&b""[..], &seq, &payload], 0)
                .unwrap();
        }
        sockets
    });
    let sockets = tokio::task::spawn_blocking(|| sender.join().unwrap())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.shut_down().await.unwrap();
    println!(
        "{engines} engines x {rate} batches/s x {seconds} s, {BLOCKS} blocks of {BLOCK_TOKENS} tokens a batch, {GATEWAYS} gateways"
    );
    for (number, gateway) in gateways.into_iter().enumerate() {
        let mut delays = gateway.await.unwrap();
        delays.sort_unstable();
        let at =
            |permille: usize| delays[(delays.len() - 1) * permille / 1000].as_secs_f64() * 1000.0;
        println!(
            "gateway {number}: {} of {batches} batches, p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            delays.len(),
            at(500),
            at(900),
            at(990),
            at(1000)
        );
    }
    drop(sockets);
}

fn config(sockets: &[zmq::Socket]) -> Config {
    let model = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../router-core/tests/fixtures/vllm/tinybpe/model");
    let mut text = format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nseed: {}\nmodels: [{{id: tiny, model_dir: '{}'}}]\nendpoints:",
        SEED.0,
        model.display()
    );
    for (number, socket) in sockets.iter().enumerate() {
        let address = socket.get_last_endpoint().unwrap().unwrap();
        let port = 10_000 + number;
        let _ = write!(
            text,
            "\n- {{address: '127.0.0.1:{port}', model: tiny, scrape: false, events: {{connect: '{address}'}}}}"
        );
    }
    Config::parse(&text, Path::new(""), &Overrides::default()).unwrap()
}

/// A batch of blocks that no other batch has, and the hash of their first rung.
fn payload(batch: u32, profile: &Profile) -> (Vec<u8>, u64) {
    let tokens: Vec<u32> = (0..BLOCKS * BLOCK_TOKENS)
        .map(|i| {
            300 + if i < 4 {
                batch / 10u32.pow(2 * i) % 100
            } else {
                i * 7 % 1000
            }
        })
        .collect();
    let hashes: Vec<u64> = (1..=u64::from(BLOCKS))
        .map(|block| u64::from(batch) * 100 + block)
        .collect();
    let vocabulary = profile.vocabulary.as_ref().unwrap();
    let text: Vec<u8> = tokens
        .iter()
        .flat_map(|&token| vocabulary.bytes(token))
        .copied()
        .collect();
    let scope = Scope {
        space: Space::Text,
        profile: "tiny",
        revision: profile.spelling.revision,
        adapter: "",
        salt: "",
    };
    let rungs = PromptHashes::new(scope.hash(SEED), &text, SEED, usize::MAX).rungs;
    (
        msgpack::batch(&[msgpack::stored(&hashes, None, &tokens, BLOCK_TOKENS)]),
        rungs[0].hash,
    )
}

/// Follows the stream until it ends; the delay of each batch.
async fn watch(
    address: std::net::SocketAddr,
    number: usize,
    published: Published,
) -> Vec<Duration> {
    let (ups, queue) = mpsc::channel(1);
    let subscribe = proto::Subscribe {
        gateway: format!("gateway {number}"),
        ..proto::Subscribe::default()
    };
    ups.send(proto::Up {
        seq: 0,
        kind: Some(up::Kind::Subscribe(subscribe)),
    })
    .await
    .unwrap();
    let mut client = SnapshotClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let mut downs = client
        .watch(ReceiverStream::new(queue))
        .await
        .unwrap()
        .into_inner();
    let mut delays = Vec::new();
    while let Ok(Some(down)) = downs.message().await {
        let now = Instant::now();
        if let Some(down::Kind::Delta(delta)) = down.kind {
            let published = published.lock().unwrap();
            let entries = delta.upserts.chunks_exact(16);
            let hashes = entries.map(|entry| u64::from_le_bytes(entry[..8].try_into().unwrap()));
            delays
                .extend(hashes.filter_map(|hash| Some(now.duration_since(*published.get(&hash)?))));
        }
    }
    delays
}
