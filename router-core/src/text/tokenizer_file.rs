//! The parts of `tokenizer.json` and `tokenizer_config.json` that tell how text becomes tokens.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ProfileError;

/// `tokenizer.json`.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizerFile<'a> {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(super) normalizer: Value,
    #[serde(default)]
    pub(super) pre_tokenizer: Value,
    #[serde(default)]
    pub(super) post_processor: Value,
    #[serde(default)]
    pub(super) decoder: Value,
    #[serde(borrow)]
    pub(super) model: Model<'a>,
}

/// A token that is found in text before anything else.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the file format has these flags"
)]
pub(super) struct AddedToken {
    pub(super) id: u64,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    pub(super) normalized: bool,
    #[serde(default)]
    pub(super) special: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Model<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    pub(super) vocab: &'a RawValue,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default, borrow)]
    merges: Option<&'a RawValue>,
}

/// How pieces spell bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each character stands for one byte (GPT-2's table).
    ByteLevel,
    /// U+2581 stands for a space and `<0xNN>` for a byte.
    SentencePiece,
}

impl<'a> TokenizerFile<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, ProfileError> {
        serde_json::from_str(json).map_err(|source| ProfileError::File {
            file: "tokenizer.json",
            source,
        })
    }

    /// How pieces spell bytes.
    ///
    /// # Errors
    ///
    /// The model doesn't keep the text: it is no BPE, or unknown characters become one token.
    pub(super) fn spelling(&self) -> Result<Spelling, ProfileError> {
        let model = &self.model;
        match &model.kind {
            Some(kind) if kind != "BPE" => return Err(ProfileError::Model { kind: kind.clone() }),
            None if model.merges.is_none() => {
                return Err(ProfileError::Model {
                    kind: "(none)".into(),
                });
            }
            _ => {}
        }
        let decoders = steps(&self.decoder, "decoders");
        if decoders.into_iter().any(|step| kind(step) == "ByteLevel") {
            return Ok(Spelling::ByteLevel);
        }
        match &model.unk_token {
            Some(unk) if !model.byte_fallback => {
                Err(ProfileError::UnknownToken { unk: unk.clone() })
            }
            _ => Ok(Spelling::SentencePiece),
        }
    }
}

/// A step or, where it is a sequence, its parts (`list` names their field); nothing for null.
pub(super) fn steps<'b>(step: &'b Value, list: &str) -> Vec<&'b Value> {
    match step.get(list).and_then(Value::as_array) {
        Some(parts) if kind(step) == "Sequence" => parts.iter().collect(),
        _ if step.is_null() => Vec::new(),
        _ => vec![step],
    }
}

/// A step's type, empty where it has none.
pub(super) fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// `tokenizer_config.json`.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizerConfig {
    tokenizer_class: Option<String>,
    pub(super) add_bos_token: Option<bool>,
    pub(super) add_eos_token: Option<bool>,
    pub(super) add_prefix_space: Option<bool>,
    chat_template: Option<Templates>,
    bos_token: Option<Special>,
    eos_token: Option<Special>,
    unk_token: Option<Special>,
    sep_token: Option<Special>,
    pad_token: Option<Special>,
    cls_token: Option<Special>,
    mask_token: Option<Special>,
}

/// A special token, as a string or with its flags.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Special {
    Literal(String),
    Flagged { content: String },
}

/// One chat template or several with names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl TokenizerConfig {
    pub(super) fn read(json: &str) -> Result<Self, ProfileError> {
        serde_json::from_str(json).map_err(|source| ProfileError::File {
            file: "tokenizer_config.json",
            source,
        })
    }

    /// Whether transformers rebuilds the tokenizer as Llama's, whatever `tokenizer.json` says.
    pub(super) fn is_llama(&self) -> bool {
        matches!(
            self.tokenizer_class.as_deref(),
            Some("LlamaTokenizer" | "LlamaTokenizerFast")
        )
    }

    /// The special tokens that templates see, by name.
    pub(super) fn special_tokens(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
            ("unk_token", &self.unk_token),
            ("sep_token", &self.sep_token),
            ("pad_token", &self.pad_token),
            ("cls_token", &self.cls_token),
            ("mask_token", &self.mask_token),
        ]
        .into_iter()
        .filter_map(|(name, token)| match token {
            Some(Special::Literal(literal) | Special::Flagged { content: literal }) => {
                Some((name, literal.as_str()))
            }
            None => None,
        })
    }

    /// The template called `name`; a single template is called `default`.
    pub(super) fn template(&self, name: &str) -> Option<&str> {
        match self.chat_template.as_ref()? {
            Templates::One(template) => (name == "default").then_some(template),
            Templates::Named(templates) => templates
                .iter()
                .find(|named| named.name == name)
                .map(|named| named.template.as_str()),
        }
    }
}
