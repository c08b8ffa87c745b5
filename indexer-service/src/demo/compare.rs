//! One workload under three policies, each on fresh engines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prefixway_engine_sim::{Engine, EngineConfig, EngineError, Timing};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Client;
use super::engines;
use super::envoy::{Balancing, Envoy, EnvoyError, Filter, INDEXER, Settings};
use super::indexer::{self, Indexer};
use super::load::{self, Outcome};
use super::process::{self, ProcessError};
use super::report::{Figures, Report};
use super::workload::{Conversation, Shape, conversations};

/// Name of the model that the engines serve.
pub const MODEL: &str = "demo";
/// Engines of the demo.
pub const ENGINES: usize = 4;
/// Tokens of a KV block.
const BLOCK_SIZE: u32 = 16;
/// Blocks of one engine: its cache holds less than half of the traffic's working set, all four hold it with room to spare.
const NUM_BLOCKS: u32 = 3_200;
/// Uncached prompt tokens that an engine computes a second.
const PREFILL_TOKENS_PER_S: f64 = 8_000.0;
/// Envoy's worker threads.
const WORKERS: u32 = 2;
/// Time that the filter gets to have its first snapshot in every worker.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(20);
/// Gauge of the filter: VMs of the proxy that have a snapshot.
const READY_GAUGE: &str = "prefixway_ready_vms";

/// The demo's traffic.
pub const SHAPE: Shape = Shape {
    groups: 56,
    system_words: 800,
    conversations: 4,
    turns: 3,
    user_words: 10,
    answer_tokens: 16,
    span: Duration::from_secs(30),
    pause: Duration::from_millis(1_500),
};

/// What the demo needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `prefixway` binary, for the indexer.
    pub binary: PathBuf,
    /// The Envoy binary.
    pub envoy: PathBuf,
    /// The built wasm filter.
    pub module: PathBuf,
    /// Seed of the traffic.
    pub seed: u64,
}

