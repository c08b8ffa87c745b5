//! Chats for models whose engine text is not known.
//!
//! An outline is the chat itself, spelled so that nothing is ambiguous: two chats have the same outline only if they are the same, and
//! the outline of a conversation begins with the outline of each earlier turn of it. So requests of one conversation are known to
//! share a prefix, without knowing which text or tokens that prefix has.
//!
//! ```text
//!  outline = value of { tools, documents, chat_template_kwargs, reasoning_effort }, then the value of each message
//!  value   = n | t | f | # number | s string | [ values ] | { key value ... }
//!  string  = length in bytes, ':', the bytes;  number = the same with its spelling
//! ```
//!
//! What may change a prompt from its start on comes first. Fields that are null count as absent, as engines take them; what only
//! changes the end (`add_generation_prompt`, `continue_final_message`) is left out.

use super::{Render, Rendered};
use crate::text::error::Unscorable;
use crate::text::json::Json;
use crate::text::request::Chat;
use crate::text::strftime::LocalTime;
use crate::text::template::MAX_PROMPT_BYTES;

/// The outline's renderer; it needs nothing of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline;

impl Render for Outline {
    fn render(&self, chat: &Chat<'_>, _now: LocalTime) -> Result<Rendered, Unscorable> {
        let mut text = Vec::with_capacity(1024);
        let head = [
            ("tools", &chat.tools),
            ("documents", &chat.documents),
            ("chat_template_kwargs", &chat.kwargs),
            ("reasoning_effort", &chat.reasoning_effort),
        ];
        write_entries(&mut text, head.into_iter())?;
        for message in &chat.messages {
            write(&mut text, message)?;
        }
        Ok(Rendered {
            text,
            truncated: false,
        })
    }
}

fn write(out: &mut Vec<u8>, value: &Json<'_>) -> Result<(), Unscorable> {
    match value {
        Json::Null => out.push(b'n'),
        Json::Bool(flag) => out.push(if *flag { b't' } else { b'f' }),
        Json::Number(spelled) => write_bytes(out, b'#', spelled)?,
        Json::String(text) => write_bytes(out, b's', text)?,
        Json::Array(items) => {
            out.push(b'[');
            for item in items {
                write(out, item)?;
            }
            out.push(b']');
        }
        Json::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| (key.as_ref(), value));
            write_entries(out, entries)?;
        }
    }
    Ok(())
}

fn write_entries<'a, 'b: 'a>(
    out: &mut Vec<u8>,
    entries: impl Iterator<Item = (&'a str, &'a Json<'b>)>,
) -> Result<(), Unscorable> {
    out.push(b'{');
    for (key, value) in entries {
        if !matches!(value, Json::Null) {
            write_bytes(out, b's', key)?;
            write(out, value)?;
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_bytes(out: &mut Vec<u8>, tag: u8, text: &str) -> Result<(), Unscorable> {
    if text.len() > MAX_PROMPT_BYTES.saturating_sub(out.len()) {
        return Err(Unscorable::Limit);
    }
    out.push(tag);
    out.extend_from_slice(text.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Api, PromptProfile, Prompter, parse};
    use proptest::prelude::*;

    fn outline(body: &str) -> Result<String, Unscorable> {
        let prompter = Prompter::try_new(PromptProfile::outline()).unwrap();
        let request = parse(Api::Chat, body.as_bytes()).unwrap();
        let prompt = prompter.prompt(&request, LocalTime::from_date(2026, 1, 1))?;
        Ok(String::from_utf8(prompt.text).unwrap())
    }

    #[test]
    fn a_chat_is_spelled_out() {
        let body = r#"{"messages":[{"role":"user","content":"hé","name":null,"n":[1.0,true,{}]}],"tools":[{}],"reasoning_effort":"low"}"#;
        assert_eq!(
            outline(body).unwrap(),
            "{s5:tools[{}]s16:reasoning_efforts3:low}{s4:roles4:users7:contents3:hés1:n[#3:1.0t{}]}"
        );
    }

    #[test]
    fn what_only_changes_the_end_is_left_out() {
        let with = |fields: &str| outline(&format!(r#"{{"messages":[]{fields}}}"#)).unwrap();
        assert_eq!(with(""), "{}");
        assert_eq!(with(r#","add_generation_prompt":false"#), "{}");
        assert_ne!(with(r#","documents":[]"#), "{}");
    }

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            "0|[1-9][0-9]?",
            r#""[a-z:{}\[\]0-9]{0,4}""#,
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|entries| {
                    let entries: Vec<String> = entries
                        .iter()
                        .map(|(key, value)| format!("\"{key}\":{value}"))
                        .collect();
                    format!("{{{}}}", entries.join(","))
                }),
            ]
        })
    }

    /// A value with all null fields gone, which the outline can't tell from the value with them.
    fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(entries) => entries
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect(),
            serde_json::Value::Array(items) => items.iter().map(without_nulls).collect(),
            other => other.clone(),
        }
    }

    proptest! {
        #[test]
        fn outlines_are_equal_only_for_equal_chats(one in prop::collection::vec(value(), 0..4), other in prop::collection::vec(value(), 0..4)) {
            let body = |messages: &[String]| format!(r#"{{"messages":[{}]}}"#, messages.join(","));
            let meaning = |messages: &[String]| -> Vec<serde_json::Value> {
                messages.iter().map(|text| without_nulls(&serde_json::from_str(text).unwrap())).collect()
            };
            let equal = outline(&body(&one)) == outline(&body(&other));
            prop_assert_eq!(equal, meaning(&one) == meaning(&other));
        }

        #[test]
        fn a_longer_conversation_begins_with_the_shorter(turns in prop::collection::vec(value(), 1..5), kept in 0usize..5) {
            let kept = kept.min(turns.len());
            let body = |messages: &[String]| format!(r#"{{"messages":[{}]}}"#, messages.join(","));
            let whole = outline(&body(&turns)).unwrap();
            let begin = outline(&body(&turns[..kept])).unwrap();
            prop_assert!(whole.starts_with(&begin));
        }
    }
}
