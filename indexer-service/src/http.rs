//! Health, metrics and the JSON API.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the process serves |
//! | `/readyz` | 200 when models are loaded and each source has connected once, or the grace is over; else 503 and what is awaited |
//! | `/metrics` | `OpenMetrics` text |
//! | `/api/v1/endpoints`, `/api/v1/models`, `/api/v1/index`, `/api/v1/gateways` | JSON |
//! | `/api/v1/decisions`, `/api/v1/prefix/PATH`, `/api/v1/shared`, `/api/v1/query` | JSON, see `docs/api.md` |
//!
//! Questions about prompts are bounded in number and size, and wait in a short queue of their own.

mod decisions;
mod mooncake;
mod prefix;
mod problem;
mod question;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::ingest::query::Query;
use crate::ingest::{Handle, Report};
use crate::metrics::{Metrics, Outcome, ResultLabel};
use crate::shutdown::Shutdown;
use problem::Problem;

pub use question::Gate;

/// Time that the owner of the index has to answer a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// What is said when it takes longer.
const NO_ANSWER: &str = "the index does not answer";

/// What the pages are made from.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The owner of the index.
    pub ingest: Handle,
    /// Metric families.
    pub metrics: Arc<Metrics>,
    /// Admits questions that need a body.
    pub gate: Gate,
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
        .route("/api/v1/gateways", get(gateways))
        .route("/api/v1/decisions", get(decisions::decisions))
        .route("/api/v1/prefix/{*path}", post(prefix::prefix))
        .route("/api/v1/shared", get(shared::shared))
        .route("/api/v1/query", post(mooncake::query))
        .with_state(pages)
}

impl Pages {
    async fn report(&self) -> Result<Report, Problem> {
        match tokio::time::timeout(ANSWER_LIMIT, self.ingest.report()).await {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err(Problem::unavailable("the index has stopped")),
            Err(_) => Err(Problem::unavailable(NO_ANSWER)),
        }
    }

    /// Asks the owner of the index.
    async fn ask<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, Problem> {
        let answer = self.ingest.asker().ask(query);
        let answer = match tokio::time::timeout(ANSWER_LIMIT, answer).await {
            Ok(answer) => answer.map_err(Problem::from),
            Err(_) => Err(Problem::unavailable(NO_ANSWER)),
        };
        let result = match &answer {
            Ok(_) => Outcome::Ok,
            Err(_) => Outcome::Failed,
        };
        let label = ResultLabel { result };
        self.metrics.queries.get_or_create_owned(&label).inc();
        answer
    }
}

/// Does work that takes time where nothing waits for it.
async fn joined<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the question has failed");
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

async fn ready(State(pages): State<Pages>) -> Result<Response, Problem> {
    let report = pages.report().await?;
    if report.ready {
        return Ok("ready\n".into_response());
    }
    let body =
        Json(json!({"error": "sources have not connected", "waiting_for": report.waiting_for}));
    Ok((StatusCode::SERVICE_UNAVAILABLE, body).into_response())
}

async fn metrics(State(pages): State<Pages>) -> Result<Response, Problem> {
    // Gauges are written when someone looks.
    pages.report().await?.write_gauges(&pages.metrics);
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok((
        [(header::CONTENT_TYPE, content_type)],
        pages.metrics.encode(),
    )
        .into_response())
}

async fn endpoints(State(pages): State<Pages>) -> Result<Response, Problem> {
    let report = pages.report().await?;
    Ok(Json(json!({"endpoints": report.endpoints})).into_response())
}

async fn models(State(pages): State<Pages>) -> Result<Response, Problem> {
    let report = pages.report().await?;
    Ok(Json(json!({"models": report.models})).into_response())
}

async fn index(State(pages): State<Pages>) -> Result<Response, Problem> {
    let report = pages.report().await?;
    Ok(Json(report.index).into_response())
}

async fn gateways(State(pages): State<Pages>) -> Result<Response, Problem> {
    let report = pages.report().await?;
    Ok(Json(report.copies).into_response())
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
