//! Simulated engines and the folders that they and the indexer read.

use std::fmt::Write;
use std::path::Path;

use prefixway_engine_sim::{Engine, EngineConfig, Timing};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::indexer::model_dir;

/// A copy of the tests' model folder, its template replaced where one is given.
pub(crate) fn tinybpe(template: Option<&str>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(model_dir()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    if let Some(template) = template {
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    }
    folder
}

/// A folder with a SentencePiece-style tokenizer, whose files leave open where spaces are put.
pub(crate) fn sentence_pieces(tokenizer_class: &str) -> TempDir {
    const TEMPLATE: &str =
        "<s>{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../router-core/tests/fixtures/tokenizer_classes/cases.json");
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    // The first one that is no excerpt of another file.
    let tokenizers = cases["tokenizers_json"].as_array().unwrap();
    let tokenizer = tokenizers
        .iter()
        .find(|tokenizer| tokenizer["model"].is_object())
        .unwrap();
    let config = json!({"tokenizer_class": tokenizer_class, "bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE});
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", &config),
    ] {
        std::fs::write(folder.path().join(name), content.to_string()).unwrap();
    }
    folder
}

/// An engine that answers at once.
pub(crate) async fn engine(folder: &Path) -> Engine {
    engine_at(folder, "127.0.0.1:0").await
}

/// An engine on an address that is free.
pub(crate) async fn engine_at(folder: &Path, address: &str) -> Engine {
    let config = EngineConfig {
        timing: Timing::instant(),
        http: address.parse().unwrap(),
        ..EngineConfig::new("engine", folder)
    };
    prefixway_engine_sim::start(config).await.unwrap()
}

/// Settings of an indexer with one model and these engines.
pub(crate) fn settings(folder: &Path, more: &str, engines: &[&Engine]) -> String {
    let mut text = format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nseed: 0x5eed\nready_grace: 1h\n\
         scrape: {{interval: 20ms, idle_interval: 50ms}}\n\
         models: [{{id: tiny, names: [tiny], model_dir: '{}'{more}}}]\nendpoints:",
        folder.display()
    );
    for engine in engines {
        let _ = write!(
            text,
            "\n- {{address: '{}', model: tiny, events: {{connect: '{}', replay: '{}'}}}}",
            engine.http_addr(),
            engine.events_endpoint().unwrap(),
            engine.replay_endpoint().unwrap()
        );
    }
    text
}

/// Sends a completion prompt to an engine and waits for the reply.
pub(crate) async fn complete(engine: &Engine, prompt: &str) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .post(format!("http://{}/v1/completions", engine.http_addr()))
        .json(&json!({"model": "model", "prompt": prompt, "max_tokens": 1}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}
