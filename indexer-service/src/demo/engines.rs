//! Simulated engines in this process, and how the indexer reaches them.

use std::net::SocketAddr;
use std::path::Path;

use prefixway_engine_sim::{Engine, EngineConfig, EngineError};
use serde_json::{Value, json};

use super::indexer::{Events, Source};

/// Starts `count` engines named `engine-0`, `engine-1`, ... that differ from `pattern` only in name and seed.
///
/// # Errors
/// When one does not start; those started before it stop.
pub async fn start(count: usize, pattern: &EngineConfig) -> Result<Vec<Engine>, EngineError> {
    let mut engines = Vec::with_capacity(count);
    for (seed, number) in (pattern.seed..).zip(0..count) {
        let config = EngineConfig {
            name: format!("engine-{number}"),
            seed,
            ..pattern.clone()
        };
        engines.push(prefixway_engine_sim::start(config).await?);
    }
    Ok(engines)
}

/// Where the engines take requests, in their order.
pub fn addresses(engines: &[Engine]) -> Vec<SocketAddr> {
    engines.iter().map(Engine::http_addr).collect()
}

/// The engines as the indexer has to know them.
pub fn sources(engines: &[Engine], prefill_tokens_per_s: f64) -> Vec<Source> {
    let source = |engine: &Engine| Source {
        address: engine.http_addr(),
        events: engine.events_endpoint().map(Events::Connect),
        replay: engine.replay_endpoint(),
        prefill_tokens_per_s,
    };
    engines.iter().map(source).collect()
}

/// Stops the engines and waits for their ends.
pub async fn stop(engines: Vec<Engine>) {
    for engine in engines {
        engine.shutdown().await;
    }
}

/// Tokens of `messages` as the engine at `address` renders and counts them.
///
/// # Errors
/// When the engine does not answer as vLLM's `/tokenize` does.
pub async fn count_tokens(
    client: &reqwest::Client,
    address: SocketAddr,
    messages: &Value,
) -> Result<u64, reqwest::Error> {
    let answer = client
        .post(format!("http://{address}/tokenize"))
        .json(&json!({"messages": messages, "add_generation_prompt": false}))
        .send()
        .await?
        .error_for_status()?;
    let answer: Value = answer.json().await?;
    Ok(answer
        .get("count")
        .and_then(Value::as_u64)
        .unwrap_or_default())
}

/// Writes the model that comes with the simulator into `folder`.
///
/// # Errors
/// What the file system answers.
pub fn model(folder: &Path) -> std::io::Result<()> {
    prefixway_engine_sim::models::tinybpe(folder)
}
