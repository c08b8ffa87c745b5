//! Derives the rules from a model's tokenizer files, and refuses tokenizers whose steps they don't cover.

use serde_json::Value;

use super::{Canonicalisation, LeadingSpace, Literal, NormalForm};
use crate::text::error::ProfileError;
use crate::text::token_bytes::SPACE_MARKER;
use crate::text::tokenizer_file::{
    AddedToken, Spelling, TokenizerConfig, TokenizerFile, kind, steps,
};

impl Canonicalisation {
    /// The rules of a tokenizer as transformers loads it.
    ///
    /// # Errors
    ///
    /// The tokenizer loses or changes text in a way that the rules don't cover.
    pub(in crate::text) fn derive(
        file: &TokenizerFile<'_>,
        config: &TokenizerConfig,
    ) -> Result<Self, ProfileError> {
        let spelling = file.spelling()?;
        let mut rules = Self {
            marker_is_space: spelling == Spelling::SentencePiece,
            ..Self::default()
        };
        if config.is_llama() && spelling == Spelling::SentencePiece {
            // transformers 5 rebuilds the pipeline of this class: no normalizer, Metaspace that always puts a space.
            rules.leading_space =
                (config.add_prefix_space != Some(false)).then_some(LeadingSpace::UnlessPresent);
        } else {
            for step in steps(&file.normalizer, "normalizers") {
                rules.normalizer_step(step, spelling)?;
            }
            for (i, step) in steps(&file.pre_tokenizer, "pretokenizers")
                .into_iter()
                .enumerate()
            {
                rules.pre_tokenizer_step(step, i == 0)?;
            }
        }
        rules.take_literals(&file.added_tokens)?;
        Ok(rules)
    }

    fn normalizer_step(&mut self, step: &Value, spelling: Spelling) -> Result<(), ProfileError> {
        let text = |path: &str| {
            step.pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let is_marker = |text: &str| text.chars().eq([SPACE_MARKER]);
        let kind = kind(step);
        let covered = match kind {
            // A form after another rule would see that rule's output.
            "NFC" if self.normal_form.is_none() && self.leading_space.is_none() => {
                self.normal_form = Some(NormalForm::Nfc);
                true
            }
            "NFKC" if self.normal_form.is_none() && self.leading_space.is_none() => {
                self.normal_form = Some(NormalForm::Nfkc);
                true
            }
            "Replace" => {
                spelling == Spelling::SentencePiece
                    && text("/pattern/String") == " "
                    && is_marker(text("/content"))
            }
            "Prepend" if self.leading_space.is_none() && is_marker(text("/prepend")) => {
                self.leading_space = Some(LeadingSpace::Always);
                spelling == Spelling::SentencePiece
            }
            _ => false,
        };
        if covered {
            Ok(())
        } else {
            Err(unsupported("normalizer", kind, "it may change text"))
        }
    }

    fn pre_tokenizer_step(&mut self, step: &Value, first: bool) -> Result<(), ProfileError> {
        let kind = kind(step);
        let field = |name: &str| step.get(name).and_then(Value::as_str);
        let scheme = match kind {
            "ByteLevel" if step.get("add_prefix_space") == Some(&Value::Bool(true)) => {
                Some("always")
            }
            "Metaspace" => field("prepend_scheme").or_else(|| {
                // Before schemes there was a flag, true by default.
                Some(
                    if step.get("add_prefix_space") == Some(&Value::Bool(false)) {
                        "never"
                    } else {
                        "always"
                    },
                )
            }),
            "ByteLevel" | "Digits" | "UnicodeScripts" => None,
            "Split" | "Punctuation" => {
                if field("behavior")
                    .is_some_and(|behavior| behavior.eq_ignore_ascii_case("removed"))
                {
                    return Err(unsupported("pre-tokenizer", kind, "it drops text"));
                }
                None
            }
            _ => return Err(unsupported("pre-tokenizer", kind, "it may drop text")),
        };
        let space = match scheme {
            None | Some("never") => return Ok(()),
            Some("always") => LeadingSpace::UnlessPresent,
            Some("first") => LeadingSpace::FirstUnlessPresent,
            Some(_) => {
                return Err(unsupported(
                    "pre-tokenizer",
                    kind,
                    "its prepend scheme is not known",
                ));
            }
        };
        if !first || self.leading_space.is_some() {
            return Err(unsupported(
                "pre-tokenizer",
                kind,
                "it puts spaces inside segments",
            ));
        }
        self.leading_space = Some(space);
        Ok(())
    }

    /// Keeps the literals if a rule depends on them.
    fn take_literals(&mut self, tokens: &[AddedToken]) -> Result<(), ProfileError> {
        let strips = tokens.iter().any(|token| token.lstrip || token.rstrip);
        let depends = strips || self.leading_space.is_some();
        if !depends && self.normal_form.is_none() && !self.marker_is_space {
            return Ok(());
        }
        let refuse = |token: &AddedToken, why| {
            Err(ProfileError::AddedToken {
                token: token.content.clone(),
                why,
            })
        };
        for token in tokens {
            if token.content.is_empty() {
                continue;
            }
            if depends && token.single_word {
                return refuse(token, "it matches whole words only");
            }
            if token.normalized {
                if depends {
                    return refuse(token, "it is matched in normalised text");
                }
                continue;
            }
            self.literals.push(Literal {
                text: token.content.clone(),
                lstrip: token.lstrip,
                rstrip: token.rstrip,
                special: token.special,
            });
        }
        Ok(())
    }
}

/// Literals that the tokenizer puts before and after a prompt when it adds special tokens.
///
/// # Errors
///
/// The post-processor is of an unknown kind.
pub(in crate::text) fn surrounding(
    file: &TokenizerFile<'_>,
    config: &TokenizerConfig,
) -> Result<[String; 2], ProfileError> {
    let special = |name: &str| {
        config
            .special_tokens()
            .find(|(found, _)| *found == name)
            .map(|(_, literal)| literal.to_owned())
    };
    if config.add_bos_token.is_some() || config.add_eos_token.is_some() {
        // transformers then builds the post-processor itself.
        let literal = |add: Option<bool>, name| {
            special(name)
                .filter(|_| add == Some(true))
                .unwrap_or_default()
        };
        return Ok([
            literal(config.add_bos_token, "bos_token"),
            literal(config.add_eos_token, "eos_token"),
        ]);
    }
    let mut around = [String::new(), String::new()];
    for step in steps(&file.post_processor, "processors") {
        match kind(step) {
            "ByteLevel" => {}
            "TemplateProcessing" => template_processing(step, &mut around),
            other => {
                return Err(unsupported(
                    "post-processor",
                    other,
                    "what it adds is not known",
                ));
            }
        }
    }
    Ok(around)
}

fn template_processing(step: &Value, [before, after]: &mut [String; 2]) {
    let mut seen_text = false;
    for item in step
        .get("single")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if item.get("Sequence").is_some() {
            seen_text = true;
            continue;
        }
        let Some(id) = item.pointer("/SpecialToken/id").and_then(Value::as_str) else {
            continue;
        };
        let tokens = step
            .get("special_tokens")
            .and_then(|tokens| tokens.get(id)?.get("tokens")?.as_array());
        let literal: String = match tokens {
            Some(tokens) => tokens.iter().filter_map(Value::as_str).collect(),
            None => id.to_owned(),
        };
        if seen_text {
            after.push_str(&literal);
        } else {
            before.push_str(&literal);
        }
    }
}

fn unsupported(stage: &'static str, kind: &str, why: &'static str) -> ProfileError {
    ProfileError::Step {
        stage,
        kind: kind.to_owned(),
        why,
    }
}
