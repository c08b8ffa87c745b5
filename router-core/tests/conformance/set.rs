//! The fixed set: templates times conversations, with the text that jinja2 gave (`scripts/conformance.sh`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::compare::{self, NOW, Outcome, SPECIAL_TOKENS};

/// Fewest pairs that the set has to have.
const FEWEST_PAIRS: usize = 400;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// Name and source of every template of the set.
pub(crate) fn templates() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder().join("templates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[derive(Deserialize)]
struct Conversation {
    id: String,
    body: Box<RawValue>,
}

#[derive(Deserialize)]
struct Header {
    now: String,
    special_tokens: HashMap<String, String>,
    jinja2: String,
    engine: String,
}

#[derive(Deserialize)]
struct Expected {
    template: String,
    conversation: String,
    text: Option<String>,
    fails: Option<String>,
}

#[test]
fn every_pair_is_rendered_as_jinja2_renders_it() {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let bodies: HashMap<String, Box<RawValue>> = read("conversations.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Conversation>(line).unwrap())
        .map(|conversation| (conversation.id, conversation.body))
        .collect();
    let templates = templates();
    let prompters: HashMap<&str, _> = templates
        .iter()
        .map(|(name, source)| (name.as_str(), compare::prompter(source)))
        .collect();
    let expected = read("expected.jsonl");
    let mut lines = expected.lines();
    let header: Header = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(header.now, NOW);
    assert_eq!(header.special_tokens.len(), SPECIAL_TOKENS.len());
    let (mut pairs, mut texts, mut differences) = (0, 0, Vec::new());
    for line in lines {
        let Expected {
            template,
            conversation,
            text,
            fails,
        } = serde_json::from_str(line).unwrap();
        let theirs = match (text, fails.as_deref()) {
            (Some(text), _) => Outcome::Text(text),
            (None, Some("request")) => Outcome::Invalid("request".into()),
            (None, _) => Outcome::Refuses("template".into()),
        };
        let ours = match &prompters[template.as_str()] {
            Ok(prompter) => compare::render(prompter, bodies[&conversation].get()),
            Err(error) => {
                Outcome::Refuses(format!("{error}: {:?}", std::error::Error::source(error)))
            }
        };
        pairs += 1;
        texts += usize::from(matches!(theirs, Outcome::Text(_)));
        if !compare::agree(&ours, &theirs) || matches!(ours, Outcome::Skips(_)) {
            differences.push(format!(
                "{template}, {conversation}: {}",
                compare::describe(&ours, &theirs)
            ));
        }
    }
    println!(
        "{pairs} pairs, {texts} with text, {} differ ({}, jinja2 {})",
        differences.len(),
        header.engine,
        header.jinja2
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(
        pairs,
        templates.len() * bodies.len(),
        "a pair is missing: run scripts/conformance.sh"
    );
    assert!(pairs >= FEWEST_PAIRS);
}
