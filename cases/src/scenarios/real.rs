//! Real Envoy with the built filter, a real indexer, and pods that do as a case says. What pods hold is held by simulated engines, whose
//! events tell the indexer.
//!
//! ```text
//!  client ─► Envoy (child, so many workers) ─► pod (in process: health, metrics and answers as the case says)
//!                 ▲                              its engine (in process) ─ KV events ─┐
//!                 └────────── indexer (child) ◄──────────────────────────────────────┘
//! ```

mod client;
mod plan;
pub(crate) mod pod;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings, render};
use prefixway::demo::process::{Process, free_address, wait_for};
use prefixway_engine_sim::{Engine, EngineConfig, Timing};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::error::CaseError;
pub(crate) use crate::requests::levels::envoy::system::Parts;
use crate::requests::levels::envoy::system::start_indexer;
pub(crate) use client::{Answer, Client};
pub(crate) use plan::{Plan, Planned};
pub(crate) use pod::{Play, Pod, Stage};

/// Path of requests whose prompt is text as it is.
pub(crate) const PATH: &str = "/v1/completions";
/// Name of the served model, and of one in another pool.
pub(crate) const MODEL: &str = "tiny";
const OTHER_MODEL: &str = "other";
/// Longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Time for deltas under way, and for the workers' ticks.
const GRACE: Duration = Duration::from_millis(300);
/// Room of an engine.
const BLOCKS: u32 = 4_000;
const MAX_TOKENS: u32 = 32_000;

/// What runs; dropping it ends everything.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) envoy: Envoy,
    pub(crate) listener: Option<prefixway_e2e::Listener>,
    pub(crate) indexer: Option<Process>,
    pub(crate) indexer_http: SocketAddr,
    pub(crate) pods: Vec<Pod>,
    pub(crate) stage: Arc<Stage>,
    /// What everybody asks for, of as many tokens as the pod that holds most.
    pub(crate) prompt: String,
    pub(crate) folder: TempDir,
    engines: Vec<Engine>,
    http: reqwest::Client,
}

/// An error of the level as one of the case.
pub(crate) fn failed(error: &anyhow::Error) -> CaseError {
    CaseError::mismatch("real Envoy", &"as the case says", &format!("{error:#}"))
}

/// Plays something in an asynchronous runtime of its own.
///
/// # Errors
/// What it says.
pub(crate) fn block_on<T>(play: impl Future<Output = anyhow::Result<T>>) -> Result<T, CaseError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| failed(&error.into()))?;
    runtime.block_on(play).map_err(|error| failed(&error))
}

