//! What is soaked: real Envoy, a real indexer, simulated engines.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings};
use prefixway::demo::indexer::{self, Indexer};
use prefixway::demo::process::wait_for;
use prefixway_e2e::Listener;
use prefixway_e2e::rig::{LIMIT, MODEL, binary, envoy_binary, module};
use prefixway_engine_sim::{Engine, EngineConfig, Timing};
use prefixway_wasm_tests::trap::with_trap;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::corpus::MAX_BODY_BYTES;

/// Envoy's workers.
pub(crate) const WORKERS: u32 = 4;
/// VMs of the gateway: one for each worker and the main thread's.
pub(crate) const VMS: usize = WORKERS as usize + 1;
/// Engines, and the room of each: less than what is asked for, so that blocks are evicted.
const ENGINES: usize = 4;
const BLOCKS: u32 = 6_000;
const MAX_TOKENS: u32 = 80_000;
/// Longer than any answer: what a replaced listener has begun it ends.
pub(crate) const DRAIN_S: u32 = 8;
/// What the leader is told when its stream ends.
const ON_STREAM_END: &str = "proxy_on_grpc_close";

/// The system; dropping it ends everything.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) envoy: Envoy,
    pub(crate) listener: Listener,
    pub(crate) engines: Vec<Arc<Engine>>,
    /// While it runs.
    pub(crate) indexer: Option<Indexer>,
    /// The built filter, and the same that traps when its stream to the indexer ends.
    pub(crate) modules: [PathBuf; 2],
    settings: indexer::Settings,
    client: reqwest::Client,
    folder: TempDir,
}

impl System {
    /// Starts everything, and waits until every VM has the table.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let pattern = EngineConfig {
            served_names: vec![MODEL.to_owned()],
            num_blocks: BLOCKS,
            max_running: 32,
            max_model_len: MAX_TOKENS,
            timing: Timing {
                prefill_tokens_per_s: 200_000.0,
                chunk_tokens: 8_192,
                decode_ms_per_token: 4.0,
                decode_slowdown_per_running: 0.02,
            },
            ..EngineConfig::new("engine", &model_dir)
        };
        let engines = engines::start(ENGINES, &pattern).await?;
        let sources = engines::sources(&engines, pattern.timing.prefill_tokens_per_s);
        let settings = indexer::Settings::on_free_ports(MODEL, &model_dir, sources)?;
        let indexer = Indexer::start(&binary(), folder.path(), &settings).await?;
        let built = module()?;
        let trapping = folder.path().join("trapping.wasm");
        let bytes = with_trap(&built, ON_STREAM_END);
        let bytes = bytes.map_err(|error| anyhow::anyhow!("{error:#}"))?;
        std::fs::write(&trapping, bytes)?;
        let envoy = Settings {
            balancing: Balancing::Prefixway(Filter {
                module: built.clone(),
                plugin: json!({
                    "indexers": [INDEXER], "explain": true, "audit": true,
                    "limits": {"max_body_bytes": MAX_BODY_BYTES},
                }),
                indexers: vec![(INDEXER.to_owned(), settings.grpc)],
            }),
            engines: engines::addresses(&engines),
            concurrency: WORKERS,
        };
        let listener = Listener::new(&envoy, folder.path())?.draining_for(DRAIN_S);
        let envoy = listener.start(&envoy_binary()?).await?;
        let system = Self {
            envoy,
            listener,
            engines: engines.into_iter().map(Arc::new).collect(),
            indexer: Some(indexer),
            modules: [built, trapping],
            settings,
            client: reqwest::Client::new(),
            folder,
        };
        let ready = wait_for("the table in every VM", LIMIT, async || {
            let vms = system.gauge("prefixway_ready_vms").await;
            (vms == VMS as u64).then_some(())
        });
        ready
            .await
            .with_context(|| format!("envoy's log ends:\n{}", system.envoy.log_tail()))?;
        Ok(system)
    }

    /// Starts the indexer again, where it was.
    pub(crate) async fn start_indexer(&mut self) -> anyhow::Result<()> {
        let indexer = Indexer::start(&binary(), self.folder.path(), &self.settings).await?;
        self.indexer = Some(indexer);
        Ok(())
    }

    /// Kills the indexer as a crash would.
    pub(crate) async fn kill_indexer(&mut self) {
        if let Some(indexer) = self.indexer.take() {
            indexer.kill().await;
        }
    }

    /// A gauge or counter of the filter's; 0 while there is none.
    pub(crate) async fn gauge(&self, name: &str) -> u64 {
        self.stat(&format!("wasmcustom.{name}")).await
    }

    /// A gauge or counter of Envoy's; 0 while there is none.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let stats = self.envoy.stats(name).await;
        let mut stats = stats.into_iter();
        stats
            .find_map(|(known, value)| (known == name).then_some(value))
            .unwrap_or(0)
    }

    /// A page of the indexer's API.
    pub(crate) async fn page(&self, path: &str) -> Option<Value> {
        let url = format!("http://{}/api/v1/{path}", self.settings.http);
        self.client.get(url).send().await.ok()?.json().await.ok()
    }

    /// Where requests go.
    pub(crate) fn gateway(&self) -> SocketAddr {
        self.envoy.http()
    }

    /// Resident memory of Envoy and of the indexer, in KiB.
    pub(crate) fn memory_kib(&self) -> [u64; 2] {
        let indexer = self.indexer.as_ref().and_then(Indexer::process_id);
        [self.envoy.process_id(), indexer].map(|id| id.and_then(resident_kib).unwrap_or(0))
    }

    /// All that Envoy has logged.
    pub(crate) fn envoy_log(&self) -> String {
        let log = std::fs::read(self.folder.path().join("envoy.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// All that the indexers have logged.
    pub(crate) fn indexer_log(&self) -> String {
        let log = std::fs::read(self.folder.path().join("indexer.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Fails where a process has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.envoy.check()?;
        if let Some(indexer) = &mut self.indexer {
            indexer.check()?;
        }
        Ok(())
    }
}

fn resident_kib(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line?.split_whitespace().next()?.parse().ok()
}
