//! A model's profile: what gateways need for its prompt text, and what the index needs for its tokens.

use std::error::Error;

use prefixway_core::text::{ProfileError, PromptProfile, ServerFlags, TokenBytes, Variant};
use prost::bytes::Bytes;

use crate::config::{self, Model};
use crate::model_dir::{LoadError, ModelDir};

/// A loaded model.
#[derive(Clone, Debug)]
pub struct Profile {
    /// How prompts are spelled; where the engine's text can't be derived, the outline.
    pub spelling: Spelling,
    /// Bytes of each token; `None` where the engine's text can't be derived.
    pub vocabulary: Option<TokenBytes>,
    /// Ways to spell prompts that the files leave open, the present one first; empty where the text can't be derived.
    pub variants: Vec<Variant>,
    /// Why the engine's text can't be derived, so that the model is known from decisions alone.
    pub approximate_reason: Option<String>,
}

/// A prompt profile as gateways take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// JSON of the profile.
    pub json: Bytes,
    /// Its revision.
    pub revision: u64,
}

impl Spelling {
    /// The spelling of `profile`.
    pub fn new(profile: &PromptProfile) -> Self {
        Self {
            // A profile holds strings, flags and lists only, so writing it can't fail.
            json: serde_json::to_vec(profile).unwrap_or_default().into(),
            revision: profile.revision(),
        }
    }

    /// The one of models whose text is not known.
    pub fn outline() -> Self {
        Self::new(&PromptProfile::outline())
    }
}

impl Profile {
    /// Reads the model's files.
    ///
    /// # Errors
    /// A file can't be read. Files that are read and not understood make an approximate profile.
    pub fn load(model: &Model) -> Result<Self, LoadError> {
        let files = ModelDir::read(&model.model_dir, model.chat_template.as_deref())?;
        let profile = Self::from_files(&files, &model.server);
        if let Some(reason) = &profile.approximate_reason {
            tracing::warn!(
                model = model.id,
                reason,
                "the engine's prompt text is not known: the model is routed by decisions alone"
            );
        }
        Ok(profile)
    }

    fn from_files(files: &ModelDir, server: &config::Server) -> Self {
        let flags = ServerFlags {
            tokenizer_mode: server.tokenizer_mode.as_deref(),
            content_format: server.content_format,
            default_kwargs: server.default_kwargs.as_deref(),
            exclude_tools_when_tool_choice_none: server.exclude_tools_when_tool_choice_none,
        };
        let derived = files.with_folder(flags, |folder| {
            let variants = folder.variants()?;
            Ok::<_, ProfileError>((variants, TokenBytes::from_model_files(&folder.files)?))
        });
        match derived {
            None => Self::approximate("the model has no tokenizer.json".to_owned()),
            Some(Err(error)) => Self::approximate(with_causes(&error)),
            Some(Ok((variants, vocabulary))) => Self {
                spelling: variants
                    .first()
                    .map_or_else(Spelling::outline, |first| Spelling::new(&first.profile)),
                vocabulary: Some(vocabulary),
                variants,
                approximate_reason: None,
            },
        }
    }

    fn approximate(reason: String) -> Self {
        Self {
            spelling: Spelling::outline(),
            vocabulary: None,
            variants: Vec::new(),
            approximate_reason: Some(reason),
        }
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

    fn load(files: &[(&str, &str)]) -> Profile {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let files = ModelDir::read(folder.path(), None).unwrap();
        Profile::from_files(&files, &config::Server::default())
    }

    #[test]
    fn models_whose_text_is_not_known_are_told_apart_by_outline_with_a_reason() {
        let tokenizer =
            r#"{"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#;
        for (files, reason) in [
            (
                &[("tokenizer.json", "{"), ("tokenizer_config.json", "{}")][..],
                "tokenizer.json can't be read: ",
            ),
            (
                &[
                    ("tokenizer.json", tokenizer),
                    ("tokenizer_config.json", "{}"),
                    (
                        "config.json",
                        r#"{"architectures":["DeepseekV32ForCausalLM"]}"#,
                    ),
                ],
                "renderer deepseek_v32 is not supported: ",
            ),
            (&[("tekken.json", "{}")], "the model has no tokenizer.json"),
        ] {
            let profile = load(files);
            assert_eq!(profile.spelling, Spelling::outline());
            assert!(profile.vocabulary.is_none() && profile.variants.is_empty());
            let found = profile.approximate_reason.unwrap();
            assert!(found.starts_with(reason), "{found}");
        }
        let known = load(&[
            ("tokenizer.json", tokenizer),
            ("tokenizer_config.json", "{}"),
        ]);
        assert_eq!(known.approximate_reason, None);
        assert_ne!(known.spelling, Spelling::outline());
    }
}
