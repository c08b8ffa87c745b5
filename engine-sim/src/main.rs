//! Runs one simulated engine until it is told to stop (Ctrl-C or SIGTERM). Prints its addresses as one line of JSON.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use prefixway_engine_sim::{EngineConfig, EventsConfig, Timing, models, start};
use tokio::signal::unix::{SignalKind, signal};

/// A vLLM look-alike: real tokenizer, block pool, KV events and HTTP surface, no weights.
#[derive(Debug, Parser)]
#[command(
    name = "engine-sim",
    version,
    after_help = "Example: engine-sim --listen 127.0.0.1:8000 --events 'tcp://*:5557' --replay 'tcp://*:5558'"
)]
struct Arguments {
    /// Name sent with each reply as x-engine
    #[arg(long, default_value = "engine")]
    name: String,
    /// Model folder; without it the built-in model is written to a temporary one
    #[arg(long)]
    model_dir: Option<PathBuf>,
    /// Names of the model; the first is the main one
    #[arg(long, default_value = "model", value_delimiter = ',')]
    served_model_name: Vec<String>,
    /// Names of LoRA adapters
    #[arg(long, value_delimiter = ',')]
    adapters: Vec<String>,
    /// HTTP address
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// PUB endpoint; binds with `*`, `::` or port 0, otherwise connects
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    events: String,
    /// Replay endpoint
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    replay: String,
    /// Topic of the events
    #[arg(long, default_value = "")]
    topic: String,
    /// Tokens per block
    #[arg(long, default_value_t = 16)]
    block_size: u32,
    /// Blocks in the pool
    #[arg(long, default_value_t = 600)]
    num_blocks: u32,
    /// Tokens of a request at most
    #[arg(long, default_value_t = 4096)]
    max_model_len: u32,
    /// Requests running at once
    #[arg(long, default_value_t = 8)]
    max_num_seqs: usize,
    /// Tokens per step at most
    #[arg(long, default_value_t = 2048)]
    max_num_batched_tokens: usize,
    /// Uncached prompt tokens per second
    #[arg(long, default_value_t = 8000.0)]
    prefill_tokens_per_s: f64,
    /// Milliseconds per output token
    #[arg(long, default_value_t = 8.0)]
    decode_ms_per_token: f64,
    /// Share of that added by each further running request
    #[arg(long, default_value_t = 0.05)]
    decode_slowdown: f64,
    /// Seed of the generated text
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    let (model_dir, built_in) = match arguments.model_dir.clone() {
        Some(folder) => (folder, None),
        None => built_in_model().map(|folder| (folder.clone(), Some(folder)))?,
    };
    let engine = start(config(arguments, model_dir)).await?;
    let facts = serde_json::json!({
        "name": engine.name(), "http": engine.http_addr(), "events": engine.events_endpoint(), "replay": engine.replay_endpoint(),
    });
    writeln!(stdout(), "{facts}")?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = tokio::signal::ctrl_c() => ended?,
        _ = terminate.recv() => {}
    }
    engine.shutdown().await;
    if let Some(folder) = built_in {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("can't remove {}", folder.display()))?;
    }
    Ok(())
}

fn config(arguments: Arguments, model_dir: PathBuf) -> EngineConfig {
    EngineConfig {
        served_names: arguments.served_model_name,
        adapters: arguments.adapters,
        block_size: arguments.block_size,
        num_blocks: arguments.num_blocks,
        max_running: arguments.max_num_seqs,
        max_model_len: arguments.max_model_len,
        timing: Timing {
            prefill_tokens_per_s: arguments.prefill_tokens_per_s,
            chunk_tokens: arguments.max_num_batched_tokens,
            decode_ms_per_token: arguments.decode_ms_per_token,
            decode_slowdown_per_running: arguments.decode_slowdown,
        },
        http: arguments.listen,
        events: Some(EventsConfig {
            endpoint: arguments.events,
            replay: Some(arguments.replay),
            topic: arguments.topic,
            ..EventsConfig::default()
        }),
        seed: arguments.seed,
        ..EngineConfig::new(arguments.name, model_dir)
    }
}

fn built_in_model() -> anyhow::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("engine-sim-{}", std::process::id()));
    models::tinybpe(&folder)
        .with_context(|| format!("can't write the built-in model to {}", folder.display()))?;
    Ok(folder)
}
