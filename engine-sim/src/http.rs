//! The HTTP surface of vLLM 0.32 as far as a router sees it.
//!
//! | path | module |
//! | --- | --- |
//! | `POST /v1/chat/completions` | [`chat`] |
//! | `POST /v1/completions` | [`completions`] |
//! | `/health`, `/ping`, `/version`, `/load`, `/v1/models`, `/metrics`, `/kv_event_sources`, `/tokenize`, `/tokenizer_info`, `/reset_prefix_cache` | [`info`] |
//!
//! Each reply carries `x-engine`. As in vLLM, whole replies of the first two paths carry `endpoint-load-metrics` where the request asked with
//! `endpoint-load-metrics-format`; streams and errors don't.

mod body;
mod chat;
mod completions;
pub(crate) mod connections;
mod error;
mod generation;
mod info;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::oneshot;

use crate::engine::{Fault, Shared};
use connections::TrackedListener;

/// Bytes of a request body at most.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Header that names the engine.
const ENGINE_HEADER: &str = "x-engine";
/// Paths whose replies tell the engine's load.
const LOAD_PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// Serves until `stopped` fires or its sender is dropped.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TrackedListener,
    stopped: oneshot::Receiver<()>,
) {
    let app = Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/models", get(info::models))
        .route("/health", get(info::health))
        .route("/ping", get(info::health).post(info::health))
        .route("/version", get(info::version))
        .route("/load", get(info::load))
        .route("/metrics", get(info::metrics))
        .route("/kv_event_sources", get(info::kv_event_sources))
        .route("/tokenize", post(info::tokenize))
        .route("/tokenizer_info", get(info::tokenizer_info))
        .route("/reset_prefix_cache", post(info::reset_prefix_cache))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(&shared), around))
        .with_state(shared);
    let until = async {
        // An error means that the engine's handle is gone: stop as well.
        let _ = stopped.await;
    };
    if let Err(error) = axum::serve(listener, app)
        .with_graceful_shutdown(until)
        .await
    {
        tracing::error!(%error, "the HTTP server failed");
    }
}

/// Applies faults and adds the engine's headers.
async fn around(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut fault = shared.fault.subscribe();
    // An error means that the engine is gone; the request then fails further down.
    let fault = fault
        .wait_for(|fault| *fault != Fault::Hang)
        .await
        .map_or(Fault::None, |fault| *fault);
    let load_format = request
        .headers()
        .get("endpoint-load-metrics-format")
        .filter(|_| LOAD_PATHS.contains(&request.uri().path()))
        .cloned();
    let mut response = match fault {
        Fault::Status(code) => StatusCode::from_u16(code)
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            .into_response(),
        _ => next.run(request).await,
    };
    let status = response.status();
    let headers = response.headers_mut();
    add_headers(&shared, status, headers, load_format.as_ref());
    response
}

fn add_headers(
    shared: &Shared,
    status: StatusCode,
    headers: &mut HeaderMap,
    load_format: Option<&HeaderValue>,
) {
    if let Ok(name) = HeaderValue::from_str(&shared.config.name) {
        headers.insert(ENGINE_HEADER, name);
    }
    let is_whole = status.is_success()
        && headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let format = load_format.filter(|_| is_whole);
    let Some(format) = format.and_then(|format| format.to_str().ok()) else {
        return;
    };
    let metrics = shared.metrics();
    let (waiting, usage) = (metrics.scheduler.waiting as f64, metrics.cache_usage());
    let load = match format.to_ascii_uppercase().as_str() {
        "TEXT" => {
            format!(
                "TEXT named_metrics.num_requests_waiting={waiting:?}, named_metrics.kv_cache_usage_perc={usage:?}"
            )
        }
        "JSON" => format!(
            r#"JSON {{"named_metrics": {{"num_requests_waiting": {waiting:?}, "kv_cache_usage_perc": {usage:?}}}}}"#
        ),
        _ => return,
    };
    if let Ok(load) = HeaderValue::from_str(&load) {
        headers.insert("endpoint-load-metrics", load);
    }
}
