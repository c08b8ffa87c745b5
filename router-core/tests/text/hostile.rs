//! Bodies that nobody sane sends: whatever they hold, there is an answer and no panic.

use prefixway_core::text::{Api, LocalTime, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::inputs::prompter;

const NAMES: [&str; 22] = [
    "role",
    "content",
    "type",
    "text",
    "name",
    "tool_calls",
    "tool_call_id",
    "function",
    "arguments",
    "id",
    "reasoning",
    "reasoning_content",
    "refusal",
    "image_url",
    "items",
    "parameters",
    "description",
    "tools",
    "strict",
    "user",
    "assistant",
    "tool",
];

/// Names of fields that some API reads.
const FIELDS: [&str; 26] = [
    "messages",
    "input",
    "prompt",
    "system",
    "instructions",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "reasoning",
    "chat_template_kwargs",
    "kv_transfer_params",
    "features",
    "content_parts",
    "sampling_params",
    "token_ids",
    "documents",
    "items",
    "text_2",
    "n",
    "echo",
    "logprobs",
    "suffix",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "stream",
];

/// Blocks and items of other APIs, with anything in their fields.
fn odd_item() -> impl Strategy<Value = Value> {
    let kind = proptest::sample::select(
        &[
            "text",
            "tool_use",
            "tool_result",
            "thinking",
            "image",
            "tool_addition",
            "tool_removal",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "reasoning",
            "message",
            "namespace",
            "custom",
            "function",
        ][..],
    );
    let name = proptest::sample::select(
        &[
            "text",
            "id",
            "name",
            "input",
            "content",
            "source",
            "tool",
            "tools",
            "call_id",
            "arguments",
            "output",
            "summary",
            "status",
            "role",
            "tool_use_id",
            "parameters",
            "input_schema",
            "definition",
            "namespace",
        ][..],
    );
    let fields = proptest::collection::vec((name, odd_json()), 0..6);
    (kind, fields).prop_map(|(kind, fields)| {
        let mut item: serde_json::Map<String, Value> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        item.insert("type".into(), kind.into());
        item.into()
    })
}

/// JSON that looks a little like messages.
fn odd_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        proptest::sample::select(&NAMES[..]).prop_map(str::to_owned),
        Just("system".to_owned()),
        Just("developer".to_owned()),
        Just("{\"a\": [1.0, \"\\ud83d\"]}".to_owned()),
        "[a-zé▁<|>\\s\u{301}]{0,6}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// A message with a role and otherwise anything.
fn odd_message() -> impl Strategy<Value = Value> {
    let roles =
        proptest::sample::select(&["system", "user", "assistant", "tool", "developer", "odd"][..]);
    let fields =
        proptest::collection::vec((proptest::sample::select(&NAMES[..]), odd_json()), 0..6);
    (roles, odd_json(), fields).prop_map(|(role, content, fields)| {
        let mut message: serde_json::Map<String, Value> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        message.insert("role".into(), role.into());
        message.entry("content").or_insert(content);
        message.into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn odd_chats_have_text_or_a_reason(
        messages in proptest::collection::vec(prop_oneof![odd_message(), odd_json()], 0..5),
        tools in odd_json(),
        kwargs in odd_json(),
        continued in any::<bool>(),
    ) {
        let body = json!({"model": "m", "messages": messages, "tools": tools, "chat_template_kwargs": kwargs,
            "continue_final_message": continued, "add_generation_prompt": !continued});
        let body = serde_json::to_vec(&body).unwrap();
        for model in ["tinybpe", "llama3_1"] {
            let request = parse(Api::Chat, &body).unwrap();
            let prompt = prompter(model).prompts(&request, LocalTime::from_unix(0, 0));
            if let Ok(prompts) = prompt {
                prop_assert!(std::str::from_utf8(&prompts[0].text).is_ok());
            }
        }
    }

    #[test]
    fn odd_fields_have_text_or_a_reason(
        api in proptest::sample::select(&Api::ALL[..]),
        fields in proptest::collection::vec((proptest::sample::select(&FIELDS[..]), odd_json()), 0..4),
        items in proptest::collection::vec(prop_oneof![odd_message(), odd_item(), odd_json()], 0..5),
    ) {
        let mut body: serde_json::Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        for name in ["messages", "input", "documents", "tools"] {
            body.entry(name).or_insert_with(|| items.clone().into());
        }
        let body = serde_json::to_vec(&body).unwrap();
        let request = parse(api, &body).unwrap();
        let prompts = prompter("llama3_1").prompts(&request, LocalTime::from_unix(0, 0));
        prop_assert!(request.load_units >= 1 && request.prefill_bytes <= body.len() as u64);
        if let Ok(prompts) = prompts {
            prop_assert!(!prompts.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200usize) {
        _ = parse(Api::Chat, &bytes);
        // Half a body, then noise.
        let body = br#"{"model":"m","messages":[{"role":"user","content":"a\n\u00e9\ud83d\ude00"}],"n":1.0,"tools":null}"#;
        let mut mixed = body[..cut.min(body.len())].to_vec();
        mixed.append(&mut bytes);
        _ = parse(Api::Chat, &mixed);
    }
}
