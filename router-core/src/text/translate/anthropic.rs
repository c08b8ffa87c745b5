//! `/v1/messages`.
//!
//! ```text
//!  system: text blocks, joined          ─► system message
//!  user: text, image                    ─► user message
//!  user: tool_result                    ─► tool message before it; its images ─► a user message after that
//!  assistant: thinking, tool_use, text  ─► reasoning, tool_calls and content of one message
//! ```

use std::borrow::Cow;

use super::anthropic_tools::{self, Change};
use super::{concat, constant, message, object};
use crate::text::error::Unscorable;
use crate::text::json::Json;
use crate::text::python;
use crate::text::request::{Chat, Fields, check_forwarded};
use crate::text::value::from_json;

/// Starts a block that differs from request to request; engines leave the whole block out.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Makes a chat of a messages request.
pub(in crate::text) fn translate(fields: Fields<'_>) -> Result<Chat<'_>, Unscorable> {
    let Json::Array(items) = fields.messages else {
        return Err(Unscorable::Invalid);
    };
    let mut conversation = Conversation {
        messages: Vec::with_capacity(items.len() + 1),
        changes: Vec::new(),
    };
    conversation.system(fields.system)?;
    for item in items {
        conversation.message(item)?;
    }
    let Conversation { messages, changes } = conversation;
    let tools = anthropic_tools::translate(fields.tools, changes)?;
    let messages = Json::Array(messages);
    check_forwarded(&fields.kv_transfer_params, &messages)?;
    let Json::Array(messages) = messages else {
        return Err(Unscorable::Invalid);
    };
    let is_disabled = kind(&fields.thinking) == Some("disabled");
    let mut output_config = fields.output_config;
    let reasoning_effort = if is_disabled {
        constant("none")
    } else {
        output_config.take_key("effort")
    };
    let chat = Chat {
        tools,
        tool_choice_none: kind(&fields.tool_choice) == Some("none"),
        reasoning_effort,
        is_anthropic: true,
        ..Chat::new(messages)
    };
    chat.with_kwargs(fields.chat_template_kwargs)
}

struct Conversation<'a> {
    messages: Vec<Json<'a>>,
    /// Changes to the tools, in order.
    changes: Vec<Change<'a>>,
}

impl<'a> Conversation<'a> {
    fn push_system(&mut self, text: Cow<'a, str>) {
        self.messages.push(message("system", Json::String(text)));
    }

    /// Reads the field `system`. Unlike in a system message, a string is taken as it is.
    fn system(&mut self, system: Json<'a>) -> Result<(), Unscorable> {
        match system {
            Json::Null => {}
            Json::String(text) if text.is_empty() => {}
            Json::String(text) => self.push_system(text),
            Json::Array(blocks) => {
                if let Some(text) = system_text(blocks, None)? {
                    self.push_system(text);
                }
            }
            _ => return Err(Unscorable::Invalid),
        }
        Ok(())
    }

    fn message(&mut self, mut item: Json<'a>) -> Result<(), Unscorable> {
        let content = item.take_key("content");
        let role = item.get("role").and_then(Json::as_str);
        match (role, content) {
            (Some("system"), Json::String(text)) => {
                if !text.is_empty() && !text.starts_with(BILLING_HEADER) {
                    self.push_system(text);
                }
            }
            (Some("system"), Json::Array(blocks)) => {
                if let Some(text) = system_text(blocks, Some(&mut self.changes))? {
                    self.push_system(text);
                }
            }
            (Some("user"), text @ Json::String(_)) => self.messages.push(message("user", text)),
            (Some("assistant"), text @ Json::String(_)) => {
                self.messages.push(message("assistant", text));
            }
            (Some("user"), Json::Array(blocks)) => self.turn(blocks, true)?,
            (Some("assistant"), Json::Array(blocks)) => self.turn(blocks, false)?,
            _ => return Err(Unscorable::Invalid),
        }
        Ok(())
    }

