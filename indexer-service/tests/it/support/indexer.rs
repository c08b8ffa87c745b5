//! An indexer in this process, and gateways that watch it.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use prefixway::config::{Config, Overrides};
use prefixway::grpc::snapshot_client::SnapshotClient;
use prefixway::serve::{self, Running};
use prefixway_core::hash::{CHUNK_BYTES, Scope, Space};
use prefixway_core::proto::{self, up};
use prefixway_core::rung::rungs;
use prefixway_core::snapshot::{
    Endpoints, Match, PromptHashes, Replica, Snapshot, Update, matched,
};
use prefixway_core::text::TokenBytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::eventually;
use super::msgpack;
use super::publisher::Publisher;

/// Tokens per block in these tests.
pub(crate) const BLOCK: u32 = 16;
const TABLE_BYTES: usize = 64 << 20;

/// The model folder that all tests use.
pub(crate) fn model_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../router-core/tests/fixtures/vllm/tinybpe/model")
}

/// Settings with free ports and one endpoint per publisher (its events, and its replay socket).
pub(crate) fn settings(publishers: &[&Publisher]) -> String {
    let mut text = format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nseed: 0x5eed\nready_grace: 1h\n\
         models: [{{id: tiny, names: [tiny], model_dir: '{}'}}]\nendpoints:",
        model_dir().display()
    );
    if publishers.is_empty() {
        text += " []";
    }
    for (i, publisher) in publishers.iter().enumerate() {
        let _ = write!(
            text,
            "\n- {{address: '127.0.0.1:{}', model: tiny, scrape: false, events: {{connect: '{}', replay: '{}'}}}}",
            8000 + i,
            publisher.events,
            publisher.replay
        );
    }
    text
}

pub(crate) async fn start(settings: &str) -> Running {
    let config = Config::parse(settings, Path::new(""), &Overrides::default()).unwrap();
    serve::start(config).await.unwrap()
}

/// GET a page; its status and text.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .get(format!("http://{address}{path}"))
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// POST a body; the status and what is answered.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    body: impl Into<reqwest::Body>,
) -> (u16, serde_json::Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("http://{address}{path}")).body(body);
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)),
    )
}