/// What happens, for a progress display.
#[derive(Debug)]
pub enum Event<'a> {
    /// Sizes of the traffic and the caches.
    Sizes(Sizes),
    /// A policy's run starts with so many requests to come.
    Start(&'a str, usize),
    /// One request ended.
    Request(&'a Outcome),
    /// A policy's run ended.
    End(&'a Figures),
}

/// Tokens of the traffic and of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Requests of a run.
    pub requests: usize,
    /// Distinct tokens of all prompts and answers.
    pub working_set: u64,
    /// Tokens that one engine's cache holds.
    pub cache: u64,
    /// Engines.
    pub engines: usize,
}

impl Sizes {
    /// Working set over one engine's cache.
    pub fn of_one(&self) -> f64 {
        self.working_set as f64 / self.cache as f64
    }

    /// Working set over all caches together.
    pub fn of_all(&self) -> f64 {
        self.of_one() / self.engines as f64
    }
}

/// Why the demo cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A folder or file cannot be made.
    #[error("cannot prepare the demo's folder")]
    Folder(#[from] std::io::Error),
    /// An engine does not start.
    #[error("cannot start the engines")]
    Engine(#[from] EngineError),
    /// An engine does not count tokens.
    #[error("cannot measure the traffic")]
    Measure(#[from] reqwest::Error),
    /// The indexer failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Envoy failed.
    #[error(transparent)]
    Envoy(#[from] EnvoyError),
}

/// Engines, Envoy and, under Prefixway, the indexer. Dropping it ends all of them.
#[derive(Debug)]
pub struct System {
    /// The gateway.
    pub envoy: Envoy,
    /// The indexer, under Prefixway.
    pub indexer: Option<Indexer>,
    /// The engines.
    pub engines: Vec<Engine>,
    folder: TempDir,
}

impl System {
    /// Starts fresh engines and whatever `policy` (`round_robin`, `least_request`, `prefixway`) needs in front of them.
    ///
    /// # Errors
    /// When a part does not start; the parts started before it end.
    pub async fn start(options: &Options, policy: &str) -> Result<Self, DemoError> {
        let folder = TempDir::with_prefix("prefixway-demo-")?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let engines = engines::start(ENGINES, &pattern(&model_dir)).await?;

        let mut indexer = None;
        let balancing = match policy {
            "round_robin" => Balancing::RoundRobin,
            "least_request" => Balancing::LeastRequest,
            _ => {
                let sources = engines::sources(&engines, PREFILL_TOKENS_PER_S);
                let settings = indexer::Settings::on_free_ports(MODEL, &model_dir, sources)?;
                indexer = Some(Indexer::start(&options.binary, folder.path(), &settings).await?);
                Balancing::Prefixway(Filter {
                    module: options.module.clone(),
                    plugin: json!({"indexers": ["prefixway_indexer"], "mode": "on"}),
                    indexers: vec![(INDEXER.to_owned(), settings.grpc)],
                })
            }
        };
        let settings = Settings {
            balancing,
            engines: engines::addresses(&engines),
            concurrency: WORKERS,
        };
        let envoy = Envoy::start(&options.envoy, folder.path(), &settings).await?;
        let system = Self {
            envoy,
            indexer,
            engines,
            folder,
        };
        if system.indexer.is_some() {
            process::wait_for("the snapshot in every worker", SNAPSHOT_LIMIT, async || {
                let ready = system.envoy.stats(READY_GAUGE).await;
                ready
                    .iter()
                    .any(|(_, vms)| *vms > u64::from(WORKERS))
                    .then_some(())
            })
            .await?;
        }
        Ok(system)
    }

    /// Where logs and configurations are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops everything and waits for the ends.
    pub async fn stop(self) {
        self.envoy.stop().await;
        if let Some(indexer) = self.indexer {
            indexer.kill().await;
        }
        engines::stop(self.engines).await;
    }
}

fn pattern(model_dir: &Path) -> EngineConfig {
    EngineConfig {
        served_names: vec![MODEL.to_owned()],
        block_size: BLOCK_SIZE,
        num_blocks: NUM_BLOCKS,
        max_running: 64,
        timing: Timing {
            prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
            ..Timing::default()
        },
        ..EngineConfig::new("engine", model_dir)
    }
}

/// Runs the workload under each policy and gives the report and the last policy's system, still running.
///
/// # Errors
/// When a part of the system does not start. A failed request is a figure, not an error.
pub async fn compare(
    options: &Options,
    policies: &[&str],
    mut progress: impl FnMut(Event<'_>),
) -> Result<(Report, Option<System>), DemoError> {
    let traffic = conversations(&SHAPE, options.seed);
    let mut report = Report { runs: Vec::new() };
    let mut running: Option<System> = None;
    for policy in policies {
        if let Some(system) = running.take() {
            system.stop().await;
        }
        let system = System::start(options, policy).await?;
        if report.runs.is_empty() {
            progress(Event::Sizes(measure(&system.engines, &traffic).await?));
        }
        progress(Event::Start(policy, SHAPE.requests()));
        let client = Client::new(system.envoy.http(), MODEL);
        let run = load::run(&client, &traffic, SHAPE.answer_tokens, |outcome| {
            progress(Event::Request(outcome));
        })
        .await;
        let figures = Figures::of(policy, &run);
        progress(Event::End(&figures));
        report.runs.push(figures);
        running = Some(system);
    }
    Ok((report, running))
}

/// Counts the traffic's distinct tokens: each system prompt once, and each conversation's own part with its answers.
async fn measure(engines: &[Engine], traffic: &[Conversation]) -> Result<Sizes, DemoError> {
    let client = reqwest::Client::new();
    let mut working_set = 0;
    let mut systems = vec![0; SHAPE.groups];
    for (conversation, address) in traffic
        .iter()
        .zip(engines::addresses(engines).into_iter().cycle())
    {
        let system = json!({"role": "system", "content": conversation.system});
        let shared = systems.get(conversation.group).copied().unwrap_or_default();
        let shared = if shared > 0 {
            shared
        } else {
            let tokens = engines::count_tokens(&client, address, &json!([system])).await?;
            working_set += tokens;
            if let Some(slot) = systems.get_mut(conversation.group) {
                *slot = tokens;
            }
            tokens
        };
        let turns = conversation.turns.iter();
        let user = turns.map(|(_, text)| json!({"role": "user", "content": text}));
        let messages: Vec<Value> = std::iter::once(system).chain(user).collect();
        let whole = engines::count_tokens(&client, address, &json!(messages)).await?;
        let answers = u64::from(SHAPE.answer_tokens) * conversation.turns.len() as u64;
        working_set += whole.saturating_sub(shared) + answers;
    }
    Ok(Sizes {
        requests: SHAPE.requests(),
        working_set,
        // One block is the null block.
        cache: u64::from(NUM_BLOCKS - 1) * u64::from(BLOCK_SIZE),
        engines: engines.len(),
    })
}
