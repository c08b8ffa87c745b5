//! What flow control makes of twice the load that the engines can take: simulated engines with slots, real Envoy with two workers.
//!
//! Two equal tenants send short prompts, all together twice what the engines serve; beside them a few long prompts of a greater priority, with a
//! target for their first token. The same traffic meets three policies: engines queue by themselves; full engines are answered for with 429
//! at once; requests wait in the gateway. What the engines can take is measured before, with as many clients as there are slots, and so are the
//! long prompts alone. Every cell has fresh engines, a fresh indexer and a fresh Envoy; prompts are all different. Requests of the first
//! seconds don't count, nor do those that are sent after the end.
//!
//! Rows go to `target/bench/overload.json`: `[{policy, class, offered_per_s, served, refused, failed, share, ttft_p50_ms, ttft_p99_ms,
//! longest_until_refused_ms}]`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use prefixway::config::{Config, Overrides};
use prefixway::demo::client::{Client, ReplyError};
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings};
use prefixway::demo::process::wait_for;
use prefixway::demo::report::Distribution;
use prefixway::random::Random;
use prefixway::serve::{self, Running};
use prefixway_engine_sim::{Engine, EngineConfig, Timing};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::MODEL;

const ENGINES: usize = 8;
/// Sequences that an engine runs at once.
const SLOTS: usize = 8;
const PREFILL_TOKENS_PER_S: f64 = 4_000.0;
const DECODE_MS: f64 = 20.0;
const ANSWER_TOKENS: u32 = 32;
/// Words of a tenant's prompt, and of one with priority.
const WORDS: [usize; 2] = [40, 900];
/// Prompts with priority in a second.
const URGENT_PER_S: f64 = 2.0;
/// Their target; alone they take somewhat less.
const TARGET_MS: u32 = 600;
const MAX_WAIT: Duration = Duration::from_secs(5);
/// What comes before does not count.
const WARM_UP: Duration = Duration::from_secs(8);
const START_LIMIT: Duration = Duration::from_mins(1);
const CLASSES: [&str; 3] = ["priority", "tenant a", "tenant b"];

/// One class of requests under one policy.
#[derive(Clone, Debug, Serialize)]
struct Row {
    policy: &'static str,
    class: &'static str,
    offered_per_s: f64,
    served: usize,
    /// Answered with 429.
    refused: usize,
    failed: usize,
    /// Of all that were served of its kind.
    share: f64,
    ttft_p50_ms: f64,
    ttft_p99_ms: f64,
    longest_until_refused_ms: f64,
}

/// How a request went.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Served { ttft: Duration },
    Refused { after: Duration },
    Failed,
}

/// A request that counts: its class, and how it went.
type Seen = (usize, Fate);

/// Measures the three policies for `span` each, prints a table, and writes the rows beside `out`.
///
/// # Errors
/// When a part doesn't start.
pub(crate) async fn run(folder: &Path, span: Duration, out: &str) -> anyhow::Result<()> {
    let model_dir = folder.join("model");
    engines::model(&model_dir)?;
    let cell = |name: &str| -> anyhow::Result<PathBuf> {
        let cell = folder.join(name);
        std::fs::create_dir_all(&cell)?;
        Ok(cell)
    };
    eprintln!("what the engines can take");
    let system = System::start(&model_dir, &cell("capacity")?, "").await?;
    let capacity = system.capacity(span / 3).await?;
    system.stop().await?;
    eprintln!("  {capacity:.1} requests/s; the long ones alone");
    let system = System::start(&model_dir, &cell("alone")?, "").await?;
    let alone = system.play([URGENT_PER_S, 0.0, 0.0], span).await?;
    system.stop().await?;
    let mut rows = rows("alone", [URGENT_PER_S, 0.0, 0.0], &alone);
    rows.truncate(1);
    let of_tenant = f64::max(capacity - URGENT_PER_S / 2.0, 1.0);
    let rates = [URGENT_PER_S, of_tenant, of_tenant];
    for (policy, settings) in [
        ("engines queue", String::new()),
        ("429 at once", admission(false)),
        ("flow control", admission(true)),
    ] {
        eprintln!("{policy}");
        let system =
            System::start(&model_dir, &cell(&policy.replace(' ', "-"))?, &settings).await?;
        let seen = system.play(rates, span).await?;
        system.stop().await?;
        rows.extend(self::rows(policy, rates, &seen));
    }
    print(&rows, capacity);
    let path = Path::new(out).with_file_name("overload.json");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&path, serde_json::to_vec_pretty(&rows)?)?;
    println!("rows written to {}", path.display());
    Ok(())
}

