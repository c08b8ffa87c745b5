//! Turns the messages and tools of a request into what the template sees (vLLM's `parse_chat_messages` and pydantic dump of tools).

use serde_json::{Map, Value as Json, json};

use super::TemplateError;

type Message = Map<String, Json>;

/// What `message.content` is to a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentFormat {
    /// A string; text parts are joined with a line feed.
    Text,
    /// A list of parts.
    Parts,
}

impl ContentFormat {
    /// Parts when the template has a `for` over `<name>.content` or `<name>['content']`. vLLM looks at the syntax tree; the source text is enough
    /// for templates written the usual way.
    pub(super) fn of_template(source: &str) -> Self {
        let loops = source.split("{%").skip(1).filter_map(|tag| {
            let tag = tag
                .split("%}")
                .next()?
                .trim_start_matches(['-', '+'])
                .trim_start();
            let (_, iterated) = tag.strip_prefix("for ")?.split_once(" in ")?;
            Some(iterated.trim_start())
        });
        let over_content = |iterated: &str| {
            let name_end = iterated
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(iterated.len());
            iterated.get(name_end..).is_some_and(|rest| {
                [".content", "['content']", "[\"content\"]"]
                    .iter()
                    .any(|access| rest.starts_with(access))
            })
        };
        if loops.into_iter().any(over_content) {
            Self::Parts
        } else {
            Self::Text
        }
    }
}

/// Rebuilds each message with the keys a template may see.
pub(super) fn normalize(
    messages: &[Json],
    format: ContentFormat,
) -> Result<Vec<Message>, TemplateError> {
    messages
        .iter()
        .enumerate()
        .map(|(position, message)| {
            normalize_one(message, format)
                .map_err(|reason| TemplateError::Message { position, reason })
        })
        .collect()
}

/// Turns `developer` messages into `system` ones and merges all system messages into one at the front.
pub(super) fn fold_developer(messages: &mut Vec<Message>, format: ContentFormat) {
    let role = |message: &Message| {
        message
            .get("role")
            .and_then(Json::as_str)
            .map(str::to_owned)
    };
    if !messages
        .iter()
        .any(|message| role(message).as_deref() == Some("developer"))
    {
        return;
    }
    let is_system =
        |message: &Message| matches!(role(message).as_deref(), Some("developer" | "system"));
    let system: Vec<String> = messages
        .iter()
        .filter(|message| is_system(message))
        .map(text_of)
        .collect();
    messages.retain(|message| !is_system(message));
    let text = system.join("\n\n");
    let content = match format {
        ContentFormat::Text => Json::String(text),
        ContentFormat::Parts => json!([{"type": "text", "text": text}]),
    };
    let merged = [
        ("role".to_owned(), json!("system")),
        ("content".to_owned(), content),
    ];
    messages.insert(0, merged.into_iter().collect());
}

/// Appends to the text of the last message (to its last part).
pub(super) fn append_to_last(messages: &mut [Message], suffix: &str) {
    let content = messages
        .last_mut()
        .and_then(|message| message.get_mut("content"));
    let text = match content {
        Some(Json::Array(parts)) => parts.last_mut().and_then(|part| part.get_mut("text")),
        other => other,
    };
    if let Some(Json::String(text)) = text {
        text.push_str(suffix);
    }
}

/// Dumps tools in pydantic's key order; absent `description` and `parameters` are null, unknown keys are dropped.
pub(super) fn tools(tools: &[Json]) -> Vec<Json> {
    tools
        .iter()
        .map(|tool| {
            let function = tool.get("function").unwrap_or(&Json::Null);
            let field = |name: &str| function.get(name).cloned().unwrap_or_default();
            let mut dumped = json!({
                "name": field("name"), "description": field("description"), "parameters": field("parameters"),
            });
            for name in ["strict", "defer_loading"] {
                if let (Some(value), Some(fields)) = (function.get(name).filter(|v| !v.is_null()), dumped.as_object_mut()) {
                    fields.insert(name.to_owned(), value.clone());
                }
            }
            json!({"type": "function", "function": dumped})
        })
        .collect()
}

fn normalize_one(message: &Json, format: ContentFormat) -> Result<Message, &'static str> {
    let role = message
        .get("role")
        .and_then(Json::as_str)
        .ok_or("it has no role")?;
    let parts = text_parts(message.get("content").unwrap_or(&Json::Null))?;
    let is_tool = role == "tool";
    let content = if format == ContentFormat::Parts && !is_tool {
        Json::Array(parts)
    } else {
        let texts: Vec<&str> = parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect();
        Json::String(texts.join("\n"))
    };
    let mut out = Message::new();
    out.insert("role".to_owned(), json!(role));
    out.insert("content".to_owned(), content);
    let present = |key: &str| message.get(key).filter(|value| !value.is_null());
    if role == "assistant" {
        if let Some(calls) = present("tool_calls")
            .and_then(Json::as_array)
            .filter(|calls| !calls.is_empty())
        {
            out.insert(
                "tool_calls".to_owned(),
                calls.iter().map(tool_call).collect(),
            );
        }
        if let Some(reasoning) = present("reasoning").or_else(|| present("reasoning_content")) {
            out.insert("reasoning".to_owned(), reasoning.clone());
            out.insert("reasoning_content".to_owned(), reasoning.clone());
        }
    } else if let Some(id) = message.get("tool_call_id").filter(|_| is_tool) {
        out.insert("tool_call_id".to_owned(), id.clone());
    }
    if let Some(name) = message.get("name").filter(|name| name.is_string()) {
        out.insert("name".to_owned(), name.clone());
    }
    Ok(out)
}

/// Gives content as a list of text parts, each with its unknown keys kept.
fn text_parts(content: &Json) -> Result<Vec<Json>, &'static str> {
    let part = |part: &Json| match part {
        Json::String(text) => Ok(json!({"type": "text", "text": text})),
        Json::Object(fields) => {
            let text = fields
                .get("text")
                .filter(|text| text.is_string())
                .ok_or("a part is not text")?;
            let mut rebuilt = json!({"type": "text", "text": text});
            if let Some(rebuilt) = rebuilt.as_object_mut() {
                for (key, value) in fields
                    .iter()
                    .filter(|(key, _)| !matches!(key.as_str(), "type" | "text"))
                {
                    rebuilt.insert(key.clone(), value.clone());
                }
            }
            Ok(rebuilt)
        }
        _ => Err("a part is neither a string nor an object"),
    };
    match content {
        Json::Null => Ok(Vec::new()),
        Json::String(_) => Ok(vec![part(content)?]),
        Json::Array(parts) => parts.iter().map(part).collect(),
        _ => Err("its content is neither text nor parts"),
    }
}

/// Parses `function.arguments`; empty, invalid and non-object ones become `{}`.
fn tool_call(call: &Json) -> Json {
    let mut call = call.clone();
    if let Some(function) = call.get_mut("function").and_then(Json::as_object_mut) {
        let arguments = match function.get("arguments") {
            Some(Json::String(text)) => serde_json::from_str(text).unwrap_or(Json::Null),
            Some(other) => other.clone(),
            None => Json::Null,
        };
        let arguments = if arguments.is_object() {
            arguments
        } else {
            json!({})
        };
        function.insert("arguments".to_owned(), arguments);
    }
    call
}

fn text_of(message: &Message) -> String {
    match message.get("content") {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}
