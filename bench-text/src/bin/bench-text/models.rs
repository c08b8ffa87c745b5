//! Models whose prompts are measured.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use prefixway_core::text::{ModelFiles, PromptProfile};

/// A model's profile.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// As JSON.
    pub(crate) profile: Vec<u8>,
}

/// Captures that come with the crate.
const OWN: [&str; 2] = ["tinybpe", "llama3_1"];
/// Captures beside the repository, where they are.
const SHARED: [&str; 3] = ["qwen3", "gemma3", "llama2"];

/// Every model that is at hand.
pub(crate) fn all() -> Result<Vec<Model>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = root.join("router-core/tests/fixtures/vllm");
    let shared = std::env::var_os("PREFIXWAY_FIXTURES")
        .map_or_else(|| root.join("../shared/fixtures/vllm"), PathBuf::from);
    let mut models = Vec::new();
    for name in OWN {
        models.push(read(name, &own.join(name))?);
    }
    for name in SHARED {
        let folder = shared.join(name);
        if folder.is_dir() {
            models.push(read(name, &folder)?);
        }
    }
    Ok(models)
}

fn read(name: &'static str, capture: &Path) -> Result<Model> {
    let read = |file: &str| {
        let path = capture.join("model").join(file);
        fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))
    };
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &read("tokenizer.json")?,
        tokenizer_config_json: &read("tokenizer_config.json")?,
        chat_template: Some(&read("chat_template.jinja")?),
    })?;
    Ok(Model {
        name,
        profile: serde_json::to_vec(&profile)?,
    })
}
