//! The indexer's end of the streams, scripted: the same publisher as the real one, without network and engines.
#![expect(
    clippy::unwrap_used,
    reason = "a scenario that can't be set up has failed"
)]

use std::collections::HashMap;
use std::path::Path;

use crate::{Host, StreamToken};
use prefixway_core::endpoint::HolderId;
use prefixway_core::hash::{Scope, Seed, Space};
use prefixway_core::index::{Changes, RungChange};
use prefixway_core::proto::{
    Ack, Copies, Down, Endpoint, EndpointLoad, Endpoints, Holder, Load, ModelProfile, Outcome,
    Policy, Routed, Sampled, Subscribe, Up, Usage, down, up,
};
use prefixway_core::snapshot::{PromptHashes, Publisher, PublisherConfig};
use prefixway_core::text::{Api, LocalTime, ModelFiles, PromptProfile, Prompter, parse};
use prost::Message;

/// Model that requests name.
pub const MODEL: &str = "tiny";
/// Adapter of that model.
pub const ADAPTER: &str = "tiny-sql";
/// Bytes per token that the scripted index claims.
pub const BYTES_PER_TOKEN: u32 = 4;
/// Tokens per block.
pub const BLOCK: u32 = 16;
/// Seed of the chunk hash.
pub const SEED: Seed = Seed(0x5eed);

/// What the streams of all VMs have said.
#[derive(Debug, Default)]
pub struct Heard {
    /// Subscriptions, oldest first.
    pub subscriptions: Vec<Subscribe>,
    /// Decisions, oldest first.
    pub routed: Vec<Routed>,
    /// Decisions whose requests went elsewhere, oldest first.
    pub moved: Vec<Routed>,
    /// Outcomes, oldest first.
    pub outcomes: Vec<Outcome>,
    /// Decisions told in full, oldest first.
    pub sampled: Vec<Sampled>,
    /// Newest load of the gateway.
    pub usage: Usage,
    /// What its VMs have of the table, as told last.
    pub copies: Copies,
}

/// A scripted indexer of one shard.
#[derive(Debug)]
pub struct Indexer {
    publisher: Publisher,
    /// Policy that subscribers get; [`Self::announce`] sends it again.
    pub policy: Policy,
    /// Endpoints that subscribers get; [`Self::announce`] sends them again.
    pub endpoints: Endpoints,
    /// Load of endpoints by id; an endpoint that is not in it has none, and its engine says so.
    pub loads: HashMap<u32, EndpointLoad>,
    profile: PromptProfile,
    seed: Seed,
    /// Version that each stream has, by VM and token.
    streams: HashMap<(usize, StreamToken), u64>,
    /// What the streams have said.
    pub heard: Heard,
}

