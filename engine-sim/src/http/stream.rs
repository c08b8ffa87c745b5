//! Server-sent events of a streamed reply.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::Value as Json;

use super::generation::{Arrived, Generation, Usage, total};

/// Builds the JSON chunks of one endpoint.
pub(super) trait Chunks: Send + Sync + 'static {
    /// Chunks for a token that arrived, in order.
    fn token(&self, generation: &Generation, arrived: &Arrived) -> Vec<Json>;

    /// Chunk with the token counts; `None` when they weren't asked for.
    fn usage(&self, usage: Usage) -> Option<Json>;
}

/// What a single choice yields.
enum Item {
    Chunks(Vec<Json>),
    Done(usize, Usage),
    Broken,
}

/// Gives a reply that streams all `generations`, interleaved as their tokens arrive. When the engine stops, the connection breaks.
pub(super) fn respond(
    generations: Vec<Generation>,
    choices: usize,
    chunks: impl Chunks,
) -> Response {
    let chunks = std::sync::Arc::new(chunks);
    let count = generations.len();
    let parts = generations
        .into_iter()
        .enumerate()
        .map(|(position, generation)| {
            let chunks = std::sync::Arc::clone(&chunks);
            Box::pin(choice(position, generation, chunks))
        });
    let merged = stream::select_all(parts);
    let mut usages = vec![Usage::default(); count];
    let mut pending = count;
    let events = merged.flat_map(move |item| {
        let lines: Vec<Result<Bytes, io::Error>> = match item {
            Item::Chunks(list) => list
                .iter()
                .map(|chunk| Ok(event(&chunk.to_string())))
                .collect(),
            Item::Broken => vec![Err(io::Error::from(io::ErrorKind::ConnectionAborted))],
            Item::Done(position, usage) => {
                if let Some(slot) = usages.get_mut(position) {
                    *slot = usage;
                }
                pending -= 1;
                if pending == 0 {
                    let usage = chunks.usage(total(&usages, choices));
                    let usage = usage.map(|usage| Ok(event(&usage.to_string())));
                    usage.into_iter().chain([Ok(event("[DONE]"))]).collect()
                } else {
                    Vec::new()
                }
            }
        };
        stream::iter(lines)
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

fn choice<C: Chunks>(
    position: usize,
    generation: Generation,
    chunks: std::sync::Arc<C>,
) -> impl Stream<Item = Item> {
    enum State {
        Running(Generation),
        Finished(Usage),
        Over,
    }
    stream::unfold(
        (State::Running(generation), chunks),
        move |(state, chunks)| async move {
            match state {
                State::Running(mut generation) => match generation.next().await {
                    Ok(arrived) => {
                        let item = Item::Chunks(chunks.token(&generation, &arrived));
                        let next = if arrived.is_last {
                            State::Finished(generation.usage())
                        } else {
                            State::Running(generation)
                        };
                        Some((item, (next, chunks)))
                    }
                    Err(_) => Some((Item::Broken, (State::Over, chunks))),
                },
                State::Finished(usage) => {
                    Some((Item::Done(position, usage), (State::Over, chunks)))
                }
                State::Over => None,
            }
        },
    )
}

fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
