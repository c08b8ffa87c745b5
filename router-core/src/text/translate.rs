//! Other APIs' conversations as chats, in the form of `/v1/chat/completions`.
//!
//! Engines serve these APIs by making chat messages of their bodies, and what they drop, join or reorder decides about the prompt. So
//! each file here follows the engine's own translation (vLLM 0.32) and not the API's documentation. Golden files from the engine's
//! code hold them to it.
//!
//! | API | follows | what can't be known here |
//! |---|---|---|
//! | `/v1/messages` | `entrypoints/anthropic/serving.py` | where system messages may stand, which the template tells: see [`Chat::is_anthropic`](super::request::Chat) |
//! | `/v1/responses` | `entrypoints/openai/responses/` | conversations that the engine has stored |

mod anthropic;
mod anthropic_tools;
mod responses;
mod responses_items;
mod responses_tools;

use std::borrow::Cow;

pub(super) use anthropic::translate as messages;
pub(super) use responses::translate as responses;

use super::json::Json;

/// A JSON string of a constant.
fn constant(text: &'static str) -> Json<'static> {
    Json::String(Cow::Borrowed(text))
}

/// A JSON object with constant keys.
fn object<'a, const N: usize>(entries: [(&'static str, Json<'a>); N]) -> Json<'a> {
    Json::Object(
        entries
            .into_iter()
            .map(|(key, value)| (Cow::Borrowed(key), value))
            .collect(),
    )
}

/// A message of a role with content.
fn message<'a>(role: &'static str, content: Json<'a>) -> Json<'a> {
    object([("role", constant(role)), ("content", content)])
}

/// Joins texts.
fn concat<'a>(texts: Vec<Cow<'a, str>>, separator: &str) -> Cow<'a, str> {
    match <[Cow<'a, str>; 1]>::try_from(texts) {
        Ok([text]) => text,
        Err(texts) => Cow::Owned(texts.join(separator)),
    }
}
