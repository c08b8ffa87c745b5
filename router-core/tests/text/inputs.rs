//! Where captures and cases are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use prefixway_core::text::{ModelFiles, PromptProfile, Prompter};

/// Folder of captures that are part of this crate.
pub(crate) fn own_captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm")
}

/// The folder that `variable` names, or `default` beside the workspace; `None`, with a message, if it is absent.
pub(crate) fn folder(variable: &str, default: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = std::env::var_os(variable)
        .map_or_else(|| workspace.join("..").join(default), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // A relative path is taken from the workspace too, where the test runner starts.
    let inside = workspace.join(&folder);
    if inside.is_dir() {
        return Some(inside);
    }
    println!(
        "skipped: no folder {} (set {variable} to use another)",
        folder.display()
    );
    None
}

/// Captures in `folder`: subfolders with requests and a model.
pub(crate) fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.join("requests.jsonl").is_file() && path.join("model/tokenizer.json").is_file()
        })
        .collect();
    found.sort();
    found
}

/// The compiled profile of one of this crate's captures.
pub(crate) fn prompter(name: &str) -> Arc<Prompter> {
    static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Prompter>>>> =
        LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap();
    compiled
        .entry(name.to_owned())
        .or_insert_with(|| Arc::new(compile(name)))
        .clone()
}

fn compile(name: &str) -> Prompter {
    let model = own_captures().join(name).join("model");
    let read = |file: &str| std::fs::read_to_string(model.join(file)).unwrap();
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &read("tokenizer.json"),
        tokenizer_config_json: &read("tokenizer_config.json"),
        chat_template: Some(&read("chat_template.jinja")),
    });
    Prompter::try_new(profile.unwrap()).unwrap()
}
