//! What several gateways in front of the same engines make of a workload with shared prefixes: Prefixway with one indexer beside round robin.
//!
//! 8 simulated engines with real tokenizer and prefix cache; 32 system prompts, below each of them sessions of four turns. All caches together
//! hold the system prompts about three times: where requests scatter, every engine evicts what others need. Sessions begin at random
//! times, and each single request goes to a gateway by chance, as behind a load balancer that knows nothing: the worst that can happen to
//! what a gateway knows by itself. Traffic and load are the same for any number of gateways. Every cell has fresh engines, a fresh indexer and fresh
//! Envoys with one worker each; requests of the first 15 seconds warm the caches and don't count, nor do those after the last session has begun.
//!
//! `cached` is the share of prompt tokens that the engines found in cache, by their replies. Rows go to `target/bench/fleet.json`:
//! `[{policy, gateways, round, cached_token_ratio, ttft_mean_ms, ttft_p99_ms, requests, errors, busiest_share, envoy_mib}]`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use prefixway::config::{Config, Overrides};
use prefixway::demo::client::{Client, Reply};
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings};
use prefixway::demo::process::wait_for;
use prefixway::demo::report::Distribution;
use prefixway::demo::workload::{Conversation, Shape, conversations};
use prefixway::random::Random;
use prefixway::serve::{self, Running};
use prefixway_engine_sim::{Engine, EngineConfig, Timing};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::MODEL;

/// Numbers of gateways that are compared.
const GATEWAYS: [usize; 4] = [1, 2, 4, 8];
const ENGINES: usize = 8;
/// Blocks of one engine.
const BLOCKS: u32 = 1_200;
const PREFILL_TOKENS_PER_S: f64 = 20_000.0;
const SHAPE: Shape = Shape {
    groups: 32,
    system_words: 900,
    conversations: 20,
    turns: 4,
    user_words: 20,
    answer_tokens: 16,
    span: Duration::from_mins(1),
    pause: Duration::from_secs(1),
};
/// What comes before does not count.
const WARM_UP: Duration = Duration::from_secs(15);
const START_LIMIT: Duration = Duration::from_mins(1);

/// One policy with so many gateways, once.
#[derive(Clone, Debug, Serialize)]
struct Row {
    policy: &'static str,
    gateways: usize,
    round: u64,
    cached_token_ratio: f64,
    ttft_mean_ms: f64,
    ttft_p99_ms: f64,
    requests: usize,
    errors: usize,
    /// Of the engine that got most, times the engines: 1 = even.
    busiest_share: f64,
    /// Memory of all Envoys.
    envoy_mib: u64,
}

/// Measures every number of gateways under both policies `rounds` times, prints a table, and writes the rows beside `out`.
///
/// # Errors
/// When a part doesn't start.
pub(crate) async fn run(folder: &Path, rounds: usize, out: &str) -> anyhow::Result<()> {
    let model_dir = folder.join("model");
    engines::model(&model_dir)?;
    let mut rows = Vec::new();
    for round in 0..rounds as u64 {
        let traffic = conversations(&SHAPE, round + 1);
        for gateways in GATEWAYS {
            for policy in ["round robin", "Prefixway"] {
                eprintln!("round {}, {gateways} gateway(s), {policy}", round + 1);
                let cell = folder.join(format!("{policy}-{gateways}-{round}").replace(' ', "-"));
                std::fs::create_dir_all(&cell)?;
                let row = measure(policy, gateways, round, &traffic, &model_dir, &cell).await?;
                eprintln!("  {}", line(&row));
                rows.push(row);
            }
        }
    }
    print(&rows);
    let path = Path::new(out).with_file_name("fleet.json");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&path, serde_json::to_vec_pretty(&rows)?)?;
    println!("rows written to {}", path.display());
    Ok(())
}

