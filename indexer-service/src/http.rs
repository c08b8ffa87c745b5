//! Health, metrics and the JSON API.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the process serves |
//! | `/readyz` | 200 when models are loaded and each source has connected once, or the grace is over; else 503 and what is awaited |
//! | `/metrics` | OpenMetrics text |
//! | `/api/v1/endpoints`, `/api/v1/models`, `/api/v1/index` | JSON |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::ingest::{Handle, Report};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// Time that the owner of the index has to answer a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What the pages are made from.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The owner of the index.
    pub ingest: Handle,
    /// Metric families.
    pub metrics: Arc<Metrics>,
}

/// The routes.
pub fn router(pages: Pages) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/api/v1/endpoints", get(endpoints))
        .route("/api/v1/models", get(models))
        .route("/api/v1/index", get(index))
        .with_state(pages)
}

impl Pages {
    async fn report(&self) -> Result<Report, Response> {
        match tokio::time::timeout(ANSWER_LIMIT, self.ingest.report()).await {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err(unavailable("the index has stopped")),
            Err(_) => Err(unavailable("the index does not answer")),
        }
    }
}

fn unavailable(reason: &str) -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        Json(json!({"error": reason})),
    )
        .into_response()
}

async fn ready(State(pages): State<Pages>) -> Result<Response, Response> {
    let report = pages.report().await?;
    if report.ready {
        Ok("ready\n".into_response())
    } else {
        let body =
            Json(json!({"error": "sources have not connected", "waiting_for": report.waiting_for}));
        Err((StatusCode::SERVICE_UNAVAILABLE, body).into_response())
    }
}

async fn metrics(State(pages): State<Pages>) -> Result<Response, Response> {
    // Gauges are written when someone looks.
    pages.report().await?.write_gauges(&pages.metrics);
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok((
        [(header::CONTENT_TYPE, content_type)],
        pages.metrics.encode(),
    )
        .into_response())
}

async fn endpoints(State(pages): State<Pages>) -> Result<Response, Response> {
    let report = pages.report().await?;
    Ok(Json(json!({"endpoints": report.endpoints})).into_response())
}

async fn models(State(pages): State<Pages>) -> Result<Response, Response> {
    let report = pages.report().await?;
    Ok(Json(json!({"models": report.models})).into_response())
}

async fn index(State(pages): State<Pages>) -> Result<Response, Response> {
    let report = pages.report().await?;
    Ok(Json(report.index).into_response())
}

/// Serves the pages until `shutdown`.
pub async fn serve(listener: TcpListener, pages: Pages, shutdown: Shutdown) {
    let served = axum::serve(listener, router(pages))
        .with_graceful_shutdown(shutdown.wait())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "http server failed");
    }
}