    /// Reads the blocks of a turn. Messages that come of single blocks stand before the turn's own.
    fn turn(&mut self, blocks: Vec<Json<'a>>, is_user: bool) -> Result<(), Unscorable> {
        let mut turn = Turn::default();
        for mut block in blocks {
            match kind(&block) {
                Some("text") => {
                    if let Some(text) = text(&mut block, "text")?.filter(|text| !text.is_empty()) {
                        turn.push_text(text);
                    }
                }
                Some("image") => {
                    let source = dict(&mut block, "source")?;
                    if matches!(&source, Json::Object(entries) if !entries.is_empty()) {
                        turn.parts.push(image());
                    }
                }
                Some("thinking") => turn.reasoning.extend(text(&mut block, "thinking")?),
                // A user's calls are never shown.
                Some("tool_use") if is_user => _ = dict(&mut block, "input")?,
                Some("tool_use") => turn.calls.push(tool_call(&mut block)?),
                Some("tool_result") if is_user => self.tool_result(block)?,
                Some("tool_result") => {
                    let result = format!("Tool result: {}", spelled(&block)?);
                    turn.push_text(result.into());
                }
                Some("redacted_thinking" | "tool_reference") => {}
                _ => return Err(Unscorable::Invalid),
            }
        }
        let message = turn.into_message(if is_user { "user" } else { "assistant" });
        if !is_user || message.has("content") {
            self.messages.push(message);
        }
        Ok(())
    }

    fn tool_result(&mut self, mut block: Json<'a>) -> Result<(), Unscorable> {
        let id = text(&mut block, "tool_use_id")?.unwrap_or_default();
        let mut texts = Vec::new();
        let mut images = Vec::new();
        let mut references = Vec::new();
        match block.take_key("content") {
            Json::Null => {}
            Json::String(text) => texts.push(text),
            Json::Array(items) => {
                for mut item in items {
                    match kind(&item) {
                        Some("text") if item.has("text") => {
                            texts.push(text(&mut item, "text")?.ok_or(Unscorable::Invalid)?);
                        }
                        Some("text") => texts.push(Cow::Borrowed("")),
                        Some("image") if is_given(&item)? => images.push(image()),
                        Some("tool_reference") => references.extend(reference(&mut item)?),
                        _ if matches!(item, Json::Object(_)) => {}
                        _ => return Err(Unscorable::Invalid),
                    }
                }
            }
            _ => return Err(Unscorable::Invalid),
        }
        let tool_message = |content: Json<'a>| {
            object([
                ("role", constant("tool")),
                ("tool_call_id", Json::String(id.clone())),
                ("content", content),
            ])
        };
        let text = concat(texts, "\n");
        self.messages.push(tool_message(Json::String(text)));
        if !images.is_empty() {
            self.messages.push(message("user", Json::Array(images)));
        }
        if !references.is_empty() {
            self.messages.push(tool_message(Json::Array(references)));
        }
        Ok(())
    }
}

/// What becomes of a turn's blocks.
#[derive(Default)]
struct Turn<'a> {
    reasoning: Vec<Cow<'a, str>>,
    calls: Vec<Json<'a>>,
    parts: Vec<Json<'a>>,
}

impl<'a> Turn<'a> {
    fn push_text(&mut self, text: Cow<'a, str>) {
        let text = ("text", Json::String(text));
        self.parts.push(object([("type", constant("text")), text]));
    }

    fn into_message(mut self, role: &'static str) -> Json<'a> {
        let mut entries = vec![(Cow::Borrowed("role"), constant(role))];
        if !self.reasoning.is_empty() {
            let reasoning = Json::String(concat(self.reasoning, ""));
            entries.push((Cow::Borrowed("reasoning"), reasoning));
        }
        if !self.calls.is_empty() {
            entries.push((Cow::Borrowed("tool_calls"), Json::Array(self.calls)));
        }
        let only_text = match self.parts.as_mut_slice() {
            [part] => part.take_key("text"),
            _ => Json::Null,
        };
        if only_text != Json::Null {
            entries.push((Cow::Borrowed("content"), only_text));
        } else if !self.parts.is_empty() {
            entries.push((Cow::Borrowed("content"), Json::Array(self.parts)));
        }
        Json::Object(entries)
    }
}

/// The text of a system prompt's blocks; where changes to tools may stand, they are collected.
fn system_text<'a>(
    blocks: Vec<Json<'a>>,
    mut changes: Option<&mut Vec<Change<'a>>>,
) -> Result<Option<Cow<'a, str>>, Unscorable> {
    let mut texts = Vec::new();
    for mut block in blocks {
        match kind(&block) {
            Some("text") => {
                let text = text(&mut block, "text")?;
                let kept =
                    |text: &Cow<'_, str>| !text.is_empty() && !text.starts_with(BILLING_HEADER);
                texts.extend(text.filter(kept));
            }
            Some("tool_addition" | "tool_removal") => {
                let changes = changes.as_mut().ok_or(Unscorable::Invalid)?;
                changes.push(Change::read(block)?);
            }
            Some(
                "image" | "tool_use" | "tool_result" | "tool_reference" | "thinking"
                | "redacted_thinking",
            ) => {}
            _ => return Err(Unscorable::Invalid),
        }
    }
    Ok((!texts.is_empty()).then(|| concat(texts, "")))
}