fn read(name: &str) -> String {
    let folder = "../router-core/tests/fixtures/vllm/tinybpe/model";
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

fn endpoint(id: u32, address: &str) -> Endpoint {
    Endpoint {
        id,
        address: address.to_owned(),
        role: "both".to_owned(),
        pool: "default".to_owned(),
        healthy: true,
        prefill_tokens_per_s: 8_000.0,
        block_size: BLOCK,
        holders: vec![Holder {
            id,
            tier: "gpu".to_owned(),
        }],
        state: "live".to_owned(),
        model: MODEL.to_owned(),
        ..Endpoint::default()
    }
}

/// Load of an endpoint with nothing to do.
pub fn idle(endpoint: u32) -> EndpointLoad {
    EndpointLoad {
        endpoint,
        kv_usage_ratio: Some(0.0),
        running: Some(0),
        waiting: Some(0),
        others: Some(0),
        ..EndpointLoad::default()
    }
}

/// An endpoint as the scripted index has it; its holder is called like itself.
pub fn endpoint_at(id: u32, address: &str) -> Endpoint {
    endpoint(id, address)
}

impl Indexer {
    /// An empty index over these endpoints; holder ids are the endpoints' places.
    pub fn new(addresses: &[&str]) -> Self {
        Self::with_epoch(addresses, 1)
    }

    /// The same in another version line.
    pub fn with_epoch(addresses: &[&str], epoch: u64) -> Self {
        Self::with(addresses, epoch, SEED)
    }

    /// The same with another seed.
    pub fn with_seed(addresses: &[&str], seed: Seed) -> Self {
        Self::with(addresses, 1, seed)
    }

    fn with(addresses: &[&str], epoch: u64, seed: Seed) -> Self {
        let (tokenizer, config, template) = (
            read("tokenizer.json"),
            read("tokenizer_config.json"),
            read("chat_template.jinja"),
        );
        let profile = PromptProfile::from_model_files(&ModelFiles {
            tokenizer_json: &tokenizer,
            tokenizer_config_json: &config,
            chat_template: Some(&template),
        })
        .unwrap();
        let publisher = Publisher::try_new(PublisherConfig {
            epoch,
            seed,
            shard: "s".to_owned(),
            ring_deltas: 64,
            max_bytes: 64 << 20,
            thinning: prefixway_core::snapshot::Thinning::NONE,
        })
        .unwrap();
        let model = ModelProfile {
            id: MODEL.to_owned(),
            revision: profile.revision(),
            pool: "default".to_owned(),
            names: vec![MODEL.to_owned(), "tiny-alias".to_owned()],
            adapters: vec![ADAPTER.to_owned()],
            prompt_profile: serde_json::to_vec(&profile).unwrap().into(),
            bytes_per_token: f64::from(BYTES_PER_TOKEN),
            state: "precise".to_owned(),
            ..ModelProfile::default()
        };
        Self {
            publisher,
            policy: Policy {
                models: vec![model],
                beta: 2.0,
                max_age_ms: 5_000,
                explain: true,
                mode: "on".to_owned(),
                revision: 1,
                ..Policy::default()
            },
            endpoints: Endpoints {
                revision: 1,
                endpoints: (0u32..)
                    .zip(addresses)
                    .map(|(id, address)| endpoint(id, address))
                    .collect(),
            },
            loads: HashMap::new(),
            profile,
            seed,
            streams: HashMap::new(),
            heard: Heard::default(),
        }
    }

    /// An index without entries that serves these models on these endpoints.
    pub fn serving(policy: Policy, endpoints: Endpoints) -> Self {
        Self {
            policy,
            endpoints,
            ..Self::new(&[])
        }
    }

    /// Publishes what changed in an index.
    pub fn publish(&mut self, changes: &Changes) {
        self.publisher.apply(changes).unwrap();
    }

    /// Lets the model's prompts be spelled in another way, with that state.
    pub fn spell(&mut self, profile: PromptProfile, state: &str) {
        for model in &mut self.policy.models {
            model.revision = profile.revision();
            model.prompt_profile = serde_json::to_vec(&profile).unwrap().into();
            state.clone_into(&mut model.state);
        }
        self.profile = profile;
    }

    /// The rungs of a request body, as the index would have them for the base model.
    pub fn hashes(&self, api: Api, body: &str) -> PromptHashes {
        let prompter = Prompter::try_new(self.profile.clone()).unwrap();
        let request = parse(api, body.as_bytes()).unwrap();
        let prompt = prompter
            .prompt(&request, LocalTime::from_date(2026, 1, 1))
            .unwrap();
        let adapter = request.model.as_deref().filter(|model| *model == ADAPTER);
        let scope = Scope {
            space: prompt.space,
            profile: MODEL,
            revision: self.profile.revision(),
            adapter: adapter.unwrap_or_default(),
            salt: request.cache_salt.as_deref().unwrap_or_default(),
        };
        let hash = match prompt.space {
            Space::Text => PromptHashes::new,
            Space::Token => PromptHashes::of_token_ids,
        };
        hash(scope.hash(self.seed), &prompt.text, self.seed, usize::MAX)
    }

    /// Lets endpoints (by place) hold the whole prompt of a chat body, from now on.
    pub fn store(&mut self, endpoints: &[u32], body: &str) {
        self.store_as(Api::Chat, endpoints, body);
    }

    /// The same for another API.
    pub fn store_as(&mut self, api: Api, endpoints: &[u32], body: &str) {
        let hashes = self.hashes(api, body);
        let upserts = hashes.rungs.iter().map(|rung| RungChange {
            hash: rung.hash,
            token_depth: u32::try_from(rung.bytes()).unwrap() / BYTES_PER_TOKEN,
            holders: endpoints.iter().map(|id| HolderId(*id)).collect(),
        });
        let changes = Changes {
            upserts: upserts.collect(),
            removes: Vec::new(),
        };
        self.publisher.apply(&changes).unwrap();
    }

    /// Fills the index with entries that no prompt has.
    pub fn store_random(&mut self, rungs: u64) {
        let upserts = (1..=rungs).map(|n| RungChange {
            hash: n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            token_depth: 16,
            holders: vec![HolderId(u32::try_from(n % 3).unwrap())],
        });
        let changes = Changes {
            upserts: upserts.collect(),
            removes: Vec::new(),
        };
        self.publisher.apply(&changes).unwrap();
    }

    /// Version of the index.
    pub fn version(&self) -> u64 {
        self.publisher.version()
    }

    /// Checksum of the published table.
    pub fn checksum(&self) -> u64 {
        self.publisher.checksum()
    }

    /// Takes what the streams say, answers subscriptions, sends what is new, and acknowledges.
    pub fn serve(&mut self, host: &mut Host) {
        self.serve_where(host, |_, _, _| true);
    }

    /// The same for some of the streams.
    pub fn serve_where(
        &mut self,
        host: &mut Host,
        mine: impl Fn(&mut Host, usize, StreamToken) -> bool,
    ) {
        for vm in 0..host.vm_count() {
            for token in host.vm(vm).streams() {
                if !mine(host, vm, token) {
                    continue;
                }
                for bytes in host.vm(vm).take_sent(token) {
                    let up = Up::decode(bytes.as_slice()).unwrap();
                    self.hear(host, (vm, token), up);
                }
                self.bring_up_to_date(host, (vm, token));
            }
        }
    }

    fn hear(&mut self, host: &mut Host, at: (usize, StreamToken), up: Up) {
        let seq = up.seq;
        match up.kind.unwrap() {
            up::Kind::Subscribe(subscribe) => {
                let have = (subscribe.have_epoch, subscribe.have_version);
                self.heard.subscriptions.push(subscribe);
                let start = self.publisher.start(have.0, have.1);
                send(host, at, &start.hello);
                send(
                    host,
                    at,
                    &message(down::Kind::Policy(Box::new(self.policy.clone()))),
                );
                self.send_endpoints(host, at);
                for down in &start.body {
                    send(host, at, down);
                }
                self.streams.insert(at, self.publisher.version());
            }
            up::Kind::Together(together) => {
                for up in together.ups {
                    self.hear(host, at, up);
                }
            }
            up::Kind::Usage(usage) => self.heard.usage = usage,
            up::Kind::Copies(copies) => self.heard.copies = copies,
            up::Kind::Routed(routed) => self.heard.routed.push(routed),
            up::Kind::Moved(moved) => self.heard.moved.push(moved),
            up::Kind::Outcome(outcome) => self.heard.outcomes.push(outcome),
            up::Kind::Sampled(sampled) => self.heard.sampled.push(*sampled),
        }
        if seq > 0 {
            send(host, at, &message(down::Kind::Ack(Ack { seq })));
        }
    }

    fn bring_up_to_date(&mut self, host: &mut Host, at: (usize, StreamToken)) {
        let Some(have) = self.streams.get_mut(&at) else {
            return;
        };
        for delta in self.publisher.deltas_since(*have).unwrap() {
            send(host, at, &message(down::Kind::Delta(delta)));
        }
        *have = self.publisher.version();
        let load = |endpoint: &Endpoint| {
            let told = self.loads.get(&endpoint.id).copied();
            told.unwrap_or_else(|| idle(endpoint.id))
        };
        let load = Load {
            endpoints: self.endpoints.endpoints.iter().map(load).collect(),
        };
        send(host, at, &message(down::Kind::Load(load)));
    }

    fn send_endpoints(&self, host: &mut Host, at: (usize, StreamToken)) {
        let endpoints = down::Kind::Endpoints(self.endpoints.clone());
        send(host, at, &message(endpoints));
    }

    /// Sends changed endpoints and policy to every stream.
    pub fn announce(&mut self, host: &mut Host) {
        self.endpoints.revision += 1;
        self.policy.revision += 1;
        for at in self.streams.keys().copied().collect::<Vec<_>>() {
            self.send_endpoints(host, at);
            let policy = down::Kind::Policy(Box::new(self.policy.clone()));
            send(host, at, &message(policy));
        }
    }
}

fn message(kind: down::Kind) -> Down {
    Down { kind: Some(kind) }
}

fn send(host: &mut Host, (vm, token): (usize, StreamToken), down: &Down) {
    host.vm(vm).deliver(token, &down.encode_to_vec());
}
