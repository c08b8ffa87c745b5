//! The system under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings};
use prefixway::demo::indexer::{self, Events, Indexer, Source};
use prefixway::demo::process::{free_address, wait_for};
use prefixway_engine_sim::{Engine, EngineConfig, EventsConfig, Timing};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Name of the served model.
pub const MODEL: &str = "tiny";
/// Envoy's worker threads.
pub const WORKERS: u32 = 2;
/// Longest wait for anything to happen.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Time for a delta that is under way, and for the workers' ticks.
pub(crate) const GRACE: Duration = Duration::from_millis(300);
/// Prefill rate of the test's engines as the indexer is told.
const PREFILL_TOKENS_PER_S: f64 = 8_000.0;

/// What stands behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// So many engines whose publishers bind; the indexer connects.
    Binding(usize),
    /// So many engines whose publishers connect; the indexer binds.
    Connecting(usize),
}

/// The system under test; dropping it ends everything.
#[derive(Debug)]
pub struct Rig {
    /// The gateway.
    pub envoy: Envoy,
    /// The engines, in order of their names.
    pub engines: Vec<Engine>,
    /// The indexer while it runs.
    pub indexer: Option<Indexer>,
    settings: indexer::Settings,
    folder: TempDir,
    client: reqwest::Client,
}

impl Rig {
    /// Starts engines, the indexer and Envoy in `mode`, and waits until every worker has the first snapshot.
    ///
    /// # Errors
    /// When a part does not start, with the end of its log.
    pub async fn start(pool: Pool, mode: &str) -> anyhow::Result<Self> {
        let mut rig = Self::without_indexer(pool, mode).await?;
        rig.start_indexer().await?;
        Ok(rig)
    }

    /// The same with so many engines whose settings are changed first.
    ///
    /// # Errors
    /// When a part does not start, with the end of its log.
    pub async fn with_engines(
        count: usize,
        mode: &str,
        change: impl FnOnce(&mut EngineConfig),
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let mut pattern = pattern(&model_dir);
        change(&mut pattern);
        let engines = engines::start(count, &pattern).await?;
        let sources = engines::sources(&engines, PREFILL_TOKENS_PER_S);
        let mut rig = Self::in_front_of(engines, sources, mode, folder).await?;
        rig.start_indexer().await?;
        Ok(rig)
    }

    /// Starts engines and Envoy; the indexer's address is set but nothing listens there.
    ///
    /// # Errors
    /// When a part does not start, with the end of its log.
    pub async fn without_indexer(pool: Pool, mode: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let (engines, sources) = start_pool(pool, &model_dir).await?;
        Self::in_front_of(engines, sources, mode, folder).await
    }

    async fn in_front_of(
        engines: Vec<Engine>,
        sources: Vec<Source>,
        mode: &str,
        folder: TempDir,
    ) -> anyhow::Result<Self> {
        let model_dir = folder.path().join("model");
        let mut settings = indexer::Settings::on_free_ports(MODEL, &model_dir, sources)?;
        settings.mode = mode.to_owned();
        let envoy = start_envoy(
            &engines::addresses(&engines),
            mode,
            &settings,
            folder.path(),
        )
        .await?;
        Ok(Self {
            envoy,
            engines,
            indexer: None,
            settings,
            folder,
            client: reqwest::Client::new(),
        })
    }

    /// Starts the indexer (again) on its address and waits until every worker has a snapshot of it.
    ///
    /// # Errors
    /// When it does not start or no snapshot arrives, with the end of the logs.
    pub async fn start_indexer(&mut self) -> anyhow::Result<()> {
        let indexer = Indexer::start(&binary(), self.folder.path(), &self.settings).await?;
        self.indexer = Some(indexer);
        if self.settings.mode == "off" {
            return Ok(());
        }
        self.wait_for_workers().await
    }

    /// Kills the indexer as a crash would.
    pub async fn kill_indexer(&mut self) {
        if let Some(indexer) = self.indexer.take() {
            indexer.kill().await;
        }
    }

