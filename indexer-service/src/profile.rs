//! A model's files: what gateways need for its prompt text, and what the index needs for its tokens.

use std::error::Error;
use std::path::{Path, PathBuf};

use prefixway_core::text::{ModelFiles, PromptProfile, TokenBytes};
use prost::bytes::Bytes;

use crate::config::Model;

/// What to do when a model can't be loaded.
pub const HINT: &str = "model_dir needs tokenizer.json and tokenizer_config.json, and chat_template.jinja where the latter has no template";

/// Largest file read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A loaded model.
#[derive(Debug)]
pub struct Profile {
    /// JSON of the prompt profile; empty where the text can't be derived.
    pub json: Bytes,
    /// Revision of the profile; 0 where there is none.
    pub revision: u64,
    /// Bytes of each token; `None` where the tokenizer is not supported.
    pub vocabulary: Option<TokenBytes>,
    /// Why the text can't be derived, so that requests are routed by load alone.
    pub blind_reason: Option<String>,
}

/// A model file that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("can't read {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too large for what it should be.
    #[error("{path} is larger than {MAX_FILE_BYTES} bytes", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

struct Files {
    tokenizer: String,
    tokenizer_config: String,
    chat_template: Option<String>,
}

impl Profile {
    /// Reads the model's files.
    ///
    /// # Errors
    /// A file can't be read. Files that are read and not understood make a blind profile.
    pub fn load(model: &Model) -> Result<Self, LoadError> {
        let files = Files::read(model)?;
        let profile = Self::from_files(&files);
        if let Some(reason) = &profile.blind_reason {
            tracing::warn!(
                model = model.id,
                reason,
                "no prompt text: the model is routed by load alone"
            );
        }
        Ok(profile)
    }

    fn from_files(files: &Files) -> Self {
        let vocabulary = TokenBytes::from_tokenizer_json(&files.tokenizer);
        let profile = PromptProfile::from_model_files(&ModelFiles {
            tokenizer_json: &files.tokenizer,
            tokenizer_config_json: &files.tokenizer_config,
            chat_template: files.chat_template.as_deref(),
        });
        let (vocabulary, profile) = match (vocabulary, profile) {
            (Ok(vocabulary), Ok(profile)) => (vocabulary, profile),
            (Err(error), _) | (_, Err(error)) => return Self::blind(with_causes(&error)),
        };
        match serde_json::to_vec(&profile) {
            Ok(json) => Self {
                json: json.into(),
                revision: profile.revision(),
                vocabulary: Some(vocabulary),
                blind_reason: None,
            },
            Err(error) => Self::blind(with_causes(&error)),
        }
    }

    fn blind(reason: String) -> Self {
        Self {
            json: Bytes::new(),
            revision: 0,
            vocabulary: None,
            blind_reason: Some(reason),
        }
    }
}

impl Files {
    fn read(model: &Model) -> Result<Self, LoadError> {
        let in_folder = |name: &str| model.model_dir.join(name);
        let chat_template = match &model.chat_template {
            Some(path) => Some(read(path)?),
            None => read_if_there(&in_folder("chat_template.jinja"))?,
        };
        Ok(Self {
            tokenizer: read(&in_folder("tokenizer.json"))?,
            tokenizer_config: read(&in_folder("tokenizer_config.json"))?,
            chat_template,
        })
    }
}

fn read(path: &Path) -> Result<String, LoadError> {
    let read = || -> std::io::Result<Option<String>> {
        if std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
            return Ok(None);
        }
        std::fs::read_to_string(path).map(Some)
    };
    match read() {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(LoadError::TooLarge {
            path: path.to_owned(),
        }),
        Err(source) => Err(LoadError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn read_if_there(path: &Path) -> Result<Option<String>, LoadError> {
    match read(path) {
        Err(LoadError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<Profile, LoadError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Profile::load(&Model {
            id: "m".to_owned(),
            names: Vec::new(),
            adapters: Vec::new(),
            model_dir: folder.path().to_owned(),
            chat_template: None,
            pool: "p".to_owned(),
        })
    }

    #[test]
    fn files_that_are_not_understood_make_a_blind_profile_with_a_reason() {
        let profile = load(&[("tokenizer.json", "{"), ("tokenizer_config.json", "{}")]).unwrap();
        assert!(profile.json.is_empty() && profile.vocabulary.is_none());
        let reason = profile.blind_reason.unwrap();
        assert!(
            reason.starts_with("tokenizer.json can't be read: "),
            "{reason}"
        );
    }

    #[test]
    fn missing_files_are_named() {
        let error = load(&[("tokenizer.json", "{}")]).unwrap_err();
        assert!(
            error.to_string().contains("tokenizer_config.json"),
            "{error}"
        );
    }
}
