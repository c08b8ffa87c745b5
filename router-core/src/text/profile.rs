//! What a gateway needs of a model to derive prompt text; travels as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::canonical::Canonicalisation;
use super::dialect::Dialect;
use super::error::ProfileError;
use super::json::Json;
use super::messages::ContentFormat;
use super::model_folder::ModelFolder;
use super::template::ChatTemplate;

/// Number of the rules in this module. It is part of every [`PromptProfile::revision`]: raise it when the same profile would give
/// another text.
const RULES_VERSION: u64 = 1;

/// The files of a model folder.
#[derive(Clone, Copy, Debug)]
pub struct ModelFiles<'a> {
    /// `tokenizer.json`.
    pub tokenizer_json: &'a str,
    /// `tokenizer_config.json`.
    pub tokenizer_config_json: &'a str,
    /// `chat_template.jinja`, which takes the place of the configuration's default template.
    pub chat_template: Option<&'a str>,
}

/// How a model's prompts are spelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptProfile {
    /// How chats become text; the fields down to `exclude_tools_when_tool_choice_none` belong to [`Dialect::Jinja`].
    #[serde(default, skip_serializing_if = "Dialect::is_jinja")]
    pub dialect: Dialect,
    /// The chat template; `None`: chats have no text.
    pub template: Option<Template>,
    /// Another template for requests with tools, where the model has one.
    #[serde(default)]
    pub tool_template: Option<Template>,
    /// Special tokens that templates see, such as `bos_token`.
    pub special_tokens: BTreeMap<String, String>,
    /// Template arguments that the server is started with, as the text of a JSON object; a request's own override them.
    #[serde(default)]
    pub default_kwargs: Option<String>,
    /// Whether the server hides tools from the template where `tool_choice` is `none`.
    #[serde(default)]
    pub exclude_tools_when_tool_choice_none: bool,
    /// How prompt text becomes canonical.
    pub canonicalisation: Canonicalisation,
    /// Literals that stand before and after a prompt where the tokenizer adds its special tokens.
    pub surrounding: [String; 2],
}

/// A chat template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Jinja source.
    pub source: String,
    /// How it wants the content of messages.
    pub content_format: ContentFormat,
}

impl Template {
    /// Compiles `source` to see whether it can be; `format` overrides what its syntax tree tells.
    pub(super) fn detect(
        source: &str,
        format: Option<ContentFormat>,
    ) -> Result<Self, ProfileError> {
        let content_format = ChatTemplate::compile(source, format)?.format();
        Ok(Self {
            source: source.to_owned(),
            content_format,
        })
    }
}

impl PromptProfile {
    /// Derives a profile from a model's files: [`ModelFolder::profile`] without its other files.
    ///
    /// # Errors
    ///
    /// A file can't be read, or prompts can't be followed byte by byte through this tokenizer or template.
    pub fn from_model_files(files: &ModelFiles<'_>) -> Result<Self, ProfileError> {
        ModelFolder::from(*files).profile()
    }

    /// The profile of a model whose engine text is not known: chats are told apart, and their prefixes found, by their outline.
    pub fn outline() -> Self {
        Self {
            dialect: Dialect::Outline,
            template: None,
            tool_template: None,
            special_tokens: BTreeMap::new(),
            default_kwargs: None,
            exclude_tools_when_tool_choice_none: false,
            canonicalisation: Canonicalisation::default(),
            surrounding: [String::new(), String::new()],
        }
    }

    /// Sets the server's default template arguments.
    ///
    /// # Errors
    ///
    /// `json` is no JSON object.
    pub fn with_default_kwargs(mut self, json: &str) -> Result<Self, ProfileError> {
        match Json::parse(json) {
            Ok((Json::Object(_), flaws)) if flaws.check().is_ok() => {
                self.default_kwargs = Some(json.to_owned());
                Ok(self)
            }
            _ => Err(ProfileError::DefaultKwargs),
        }
    }

    /// A stable number of everything that changes text: two profiles of the same revision spell every prompt alike.
    ///
    /// `XXH3-64` of the rules' version (u64 LE) and the profile's JSON with fields in declaration order.
    pub fn revision(&self) -> u64 {
        let mut bytes = RULES_VERSION.to_le_bytes().to_vec();
        // A profile holds strings, flags and lists only, so writing it can't fail.
        if let Ok(json) = serde_json::to_vec(self) {
            bytes.extend_from_slice(&json);
        }
        xxh3_64(&bytes)
    }
}

#[cfg(test)]
mod tests;