impl Stand {
    /// Starts everything, and waits until every worker knows what there is to know.
    pub(crate) async fn start(parts: &Parts, plan: &Plan) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let stage = Stage::new();
        let mut pods = Vec::new();
        for planned in &plan.pods {
            let pod = Pod::start(&planned.name, &stage).await?;
            pod.set_healthy(planned.is_healthy);
            pod.set_page(planned.figures.map(page));
            pods.push(pod);
        }
        let engines = start_engines(plan, &model_dir).await?;
        let indexer_http = free_address()?;
        let grpc = free_address()?;
        let configuration =
            configuration(plan, &pods, &engines, folder.path(), [indexer_http, grpc]);
        let mut stand_indexer = None;
        if plan.has_indexer {
            let text = format!("{configuration:#}\n");
            stand_indexer = Some(start_indexer(parts, folder.path(), &text, indexer_http).await?);
        }
        let mut plugin = json!({"indexers": [INDEXER], "pools": [MODEL]});
        merge(&mut plugin, &plan.plugin);
        let reachable = pods.iter().zip(&plan.pods);
        let settings = Settings {
            balancing: Balancing::Prefixway(Filter {
                module: plan.module.as_ref().unwrap_or(&parts.module).clone(),
                plugin,
                indexers: vec![(INDEXER.to_owned(), plan.indexer.unwrap_or(grpc))],
            }),
            engines: reachable
                .filter(|(_, planned)| !planned.is_gone)
                .map(|(pod, _)| pod.address())
                .collect(),
            concurrency: plan.workers,
        };
        let (envoy, listener) = if plan.is_dynamic {
            let listener = prefixway_e2e::Listener::new(&settings, folder.path())?;
            (listener.start(&parts.envoy).await?, Some(listener))
        } else {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut text = render(&settings, any, any)?;
            if !plan.can_hold {
                text = text.replace("allow_on_headers_stop_iteration: true", "");
            }
            let concurrency = settings.concurrency;
            let started = Envoy::start_with(&parts.envoy, folder.path(), &text, concurrency).await;
            (started?, None)
        };
        let mut stand = Self {
            envoy,
            listener,
            indexer: stand_indexer,
            indexer_http,
            pods,
            stage,
            prompt: String::new(),
            folder,
            engines: Vec::new(),
            http: reqwest::Client::new(),
        };
        if plan.has_indexer {
            stand.wait_for_snapshot(plan.workers).await?;
            stand.warm(plan, &engines).await?;
        }
        stand.engines = engines;
        Ok(stand)
    }

    /// Waits until every worker has the snapshot.
    pub(crate) async fn wait_for_snapshot(&self, workers: u32) -> anyhow::Result<()> {
        let ready = wait_for("the snapshot in every worker", LIMIT, async || {
            let vms = self.gauge("prefixway_ready_vms").await?;
            (vms > u64::from(workers)).then_some(())
        });
        ready
            .await
            .with_context(|| format!("envoy's log ends:\n{}", self.envoy.log_tail()))
    }

    /// Lets engines compute the prefix that their pods are to hold, and waits until every worker knows.
    async fn warm(&mut self, plan: &Plan, engines: &[Engine]) -> anyhow::Result<()> {
        let longest = plan.pods.iter().map(|pod| pod.tokens).max().unwrap_or(0);
        let Some(first) = engines.first().filter(|_| longest > 0) else {
            self.prompt = words(0, 100);
            return Ok(());
        };
        self.prompt = self.of_tokens(first, longest).await?;
        let holders = plan.pods.iter().zip(engines);
        let mut published = 0;
        for (_, engine) in holders.filter(|(pod, _)| pod.tokens > 0) {
            let body = json!({"model": MODEL, "prompt": self.prompt, "max_tokens": 1});
            let url = format!("http://{}{PATH}", engine.http_addr());
            let answer = self.http.post(url).json(&body).send().await?;
            answer.error_for_status()?;
            published += engine.stats().batches;
        }
        wait_for("the proxy's table to be the indexer's", LIMIT, async || {
            let applied = self.metric("prefixway_event_batches_total").await?;
            let rungs = self.metric("prefixway_index_rungs").await?;
            let copied = self.gauge("prefixway_index_rungs").await?;
            let is_whole = applied >= published as f64 && rungs > 0.0;
            (is_whole && (copied as f64 - rungs).abs() < 0.5).then_some(())
        })
        .await?;
        tokio::time::sleep(GRACE).await;
        Ok(())
    }

    /// A text of so many tokens, about.
    async fn of_tokens(&self, engine: &Engine, tokens: u32) -> anyhow::Result<String> {
        let sample = 1_000;
        let url = format!("http://{}/tokenize", engine.http_addr());
        let body = json!({"model": MODEL, "prompt": words(0, sample)});
        let answer: Value = self.http.post(url).json(&body).send().await?.json().await?;
        let count = answer.get("count").and_then(Value::as_u64);
        let count = count.context("no count of tokens")?.max(1);
        let words_wanted = u64::from(tokens) * sample as u64 / count;
        Ok(words(0, usize::try_from(words_wanted)?))
    }

    /// A gauge or counter of Envoy's; `None` while there is none.
    pub(crate) async fn gauge(&self, name: &str) -> Option<u64> {
        let name = format!("wasmcustom.{name}");
        let stats = self.envoy.stats(&name).await;
        stats
            .into_iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// The sum of a metric's series of the indexer.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let url = format!("http://{}/metrics", self.indexer_http);
        let page = self.http.get(url).send().await.ok()?.text().await.ok()?;
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_it = rest.starts_with(['{', ' ']);
            is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
        });
        values.reduce(|sum, value| sum + value)
    }

    /// Sequences in flight by pod, as the indexer has heard.
    pub(crate) async fn in_flight(&self) -> Option<BTreeMap<String, u64>> {
        let list = self.endpoints().await?;
        let of = |endpoint: &Value| {
            let address = endpoint.get("address")?.as_str()?;
            let pod = self
                .pods
                .iter()
                .find(|pod| pod.address().to_string() == address)?;
            Some((pod.name().to_owned(), endpoint.get("in_flight")?.as_u64()?))
        };
        list.iter().map(of).collect()
    }

    /// Waits until a condition on what is in flight holds.
    pub(crate) async fn until_in_flight(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<String, u64>) -> bool,
    ) -> anyhow::Result<()> {
        let seen = std::sync::Mutex::new(BTreeMap::new());
        let waited = wait_for(what, LIMIT, async || {
            let in_flight = self.in_flight().await?;
            let is_it = holds(&in_flight);
            *pod::lock(&seen) = in_flight;
            is_it.then_some(())
        });
        waited
            .await
            .with_context(|| format!("in flight: {:?}", pod::lock(&seen)))
    }

    /// The pod of that name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn pod(&self, name: &str) -> anyhow::Result<&Pod> {
        let pod = self.pods.iter().find(|pod| pod.name() == name);
        pod.with_context(|| format!("no pod {name}"))
    }

    /// Waits until the indexer takes a pod for healthy, or not, and every worker knows.
    pub(crate) async fn until_healthy(&self, name: &str, wanted: bool) -> anyhow::Result<()> {
        let address = self.pod(name)?.address().to_string();
        wait_for("the indexer's view of a pod", LIMIT, async || {
            let list = self.endpoints().await?;
            let endpoint = list.iter().find(|of| of["address"] == address.as_str())?;
            (endpoint["healthy"] == wanted).then_some(())
        })
        .await?;
        tokio::time::sleep(GRACE).await;
        Ok(())
    }

    /// Scrapes that failed, once there are some that did not.
    pub(crate) async fn failed_scrapes(&self) -> anyhow::Result<u64> {
        let url = format!("http://{}/metrics", self.indexer_http);
        let sums = wait_for("some scrapes", LIMIT, async || {
            let page = self.http.get(&url).send().await.ok()?.text().await.ok()?;
            let sum = |result: &str| {
                let lines = page.lines().filter(|line| {
                    line.starts_with("prefixway_scrapes_total") && line.contains(result)
                });
                let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
                values.sum::<f64>()
            };
            (sum("\"ok\"") >= 3.0).then(|| sum("\"failed\""))
        });
        let failed = sums.await?;
        anyhow::ensure!(failed >= 0.0, "a counter below zero");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small count"
        )]
        let failed = failed as u64;
        Ok(failed)
    }

    /// Waits until every healthy pod with a page has been read, and every worker knows.
    pub(crate) async fn until_scraped(&self) -> anyhow::Result<()> {
        wait_for("the pods' figures", LIMIT, async || {
            let list = self.endpoints().await?;
            let is_read = |of: &Value| of["healthy"] == false || !of["running"].is_null();
            list.iter().all(is_read).then_some(())
        })
        .await?;
        tokio::time::sleep(GRACE).await;
        Ok(())
    }

    async fn endpoints(&self) -> Option<Vec<Value>> {
        let url = format!("http://{}/api/v1/endpoints", self.indexer_http);
        let page: Value = self.http.get(url).send().await.ok()?.json().await.ok()?;
        let list = page.get("endpoints").unwrap_or(&page);
        list.as_array().cloned()
    }

    /// A client on a connection of its own, so that all workers get their share.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.envoy.http())
    }

    /// Inference requests by pod so far.
    pub(crate) fn seen(&self) -> BTreeMap<String, usize> {
        let pods = self.pods.iter();
        pods.map(|pod| (pod.name().to_owned(), pod.seen()))
            .collect()
    }

    /// Lets everything that waits go on, now and later.
    pub(crate) fn release(&self) {
        self.stage.gate.add_permits(1 << 20);
    }

    /// Sends requests that don't finish, evenly over a time, and gives where they went, in the order of their sending.
    pub(crate) async fn burst(
        &self,
        prompts: Vec<String>,
        within: Duration,
    ) -> anyhow::Result<(Vec<String>, JoinSet<anyhow::Result<Answer>>)> {
        let mut tasks = JoinSet::new();
        let mut picks = Vec::new();
        let gap = within / u32::try_from(prompts.len().max(1))?;
        let mut seen = self.seen();
        for (number, prompt) in prompts.iter().enumerate() {
            let client = self.client();
            let body = json!({"model": MODEL, "prompt": prompt}).to_string();
            tasks.spawn(async move { client.post(PATH, &body, Play::Hold, 0).await });
            tokio::time::sleep(gap).await;
            // The first is waited for, so that it is known which it was.
            let expected = usize::from(number == 0);
            self.arrived(&mut seen, expected, &mut picks).await?;
        }
        let missing = prompts.len() - picks.len();
        self.arrived(&mut seen, missing, &mut picks).await?;
        Ok((picks, tasks))
    }

    /// Waits for so many more requests, and notes their pods.
    async fn arrived(
        &self,
        seen: &mut BTreeMap<String, usize>,
        more: usize,
        picks: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        if more > 0 {
            let before: usize = seen.values().sum();
            wait_for("the requests at their pods", LIMIT, async || {
                let now: usize = self.seen().values().sum();
                (now >= before + more).then_some(())
            })
            .await?;
        }
        let now = self.seen();
        for (pod, count) in &now {
            let was = seen.get(pod).copied().unwrap_or(0);
            picks.extend(std::iter::repeat_n(pod.clone(), count - was));
        }
        *seen = now;
        Ok(())
    }

    /// Fails where a process has ended or the filter has trapped.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.envoy.check()?;
        if let Some(indexer) = &mut self.indexer {
            indexer.check()?;
        }
        let log = std::fs::read_to_string(self.folder.path().join("envoy.log"))?;
        anyhow::ensure!(!log.contains("the filter has trapped"), "{log}");
        Ok(())
    }
}