fn admission(waits: bool) -> String {
    let objectives = format!(
        "objectives: [{{name: urgent, priority: 10, ttft_ms: {TARGET_MS}, when_missed: {}}}]",
        if waits { "queue" } else { "best_effort" }
    );
    let flow = if waits {
        format!(", flow_control: {{max_wait: {}ms}}", MAX_WAIT.as_millis())
    } else {
        String::new()
    };
    format!("policy: {{admission: {{max_in_flight: {SLOTS}}}, {objectives}{flow}}}\n")
}

/// Engines, indexer and gateway.
struct System {
    engines: Vec<Engine>,
    indexer: Running,
    envoy: Envoy,
    client: Client,
    next: Arc<AtomicU64>,
}

impl System {
    async fn start(model_dir: &Path, folder: &Path, policy: &str) -> anyhow::Result<Self> {
        let pattern = EngineConfig {
            served_names: vec![MODEL.to_owned()],
            num_blocks: 4_000,
            max_running: SLOTS,
            timing: Timing {
                prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
                decode_ms_per_token: DECODE_MS,
                ..Timing::default()
            },
            ..EngineConfig::new("engine", model_dir)
        };
        let engines = engines::start(ENGINES, &pattern).await?;
        let mut text = format!(
            "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nstate_dir: '{}'\n{policy}\
             models: [{{id: {MODEL}, model_dir: '{}'}}]\nendpoints:",
            folder.display(),
            model_dir.display()
        );
        for engine in &engines {
            let events = engine.events_endpoint().context("no events")?;
            let replay = engine.replay_endpoint().context("no replays")?;
            write!(
                text,
                "\n- {{address: '{}', model: {MODEL}, prefill_tokens_per_s: {PREFILL_TOKENS_PER_S}, events: {{connect: '{events}', replay: '{replay}'}}}}",
                engine.http_addr()
            )?;
        }
        let config = Config::parse(&text, &PathBuf::new(), &Overrides::default())?;
        let indexer = serve::start(config).await?;
        let settings = Settings {
            balancing: Balancing::Prefixway(Filter {
                module: prefixway_e2e::rig::module()?,
                plugin: json!({"indexers": [INDEXER]}),
                indexers: vec![(INDEXER.to_owned(), indexer.grpc())],
            }),
            engines: engines::addresses(&engines),
            concurrency: 2,
        };
        let envoy = Envoy::start(&prefixway_e2e::rig::envoy_binary()?, folder, &settings).await?;
        wait_for("the table in every VM", START_LIMIT, async || {
            let vms = envoy.stats("prefixway_ready_vms").await;
            vms.iter().any(|(_, vms)| *vms > 2).then_some(())
        })
        .await
        .with_context(|| format!("envoy's log ends:\n{}", envoy.log_tail()))?;
        let client = Client::new(envoy.http(), MODEL);
        Ok(Self {
            engines,
            indexer,
            envoy,
            client,
            next: Arc::default(),
        })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.envoy.stop().await;
        self.indexer.shut_down().await?;
        engines::stop(self.engines).await;
        Ok(())
    }

    /// Requests that are served in a second while every slot is taken all the time.
    async fn capacity(&self, span: Duration) -> anyhow::Result<f64> {
        let begin = Instant::now();
        let warm_up = span / 4;
        let mut workers = JoinSet::new();
        for _ in 0..ENGINES * SLOTS {
            let (client, next) = (self.client.clone(), Arc::clone(&self.next));
            workers.spawn(async move {
                let mut served = 0usize;
                while begin.elapsed() < span {
                    let fate = send(&client, 1, next.fetch_add(1, Ordering::Relaxed)).await;
                    let counts = begin.elapsed() > warm_up && matches!(fate, Fate::Served { .. });
                    served += usize::from(counts);
                }
                served
            });
        }
        let mut served = 0;
        while let Some(worker) = workers.join_next().await {
            served += worker?;
        }
        let time = begin.elapsed().saturating_sub(warm_up);
        Ok(served as f64 / time.as_secs_f64())
    }