    async fn wait_for_workers(&self) -> anyhow::Result<()> {
        let ready = wait_for("the snapshot in every worker", LIMIT, async || {
            workers_ready(&self.envoy).await.then_some(())
        });
        ready
            .await
            .with_context(|| format!("envoy's log ends:\n{}", self.envoy.log_tail()))
    }

    /// Sends `body` to `path` through the gateway on a connection of its own, so that both workers get their share.
    ///
    /// # Errors
    /// When there is no answer at all.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Answer> {
        post(
            &reqwest::Client::new(),
            self.envoy.http(),
            path,
            body,
            headers,
        )
        .await
    }

    /// Sends a chat request with a system prompt and one user message.
    ///
    /// # Errors
    /// When there is no answer or it is no success.
    pub async fn chat(&self, system: &str, user: &str) -> anyhow::Result<Answer> {
        self.post("/v1/chat/completions", &chat_body(system, user), &[])
            .await?
            .success()
    }

    /// Sends `body` straight to an engine, past the gateway: only its events can tell that it holds the prompt.
    ///
    /// # Errors
    /// When there is no answer or it is no success.
    pub async fn straight(
        &self,
        engine: usize,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Answer> {
        let engine = self.engines.get(engine).context("no such engine")?;
        post(&self.client, engine.http_addr(), path, body, &[])
            .await?
            .success()
    }

    /// Waits until every batch that the engines have published is in the proxy's table and every worker had time to copy it.
    ///
    /// # Errors
    /// When that takes longer than [`LIMIT`].
    pub async fn settle(&self) -> anyhow::Result<()> {
        let indexer = self.indexer.as_ref().context("no indexer is running")?;
        let published: f64 = self
            .engines
            .iter()
            .map(|engine| engine.stats().batches as f64)
            .sum();
        let settled = wait_for("the proxy's table to be the indexer's", LIMIT, async || {
            let applied = indexer.metric("prefixway_event_batches_total", "").await?;
            let streams = indexer.metric("prefixway_gateways", "").await?;
            let rungs = indexer.metric("prefixway_index_rungs", "").await?;
            let copied = self.envoy.stats("prefixway_index_rungs").await;
            let equal = copied
                .iter()
                .any(|(_, copied)| (*copied as f64 - rungs).abs() < 0.5);
            (applied >= published && streams >= 1.0 && equal).then_some(())
        });
        settled
            .await
            .with_context(|| format!("envoy's log ends:\n{}", self.envoy.log_tail()))?;
        // Workers copy what the leader has on their next ticks, about 10 ms each.
        tokio::time::sleep(GRACE).await;
        Ok(())
    }
}

/// Whether every worker of `envoy` has a usable snapshot.
async fn workers_ready(envoy: &Envoy) -> bool {
    let gauges = envoy.stats("prefixway_ready_vms").await;
    gauges.iter().any(|(_, vms)| *vms > u64::from(WORKERS))
}

/// Starts Envoy with the built filter in front of `engines`.
///
/// # Errors
/// When it does not start, with the end of its log.
pub async fn start_envoy(
    engines: &[SocketAddr],
    mode: &str,
    indexer: &indexer::Settings,
    folder: &Path,
) -> anyhow::Result<Envoy> {
    let settings = Settings {
        balancing: Balancing::Prefixway(Filter {
            module: module()?,
            plugin: json!({"indexers": [INDEXER], "mode": mode, "explain": true}),
            indexers: vec![(INDEXER.to_owned(), indexer.grpc)],
        }),
        engines: engines.to_vec(),
        concurrency: WORKERS,
    };
    Ok(Envoy::start(&envoy_binary()?, folder, &settings).await?)
}

/// What all engines have in common.
fn pattern(model_dir: &Path) -> EngineConfig {
    EngineConfig {
        served_names: vec![MODEL.to_owned()],
        num_blocks: 4_000,
        max_running: 64,
        timing: Timing::instant(),
        ..EngineConfig::new("engine", model_dir)
    }
}

