//! Messages as the engine hands them to the chat template.
//!
//! Follows vLLM 0.32: request validation (which fields of a message survive), `renderers/chat_utils.py` (content parts, tool calls,
//! reasoning) and `renderers/hf.py` (developer role). Unknown keys of a message are dropped. Unknown keys of content parts and tool
//! calls are kept, after the known ones, because the engine's request types allow them.

mod content;
mod tool_calls;

use super::datum::{Datum, Entry, Text};
use super::error::Unscorable;
use super::json::Json;

pub(super) use content::{CONTINUE_TAG, MEDIA_TAG};

/// How a template wants the content of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentFormat {
    /// One string.
    String,
    /// A list of parts.
    OpenAi,
}

/// What stands for the first media item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstMedia {
    /// A [`MEDIA_TAG`].
    Mark,
    /// What the engine tells the template.
    Item,
}

/// How messages are prepared for one template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preparation {
    pub(super) format: ContentFormat,
    /// Whether the template names the developer role; where not, such messages become system messages.
    pub(super) knows_developer: bool,
    pub(super) continue_final_message: bool,
    pub(super) first_media: FirstMedia,
    /// Whether the messages went through the engine's validation of chat messages.
    pub(super) is_validated: bool,
}

/// Messages ready for the template.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    pub(super) messages: Datum<'a>,
    /// Whether there is media.
    pub(super) media: bool,
    /// Bytes of content in all messages.
    pub(super) content_bytes: usize,
}

/// One message on its way to the template.
struct Message<'a> {
    role: &'a str,
    content: content::Content<'a>,
    fields: Vec<Entry<'a>>,
}

impl<'a> Message<'a> {
    fn into_datum(self) -> Datum<'a> {
        let head = [
            (Text::Borrowed("role"), Datum::text(self.role)),
            (Text::Borrowed("content"), self.content.into_datum()),
        ];
        if self.fields.is_empty() {
            return Datum::dict(head);
        }
        Datum::dict(head.into_iter().chain(self.fields).collect::<Vec<_>>())
    }
}

/// Prepares `messages`.
///
/// # Errors
///
/// A message has a shape that the engine refuses.
pub(super) fn prepare<'a>(
    messages: impl Iterator<Item = &'a Json<'a>>,
    how: Preparation,
) -> Result<Conversation<'a>, Unscorable> {
    let mut media = false;
    let mut prepared = messages
        .map(|message| prepare_one(message, how, &mut media))
        .collect::<Result<Vec<_>, _>>()?;
    if !how.knows_developer && prepared.iter().any(|message| message.role == "developer") {
        merge_developer(&mut prepared);
    }
    if how.continue_final_message {
        let last = prepared.last_mut().ok_or(Unscorable::Invalid)?;
        last.content.append_continue_tag()?;
    }
    let content_bytes = prepared.iter().map(|message| message.content.bytes()).sum();
    let messages = prepared.into_iter().map(Message::into_datum).collect();
    Ok(Conversation {
        messages: Datum::list(messages),
        media,
        content_bytes,
    })
}

fn prepare_one<'a>(
    message: &'a Json<'a>,
    how: Preparation,
    media: &mut bool,
) -> Result<Message<'a>, Unscorable> {
    let role = message
        .get("role")
        .and_then(Json::as_str)
        .ok_or(Unscorable::Invalid)?;
    let mut content = content::Content::read(message.get("content"), role, how, media)?;
    let mut fields = Vec::new();
    match role {
        "assistant" => {
            if let Some(calls) = message.get("tool_calls") {
                let calls = tool_calls::read(calls, how.is_validated)?;
                if !calls.is_empty() {
                    fields.push(("tool_calls".into(), Datum::list(calls)));
                }
            }
            if let Some(reasoning) = reasoning(message, how.is_validated) {
                let reasoning = Datum::from_json(reasoning);
                fields.push(("reasoning".into(), reasoning.clone()));
                fields.push(("reasoning_content".into(), reasoning));
            }
        }
        "tool" => {
            if message.has("tool_call_id") {
                let id = message.get("tool_call_id").and_then(Json::as_str);
                fields.push(("tool_call_id".into(), id.map_or(Datum::None, Datum::text)));
            }
            content.join_text_parts();
        }
        _ => {}
    }
    for key in ["name", "task"] {
        if let Some(text) = message.get(key).and_then(Json::as_str) {
            fields.push((key.into(), Datum::text(text)));
        }
    }
    if role == "developer" {
        let tools = message.get("tools").map_or(Datum::None, Datum::from_json);
        fields.push(("tools".into(), tools));
    }
    Ok(Message {
        role,
        content,
        fields,
    })
}

/// The reasoning of an assistant message. Validation gives it the newer name where that is not set.
fn reasoning<'a>(message: &'a Json<'a>, is_validated: bool) -> Option<&'a Json<'a>> {
    let older = || message.get("reasoning_content").filter(|_| is_validated);
    message.get("reasoning").or_else(older)
}

/// Turns developer messages into system messages, and several system messages into one at the start.
fn merge_developer(messages: &mut Vec<Message<'_>>) {
    for message in &mut *messages {
        if message.role == "developer" {
            message.role = "system";
            message.fields.retain(|(key, _)| **key != *"tools");
        }
    }
    let scattered = messages
        .iter()
        .skip(1)
        .any(|message| message.role == "system");
    if !scattered {
        return;
    }
    let texts: Vec<String> = messages
        .iter()
        .filter(|message| message.role == "system")
        .map(|message| message.content.joined())
        .filter(|text| !text.is_empty())
        .collect();
    messages.retain(|message| message.role != "system");
    let merged = Message {
        role: "system",
        content: content::Content::Text(texts.join("\n\n").into()),
        fields: Vec::new(),
    };
    messages.insert(0, merged);
}

#[cfg(test)]
mod tests;
