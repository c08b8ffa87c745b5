//! Endpoints that complete nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::chat::unix_seconds;
use super::error::ApiError;
use crate::engine::{Command, Shared};
use crate::events::publisher::{HIGH_WATER_MARK, MAX_QUEUED_BATCHES};
use crate::template::ChatInput;

/// Version whose behaviour is simulated.
const VLLM_VERSION: &str = "0.32.0";

/// `/health`, `/ping`.
pub(super) async fn health() -> StatusCode {
    StatusCode::OK
}

/// `/version`.
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": VLLM_VERSION}))
}

/// `/load`: vLLM answers 0 unless load tracking is switched on.
pub(super) async fn load() -> Json<Value> {
    Json(json!({"server_load": 0}))
}

/// `/v1/models`: the base model, then the adapters.
pub(super) async fn models(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let base = &shared.labels.model_name;
    let card = |name: &String, parent: Option<&String>, limit: Option<u32>| {
        json!({
            "id": name, "object": "model", "created": unix_seconds(), "owned_by": "vllm", "root": base, "parent": parent, "max_model_len": limit,
        })
    };
    let bases = shared.config.served_names.iter();
    let bases = bases.map(|name| card(name, None, Some(shared.config.max_model_len)));
    let adapters = shared
        .config
        .adapters
        .iter()
        .map(|name| card(name, Some(base), None));
    let cards: Vec<Value> = bases.chain(adapters).collect();
    Json(json!({"object": "list", "data": cards}))
}

/// `/metrics`.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.unwrap_or_default().as_secs_f64();
    let page = shared.metrics().render(&shared.labels, now_s);
    let headers = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (headers, page).into_response()
}

/// `/kv_event_sources`: the resolved publisher settings of rank 0.
pub(super) async fn kv_event_sources(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let Some(config) = shared.events.as_ref().map(|events| &events.config) else {
        return Json(json!({}));
    };
    Json(json!({"0": {
        "enable_kv_cache_events": true,
        "publisher": "zmq",
        "endpoint": config.endpoint,
        "replay_endpoint": config.replay,
        "buffer_steps": config.buffer_steps,
        "hwm": HIGH_WATER_MARK,
        "max_queue_size": MAX_QUEUED_BATCHES,
        "topic": config.topic,
    }}))
}

/// What to tokenize: `messages` with their options, or `prompt`.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
    #[serde(flatten)]
    input: ChatInput,
}

/// `/tokenize`.
pub(super) async fn tokenize(
    State(shared): State<Arc<Shared>>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let body: TokenizeBody = serde_json::from_slice(&body)?;
    shared
        .adapter(body.model.as_deref())
        .map_err(ApiError::UnknownModel)?;
    let (text, default) = match body.prompt {
        Some(prompt) => (prompt, true),
        None => (shared.template.render(&body.input)?, false),
    };
    let tokens = shared
        .tokenizer
        .encode(&text, body.add_special_tokens.unwrap_or(default))?;
    let spelled = body.return_token_strs.unwrap_or(false);
    Ok(Json(json!({
        "count": tokens.len(),
        "max_model_len": shared.config.max_model_len,
        "token_strs": spelled.then(|| shared.tokenizer.token_strings(&tokens)),
        "tokens": tokens,
    })))
}

/// `/tokenizer_info`: only where it is switched on.
pub(super) async fn tokenizer_info(State(shared): State<Arc<Shared>>) -> Response {
    if !shared.config.tokenizer_info {
        return StatusCode::NOT_FOUND.into_response();
    }
    let info = json!({
        "tokenizer_class": "TokenizersBackend",
        "chat_template": shared.template.source(),
    });
    Json(info).into_response()
}

/// `/reset_prefix_cache`: `success` is false while blocks are held.
pub(super) async fn reset_prefix_cache(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<Value>, ApiError> {
    let (answer, done) = oneshot::channel();
    shared.command(Command::ResetPrefixCache(answer)).await;
    let success = done.await.map_err(|_| ApiError::Stopped)?;
    Ok(Json(json!({"success": success})))
}
