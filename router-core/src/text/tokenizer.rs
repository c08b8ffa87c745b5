//! A model's tokenizer as an engine loads it: what its files say after the tokenizer class has had its way with them.

use std::collections::BTreeMap;

use super::error::ProfileError;
use super::tokenizer_class::{Pipeline, Rebuilt, pipeline};
use super::tokenizer_file::{AddedToken, ModelConfig, Spelling, TokenizerConfig, TokenizerFile};

/// A loaded tokenizer.
#[derive(Debug)]
pub(super) struct Tokenizer<'a> {
    pub(super) file: &'a TokenizerFile<'a>,
    pub(super) config: &'a TokenizerConfig,
    pub(super) spelling: Spelling,
    /// `None`: the file's own pipeline.
    pub(super) rebuilt: Option<Rebuilt>,
    /// Found in text before anything else, by id.
    pub(super) added_tokens: Vec<AddedToken>,
    /// What templates see, by name.
    pub(super) special_tokens: BTreeMap<String, String>,
}

impl<'a> Tokenizer<'a> {
    /// The tokenizer of the class that the files name.
    ///
    /// # Errors
    ///
    /// The tokenizer doesn't keep text, or its class does something that is not followed.
    pub(super) fn load(
        file: &'a TokenizerFile<'a>,
        config: &'a TokenizerConfig,
        model: &ModelConfig,
    ) -> Result<Self, ProfileError> {
        match pipeline(model, config) {
            Pipeline::File => Self::from_file(file, config),
            Pipeline::Rebuilt(rebuilt) => {
                if file.spelling()? == rebuilt.spelling {
                    Ok(Self::rebuild(file, config, rebuilt))
                } else {
                    // Such a class would lose most text of this vocabulary, so whoever serves the model does not load it.
                    Self::from_file(file, config)
                }
            }
            Pipeline::Unknown { why } => Err(ProfileError::TokenizerClass {
                class: config.tokenizer_class.clone().unwrap_or_default(),
                why,
            }),
        }
    }

    /// The tokenizer that `tokenizer.json` describes, as releases before transformers 5 load it too.
    ///
    /// # Errors
    ///
    /// The tokenizer doesn't keep text.
    pub(super) fn from_file(
        file: &'a TokenizerFile<'a>,
        config: &'a TokenizerConfig,
    ) -> Result<Self, ProfileError> {
        let special_tokens = config.special_tokens(&[]);
        let mut added_tokens = file.added_tokens.clone();
        for token in config.added_tokens().into_iter().flatten() {
            replace_or_add(&mut added_tokens, token);
        }
        add_literals(&mut added_tokens, special_tokens.values());
        Ok(Self {
            file,
            config,
            spelling: file.spelling()?,
            rebuilt: None,
            added_tokens,
            special_tokens,
        })
    }

    fn rebuild(file: &'a TokenizerFile<'a>, config: &'a TokenizerConfig, rebuilt: Rebuilt) -> Self {
        let special_tokens = config.special_tokens(rebuilt.special_tokens);
        // The class never sees the file's list unless the configuration has none.
        let mut added_tokens = config
            .added_tokens()
            .unwrap_or_else(|| file.added_tokens.clone());
        add_literals(&mut added_tokens, special_tokens.values());
        if rebuilt.plain_special_tokens {
            for token in &mut added_tokens {
                if special_tokens
                    .values()
                    .any(|literal| *literal == token.content)
                {
                    (token.lstrip, token.rstrip, token.single_word) = (false, false, false);
                    (token.normalized, token.special) = (false, true);
                }
            }
        }
        Self {
            file,
            config,
            spelling: rebuilt.spelling,
            rebuilt: Some(rebuilt),
            added_tokens,
            special_tokens,
        }
    }

    /// The same tokenizer with the class's other rule for spaces; `None` where there is one rule only.
    pub(super) fn with_other_leading_space(&self) -> Option<Self> {
        let rebuilt = self.rebuilt?;
        let other = rebuilt.other_leading_space?;
        Some(Self {
            file: self.file,
            config: self.config,
            spelling: self.spelling,
            rebuilt: Some(Rebuilt {
                leading_space: Some(other),
                other_leading_space: None,
                ..rebuilt
            }),
            added_tokens: self.added_tokens.clone(),
            special_tokens: self.special_tokens.clone(),
        })
    }
}

/// Of two tokens with one literal the configuration's counts.
fn replace_or_add(tokens: &mut Vec<AddedToken>, token: AddedToken) {
    match tokens
        .iter_mut()
        .find(|other| other.content == token.content)
    {
        Some(other) => {
            *other = AddedToken {
                id: other.id,
                ..token
            };
        }
        None => tokens.push(token),
    }
}

/// Special tokens that no list has are added after the others. Their ids are given out by the library and don't matter to text.
fn add_literals<'s>(tokens: &mut Vec<AddedToken>, literals: impl Iterator<Item = &'s String>) {
    for literal in literals {
        if !literal.is_empty() && !tokens.iter().any(|token| token.content == *literal) {
            tokens.push(AddedToken::special(literal));
        }
    }
}