pub(crate) async fn get_json(address: SocketAddr, path: &str) -> serde_json::Value {
    let (status, text) = get(address, path).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

pub(crate) async fn ready(running: &Running) {
    eventually("readiness", async || {
        (get(running.http(), "/readyz").await.0 == 200).then_some(())
    })
    .await;
}

/// A chain of blocks with distinct hashes, and the text that it stands for.
pub(crate) struct Chain {
    pub(crate) hashes: Vec<u64>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: Vec<u8>,
    /// Bytes of text at the end of each block.
    ends: Vec<usize>,
}

impl Chain {
    /// `blocks` blocks; chains of different `seed`s share nothing.
    pub(crate) fn new(seed: u64, blocks: u32) -> Self {
        let vocabulary = vocabulary();
        // Ids of printable pieces, none of them special.
        let tokens: Vec<u32> = (0..blocks * BLOCK)
            .map(|i| 300 + (i * 7 + u32::try_from(seed).unwrap() * 131) % 1000)
            .collect();
        let mut text = Vec::new();
        let mut ends = Vec::new();
        for block in tokens.chunks(BLOCK as usize) {
            for &token in block {
                text.extend_from_slice(vocabulary.bytes(token));
            }
            ends.push(text.len());
        }
        let hashes = (0..u64::from(blocks))
            .map(|block| seed * 1_000_000 + block + 1)
            .collect();
        Self {
            hashes,
            tokens,
            text,
            ends,
        }
    }

    /// Tokens that a holder of the first `blocks` blocks is credited with: those that end at most half a chunk after its deepest rung.
    pub(crate) fn credit(&self, blocks: usize) -> u32 {
        let Some(last) = blocks.checked_sub(1) else {
            return 0;
        };
        let chunks = u32::try_from(self.ends[last] / CHUNK_BYTES).unwrap();
        let rung = rungs(Space::Text, chunks).last().unwrap_or(0) as usize;
        let credited = self.ends[..blocks]
            .iter()
            .filter(|&&end| end <= rung * CHUNK_BYTES + CHUNK_BYTES / 2)
            .count();
        u32::try_from(credited).unwrap() * BLOCK
    }

    /// One batch that stores the blocks from `from` up to `to`.
    pub(crate) fn stored(&self, from: usize, to: usize) -> Vec<u8> {
        self.stored_in("GPU", from, to)
    }

    /// [`Self::stored`], in some tier.
    pub(crate) fn stored_in(&self, medium: &str, from: usize, to: usize) -> Vec<u8> {
        let parent = from.checked_sub(1).map(|i| self.hashes[i]);
        let block = BLOCK as usize;
        msgpack::batch(&[msgpack::stored_in(
            medium,
            &self.hashes[from..to],
            parent,
            &self.tokens[from * block..to * block],
            BLOCK,
        )])
    }

    /// One batch that removes the block `block`.
    pub(crate) fn removed(&self, block: usize) -> Vec<u8> {
        msgpack::batch(&[msgpack::removed(self.hashes[block])])
    }
}

fn vocabulary() -> TokenBytes {
    let config = Config::parse(&settings(&[]), Path::new(""), &Overrides::default()).unwrap();
    prefixway::profile::Profile::load(&config.models[0])
        .unwrap()
        .vocabulary
        .unwrap()
}

/// A gateway: follows the stream with the filter's own replica.
pub(crate) struct Gateway {
    name: String,
    pub(crate) replica: Replica,
    ups: mpsc::Sender<proto::Up>,
    downs: Streaming<proto::Down>,
    seq: u64,
    pub(crate) acked: u64,
    pub(crate) bases: usize,
    pub(crate) resumes: usize,
    pub(crate) policy: proto::Policy,
    pub(crate) endpoints: proto::Endpoints,
    pub(crate) load: Vec<proto::EndpointLoad>,
}

impl Gateway {
    pub(crate) async fn connect(address: SocketAddr, name: &str) -> Self {
        Self::with_replica(address, name, Replica::new(TABLE_BYTES, None)).await
    }

    /// A gateway whose table may take so many bytes.
    pub(crate) async fn with_room(address: SocketAddr, name: &str, max_bytes: usize) -> Self {
        Self::with_replica(address, name, Replica::new(max_bytes, None)).await
    }

    pub(crate) async fn with_snapshot(address: SocketAddr, name: &str, snapshot: Snapshot) -> Self {
        Self::with_replica(
            address,
            name,
            Replica::from_snapshot(snapshot, TABLE_BYTES, None),
        )
        .await
    }

    async fn with_replica(address: SocketAddr, name: &str, mut replica: Replica) -> Self {
        let subscribe = replica.subscribe(&[], name);
        let (ups, downs) = watch(address, subscribe).await;
        Self {
            name: name.to_owned(),
            replica,
            ups,
            downs,
            seq: 0,
            acked: 0,
            bases: 0,
            resumes: 0,
            policy: proto::Policy::default(),
            endpoints: proto::Endpoints::default(),
            load: Vec::new(),
        }
    }

    /// Closes the stream and opens another, with what is known.
    pub(crate) async fn reconnect(self, address: SocketAddr) -> Self {
        let Self {
            name,
            replica,
            ups,
            downs,
            ..
        } = self;
        drop((ups, downs));
        Self::with_snapshot(address, &name, replica.into_snapshot()).await
    }

    pub(crate) async fn send(&mut self, kind: up::Kind) -> u64 {
        self.seq += 1;
        self.ups
            .send(proto::Up {
                seq: self.seq,
                kind: Some(kind),
            })
            .await
            .unwrap();
        self.seq
    }

    /// Takes the next message.
    pub(crate) async fn step(&mut self) {
        let down = tokio::time::timeout(super::DEADLINE, self.downs.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        match self.replica.feed(down).unwrap() {
            Update::Base => self.bases += 1,
            Update::Resumed => self.resumes += 1,
            Update::Policy(policy) => self.policy = *policy,
            Update::Endpoints(endpoints) => self.endpoints = endpoints,
            Update::Load(load) => self.load = load.endpoints,
            Update::Ack(seq) => self.acked = seq,
            Update::None | Update::Delta(_) => {}
        }
    }

    /// Takes messages until `ask` has an answer.
    pub(crate) async fn until<T>(&mut self, what: &str, ask: impl Fn(&Self) -> Option<T>) -> T {
        let start = std::time::Instant::now();
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(start.elapsed() < super::DEADLINE, "not in time: {what}");
            self.step().await;
        }
    }

    /// Tokens that each endpoint holds of a prompt, by the filter's own probe.
    pub(crate) fn held(&self, prompt: &PromptHashes) -> Vec<u32> {
        let endpoints = Endpoints::from_message(&self.endpoints);
        let Snapshot { table, sets, .. } = self.replica.snapshot();
        let found = matched(table, sets, &endpoints, &(), &prompt.rungs);
        found.credits.iter().map(|credit| credit.tokens()).collect()
    }

    /// Tokens that each endpoint holds of `text`, by the filter's own probe.
    pub(crate) fn credits(&self, text: &[u8]) -> Vec<u32> {
        self.matched(Space::Text, text)
            .credits
            .iter()
            .map(|credit| credit.tokens())
            .collect()
    }

    /// Tokens that each endpoint holds of a prompt of token ids.
    pub(crate) fn credits_of_ids(&self, ids: &[u32]) -> Vec<u32> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.matched(Space::Token, &bytes)
            .credits
            .iter()
            .map(|credit| credit.tokens())
            .collect()
    }

    fn matched(&self, space: Space, text: &[u8]) -> Match {
        let Some(seed) = self.replica.seed() else {
            return Match::default();
        };
        let Some(model) = self.policy.models.first() else {
            return Match::default();
        };
        let scope = Scope {
            space,
            profile: &model.id,
            revision: model.revision,
            adapter: "",
            salt: "",
        };
        let hash = match space {
            Space::Text => PromptHashes::new,
            Space::Token => PromptHashes::of_token_ids,
        };
        let hashes = hash(scope.hash(seed), text, seed, usize::MAX);
        let endpoints = Endpoints::from_message(&self.endpoints);
        let Snapshot { table, sets, .. } = self.replica.snapshot();
        matched(table, sets, &endpoints, &(), &hashes.rungs)
    }

    /// Rungs of `text` as a decision reports them.
    pub(crate) fn rungs(&self, text: &[u8]) -> Vec<u8> {
        let seed = self.replica.seed().unwrap();
        let model = &self.policy.models[0];
        let scope = Scope {
            space: Space::Text,
            profile: &model.id,
            revision: model.revision,
            adapter: "",
            salt: "",
        };
        let hashes = PromptHashes::new(scope.hash(seed), text, seed, usize::MAX);
        hashes
            .rungs
            .iter()
            .flat_map(|rung| rung.hash.to_le_bytes())
            .collect()
    }

    /// Waits until the endpoints hold that many blocks of the chain.
    pub(crate) async fn holds(&mut self, chain: &Chain, blocks: &[usize]) {
        let expected: Vec<u32> = blocks.iter().map(|&blocks| chain.credit(blocks)).collect();
        let what = format!("credits {expected:?}");
        self.until(&what, |gateway| {
            (gateway.credits(&chain.text) == expected).then_some(())
        })
        .await;
    }
}

/// Opens a stream; what is sent to it and what comes from it.
pub(crate) async fn watch(
    address: SocketAddr,
    subscribe: proto::Subscribe,
) -> (mpsc::Sender<proto::Up>, Streaming<proto::Down>) {
    let (ups, queue) = mpsc::channel(64);
    ups.send(proto::Up {
        seq: 0,
        kind: Some(up::Kind::Subscribe(subscribe)),
    })
    .await
    .unwrap();
    let mut client = SnapshotClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let downs = client
        .watch(ReceiverStream::new(queue))
        .await
        .unwrap()
        .into_inner();
    (ups, downs)
}