pub(crate) async fn start_pool(
    pool: Pool,
    model_dir: &Path,
) -> anyhow::Result<(Vec<Engine>, Vec<Source>)> {
    let pattern = pattern(model_dir);
    let count = match pool {
        Pool::Binding(count) => {
            let engines = engines::start(count, &pattern).await?;
            let sources = engines::sources(&engines, PREFILL_TOKENS_PER_S);
            return Ok((engines, sources));
        }
        Pool::Connecting(count) => count,
    };
    let mut engines = Vec::new();
    let mut sources = Vec::new();
    for number in 0..count {
        let endpoint = format!("tcp://{}", free_address()?);
        let config = EngineConfig {
            name: format!("engine-{number}"),
            seed: number as u64,
            events: Some(EventsConfig {
                endpoint: endpoint.clone(),
                ..EventsConfig::default()
            }),
            ..pattern.clone()
        };
        let engine = prefixway_engine_sim::start(config).await?;
        sources.push(Source {
            address: engine.http_addr(),
            events: Some(Events::Bind(endpoint)),
            replay: engine.replay_endpoint(),
            prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
        });
        engines.push(engine);
    }
    Ok((engines, sources))
}

/// An answer of the gateway or an engine.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Who answered (header `x-engine`); empty when nobody said so.
    pub engine: String,
    /// All response headers in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// Prompt tokens that the engine had in cache.
    pub fn cached_tokens(&self) -> u64 {
        let cached = self
            .body
            .pointer("/usage/prompt_tokens_details/cached_tokens");
        cached.and_then(Value::as_u64).unwrap_or_default()
    }

    /// The answer when its status is 200.
    ///
    /// # Errors
    /// With the body otherwise.
    pub fn success(self) -> anyhow::Result<Self> {
        if self.status != 200 {
            bail!(
                "status {} from '{}': {}",
                self.status,
                self.engine,
                self.body
            );
        }
        Ok(self)
    }
}

/// The body of a chat request for one token.
pub fn chat_body(system: &str, user: &str) -> Value {
    json!({
        "model": MODEL, "max_tokens": 1, "temperature": 0,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
    })
}

/// Posts JSON and reads the whole answer.
///
/// # Errors
/// When there is no answer.
pub async fn post(
    client: &reqwest::Client,
    address: SocketAddr,
    path: &str,
    body: &Value,
    headers: &[(&str, &str)],
) -> anyhow::Result<Answer> {
    let mut request = client
        .post(format!("http://{address}{path}"))
        .json(body)
        .timeout(LIMIT);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await?;
    let status = response.status().as_u16();
    let headers: Vec<(String, String)> = response
        .headers()
        .iter()
        .map(|(name, value)| {
            (
                name.to_string(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let engine = headers.iter().find(|(name, _)| name == "x-engine");
    Ok(Answer {
        status,
        engine: engine.map(|(_, value)| value.clone()).unwrap_or_default(),
        body: serde_json::from_slice(&response.bytes().await?).unwrap_or_default(),
        headers,
    })
}

/// The command line under test.
pub fn binary() -> PathBuf {
    let tests = std::env::current_exe().unwrap_or_default();
    // target/<profile>/deps/it-<hash> -> target/<profile>/prefixway-under-test
    let folder = tests
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    folder.join("prefixway-under-test")
}

/// The built filter: `$PREFIXWAY_WASM`, else where the build leaves it.
///
/// # Errors
/// When there is none.
pub fn module() -> anyhow::Result<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/wasm32-unknown-unknown/release/prefixway_filter.wasm");
    let module = std::env::var_os("PREFIXWAY_WASM").map_or(built, PathBuf::from);
    if !module.is_file() {
        bail!(
            "there is no wasm filter at {}; run `make wasm`",
            module.display()
        );
    }
    Ok(module)
}

/// Envoy: whatever `scripts/envoy.sh` finds or fetches.
///
/// # Errors
/// When it finds none.
pub fn envoy_binary() -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/envoy.sh");
    let output = std::process::Command::new(script)
        .output()
        .context("cannot run scripts/envoy.sh")?;
    if !output.status.success() {
        bail!("no Envoy: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
