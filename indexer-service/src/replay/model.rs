//! The model of a capture.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use prefixway_core::text::{ModelFiles, ProfileError, PromptProfile, Prompter, TokenBytes};

/// Why a model folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file can't be read.
    #[error("can't read {path}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The model's prompts can't be derived.
    #[error("can't derive prompts from {path}", path = path.display())]
    Profile {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: ProfileError,
    },
}

/// What it takes to make prompts and to read token ids.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) prompter: Prompter,
    pub(super) tokens: TokenBytes,
    pub(super) revision: u64,
    pub(super) adapters: BTreeSet<String>,
}

impl Model {
    pub(super) fn load(folder: &Path, adapters: BTreeSet<String>) -> Result<Self, ModelError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|source| ModelError::File { path, source })
        };
        let tokenizer = read("tokenizer.json")?;
        let config = read("tokenizer_config.json")?;
        let template = match read("chat_template.jinja") {
            Ok(template) => Some(template),
            Err(ModelError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                None
            }
            Err(error) => return Err(error),
        };
        let derive = || {
            let profile = PromptProfile::from_model_files(&ModelFiles {
                tokenizer_json: &tokenizer,
                tokenizer_config_json: &config,
                chat_template: template.as_deref(),
            })?;
            Ok(Self {
                revision: profile.revision(),
                prompter: Prompter::try_new(profile)?.keep_rendered(),
                tokens: TokenBytes::from_tokenizer_json(&tokenizer)?,
                adapters,
            })
        };
        derive().map_err(|source| ModelError::Profile {
            path: folder.to_owned(),
            source,
        })
    }
}
