//! Chat bodies of a given size and kind, the same ones every time.

use std::fmt::Write;

use serde_json::{Value, json};

/// What a chat is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// English prose with a line end each 80 characters and a quotation each 400.
    Prose,
    /// Chinese and Japanese as UTF-8.
    Cjk,
    /// The same as `\uXXXX`, as Python's `json` writes it.
    Escaped,
    /// Half of it tool definitions, then calls and their results.
    Tools,
    /// Source code: an escape each 20 characters.
    Code,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Prose,
        Self::Cjk,
        Self::Escaped,
        Self::Tools,
        Self::Code,
    ];

    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prose => "prose",
            Self::Cjk => "cjk",
            Self::Escaped => "escaped",
            Self::Tools => "tools",
            Self::Code => "code",
        }
    }
}

const PROSE: &str = "The scheduler rewrites stale segments before the nightly window closes again.\n\
    Nobody reads the segments in between, so a reader that comes late finds either\n\
    the old ones or the new ones; what it doesn't find is half of each, which is the\n\
    whole point. The manual calls this \"atomic\", and means that a crash at any time\n\
    leaves one of two states behind; which of them depends on the journal's last line.\n";
const CJK: &str = "調度器在夜間視窗關閉之前重寫過時的區段。没有人会在中间读取这些片段,因此晚到的读者要么找到旧的,要么找到新的。\n\
    スケジューラは夜間の時間枠が閉じる前に古いセグメントを書き直します。「アトミック」とは、そういう意味です。\n";
const CODE: &str = "fn find(&self, name: &str) -> Option<&Entry> {\n\tlet key = format!(\"{}/{}\", self.root, name);\n\
    \tfor entry in &self.entries {\n\t\tif entry.path == key && entry.kind != \"dir\" {\n\t\t\treturn Some(entry);\n\t\t}\n\t}\n\
    \tlog(\"no such entry: \\\"{}\\\"\\n\", key);\n\tNone\n}\n\n";

/// A chat body of about `bytes` bytes in `turns` messages: a system prompt, then user and assistant in turn.
pub fn chat(kind: Kind, bytes: usize, turns: usize) -> Vec<u8> {
    let text = match kind {
        Kind::Prose | Kind::Tools => PROSE,
        Kind::Cjk | Kind::Escaped => CJK,
        Kind::Code => CODE,
    };
    let is_tools = kind == Kind::Tools;
    let share = (if is_tools { bytes / 2 } else { bytes }) / turns;
    let messages: Vec<Value> = (0..turns)
        .map(|turn| message(turn, &written(kind, text, turn, share), is_tools))
        .collect();
    let mut body = json!({"model": "tiny", "stream": true, "max_tokens": 64, "messages": messages});
    if let (true, Some(fields)) = (is_tools, body.as_object_mut()) {
        let tools: Value = (0..(bytes / 2 / TOOL_BYTES).max(1)).map(tool).collect();
        fields.insert("tools".to_owned(), tools);
    }
    let json = body.to_string();
    if kind == Kind::Escaped {
        escape(&json).into_bytes()
    } else {
        json.into_bytes()
    }
}

/// A chat of one question with an image of `bytes` bytes of base64.
pub fn image(bytes: usize) -> Vec<u8> {
    let data = "iVBORw0KGgoAAAANSUhEUgAB".repeat(bytes / 24);
    let content = json!([
        {"type": "text", "text": PROSE},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}},
    ]);
    json!({"model": "tiny", "messages": [{"role": "user", "content": content}]})
        .to_string()
        .into_bytes()
}

/// Text that takes about `bytes` bytes in the body.
fn written(kind: Kind, text: &str, turn: usize, bytes: usize) -> String {
    let spelled = |letter: char| match kind {
        Kind::Escaped if !letter.is_ascii() => 6,
        _ if matches!(letter, '\n' | '\t' | '"' | '\\') => 2,
        _ => letter.len_utf8(),
    };
    let mut room = bytes.saturating_sub(36);
    let mut out = format!("{turn} ");
    for letter in text.chars().cycle() {
        let size = spelled(letter);
        if size > room {
            return out;
        }
        room -= size;
        out.push(letter);
    }
    out
}

fn message(turn: usize, text: &str, is_tools: bool) -> Value {
    match turn {
        0 => json!({"role": "system", "content": text}),
        // A user asks, the assistant calls, the tool answers, the assistant sums up.
        turn if is_tools && turn % 4 == 2 => json!({
            "role": "assistant",
            "content": null,
            "tool_calls": [{
                "id": format!("call_{turn}"),
                "type": "function",
                "function": {
                    "name": "lookup_3",
                    "arguments": json!({"path": "src/main.rs", "note": text, "limit": turn}).to_string(),
                },
            }],
        }),
        turn if is_tools && turn % 4 == 3 => {
            json!({"role": "tool", "tool_call_id": format!("call_{}", turn - 1), "content": text})
        }
        turn if turn % 2 == 1 => json!({"role": "user", "content": text}),
        _ => json!({"role": "assistant", "content": text}),
    }
}

/// About the size of [`tool`].
const TOOL_BYTES: usize = 760;

fn tool(number: usize) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": format!("lookup_{number}"),
            "description": "Finds entries of the journal by path and time.\nGives at most `limit` of them, the newest first; \"all\" gives every one.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Path of the entry, with / between its parts"},
                    "since": {"type": "string", "format": "date-time", "description": "Earliest time"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 20},
                    "kinds": {"type": "array", "items": {"type": "string", "enum": ["file", "dir", "link"]}},
                    "deep": {"type": "boolean", "default": false, "description": "Also below the path"},
                },
                "required": ["path"],
                "additionalProperties": false,
            },
        },
    })
}

/// Spells what isn't ASCII as `\uXXXX`.
fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    for letter in json.chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a string can't fail.
                _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_size_that_was_asked_for() {
        for kind in Kind::ALL {
            for bytes in [2 << 10, 32 << 10, 220 << 10] {
                let body = chat(kind, bytes, 20.min(bytes / 500));
                let ratio = body.len() as f64 / bytes as f64;
                assert!(
                    (0.75..1.25).contains(&ratio),
                    "{} {bytes}: {}",
                    kind.name(),
                    body.len()
                );
                assert!(serde_json::from_slice::<Value>(&body).is_ok());
            }
        }
    }

    #[test]
    fn escaped_bodies_say_the_same() {
        let read = |kind| serde_json::from_slice::<Value>(&chat(kind, 4096, 4)).unwrap();
        let first = |body: &Value| -> String {
            let text = body["messages"][1]["content"].as_str().unwrap();
            text.chars().take(30).collect()
        };
        assert!(chat(Kind::Escaped, 4096, 4).is_ascii());
        assert_eq!(first(&read(Kind::Cjk)), first(&read(Kind::Escaped)));
    }
}
