//! How much work a request is, as far as its fields tell.

use super::fields::Fields;
use super::scalar::count;
use crate::text::api::Api;
use crate::text::json::Json;

/// Most units of load that one request books, whatever it claims.
pub const MAX_LOAD_UNITS: u32 = 1024;

/// Sequences that the engine will run.
pub(super) fn units(api: Api, fields: &Fields<'_>) -> u32 {
    let n = match api {
        Api::Generate => fields.sampling_params.get("n").and_then(count),
        _ => count(&fields.n),
    };
    let prompts = match api {
        Api::Completions => prompts(&fields.prompt),
        Api::Embeddings if fields.messages == Json::Null => prompts(&fields.input),
        Api::Embeddings | Api::ChatBatch => conversations(&fields.messages),
        Api::Pooling => prompts(&fields.input),
        Api::Score => [
            &fields.documents,
            &fields.items,
            &fields.text_2,
            &fields.data_2,
        ]
        .into_iter()
        .map(length)
        .max()
        .unwrap_or(1),
        Api::Rerank => length(&fields.documents),
        _ => 1,
    };
    let units = n
        .unwrap_or(1)
        .saturating_mul(prompts as u64)
        .clamp(1, u64::from(MAX_LOAD_UNITS));
    u32::try_from(units).unwrap_or(MAX_LOAD_UNITS)
}

/// Prompts in a string, a list of token ids, a list of messages, or a list of any of these.
fn prompts(json: &Json<'_>) -> usize {
    match json {
        Json::Array(items) => match items.first() {
            Some(Json::Number(_) | Json::Object(_)) => 1,
            _ => items.len(),
        },
        _ => 1,
    }
}

/// Conversations in a list of messages, or in a list of such lists.
fn conversations(json: &Json<'_>) -> usize {
    match json {
        Json::Array(items) if matches!(items.first(), Some(Json::Array(_))) => items.len(),
        _ => 1,
    }
}

fn length(json: &Json<'_>) -> usize {
    match json {
        Json::Array(items) => items.len(),
        _ => 1,
    }
}

/// Types of content parts whose strings are, or may be, text.
const TEXT_KINDS: [&str; 10] = [
    "text",
    "input_text",
    "output_text",
    "refusal",
    "thinking",
    "tool_use",
    "tool_reference",
    "tool_addition",
    "tool_removal",
    "tool_result",
];

/// Bytes of the strings in `json` that can't be text: those of content parts that are of no kind of text.
pub(super) fn media_bytes(json: &Json<'_>) -> usize {
    let Json::Array(items) = json else {
        return match json {
            // Serialised tensors.
            Json::Object(_) => string_bytes(json),
            _ => 0,
        };
    };
    items.iter().map(|item| part_bytes(item, false)).sum()
}

/// The same for a message, or (inside one) for a content part. Content nests: a tool result has parts of its own.
fn part_bytes(item: &Json<'_>, is_part: bool) -> usize {
    let kind = item.get("type").and_then(Json::as_str);
    match (item, item.get("content")) {
        (_, Some(Json::Array(parts))) => parts.iter().map(|part| part_bytes(part, true)).sum(),
        (Json::Object(_), _) if is_part && kind.is_some_and(|kind| !TEXT_KINDS.contains(&kind)) => {
            string_bytes(item)
        }
        _ => 0,
    }
}

fn string_bytes(json: &Json<'_>) -> usize {
    match json {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(string_bytes).sum(),
        Json::Object(entries) => entries.iter().map(|(_, value)| string_bytes(value)).sum(),
        _ => 0,
    }
}
