//! Input items of `/v1/responses`.

use std::borrow::Cow;

use super::anthropic::{kind, text};
use super::responses::assistant;
use super::responses_tools::flat_name;
use super::{constant, object};
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// Whether an item says of itself that it is not finished, so that the model goes on with it. Only messages and reasoning can.
pub(super) fn is_unfinished(item: &Json<'_>) -> bool {
    let may_be = match item.get("type") {
        None => !item.has("type"),
        Some(kind) => matches!(kind.as_str(), Some("message" | "reasoning")),
    };
    let status = item.get("status").and_then(Json::as_str);
    may_be && matches!(status, Some("in_progress" | "incomplete"))
}

/// Adds an item, as a message or to the last one.
pub(super) fn push<'a>(messages: &mut Vec<Json<'a>>, mut item: Json<'a>) -> Result<(), Unscorable> {
    let role = item.get("role").and_then(Json::as_str);
    match kind(&item) {
        Some("function_call") => push_call(messages, function_call(item)?),
        Some("custom_tool_call") => push_call(messages, custom_call(item)?),
        Some("reasoning") => {
            let reasoning = reasoning(item)?;
            push_assistant(messages, "reasoning", Json::String(reasoning));
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let output = item.take_key("output");
            let call_id = text(&mut item, "call_id")?.map_or(Json::Null, Json::String);
            if !matches!(output, Json::String(_) | Json::Array(_)) {
                return Err(Unscorable::Invalid);
            }
            messages.push(object([
                ("role", constant("tool")),
                ("content", output),
                ("tool_call_id", call_id),
            ]));
        }
        _ if role == Some("assistant") => match first_text(&mut item)? {
            Some(content) => push_assistant(messages, "content", Json::String(content)),
            None => messages.push(item),
        },
        _ if role.is_some() => messages.push(item),
        _ => return Err(Unscorable::Invalid),
    }
    Ok(())
}

/// Sets a field of the last message where that is an assistant's and doesn't have it, else begins another.
fn push_assistant<'a>(messages: &mut Vec<Json<'a>>, key: &'static str, value: Json<'a>) {
    match last_assistant(messages) {
        Some(last) if last.get(key).is_none() => set(last, key, value),
        _ => messages.push(assistant(key, value)),
    }
}

fn push_call<'a>(messages: &mut Vec<Json<'a>>, call: Json<'a>) {
    let Some(last) = last_assistant(messages) else {
        messages.push(assistant("tool_calls", Json::Array(vec![call])));
        return;
    };
    match last.take_key("tool_calls") {
        Json::Array(mut calls) => {
            calls.push(call);
            set(last, "tool_calls", Json::Array(calls));
        }
        Json::Null => set(last, "tool_calls", Json::Array(vec![call])),
        other => {
            set(last, "tool_calls", other);
            messages.push(assistant("tool_calls", Json::Array(vec![call])));
        }
    }
}

fn last_assistant<'m, 'a>(messages: &'m mut [Json<'a>]) -> Option<&'m mut Json<'a>> {
    messages
        .last_mut()
        .filter(|last| last.get("role").and_then(Json::as_str) == Some("assistant"))
}

fn set<'a>(message: &mut Json<'a>, key: &'static str, value: Json<'a>) {
    if let Json::Object(entries) = message {
        match entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => entries.push((Cow::Borrowed(key), value)),
        }
    }
}

fn call<'a>(id: Cow<'a, str>, name: Cow<'a, str>, arguments: Json<'a>) -> Json<'a> {
    let function = object([("name", Json::String(name)), ("arguments", arguments)]);
    object([
        ("id", Json::String(id)),
        ("function", function),
        ("type", constant("function")),
    ])
}

fn function_call(mut item: Json<'_>) -> Result<Json<'_>, Unscorable> {
    let mut required = |key: &str| text(&mut item, key)?.ok_or(Unscorable::Invalid);
    let (id, name, arguments) = (
        required("call_id")?,
        required("name")?,
        required("arguments")?,
    );
    let namespace = text(&mut item, "namespace")?.filter(|namespace| !namespace.is_empty());
    let name = match namespace {
        Some(namespace) => flat_name(&namespace, &name),
        None => name,
    };
    Ok(call(id, name, Json::String(arguments)))
}

/// A call with free text: a function's with one argument.
fn custom_call(mut item: Json<'_>) -> Result<Json<'_>, Unscorable> {
    let mut required = |key: &str| text(&mut item, key)?.ok_or(Unscorable::Invalid);
    let (id, name) = (required("call_id")?, required("name")?);
    let input = object([("input", Json::String(required("input")?))]);
    Ok(call(id, name, input))
}

/// The text of a reasoning item: the first of its content, else the first of its summary.
fn reasoning(mut item: Json<'_>) -> Result<Cow<'_, str>, Unscorable> {
    let encrypted = text(&mut item, "encrypted_content")?;
    let Json::Array(mut summary) = item.take_key("summary") else {
        return Err(Unscorable::Invalid);
    };
    let mut content = match item.take_key("content") {
        Json::Null => Vec::new(),
        Json::Array(content) => content,
        _ => return Err(Unscorable::Invalid),
    };
    if encrypted.is_some_and(|encrypted| !encrypted.is_empty()) {
        return Err(Unscorable::Invalid);
    }
    match content.first_mut().or(summary.first_mut()) {
        Some(part) => text(part, "text")?.ok_or(Unscorable::Invalid),
        None => Ok(Cow::Borrowed("")),
    }
}

/// The text of an assistant's message; of several parts only the first counts. `None`: the message is taken as it is.
fn first_text<'a>(item: &mut Json<'a>) -> Result<Option<Cow<'a, str>>, Unscorable> {
    let is_typed = item.has("type");
    let Json::Object(entries) = item else {
        return Ok(None);
    };
    let content = entries.iter_mut().find(|(key, _)| key == "content");
    match content.map(|(_, content)| content) {
        Some(content @ Json::String(_)) => match content.take() {
            Json::String(text) => Ok(Some(text)),
            _ => Ok(None),
        },
        Some(Json::Array(parts)) => match parts.first_mut() {
            Some(part) if part.get("text").is_some() => text(part, "text"),
            // The engine fails on a refusal that it knows for one.
            Some(_) if is_typed => Err(Unscorable::Invalid),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}
