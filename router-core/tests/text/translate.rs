//! Golden files: what the engine makes of request bodies, down to the template's variables.
//!
//! The templates print everything they are given, so that a file pins messages, tools, flags and arguments at once.

use std::collections::HashMap;
use std::path::Path;

use prefixway_core::text::{Api, LocalTime, ModelFiles, PromptProfile, Prompter, parse};
use serde_json::Value;

use crate::inputs::own_captures;

/// A prompter with a template of its own.
fn prompter(template: &str) -> Prompter {
    let model = own_captures().join("llama3_1/model");
    let read = |file: &str| std::fs::read_to_string(model.join(file)).unwrap();
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &read("tokenizer.json"),
        tokenizer_config_json: &read("tokenizer_config.json"),
        chat_template: Some(template),
    });
    Prompter::try_new(profile.unwrap()).unwrap().keep_rendered()
}

fn check(api: Api, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/translate");
    let golden: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join(file)).unwrap()).unwrap();
    let prompters: HashMap<&str, Prompter> = golden["templates"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, template)| (name.as_str(), prompter(template.as_str().unwrap())))
        .collect();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 40);
    let mut wrong = Vec::new();
    for case in cases {
        let body = serde_json::to_vec(&case["body"]).unwrap();
        let request = parse(api, &body).unwrap();
        let prompter = &prompters[case["template"].as_str().unwrap()];
        let text = prompter
            .prompt(&request, LocalTime::from_date(2026, 1, 1))
            .map(|prompt| prompt.rendered.unwrap());
        if text.as_deref().ok() != case["text"].as_str() {
            let expected = case["text"].as_str().unwrap();
            wrong.push(format!(
                "{}\n ours {text:?}\n want {expected:?}",
                case["name"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn chats_reach_the_template_as_the_engine_validates_them() {
    check(Api::Chat, "chat.json");
}

#[test]
fn messages_reach_the_template_as_the_engine_translates_them() {
    check(Api::Messages, "messages.json");
}

#[test]
fn responses_reach_the_template_as_the_engine_translates_them() {
    check(Api::Responses, "responses.json");
}
