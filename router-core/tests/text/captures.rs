//! Rendered text and canonical bytes of every captured request.

use std::collections::HashMap;
use std::path::Path;

use prefixway_core::hash::Space;
use prefixway_core::text::{
    Api, LocalTime, ModelFiles, PromptProfile, Prompter, TokenBytes, parse,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::inputs;

#[derive(Deserialize)]
struct Captured {
    i: u32,
    kind: String,
    path: String,
    body: Option<Box<RawValue>>,
    rendered: Option<String>,
    prompt_token_ids: Option<Vec<u32>>,
}

/// How many requests of a capture were compared.
#[derive(Debug, Default, PartialEq)]
struct Compared {
    chats: usize,
    texts: usize,
    tokens: usize,
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares every request of a capture and panics with all that differ.
fn compare(capture: &Path) -> Compared {
    let model = capture.join("model");
    let template = std::fs::read_to_string(model.join("chat_template.jinja")).ok();
    let tokenizer_json = read(&model.join("tokenizer.json"));
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &tokenizer_json,
        tokenizer_config_json: &read(&model.join("tokenizer_config.json")),
        chat_template: template.as_deref(),
    })
    .unwrap();
    let token_bytes = TokenBytes::from_tokenizer_json(&tokenizer_json).unwrap();
    let travelled: PromptProfile =
        serde_json::from_str(&serde_json::to_string(&profile).unwrap()).unwrap();
    assert_eq!(travelled.revision(), profile.revision());
    let prompter = Prompter::try_new(travelled).unwrap().keep_rendered();
    let now = LocalTime::from_date(2026, 1, 1);
    let mut compared = Compared::default();
    let mut differences = Vec::new();
    for line in read(&capture.join("requests.jsonl")).lines() {
        let captured: Captured = serde_json::from_str(line).unwrap();
        let (Some(body), Some(ids)) = (&captured.body, &captured.prompt_token_ids) else {
            continue;
        };
        let name = format!("{} ({})", captured.i, captured.kind);
        let api = Api::from_path(&captured.path).unwrap();
        let request = parse(api, body.get().as_bytes()).unwrap();
        let prompt = match prompter.prompt(&request, now) {
            Ok(prompt) => prompt,
            Err(reason) => {
                differences.push(format!("{name}: {reason}"));
                continue;
            }
        };
        let Some(rendered) = &captured.rendered else {
            assert_eq!(prompt.space, Space::Token);
            assert_eq!(
                prompt.text,
                ids.iter()
                    .flat_map(|id| id.to_le_bytes())
                    .collect::<Vec<u8>>()
            );
            compared.tokens += 1;
            continue;
        };
        compared.chats += usize::from(api == Api::Chat);
        compared.texts += 1;
        if prompt.rendered.as_ref() != Some(rendered) {
            let ours = prompt.rendered.unwrap_or_default();
            differences.push(format!(
                "{name}: rendered {}",
                first_difference(ours.as_bytes(), rendered.as_bytes())
            ));
        }
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| token_bytes.bytes(id))
            .copied()
            .collect();
        if prompt.text != bytes {
            differences.push(format!(
                "{name}: bytes {}",
                first_difference(&prompt.text, &bytes)
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{}:\n{}",
        capture.display(),
        differences.join("\n")
    );
    compared
}

fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| {
        let range = at.saturating_sub(20)..(at + 20).min(bytes.len());
        String::from_utf8_lossy(&bytes[range]).into_owned()
    };
    format!(
        "differs at {at}: {:?} for {:?}",
        around(ours),
        around(theirs)
    )
}

#[test]
fn text_of_own_captures_equals_the_engines() {
    let own = inputs::own_captures();
    assert_eq!(
        compare(&own.join("tinybpe")),
        Compared {
            chats: 161,
            texts: 167,
            tokens: 2
        }
    );
    assert_eq!(
        compare(&own.join("llama3_1")),
        Compared {
            chats: 165,
            texts: 171,
            tokens: 2
        }
    );
}

#[test]
fn text_of_every_capture_equals_the_engines() {
    let Some(folder) = inputs::folder("PREFIXWAY_FIXTURES", "shared/fixtures/vllm") else {
        return;
    };
    for capture in inputs::captures(&folder) {
        println!("{}: {:?}", capture.display(), compare(&capture));
    }
}

#[test]
fn token_bytes_equal_the_captured_pieces() {
    let own = inputs::own_captures();
    let mut folders = inputs::captures(&own);
    folders.extend(
        inputs::folder("PREFIXWAY_FIXTURES", "shared/fixtures/vllm")
            .iter()
            .flat_map(|folder| inputs::captures(folder)),
    );
    for capture in folders {
        let pieces = capture.join("pieces.json");
        if !pieces.is_file() {
            continue;
        }
        let pieces: HashMap<u32, String> = serde_json::from_str(&read(&pieces)).unwrap();
        let tokens =
            TokenBytes::from_tokenizer_json(&read(&capture.join("model/tokenizer.json"))).unwrap();
        assert!(!pieces.is_empty());
        for (id, piece) in pieces {
            assert_eq!(
                tokens.bytes(id),
                base64(&piece),
                "{} token {id}",
                capture.display()
            );
        }
    }
}

fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes().filter(|&letter| letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("not base64: {text}"),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    bytes
}
