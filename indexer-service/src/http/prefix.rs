//! `POST /api/v1/prefix/PATH`: who holds how much of the prompt of a request to `PATH`.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use prefixway_core::endpoint::Tier;
use prefixway_core::snapshot::Credit;
use prefixway_core::text::Api;
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::question::{self, Asked};
use super::{Pages, joined};
use crate::ingest::query::{HolderView, ModelView, PrefixView};

pub(super) async fn prefix(
    State(pages): State<Pages>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let api = Api::from_path(&format!("/{path}")).ok_or_else(|| {
        let shown: String = path.chars().take(200).collect();
        Problem::new(
            StatusCode::NOT_FOUND,
            format!("/{shown} is no path of an inference request"),
        )
        .hint("send an engine's request: /api/v1/prefix/v1/chat/completions, or /api/v1/prefix/v1/completions with a text or token ids as prompt")
    })?;
    let _place = pages.gate.enter()?;
    let body = question::read(body).await?;
    let name = question::named(api, &body)?;
    let view = question::model(&pages, name).await?;
    let (view, asked) = joined(move || {
        let asked = question::spell(&view, api, &body);
        (view, asked)
    })
    .await?;
    let asked = asked?;
    let held = question::held(&pages, view.number, asked.hashes.clone()).await?;
    Ok(Json(answer(&view, &asked, held)))
}

fn answer(view: &ModelView, asked: &Asked, held: PrefixView) -> Value {
    let mut endpoints = held.endpoints;
    // A stable sort: equals stay in order of the settings.
    endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.credit.tokens()));
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    json!({
        "model": view.profile.id,
        "adapter": view.adapter,
        "version": held.version,
        "prompt_bytes": asked.hashes.bytes,
        "prompt_tokens": asked.tokens,
        "is_cut_before_media": asked.is_truncated,
        "matched_bytes": held.matched_bytes,
        "matched_tokens": held.matched_tokens,
        "endpoints": endpoints,
    })
}

fn endpoint(endpoint: &HolderView) -> Value {
    json!({
        "address": endpoint.address,
        "rank": endpoint.rank,
        "knowledge": endpoint.knowledge,
        "block_size": endpoint.block_size,
        "tokens": endpoint.credit.tokens(),
        "tiers": tiers(endpoint.credit),
    })
}

fn tiers(credit: Credit) -> Map<String, Value> {
    Tier::ALL
        .into_iter()
        .zip(credit.by_tier)
        .map(|(tier, tokens)| (tier.as_str().to_owned(), tokens.into()))
        .collect()
}
