//! Derives the rules from a model's tokenizer files, and refuses tokenizers whose steps they don't cover.

use serde_json::Value;

use super::{Canonicalisation, LeadingSpace, Literal, NormalForm};
use crate::text::error::ProfileError;
use crate::text::token_bytes::SPACE_MARKER;
use crate::text::tokenizer::Tokenizer;
use crate::text::tokenizer_class::Post;
use crate::text::tokenizer_file::{AddedToken, Spelling, kind, steps};

impl Canonicalisation {
    /// The rules of a tokenizer as an engine loads it.
    ///
    /// # Errors
    ///
    /// The tokenizer loses or changes text in a way that the rules don't cover.
    pub(in crate::text) fn derive(tokenizer: &Tokenizer<'_>) -> Result<Self, ProfileError> {
        let mut rules = Self {
            marker_is_space: tokenizer.spelling == Spelling::SentencePiece,
            ..Self::default()
        };
        let has_normalizer = if let Some(rebuilt) = tokenizer.rebuilt {
            rules.normal_form = rebuilt.normal_form;
            rules.leading_space = rebuilt.leading_space;
            rebuilt.normalizes
        } else {
            let normalizer = steps(&tokenizer.file.normalizer, "normalizers");
            for step in &normalizer {
                rules.normalizer_step(step, tokenizer.spelling)?;
            }
            let pre_tokenizer = steps(&tokenizer.file.pre_tokenizer, "pretokenizers");
            for (i, step) in pre_tokenizer.into_iter().enumerate() {
                rules.pre_tokenizer_step(step, i == 0)?;
            }
            !normalizer.is_empty()
        };
        rules.take_literals(tokenizer, has_normalizer)?;
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
    fn take_literals(
        &mut self,
        tokenizer: &Tokenizer<'_>,
        has_normalizer: bool,
    ) -> Result<(), ProfileError> {
        let tokens = &tokenizer.added_tokens;
        let strips = tokens.iter().any(|token| token.lstrip || token.rstrip);
        let depends = strips || self.leading_space.is_some();
        if !depends && self.normal_form.is_none() && !self.marker_is_space {
            return Ok(());
        }
        // Special tokens are then spelled out like any other text.
        let splits_special = tokenizer.config.split_special_tokens == Some(true);
        for token in tokens {
            if token.content.is_empty() || (token.special && splits_special) {
                continue;
            }
            if depends && token.single_word {
                return refuse(token, "it matches whole words only");
            }
            if token.normalized {
                if depends && has_normalizer {
                    return refuse(token, "it is matched in normalised text");
                }
                if has_normalizer {
                    continue;
                }
                // Nothing is normalised, so it differs from the others only in being looked for after them.
                if tokens
                    .iter()
                    .any(|other| !other.normalized && overlap(token, other))
                {
                    return refuse(token, "it overlaps a token that is looked for before it");
                }
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

fn refuse(token: &AddedToken, why: &'static str) -> Result<(), ProfileError> {
    Err(ProfileError::AddedToken {
        token: token.content.clone(),
        why,
    })
}

/// Whether occurrences of both can share characters.
fn overlap(one: &AddedToken, other: &AddedToken) -> bool {
    let begins_with_end_of = |one: &str, other: &str| {
        one.char_indices()
            .skip(1)
            .any(|(at, _)| one.get(at..).is_some_and(|end| other.starts_with(end)))
    };
    let (one, other) = (one.content.as_str(), other.content.as_str());
    one.contains(other)
        || other.contains(one)
        || begins_with_end_of(one, other)
        || begins_with_end_of(other, one)
}

/// Literals that the tokenizer puts before and after a prompt when it adds special tokens.
///
/// `add_bos_token` and `add_eos_token` play no part: transformers 5 ignores both where there is a tokenizer.json.
///
/// # Errors
///
/// The post-processor is of an unknown kind.
pub(in crate::text) fn surrounding(tokenizer: &Tokenizer<'_>) -> Result<[String; 2], ProfileError> {
    let begin = || tokenizer.special_tokens.get("bos_token").cloned();
    match tokenizer.rebuilt.map(|rebuilt| rebuilt.post) {
        Some(Post::Nothing) => return Ok([String::new(), String::new()]),
        Some(Post::Begin) => return Ok([begin().unwrap_or_default(), String::new()]),
        Some(Post::File) | None => {}
    }
    let mut around = [String::new(), String::new()];
    for step in steps(&tokenizer.file.post_processor, "processors") {
        match kind(step) {
            "ByteLevel" => {}
            "TemplateProcessing" => template_processing(step, &mut around),
            "RobertaProcessing" | "BertProcessing" => {
                let literal = |field: &str| {
                    let token = step.get(field).and_then(|pair| pair.get(0));
                    token.and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                around = [literal("cls"), literal("sep")];
            }
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

/// What releases before transformers 5 put around a prompt where the configuration has flags for it; `None`: it has none.
pub(in crate::text) fn surrounding_by_flags(tokenizer: &Tokenizer<'_>) -> Option<[String; 2]> {
    let config = tokenizer.config;
    if config.add_bos_token.is_none() && config.add_eos_token.is_none() {
        return None;
    }
    let literal = |add: Option<bool>, name: &str| match add {
        Some(true) => tokenizer.special_tokens.get(name).cloned(),
        _ => None,
    };
    Some([
        literal(config.add_bos_token, "bos_token").unwrap_or_default(),
        literal(config.add_eos_token, "eos_token").unwrap_or_default(),
    ])
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
