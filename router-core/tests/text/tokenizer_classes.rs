//! Canonical text and token bytes against transformers, for every tokenizer class that is followed.
//!
//! `tests/fixtures/tokenizer_classes/make.py` made the cases; it says with which versions.

use std::path::Path;

use prefixway_core::text::{
    Api, LocalTime, ModelFiles, ModelFolder, PromptProfile, Prompter, TokenBytes, parse,
};
use serde_json::{Value, json};

fn read(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The canonical text of a completion prompt.
fn canonical(prompter: &Prompter, prompt: &Value, add_special_tokens: bool) -> Vec<u8> {
    let body = json!({"prompt": prompt, "add_special_tokens": add_special_tokens}).to_string();
    let request = parse(Api::Completions, body.as_bytes()).unwrap();
    let now = LocalTime::from_date(2026, 1, 1);
    prompter.prompt(&request, now).unwrap().text
}

/// How many texts the profile spells otherwise than `ids` do.
fn differences(
    profile: PromptProfile,
    tokens: &TokenBytes,
    texts: &[Value],
    ids: &[Value],
) -> usize {
    let prompter = Prompter::try_new(profile).unwrap();
    let spelled = |ids: &Value| -> Vec<u8> {
        let ids = ids.as_array().unwrap().iter();
        ids.flat_map(|id| {
            tokens
                .bytes(u32::try_from(id.as_u64().unwrap()).unwrap())
                .to_vec()
        })
        .collect()
    };
    let pairs = texts.iter().zip(ids);
    pairs
        .flat_map(|(text, ids)| [(text, &ids[0], false), (text, &ids[1], true)])
        .filter(|(text, ids, add)| canonical(&prompter, text, *add) != spelled(ids))
        .count()
}

#[test]
fn text_equals_what_the_tokens_spell_under_every_class() {
    let made = read("tests/fixtures/tokenizer_classes/cases.json");
    let vocabulary = read("tests/fixtures/vllm/tinybpe/model/tokenizer.json")["model"].clone();
    let texts = made["texts"].as_array().unwrap();
    let (mut followed, mut refused) = (0, Vec::new());
    for case in made["cases"].as_array().unwrap() {
        let number = usize::try_from(case["tokenizer"].as_u64().unwrap()).unwrap();
        let mut tokenizer = made["tokenizers_json"][number].clone();
        if tokenizer["model"] == "tinybpe" {
            tokenizer["model"] = vocabulary.clone();
        }
        let (tokenizer, config) = (tokenizer.to_string(), case["config"].to_string());
        let model = json!({"model_type": case["model_type"]}).to_string();
        let files = ModelFiles {
            tokenizer_json: &tokenizer,
            tokenizer_config_json: &config,
            chat_template: None,
        };
        let folder = ModelFolder {
            config_json: Some(&model),
            ..ModelFolder::from(files)
        };
        let name = format!(
            "{} as {}: {}",
            case["model_type"], case["class"], case["title"]
        );
        let Ok(variants) = folder.variants() else {
            refused.push(name);
            continue;
        };
        let tokens = TokenBytes::from_model_files(&files).unwrap();
        let ids = case["ids"].as_array().unwrap();
        let first = variants.into_iter().next().unwrap().profile;
        assert_eq!(
            differences(first, &tokens, texts, ids),
            0,
            "{name} {config}"
        );
        followed += 1;
    }
    // What can't be followed: spaces inside of text, and tokens that are looked for in normalised text.
    let expected = [
        "qwen3 as Qwen2Tokenizer: space before",
        "qwen3_5 as Qwen3_5Tokenizer: space before",
        "cohere2 as CohereTokenizer: space before",
        "qwen2 as Qwen2Tokenizer: space before",
        "llama as TokenizersBackend: late tokens",
        "mistral as TokenizersBackend: late tokens",
        "gemma3 as GemmaTokenizer: late tokens",
    ];
    let refused: Vec<String> = refused.iter().map(|name| name.replace('"', "")).collect();
    assert_eq!(refused, expected);
    assert_eq!(
        followed,
        made["cases"].as_array().unwrap().len() - expected.len()
    );
}
