//! `/v1/responses`.
//!
//! Items that belong to one turn of the assistant (reasoning, text, calls) become one message, as long as they don't overlap.

use std::borrow::Cow;

use super::{constant, message, responses_items, responses_tools};
use crate::text::error::Unscorable;
use crate::text::json::Json;
use crate::text::request::{Chat, Fields, check_forwarded};

/// Makes a chat of a responses request.
pub(in crate::text) fn translate(mut fields: Fields<'_>) -> Result<Chat<'_>, Unscorable> {
    if fields.previous_response_id != Json::Null {
        return Err(Unscorable::StoredState);
    }
    if fields.prompt != Json::Null {
        return Err(Unscorable::Invalid);
    }
    let mut messages = Vec::new();
    match fields.instructions {
        Json::Null => {}
        Json::String(text) if text.is_empty() => {}
        text @ Json::String(_) => messages.push(message("system", text)),
        _ => return Err(Unscorable::Invalid),
    }
    let mut continued = false;
    match fields.input {
        text @ Json::String(_) => messages.push(message("user", text)),
        Json::Array(items) => {
            continued = items.last().is_some_and(responses_items::is_unfinished);
            for item in items {
                responses_items::push(&mut messages, item)?;
            }
        }
        _ => return Err(Unscorable::Invalid),
    }
    let messages = Json::Array(messages);
    check_forwarded(&fields.kv_transfer_params, &messages)?;
    let Json::Array(messages) = messages else {
        return Err(Unscorable::Invalid);
    };
    let chat = Chat {
        tools: responses_tools::translate(fields.tools)?,
        tool_choice_none: fields.tool_choice.as_str() == Some("none"),
        reasoning_effort: fields.reasoning.take_key("effort"),
        add_generation_prompt: !continued,
        continue_final_message: continued,
        // Unlike for chats, the engine leaves the tokenizer's own default in force here.
        add_special_tokens: true,
        is_validated: false,
        ..Chat::new(messages)
    };
    chat.with_kwargs(fields.chat_template_kwargs)
}

/// An assistant's message with one field.
pub(super) fn assistant<'a>(key: &'static str, value: Json<'a>) -> Json<'a> {
    Json::Object(vec![
        (Cow::Borrowed("role"), constant("assistant")),
        (Cow::Borrowed(key), value),
    ])
}