async fn measure(
    policy: &'static str,
    gateways: usize,
    round: u64,
    traffic: &[Conversation],
    model_dir: &Path,
    folder: &Path,
) -> anyhow::Result<Row> {
    let pattern = EngineConfig {
        served_names: vec![MODEL.to_owned()],
        num_blocks: BLOCKS,
        max_running: 64,
        timing: Timing {
            prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
            decode_ms_per_token: 4.0,
            ..Timing::default()
        },
        ..EngineConfig::new("engine", model_dir)
    };
    let engines = engines::start(ENGINES, &pattern).await?;
    let indexer = if policy == "Prefixway" {
        Some(serve::start(config(&engines, model_dir, folder)?).await?)
    } else {
        None
    };
    let mut envoys = Vec::new();
    for number in 0..gateways {
        let folder = folder.join(number.to_string());
        std::fs::create_dir_all(&folder)?;
        envoys.push(start_envoy(&engines, indexer.as_ref(), &folder).await?);
    }
    let clients = envoys
        .iter()
        .map(|envoy| Client::new(envoy.http(), MODEL))
        .collect::<Vec<_>>();
    let replies = play(&clients, traffic, round).await?;
    let envoy_mib = envoys.iter().filter_map(resident_mib).sum();
    drop(envoys);
    if let Some(indexer) = indexer {
        indexer.shut_down().await?;
    }
    engines::stop(engines).await;
    let errors = replies.iter().filter(|reply| reply.is_none()).count();
    let requests = replies.len();
    let replies: Vec<Reply> = replies.into_iter().flatten().collect();
    let cached: u64 = replies.iter().map(|reply| reply.cached_tokens).sum();
    let prompt: u64 = replies.iter().map(|reply| reply.prompt_tokens).sum();
    let ttft = Distribution::of(replies.iter().map(|reply| reply.ttft));
    let mut by_engine: BTreeMap<&str, usize> = BTreeMap::new();
    for reply in &replies {
        *by_engine.entry(&reply.engine).or_default() += 1;
    }
    let busiest = by_engine.values().max().copied().unwrap_or(0);
    Ok(Row {
        policy,
        gateways,
        round: round + 1,
        cached_token_ratio: cached as f64 / prompt.max(1) as f64,
        ttft_mean_ms: ttft.mean,
        ttft_p99_ms: ttft.p99,
        requests,
        errors,
        busiest_share: (busiest * ENGINES) as f64 / replies.len().max(1) as f64,
        envoy_mib,
    })
}

fn config(engines: &[Engine], model_dir: &Path, folder: &Path) -> anyhow::Result<Config> {
    let mut text = format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nstate_dir: '{}'\nscrape: {{timeout: 20s, max_age: 30s}}\n\
         models: [{{id: {MODEL}, model_dir: '{}'}}]\nendpoints:",
        folder.display(),
        model_dir.display()
    );
    for engine in engines {
        let events = engine
            .events_endpoint()
            .context("an engine without events")?;
        let replay = engine
            .replay_endpoint()
            .context("an engine without replays")?;
        write!(
            text,
            "\n- {{address: '{}', model: {MODEL}, prefill_tokens_per_s: {PREFILL_TOKENS_PER_S}, events: {{connect: '{events}', replay: '{replay}'}}}}",
            engine.http_addr()
        )?;
    }
    Ok(Config::parse(
        &text,
        &PathBuf::new(),
        &Overrides::default(),
    )?)
}

async fn start_envoy(
    engines: &[Engine],
    indexer: Option<&Running>,
    folder: &Path,
) -> anyhow::Result<Envoy> {
    let balancing = match indexer {
        None => Balancing::RoundRobin,
        Some(indexer) => Balancing::Prefixway(Filter {
            module: prefixway_e2e::rig::module()?,
            plugin: json!({"indexers": [INDEXER]}),
            indexers: vec![(INDEXER.to_owned(), indexer.grpc())],
        }),
    };
    let settings = Settings {
        balancing,
        engines: engines::addresses(engines),
        concurrency: 1,
    };
    let envoy = Envoy::start(&prefixway_e2e::rig::envoy_binary()?, folder, &settings).await?;
    if indexer.is_some() {
        wait_for("the table in every VM", START_LIMIT, async || {
            let vms = envoy.stats("prefixway_ready_vms").await;
            vms.iter().any(|(_, vms)| *vms > 1).then_some(())
        })
        .await
        .with_context(|| format!("envoy's log ends:\n{}", envoy.log_tail()))?;
    }
    Ok(envoy)
}

