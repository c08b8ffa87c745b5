//! `POST /v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Checked, Options};
use super::chat::{set, unix_seconds};
use super::error::ApiError;
use super::generation::{Arrived, Generation, Usage, total};
use super::stream::{self, Chunks};
use crate::engine::Shared;

/// Prompts per request at most.
const MAX_PROMPTS: usize = 256;

/// A completion request.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionBody {
    prompt: Prompts,
    #[serde(flatten)]
    options: Options,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompts {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    IdLists(Vec<Vec<u32>>),
}

/// Answers a completion request; each prompt is an engine request of its own.
pub(super) async fn complete(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let CompletionBody { prompt, options } = serde_json::from_slice(&body)?;
    let streams = options.stream.unwrap_or(false);
    let add_special_tokens = options.add_special_tokens.unwrap_or(true);
    let options = options.check(&shared, &headers)?;
    let encode = |text: &String| shared.tokenizer.encode(text, add_special_tokens);
    let prompts = match &prompt {
        Prompts::Text(text) => vec![encode(text)?],
        Prompts::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
        Prompts::Ids(ids) => vec![ids.clone()],
        Prompts::IdLists(lists) => lists.clone(),
    };
    if prompts.len() > MAX_PROMPTS {
        return Err(ApiError::OutOfRange {
            key: "prompt",
            allowed: "at most 256 prompts",
        });
    }
    let mut generations = Vec::with_capacity(prompts.len() * options.choices);
    for prompt in prompts {
        for _ in 0..options.choices {
            let index = generations.len();
            generations.push(Generation::start(&shared, &options, index, prompt.clone()).await?);
        }
    }
    let reply = CompletionReply {
        id: format!("cmpl-{}", options.request_id),
        created: unix_seconds(),
        shared,
        options,
    };
    if streams {
        let choices = reply.options.choices;
        return Ok(stream::respond(generations, choices, reply));
    }
    reply.whole(generations).await
}

struct CompletionReply {
    id: String,
    created: u64,
    shared: Arc<Shared>,
    options: Checked,
}

impl CompletionReply {
    async fn whole(self, mut generations: Vec<Generation>) -> Result<Response, ApiError> {
        let mut choices = Vec::with_capacity(generations.len());
        let mut usages = Vec::with_capacity(generations.len());
        for generation in &mut generations {
            generation.finish().await?;
            usages.push(generation.usage());
            choices.push(json!({
                "index": generation.index,
                "text": generation.text(),
                "logprobs": null,
                "finish_reason": generation.finish_reason,
                "stop_reason": null,
                "token_ids": self.options.returns.token_ids.then_some(&generation.output.tokens),
                "prompt_logprobs": null,
                "prompt_token_ids": self.options.returns.token_ids.then_some(&generation.prompt),
            }));
        }
        let mut reply = self.object(&json!(choices));
        let usage = total(&usages, self.options.choices);
        set(&mut reply, "usage", usage.to_json(&self.shared));
        set(&mut reply, "kv_transfer_params", Value::Null);
        Ok(Json(reply).into_response())
    }

    fn object(&self, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.options.model, "choices": choices,
        })
    }
}

impl Chunks for CompletionReply {
    fn token(&self, generation: &Generation, arrived: &Arrived) -> Vec<Value> {
        let returns_ids = self.options.returns.token_ids;
        if !(arrived.is_first || arrived.is_last || returns_ids || !arrived.text.is_empty()) {
            return Vec::new();
        }
        let mut choice = json!({
            "index": generation.index,
            "text": arrived.text,
            "logprobs": null,
            "finish_reason": arrived.is_last.then_some(generation.finish_reason),
            "stop_reason": null,
        });
        if returns_ids {
            set(&mut choice, "token_ids", json!([arrived.token]));
            set(
                &mut choice,
                "prompt_token_ids",
                json!(arrived.is_first.then_some(&generation.prompt)),
            );
        }
        vec![self.object(&json!([choice]))]
    }

    fn usage(&self, usage: Usage) -> Option<Value> {
        let mut chunk = self.object(&json!([]));
        set(&mut chunk, "usage", usage.to_json(&self.shared));
        self.options.returns.usage_chunk.then_some(chunk)
    }
}