fn tool_call<'a>(block: &mut Json<'a>) -> Result<Json<'a>, Unscorable> {
    let id = text(block, "id")?.filter(|id| !id.is_empty());
    let name = text(block, "name")?.unwrap_or_default();
    let arguments = match dict(block, "input")? {
        Json::Null => Json::Object(Vec::new()),
        input => input,
    };
    // Without an id the engine makes one up.
    let id = id.ok_or(Unscorable::Api)?;
    let function = object([("name", Json::String(name)), ("arguments", arguments)]);
    Ok(object([
        ("id", Json::String(id)),
        ("type", constant("function")),
        ("function", function),
    ]))
}

/// A tool that a tool's result names, unless the name is empty.
fn reference<'a>(item: &mut Json<'a>) -> Result<Option<Json<'a>>, Unscorable> {
    let name = text(item, "tool_name")?.filter(|name| !name.is_empty());
    let name = match name {
        Some(name) => Some(name),
        None => text(item, "name")?.filter(|name| !name.is_empty()),
    };
    Ok(name.map(|name| {
        let name = ("name", Json::String(name));
        object([("type", constant("tool_reference")), name])
    }))
}

/// An image, whatever it shows: text ends there.
fn image<'a>() -> Json<'a> {
    let url = object([("url", constant(""))]);
    object([("type", constant("image_url")), ("image_url", url)])
}

/// Whether an image in a tool's result is one: not a link to nowhere.
fn is_given(item: &Json<'_>) -> Result<bool, Unscorable> {
    match item.get("source") {
        Some(source @ Json::Object(_)) => {
            let url = source.get("url").and_then(Json::as_str).unwrap_or_default();
            Ok(kind(source) != Some("url") || !url.is_empty())
        }
        None if !item.has("source") => Ok(true),
        _ => Err(Unscorable::Invalid),
    }
}

/// The content of a tool's result where an assistant gives it: a string, or what Python prints for a list.
fn spelled(block: &Json<'_>) -> Result<String, Unscorable> {
    match block.get("content") {
        None => Ok(String::new()),
        Some(Json::String(text)) => Ok(text.clone().into_owned()),
        Some(Json::Array(items)) if items.is_empty() => Ok(String::new()),
        Some(items @ Json::Array(_)) => {
            let mut spelled = String::new();
            python::write_str(&mut spelled, &from_json(items)).map_err(|_| Unscorable::Limit)?;
            Ok(spelled)
        }
        Some(_) => Err(Unscorable::Invalid),
    }
}

pub(super) fn kind<'j>(json: &'j Json<'_>) -> Option<&'j str> {
    json.get("type").and_then(Json::as_str)
}

/// Takes a field that is text or null.
pub(super) fn text<'a>(
    block: &mut Json<'a>,
    key: &str,
) -> Result<Option<Cow<'a, str>>, Unscorable> {
    match block.take_key(key) {
        Json::Null => Ok(None),
        Json::String(text) => Ok(Some(text)),
        _ => Err(Unscorable::Invalid),
    }
}

/// Takes a field that is an object or null.
pub(super) fn dict<'a>(block: &mut Json<'a>, key: &str) -> Result<Json<'a>, Unscorable> {
    match block.take_key(key) {
        dict @ (Json::Null | Json::Object(_)) => Ok(dict),
        _ => Err(Unscorable::Invalid),
    }
}