/// Sends the traffic; gives the replies to what counts, `None` where there was none.
async fn play(
    clients: &[Client],
    traffic: &[Conversation],
    round: u64,
) -> anyhow::Result<Vec<Option<Reply>>> {
    let begin = Instant::now();
    let mut talks = JoinSet::new();
    for (number, conversation) in (1..).zip(traffic) {
        let (clients, conversation) = (clients.to_vec(), conversation.clone());
        // The draw is the same for any number of gateways.
        let random = Random::new(round << 32 | number);
        talks.spawn(async move {
            tokio::time::sleep_until(begin + conversation.start).await;
            converse(&clients, conversation, random, begin).await
        });
    }
    let mut replies = Vec::new();
    while let Some(talk) = talks.join_next().await {
        replies.extend(talk?);
    }
    Ok(replies)
}

async fn converse(
    clients: &[Client],
    conversation: Conversation,
    mut random: Random,
    begin: Instant,
) -> Vec<Option<Reply>> {
    let mut messages: Vec<Value> = vec![json!({"role": "system", "content": conversation.system})];
    let mut replies = Vec::new();
    for (pause, text) in conversation.turns {
        tokio::time::sleep(pause).await;
        messages.push(json!({"role": "user", "content": text}));
        let Some(client) = clients.get(random.below(clients.len())) else {
            break;
        };
        let sent = begin.elapsed();
        let reply = client.chat(&messages, SHAPE.answer_tokens, &[]).await;
        if let Err(error) = &reply {
            eprintln!("  {error}");
        }
        let reply = reply.ok();
        let answer = reply.as_ref().map_or("", |reply| &reply.text);
        messages.push(json!({"role": "assistant", "content": answer}));
        if (WARM_UP..SHAPE.span).contains(&sent) {
            replies.push(reply);
        }
    }
    replies
}

fn resident_mib(envoy: &Envoy) -> Option<u64> {
    let path = format!("/proc/{}/status", envoy.process_id()?);
    let status = std::fs::read_to_string(path).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib >> 10)
}

fn line(row: &Row) -> String {
    format!(
        "cached {:.4}  TTFT mean {:.1} p99 {:.0} ms  {} requests, {} errors  busiest {:.2}  {} MiB",
        row.cached_token_ratio,
        row.ttft_mean_ms,
        row.ttft_p99_ms,
        row.requests,
        row.errors,
        row.busiest_share,
        row.envoy_mib
    )
}

/// Means over the rounds, with the least and the most of the ratio.
fn print(rows: &[Row]) {
    println!(
        "\n{ENGINES} engines, {} system prompts, {} sessions of {} turns in {:?}; each request to a gateway by chance",
        SHAPE.groups,
        SHAPE.groups * SHAPE.conversations,
        SHAPE.turns,
        SHAPE.span
    );
    println!(
        "{:<12} {:>8} {:>8} {:>17} {:>9} {:>10} {:>9} {:>8} {:>9}",
        "",
        "gateways",
        "cached",
        "of rounds",
        "of one",
        "TTFT mean",
        "p99 ms",
        "busiest",
        "requests"
    );
    for policy in ["round robin", "Prefixway"] {
        let of = |gateways: usize| {
            let rows = rows
                .iter()
                .filter(move |row| row.policy == policy && row.gateways == gateways);
            rows.collect::<Vec<_>>()
        };
        let mean = |rows: &[&Row], value: fn(&Row) -> f64| {
            rows.iter().map(|row| value(row)).sum::<f64>() / rows.len().max(1) as f64
        };
        let ratio = |row: &Row| row.cached_token_ratio;
        let one = mean(&of(1), ratio);
        for gateways in GATEWAYS {
            let rows = of(gateways);
            let ratios = || rows.iter().map(|row| row.cached_token_ratio);
            println!(
                "{policy:<12} {gateways:>8} {:>8.4} {:>8.4}-{:.4} {:>8.1}% {:>10.1} {:>9.0} {:>8.2} {:>9}",
                mean(&rows, ratio),
                ratios().fold(f64::INFINITY, f64::min),
                ratios().fold(0.0, f64::max),
                mean(&rows, ratio) / one * 100.0,
                mean(&rows, |row| row.ttft_mean_ms),
                mean(&rows, |row| row.ttft_p99_ms),
                mean(&rows, |row| row.busiest_share),
                rows.iter().map(|row| row.requests).sum::<usize>(),
            );
        }
    }
}
