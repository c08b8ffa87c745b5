//! How a body is spelled doesn't change its prompt.

use std::fmt::Write;

use prefixway_core::text::{Api, LocalTime, Prompt, Unscorable, parse};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::inputs::prompter;

/// A small generator of choices, so that a failing case is its seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }

    fn space(&mut self) -> &'static str {
        ["", "", "", " ", "\n", "\t\r\n "][usize::try_from(self.below(6)).unwrap()]
    }
}

/// Spells `value` in some way: white space anywhere, escapes for any character, keys in any order where order doesn't matter, and
/// earlier values of keys that don't count.
fn spell(value: &Value, choices: &mut Choices, out: &mut String) {
    out.push_str(choices.space());
    match value {
        Value::String(text) => spell_text(text, choices, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                spell(item, choices, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<(&str, &Value)> = entries
                .iter()
                .map(|(key, value)| (key.as_str(), value))
                .collect();
            if has_free_order(&entries) {
                for i in (1..entries.len()).rev() {
                    let other = choices.below(i as u64 + 1);
                    entries.swap(i, usize::try_from(other).unwrap());
                }
            }
            out.push('{');
            let mut first = true;
            let mut entry = |key: &str, value: &Value, choices: &mut Choices| {
                out.push_str(if first { "" } else { "," });
                first = false;
                out.push_str(choices.space());
                spell_text(key, choices, out);
                out.push_str(choices.space());
                out.push(':');
                spell(value, choices, out);
            };
            for (key, value) in &entries {
                if choices.below(8) == 0 {
                    entry(key, &json!([{"overridden": [null, 1.5]}]), choices);
                }
                entry(key, value, choices);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
    out.push_str(choices.space());
}

/// Requests, messages and plain text parts are looked up by key; elsewhere a template may print keys in their order.
fn has_free_order(entries: &[(&str, &Value)]) -> bool {
    let has = |wanted: &str| entries.iter().any(|(key, _)| *key == wanted);
    has("model") || has("role") || entries.len() == 2 && has("type") && has("text")
}

fn spell_text(text: &str, choices: &mut Choices, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        if letter < ' ' || matches!(letter, '"' | '\\') || choices.below(6) == 0 {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else {
            out.push(letter);
        }
    }
    out.push('"');
}

fn text() -> impl Strategy<Value = String> {
    "[a-z \\n\"\\\\é日😀<|>]{0,12}"
}

/// JSON that a template may print: the order of its keys matters.
fn printed() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        // Few digits: serde_json's own reading is a little off for many.
        any::<i16>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z]{1,3}", inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let parts = proptest::collection::vec(
        text().prop_map(|text| json!({"type": "text", "text": text})),
        0..3,
    );
    let content = prop_oneof![text().prop_map(Value::from), parts.prop_map(Value::from)];
    let user = content
        .clone()
        .prop_map(|content| json!({"role": "user", "content": content}));
    let call = (text(), printed()).prop_map(|(name, arguments)| {
        let arguments = json!({"arguments": arguments}).to_string();
        json!({"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}})
    });
    let assistant = (
        content,
        proptest::option::of(call),
        proptest::option::of(text()),
    )
        .prop_map(|(content, call, reasoning)| {
            let mut message = Map::new();
            message.insert("role".into(), "assistant".into());
            message.insert("content".into(), content);
            message.extend(call.map(|call| ("tool_calls".to_owned(), json!([call]))));
            message.extend(reasoning.map(|text| ("reasoning".to_owned(), text.into())));
            Value::Object(message)
        });
    prop_oneof![user, assistant]
}

fn body() -> impl Strategy<Value = Value> {
    let messages = proptest::collection::vec(message(), 1..5);
    let tool = printed().prop_map(|parameters| {
        json!([{"type": "function", "function": {"name": "f", "parameters": {"x": parameters}}}])
    });
    (messages, proptest::option::of(tool), any::<u16>()).prop_map(|(messages, tools, unknown)| {
        json!({"model": "m", "messages": messages, "tools": tools, "cache_salt": "s", "unknown": [unknown], "n": 2})
    })
}

fn prompts(body: &[u8]) -> (Option<String>, u32, Result<Vec<Prompt>, Unscorable>) {
    let request = parse(Api::Chat, body).unwrap();
    let prompts = prompter("llama3_1").prompts(&request, LocalTime::from_date(2026, 1, 1));
    let model = request.model.map(std::borrow::Cow::into_owned);
    (model, request.load_units, prompts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn spelling_does_not_change_the_prompt(body in body(), seed in 1..u64::MAX) {
        let mut spelled = String::new();
        spell(&body, &mut Choices(seed), &mut spelled);
        let plain = body.to_string();
        // Another reader agrees that both say the same.
        let reread: Value = serde_json::from_str(&spelled).unwrap();
        prop_assert!(reread == body);
        let ours = prompts(spelled.as_bytes());
        prop_assert!(ours.2.is_ok());
        prop_assert_eq!(ours, prompts(plain.as_bytes()), "{}", spelled);
    }

    #[test]
    fn a_body_written_anew_has_the_same_prompt(body in body()) {
        let text = serde_json::to_string_pretty(&body).unwrap();
        let reread: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(prompts(text.as_bytes()), prompts(reread.to_string().as_bytes()));
    }
}
