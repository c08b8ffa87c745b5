//! The parts of `tokenizer.json` and `tokenizer_config.json` that tell how text becomes tokens.

use std::collections::BTreeMap;

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

impl AddedToken {
    /// A special token without an id of its own.
    pub(super) fn special(content: &str) -> Self {
        Self {
            id: u64::MAX,
            content: content.to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }
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
#[derive(Debug, Default, Deserialize)]
pub(super) struct TokenizerConfig {
    pub(super) tokenizer_class: Option<String>,
    pub(super) add_bos_token: Option<bool>,
    pub(super) add_eos_token: Option<bool>,
    pub(super) add_prefix_space: Option<bool>,
    pub(super) legacy: Option<bool>,
    #[serde(default)]
    pub(super) split_special_tokens: Option<bool>,
    auto_map: Option<Value>,
    chat_template: Option<Templates>,
    added_tokens_decoder: Option<BTreeMap<u64, ConfigToken>>,
    extra_special_tokens: Option<Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// An added token as `tokenizer_config.json` has it.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the file format has these flags"
)]
struct ConfigToken {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

/// One chat template or several with names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
    ByName(BTreeMap<String, String>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// Special tokens that every tokenizer has a name for.
const STANDARD_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

impl TokenizerConfig {
    pub(super) fn read(json: &str) -> Result<Self, ProfileError> {
        serde_json::from_str(json).map_err(|source| ProfileError::File {
            file: "tokenizer_config.json",
            source,
        })
    }

    /// Whether the tokenizer is code that comes with the model.
    pub(super) fn has_own_code(&self) -> bool {
        match &self.auto_map {
            Some(Value::Array(classes)) => !classes.is_empty(),
            Some(Value::Object(map)) => map.get("AutoTokenizer").is_some_and(|map| !map.is_null()),
            _ => false,
        }
    }

    /// The special tokens that templates see, by name. `defaults` are those of the tokenizer's class, for names that don't occur.
    pub(super) fn special_tokens(
        &self,
        defaults: &'static [(&'static str, &'static str)],
    ) -> BTreeMap<String, String> {
        let mut tokens = BTreeMap::new();
        for name in STANDARD_TOKENS {
            // A string or, with its flags, an object.
            let literal = self.rest.get(name).and_then(|token| {
                token
                    .as_str()
                    .or_else(|| token.get("content").and_then(Value::as_str))
            });
            if let Some(literal) = literal {
                tokens.insert(name.to_owned(), literal.to_owned());
            }
        }
        for (name, literal) in defaults {
            if !self.rest.contains_key(*name) {
                tokens.insert((*name).to_owned(), (*literal).to_owned());
            }
        }
        // Names of the model's own.
        let own = self
            .rest
            .iter()
            .filter(|(name, _)| name.ends_with("_token"));
        let extra = self
            .extra_special_tokens
            .as_ref()
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        for (name, token) in own.chain(extra) {
            if let (Some(literal), false) =
                (token.as_str(), STANDARD_TOKENS.contains(&name.as_str()))
            {
                tokens.insert(name.clone(), literal.to_owned());
            }
        }
        tokens
    }

    /// The added tokens by id, as this file has them; `None` where it has no list.
    pub(super) fn added_tokens(&self) -> Option<Vec<AddedToken>> {
        let tokens = self.added_tokens_decoder.as_ref()?;
        let added = |(&id, token): (&u64, &ConfigToken)| AddedToken {
            id,
            content: token.content.clone(),
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            normalized: token.normalized.unwrap_or(!token.special),
            special: token.special,
        };
        Some(tokens.iter().map(added).collect())
    }

    /// The template called `name`; a single template is called `default`.
    pub(super) fn template(&self, name: &str) -> Option<&str> {
        match self.chat_template.as_ref()? {
            Templates::One(template) => (name == "default").then_some(template),
            Templates::Named(templates) => templates
                .iter()
                .find(|named| named.name == name)
                .map(|named| named.template.as_str()),
            Templates::ByName(templates) => templates.get(name).map(String::as_str),
        }
    }
}

/// `config.json`, as far as it tells how prompts are made.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ModelConfig {
    /// Whether there is such a file at all.
    #[serde(skip)]
    pub(super) is_given: bool,
    pub(super) model_type: Option<String>,
    #[serde(default)]
    pub(super) architectures: Option<Vec<String>>,
    pub(super) tokenizer_class: Option<String>,
}

impl ModelConfig {
    pub(super) fn read(json: &str) -> Result<Self, ProfileError> {
        let read: Self = serde_json::from_str(json).map_err(|source| ProfileError::File {
            file: "config.json",
            source,
        })?;
        Ok(Self {
            is_given: true,
            ..read
        })
    }
}
