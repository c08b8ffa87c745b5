//! Engines for tests and a client for them.

use std::path::PathBuf;

use prefixway_engine_sim::{Engine, EngineConfig, Timing, start};
use reqwest::{Client, Response};
use serde_json::Value as Json;

/// Gives a configuration of an engine whose steps take no time.
pub(crate) fn config(name: &str) -> EngineConfig {
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/tinybpe");
    EngineConfig {
        timing: Timing::instant(),
        ..EngineConfig::new(name, model)
    }
}

/// Starts such an engine.
pub(crate) async fn engine(name: &str) -> Engine {
    start(config(name)).await.unwrap()
}

/// Posts JSON.
pub(crate) async fn post(engine: &Engine, path: &str, body: &Json) -> Response {
    let request = Client::new().post(url(engine, path)).json(body);
    request.send().await.unwrap()
}

/// Posts JSON and reads a successful reply.
pub(crate) async fn post_json(engine: &Engine, path: &str, body: &Json) -> Json {
    let response = post(engine, path, body).await;
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// Gets a page.
pub(crate) async fn get(engine: &Engine, path: &str) -> String {
    let response = reqwest::get(url(engine, path)).await.unwrap();
    response.error_for_status().unwrap().text().await.unwrap()
}

/// Gives the URL of a path.
pub(crate) fn url(engine: &Engine, path: &str) -> String {
    format!("http://{}{path}", engine.http_addr())
}

/// Gives the chunks of a streamed reply, which must end with `[DONE]`.
pub(crate) async fn stream(engine: &Engine, path: &str, body: &Json) -> Vec<Json> {
    let text = post(engine, path, body).await.text().await.unwrap();
    let mut data: Vec<&str> = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter()
        .map(|chunk| serde_json::from_str(chunk).unwrap())
        .collect()
}

/// Gives the cached tokens that a reply reports; it leaves them out where there are none.
pub(crate) fn cached(reply: &Json) -> u64 {
    assert!(reply["usage"]["prompt_tokens"].is_u64(), "{reply}");
    reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap_or_default()
}
