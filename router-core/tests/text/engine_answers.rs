//! What captured engines said of themselves: their answers to `/tokenize` and `/v1/chat/completions/render`, and the pipelines that they
//! had really loaded.

use std::path::Path;

use prefixway_core::text::{
    Api, Canonicalisation, LocalTime, ModelFiles, PromptProfile, Prompter, TokenBytes, parse,
};
use serde_json::Value;

use crate::inputs;

/// The chat that every capture asked about.
const BODY: &str = r#"{"model":"model","messages":[{"role":"user","content":"hello render"}]}"#;

struct Model {
    tokenizer: String,
    config: String,
    template: Option<String>,
}

impl Model {
    fn read(capture: &Path) -> Self {
        let model = capture.join("model");
        let read = |name: &str| std::fs::read_to_string(model.join(name));
        Self {
            tokenizer: read("tokenizer.json").unwrap(),
            config: read("tokenizer_config.json").unwrap(),
            template: read("chat_template.jinja").ok(),
        }
    }

    fn files(&self) -> ModelFiles<'_> {
        ModelFiles {
            tokenizer_json: &self.tokenizer,
            tokenizer_config_json: &self.config,
            chat_template: self.template.as_deref(),
        }
    }
}

fn read(path: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
fn answers_to_tokenize_and_render_spell_our_text() {
    let Some(captures) = inputs::folder("PREFIXWAY_FIXTURES", "shared/fixtures/vllm") else {
        return;
    };
    let mut compared = 0;
    for capture in inputs::captures(&captures) {
        let model = Model::read(&capture);
        let profile = PromptProfile::from_model_files(&model.files()).unwrap();
        let tokens = TokenBytes::from_model_files(&model.files()).unwrap();
        let request = parse(Api::Chat, BODY.as_bytes()).unwrap();
        let now = LocalTime::from_date(2026, 1, 1);
        let prompter = Prompter::try_new(profile).unwrap();
        let prompt = prompter.prompt(&request, now).unwrap();
        for (file, field) in [
            ("tokenize_response.json", "tokens"),
            ("render_response.json", "token_ids"),
        ] {
            let Some(answer) = read(&capture.join(file)) else {
                continue;
            };
            // An engine without the page answers with an error.
            let Some(ids) = answer[field].as_array() else {
                continue;
            };
            let pieces: Vec<&[u8]> = ids
                .iter()
                .map(|id| tokens.bytes(u32::try_from(id.as_u64().unwrap()).unwrap()))
                .collect();
            if pieces.iter().any(|piece| piece.is_empty()) {
                // Some captures keep only a part of the vocabulary.
                continue;
            }
            let spelled = pieces.concat();
            let name = format!("{} {file}", capture.display());
            assert_eq!(
                String::from_utf8_lossy(&prompt.text),
                String::from_utf8_lossy(&spelled),
                "{name}"
            );
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// The rules and what is put around a prompt, with the literals in one order.
fn rules(files: &ModelFiles<'_>) -> (Canonicalisation, [String; 2]) {
    let profile = PromptProfile::from_model_files(files).unwrap();
    let mut rules = profile.canonicalisation;
    rules.literals.sort_by(|a, b| a.text.cmp(&b.text));
    (rules, profile.surrounding)
}

#[test]
fn rules_from_the_files_are_those_of_the_loaded_pipeline() {
    let Some(captures) = inputs::folder("PREFIXWAY_FIXTURES", "shared/fixtures/vllm") else {
        return;
    };
    let mut compared = 0;
    for capture in inputs::captures(&captures) {
        let Some(Value::Object(loaded)) = read(&capture.join("effective_pipeline.json")) else {
            continue;
        };
        let model = Model::read(&capture);
        let mut tokenizer: Value = serde_json::from_str(&model.tokenizer).unwrap();
        for (part, value) in loaded {
            tokenizer[part.as_str()] = value;
        }
        let mut config: Value = serde_json::from_str(&model.config).unwrap();
        // The generic class takes tokenizer.json as it stands.
        config["tokenizer_class"] = "PreTrainedTokenizerFast".into();
        let (tokenizer, config) = (tokenizer.to_string(), config.to_string());
        let effective = ModelFiles {
            tokenizer_json: &tokenizer,
            tokenizer_config_json: &config,
            ..model.files()
        };
        let mut expected = rules(&effective);
        let found = rules(&model.files());
        // Defaults of a class may add literals that stand for themselves.
        let has = |text: &str| found.0.literals.iter().any(|literal| literal.text == text);
        assert!(expected.0.literals.iter().all(|literal| has(&literal.text)));
        expected.0.literals.clone_from(&found.0.literals);
        assert_eq!(found, expected, "{}", capture.display());
        compared += 1;
    }
    assert!(compared > 0);
}