async fn start_engines(plan: &Plan, model_dir: &Path) -> anyhow::Result<Vec<Engine>> {
    if plan.pods.iter().all(|pod| pod.tokens == 0) {
        return Ok(Vec::new());
    }
    let pattern = EngineConfig {
        served_names: vec![MODEL.to_owned()],
        num_blocks: BLOCKS,
        max_model_len: MAX_TOKENS,
        timing: Timing::instant(),
        ..EngineConfig::new("engine", model_dir)
    };
    Ok(engines::start(plan.pods.len(), &pattern).await?)
}

fn configuration(
    plan: &Plan,
    pods: &[Pod],
    engines: &[Engine],
    folder: &Path,
    [http, grpc]: [SocketAddr; 2],
) -> Value {
    let model = |id: &str| json!({"id": id, "names": [id], "model_dir": folder.join("model"), "pool": id, "calibration": "off"});
    let endpoints = pods.iter().zip(&plan.pods).enumerate().map(|(at, (pod, planned))| {
        let id = if planned.is_elsewhere { OTHER_MODEL } else { MODEL };
        let mut endpoint = json!({"address": pod.address().to_string(), "model": id, "scrape": !planned.is_gone});
        if let (Some(engine), Some(keys)) = (engines.get(at), endpoint.as_object_mut())
            && let Some(events) = engine.events_endpoint()
        {
            let events = json!({"connect": events, "replay": engine.replay_endpoint()});
            keys.insert("events".to_owned(), events);
        }
        endpoint
    });
    let mut policy = json!({});
    merge(&mut policy, &plan.policy);
    let mut models = vec![model(MODEL)];
    if plan.pods.iter().any(|pod| pod.is_elsewhere) {
        models.push(model(OTHER_MODEL));
    }
    json!({
        "listen": {"http": http.to_string(), "grpc": grpc.to_string()},
        "state_dir": folder.join("state"),
        "models": models,
        "endpoints": endpoints.collect::<Vec<_>>(),
        "policy": policy,
        "scrape": plan.scrape,
        "ready_grace": "2s",
    })
}

fn merge(into: &mut Value, more: &Value) {
    if let (Some(keys), Some(more)) = (into.as_object_mut(), more.as_object()) {
        keys.extend(more.clone());
    }
}

/// A page of metrics as vLLM has it; no adapter is loaded, so there is no figure of adapters.
pub(crate) fn page((running, waiting, kv_used): (u32, u32, f64)) -> String {
    format!(
        "vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_waiting{{engine=\"0\"}} {waiting}\nvllm:kv_cache_usage_perc{{engine=\"0\"}} {kv_used}\n"
    )
}

/// So many words from a number on.
pub(crate) fn words(from: usize, count: usize) -> String {
    let words = (from..from + count).map(|number| format!("w{number}"));
    words.collect::<Vec<_>>().join(" ")
}
