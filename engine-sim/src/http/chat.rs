//! `POST /v1/chat/completions`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Checked, Options};
use super::error::ApiError;
use super::generation::{Arrived, Generation, Usage, total};
use super::stream::{self, Chunks};
use crate::engine::Shared;
use crate::template::ChatInput;

/// A chat request.
#[derive(Debug, Deserialize)]
pub(super) struct ChatBody {
    #[serde(flatten)]
    input: ChatInput,
    #[serde(flatten)]
    options: Options,
}

/// Answers a chat request.
pub(super) async fn complete(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let ChatBody { input, options } = serde_json::from_slice(&body)?;
    let streams = options.stream.unwrap_or(false);
    let add_special_tokens = options.add_special_tokens.unwrap_or(false);
    let options = options.check(&shared, &headers)?;
    let text = shared.template.render(&input)?;
    let prompt = shared.tokenizer.encode(&text, add_special_tokens)?;
    let mut generations = Vec::with_capacity(options.choices);
    for index in 0..options.choices {
        generations.push(Generation::start(&shared, &options, index, prompt.clone()).await?);
    }
    let reply = ChatReply {
        id: format!("chatcmpl-{}", options.request_id),
        created: unix_seconds(),
        prompt_text: options.returns.prompt_text.then_some(text),
        shared,
        options,
    };
    if streams {
        let choices = reply.options.choices;
        return Ok(stream::respond(generations, choices, reply));
    }
    reply.whole(generations).await
}

/// Gives the time of a reply.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

struct ChatReply {
    id: String,
    created: u64,
    prompt_text: Option<String>,
    shared: Arc<Shared>,
    options: Checked,
}

impl ChatReply {
    async fn whole(self, mut generations: Vec<Generation>) -> Result<Response, ApiError> {
        let mut choices = Vec::with_capacity(generations.len());
        let mut usages = Vec::with_capacity(generations.len());
        for generation in &mut generations {
            generation.finish().await?;
            usages.push(generation.usage());
            choices.push(json!({
                "index": generation.index,
                "message": {"role": "assistant", "content": generation.text(), "refusal": null, "tool_calls": [], "reasoning": null},
                "logprobs": null,
                "finish_reason": generation.finish_reason,
                "stop_reason": null,
                "token_ids": self.options.returns.token_ids.then_some(&generation.output.tokens),
            }));
        }
        let prompt = generations.first().map(|generation| &generation.prompt);
        let reply = json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.options.model,
            "choices": choices,
            "usage": total(&usages, self.options.choices).to_json(&self.shared),
            "prompt_logprobs": null,
            "prompt_token_ids": prompt.filter(|_| self.options.returns.token_ids),
            "prompt_text": self.prompt_text,
            "kv_transfer_params": null,
        });
        Ok(Json(reply).into_response())
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.options.model, "choices": choices,
        })
    }
}

impl Chunks for ChatReply {
    fn token(&self, generation: &Generation, arrived: &Arrived) -> Vec<Value> {
        let mut chunks = Vec::new();
        if arrived.is_first {
            let delta = json!({"role": "assistant", "content": ""});
            let mut first = self.chunk(&json!([{"index": generation.index, "delta": delta, "logprobs": null, "finish_reason": null}]));
            if self.options.returns.token_ids {
                set(&mut first, "prompt_token_ids", json!(generation.prompt));
            }
            if let Some(text) = &self.prompt_text {
                set(&mut first, "prompt_text", json!(text));
            }
            chunks.push(first);
        }
        let returns_ids = self.options.returns.token_ids;
        if arrived.is_last || returns_ids || !arrived.text.is_empty() {
            let mut choice = json!({
                "index": generation.index,
                "delta": {"content": arrived.text},
                "logprobs": null,
                "finish_reason": arrived.is_last.then_some(generation.finish_reason),
            });
            if returns_ids {
                set(&mut choice, "token_ids", json!([arrived.token]));
            }
            chunks.push(self.chunk(&json!([choice])));
        }
        chunks
    }

    fn usage(&self, usage: Usage) -> Option<Value> {
        let mut chunk = self.chunk(&json!([]));
        set(&mut chunk, "usage", usage.to_json(&self.shared));
        self.options.returns.usage_chunk.then_some(chunk)
    }
}

/// Adds a field to a JSON object.
pub(super) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}