    /// Sends requests of each class at these rates, at random times.
    async fn play(&self, rates: [f64; 3], span: Duration) -> anyhow::Result<Vec<Seen>> {
        let begin = Instant::now();
        let mut sent = JoinSet::new();
        for (class, rate) in rates
            .into_iter()
            .enumerate()
            .filter(|(_, rate)| *rate > 0.0)
        {
            let mut random = Random::new(7 + class as u64);
            let mut at = Duration::ZERO;
            loop {
                let unit = (random.below(1 << 20) + 1) as f64 / f64::from(1 << 20);
                at += Duration::from_secs_f64(-unit.ln() / rate);
                if at >= WARM_UP + span {
                    break;
                }
                let (client, number) = (
                    self.client.clone(),
                    self.next.fetch_add(1, Ordering::Relaxed),
                );
                sent.spawn(async move {
                    tokio::time::sleep_until(begin + at).await;
                    let fate = send(&client, class, number).await;
                    (at >= WARM_UP).then_some((class, fate))
                });
            }
        }
        let mut seen = Vec::new();
        while let Some(of) = sent.join_next().await {
            seen.extend(of?);
        }
        Ok(seen)
    }
}

/// Sends one request; its prompt is like no other.
async fn send(client: &Client, class: usize, number: u64) -> Fate {
    let [short, long] = WORDS;
    let words = if class == 0 { long } else { short };
    let mut random = Random::new(number);
    let mut text = format!("{number} ");
    for _ in 0..words {
        let _ = write!(text, "word{} ", random.below(10_000));
    }
    let messages = [json!({"role": "user", "content": text})];
    let headers: &[(&str, &str)] = match class {
        0 => &[("x-llm-d-inference-objective", "urgent")],
        1 => &[("x-llm-d-inference-fairness-id", "a")],
        _ => &[("x-llm-d-inference-fairness-id", "b")],
    };
    let begin = Instant::now();
    match client.chat(&messages, ANSWER_TOKENS, headers).await {
        Ok(reply) => Fate::Served { ttft: reply.ttft },
        Err(ReplyError::Status { status: 429, .. }) => Fate::Refused {
            after: begin.elapsed(),
        },
        Err(_) => Fate::Failed,
    }
}

fn rows(policy: &'static str, rates: [f64; 3], seen: &[Seen]) -> Vec<Row> {
    let of = |class: usize| seen.iter().filter(move |of| of.0 == class).map(|of| of.1);
    let served = |class: usize| {
        let of = of(class).filter_map(|fate| match fate {
            Fate::Served { ttft } => Some(ttft),
            Fate::Refused { .. } | Fate::Failed => None,
        });
        of.collect::<Vec<_>>()
    };
    let tenants = (served(1).len() + served(2).len()).max(1) as f64;
    let mut rows = Vec::new();
    for (class, name) in CLASSES.into_iter().enumerate() {
        let times = served(class);
        let refused: Vec<Duration> = of(class)
            .filter_map(|fate| match fate {
                Fate::Refused { after } => Some(after),
                Fate::Served { .. } | Fate::Failed => None,
            })
            .collect();
        let failed = of(class)
            .filter(|fate| matches!(fate, Fate::Failed))
            .count();
        let ttft = Distribution::of(times.iter().copied());
        let longest = refused.iter().max().copied().unwrap_or_default();
        rows.push(Row {
            policy,
            class: name,
            offered_per_s: rates.get(class).copied().unwrap_or(0.0),
            served: times.len(),
            refused: refused.len(),
            failed,
            share: if class == 0 {
                1.0
            } else {
                times.len() as f64 / tenants
            },
            ttft_p50_ms: ttft.p50,
            ttft_p99_ms: ttft.p99,
            longest_until_refused_ms: longest.as_secs_f64() * 1e3,
        });
    }
    rows
}

fn print(rows: &[Row], capacity: f64) {
    println!(
        "\n{ENGINES} engines of {SLOTS} slots, {capacity:.1} requests/s at most; twice as many come; longest wait {MAX_WAIT:?}"
    );
    println!(
        "{:<14} {:<9} {:>8} {:>7} {:>8} {:>7} {:>7} {:>10} {:>10} {:>14}",
        "",
        "",
        "offered",
        "served",
        "refused",
        "failed",
        "share",
        "TTFT p50",
        "p99 ms",
        "refused within"
    );
    for row in rows {
        println!(
            "{:<14} {:<9} {:>6.1}/s {:>7} {:>8} {:>7} {:>6.1}% {:>10.0} {:>10.0} {:>11.0} ms",
            row.policy,
            row.class,
            row.offered_per_s,
            row.served,
            row.refused,
            row.failed,
            row.share * 100.0,
            row.ttft_p50_ms,
            row.ttft_p99_ms,
            row.longest_until_refused_ms
        );
    }
}
