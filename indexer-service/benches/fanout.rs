//! Time from an engine's publish to a gateway's table: 64 engines on real libzmq, 20 batches a second each, 4 gateways.
//!
//! In the middle of the run one more engine appears, which has so many batches to replay. Prints percentiles over all batches that were
//! published while nothing else happened, and over those published during the replay.
//! `cargo bench -p prefixway --bench fanout -- [ENGINES] [BATCHES_PER_S] [SECONDS] [REPLAYED_BATCHES]`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and reports on standard output"
)]

#[path = "../tests/it/support/msgpack.rs"]
#[expect(dead_code, reason = "shared with the tests, which use more of it")]
mod msgpack;
#[path = "support/unique.rs"]
mod unique;

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

/// Number of the first batch to replay; live ones are below.
const FIRST_REPLAYED: u32 = 50_000_000;

type Published = Arc<Mutex<HashMap<u64, Instant>>>;

/// When a batch was published, and its delay.
type Delay = (Instant, Duration);

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
    let replayed = arguments.next().unwrap_or(10_000);
    runtime.block_on(run(engines, rate, seconds, replayed));
}

async fn run(engines: u32, rate: u32, seconds: u32, replayed: u32) {
    let context = zmq::Context::new();
    let sockets: Vec<zmq::Socket> = (0..engines)
        .map(|_| {
            let socket = context.socket(zmq::PUB).unwrap();
            socket.bind("tcp://127.0.0.1:*").unwrap();
            socket
        })
        .collect();
    let late = LateEngine::new();
    let config = config(&sockets, &late);
    let profile = Profile::load(&config.models[0]).unwrap();
    let batches_of_late: Vec<Vec<u8>> = (0..replayed)
        .map(|batch| payload(FIRST_REPLAYED + batch, &profile).0)
        .collect();
    let (_, last_rung) = payload(FIRST_REPLAYED + replayed.saturating_sub(1), &profile);
    let running = prefixway::serve::start(config).await.unwrap();
    let published = Published::default();
    let mut gateways = Vec::new();
    for number in 0..GATEWAYS {
        gateways.push(tokio::spawn(watch(
            running.grpc(),
            number,
            Arc::clone(&published),
            last_rung,
        )));
    }
    // Subscriptions reach the publishers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let batches = engines * rate * seconds;
    let gap = Duration::from_secs(1) / (engines * rate);
    let middle = Duration::from_secs(1) * seconds / 2;
    let late = std::thread::spawn(move || {
        std::thread::sleep(middle);
        late.replay(&batches_of_late)
    });
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
    let (sockets, (late, began)) =
        tokio::task::spawn_blocking(|| (sender.join().unwrap(), late.join().unwrap()))
            .await
            .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.shut_down().await.unwrap();
    println!(
        "{engines} engines x {rate} batches/s x {seconds} s, {BLOCKS} blocks of {BLOCK_TOKENS} tokens a batch, {GATEWAYS} gateways"
    );
    for (number, gateway) in gateways.into_iter().enumerate() {
        let (delays, ended) = gateway.await.unwrap();
        let ended = ended.unwrap_or(began);
        let is_during = |(at, _): &&Delay| (began..=ended).contains(at);
        let during = delays.iter().filter(is_during);
        let before = delays.iter().filter(|(at, _)| *at < began);
        println!(
            "gateway {number}: alone {}; during the replay of {replayed} batches ({:.0} ms) {}",
            percentiles(before),
            ended.duration_since(began).as_secs_f64() * 1000.0,
            percentiles(during)
        );
    }
    drop((sockets, late));
}

fn percentiles<'d>(delays: impl Iterator<Item = &'d Delay>) -> String {
    let mut delays: Vec<Duration> = delays.map(|(_, delay)| *delay).collect();
    delays.sort_unstable();
    if delays.is_empty() {
        return "0 batches".to_owned();
    }
    let at = |permille: usize| delays[(delays.len() - 1) * permille / 1000].as_secs_f64() * 1000.0;
    format!(
        "{} batches p50 {:.1} p99 {:.1} max {:.1} ms",
        delays.len(),
        at(500),
        at(990),
        at(1000)
    )
}

/// An engine that appears late, with many batches that nobody has seen.
struct LateEngine {
    context: zmq::Context,
    events: String,
    replay: String,
}

impl LateEngine {
    /// Takes two free ports and leaves them.
    fn new() -> Self {
        let context = zmq::Context::new();
        let [events, replay] = [(); 2].map(|()| {
            let socket = context.socket(zmq::PUB).unwrap();
            socket.bind("tcp://127.0.0.1:*").unwrap();
            socket.get_last_endpoint().unwrap().unwrap()
        });
        Self {
            context,
            events,
            replay,
        }
    }

    /// Appears, and answers one replay; its sockets, and when it was asked.
    fn replay(self, batches: &[Vec<u8>]) -> ([zmq::Socket; 2], Instant) {
        let open = |kind, address: &str| {
            let socket = self.context.socket(kind).unwrap();
            socket.set_sndhwm(0).unwrap();
            while socket.bind(address).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            socket
        };
        let replay = open(zmq::ROUTER, &self.replay);
        let events = open(zmq::PUB, &self.events);
        let request = replay.recv_multipart(0).unwrap();
        let began = Instant::now();
        let from = usize::try_from(u64::from_be_bytes(
            request[2].as_slice().try_into().unwrap(),
        ));
        let answers = (0u64..).zip(batches).skip(from.unwrap());
        for (seq, payload) in answers {
            let frames = [&request[0][..], b"", b"", &seq.to_be_bytes(), payload];
            replay.send_multipart(frames, 0).unwrap();
        }
        let end = [&request[0][..], b"", b"", &u64::MAX.to_be_bytes(), b""];
        replay.send_multipart(end, 0).unwrap();
        ([replay, events], began)
    }
}

fn config(sockets: &[zmq::Socket], late: &LateEngine) -> Config {
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
    let _ = write!(
        text,
        "\n- {{address: '127.0.0.1:9999', model: tiny, scrape: false, events: {{connect: '{}', replay: '{}'}}}}",
        late.events, late.replay
    );
    Config::parse(&text, Path::new(""), &Overrides::default()).unwrap()
}

/// A batch of blocks that no other batch has, and the hash of their first rung.
fn payload(batch: u32, profile: &Profile) -> (Vec<u8>, u64) {
    let (tokens, payload) = unique::stored(batch, BLOCKS, BLOCK_TOKENS);
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
    (payload, rungs[0].hash)
}

/// Follows the stream until it ends; the delay of each batch, and when `last_rung` came.
async fn watch(
    address: std::net::SocketAddr,
    number: usize,
    published: Published,
    last_rung: u64,
) -> (Vec<Delay>, Option<Instant>) {
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
    let mut ended = None;
    while let Ok(Some(down)) = downs.message().await {
        let now = Instant::now();
        if let Some(down::Kind::Delta(delta)) = down.kind {
            let published = published.lock().unwrap();
            let entries = delta.upserts.chunks_exact(16);
            for entry in entries {
                let hash = u64::from_le_bytes(entry[..8].try_into().unwrap());
                if hash == last_rung {
                    ended.get_or_insert(now);
                }
                if let Some(at) = published.get(&hash) {
                    delays.push((*at, now.duration_since(*at)));
                }
            }
        }
    }
    (delays, ended)
}
