//! Canonical text: prompt text as the tokens spell it.
//!
//! The text is split at the literals of added tokens; the rules work on the segments between them.

mod normal;
mod rules;

use aho_corasick::{AhoCorasick, MatchKind};
use serde::{Deserialize, Serialize};

use super::error::ProfileError;
use super::token_bytes::SPACE_MARKER;
pub(super) use rules::{surrounding, surrounding_by_flags};

/// Unicode normal form that a tokenizer brings text into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormalForm {
    /// Canonical composition.
    Nfc,
    /// Compatibility composition.
    Nfkc,
}

/// Which segments get a space put before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeadingSpace {
    /// Non-empty ones that don't start with a space.
    UnlessPresent,
    /// All non-empty ones.
    Always,
    /// The one at the start of the text, unless it starts with a space.
    FirstUnlessPresent,
}

/// An added token that is found in the text as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Literal {
    /// Its text.
    pub text: String,
    /// White space before it is dropped.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub lstrip: bool,
    /// White space after it is dropped.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub rstrip: bool,
    /// U+2581 in it stays.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub special: bool,
}

/// The rules of one tokenizer, in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canonicalisation {
    /// Segments are brought into this form.
    pub normal_form: Option<NormalForm>,
    /// U+2581 is a space.
    #[serde(default)]
    pub marker_is_space: bool,
    /// Segments get a leading space.
    pub leading_space: Option<LeadingSpace>,
    /// Where text is split; empty where no rule depends on it.
    #[serde(default)]
    pub literals: Vec<Literal>,
}

/// Compiled rules.
#[derive(Debug)]
pub(super) struct Canonicaliser {
    rules: Canonicalisation,
    searcher: Option<AhoCorasick>,
    /// Whether ASCII text always stays as it is.
    keeps_ascii: bool,
}

impl Canonicaliser {
    pub(super) fn compile(rules: Canonicalisation) -> Result<Self, ProfileError> {
        let searcher = if rules.literals.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(rules.literals.iter().map(|literal| &literal.text));
            Some(built.map_err(|source| ProfileError::Literals {
                source: Box::new(source),
            })?)
        };
        let strips = rules
            .literals
            .iter()
            .any(|literal| literal.lstrip || literal.rstrip);
        let keeps_ascii = rules.leading_space.is_none() && !strips;
        Ok(Self {
            rules,
            searcher,
            keeps_ascii,
        })
    }

    /// Makes prompt text canonical. Text that stays as it is, is not copied.
    pub(super) fn apply(&self, text: Vec<u8>) -> Vec<u8> {
        let keeps_all =
            self.keeps_ascii && self.rules.normal_form.is_none() && !self.rules.marker_is_space;
        if keeps_all || (self.keeps_ascii && text.is_ascii()) {
            return text;
        }
        // Rendered text is UTF-8 by construction.
        let Ok(view) = simdutf8::basic::from_utf8(&text) else {
            return text;
        };
        if self.keeps_ascii && self.keeps(view) {
            return text;
        }
        self.rewrite(view).into_bytes()
    }

    /// Whether no rule changes `text`, judged without splitting it: a part of a normalised text is normalised.
    fn keeps(&self, text: &str) -> bool {
        self.rules
            .normal_form
            .is_none_or(|form| normal::is_normal(text, form))
            && !(self.rules.marker_is_space && text.contains(SPACE_MARKER))
    }

    fn rewrite(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 16 + 16);
        let mut from = 0;
        let matches = self
            .searcher
            .iter()
            .flat_map(|searcher| searcher.find_iter(text));
        for found in matches {
            let Some(literal) = self.rules.literals.get(found.pattern().as_usize()) else {
                continue;
            };
            if found.start() < from {
                // It starts in space that the literal before it has taken.
                continue;
            }
            let segment = text.get(from..found.start()).unwrap_or_default();
            let segment = if literal.lstrip {
                segment.trim_end()
            } else {
                segment
            };
            self.push_segment(&mut out, segment, from == 0);
            if self.rules.marker_is_space && !literal.special {
                push_spaced(&mut out, &literal.text);
            } else {
                out.push_str(&literal.text);
            }
            from = found.end();
            if literal.rstrip {
                let rest = text.get(from..).unwrap_or_default();
                from += rest.len() - rest.trim_start().len();
            }
        }
        self.push_segment(&mut out, text.get(from..).unwrap_or_default(), from == 0);
        out
    }

    fn push_segment(&self, out: &mut String, segment: &str, first: bool) {
        if segment.is_empty() {
            return;
        }
        let normalised = self
            .rules
            .normal_form
            .and_then(|form| normal::normalise(segment, form));
        let segment = normalised.as_deref().unwrap_or(segment);
        let marker = self.rules.marker_is_space;
        let spaced = segment.starts_with(' ') || (marker && segment.starts_with(SPACE_MARKER));
        let space = match self.rules.leading_space {
            None => false,
            Some(LeadingSpace::Always) => true,
            Some(LeadingSpace::UnlessPresent) => !spaced,
            Some(LeadingSpace::FirstUnlessPresent) => first && !spaced,
        };
        if space {
            out.push(' ');
        }
        if marker {
            push_spaced(out, segment);
        } else {
            out.push_str(segment);
        }
    }
}

/// Appends `text` with each U+2581 as a space.
fn push_spaced(out: &mut String, text: &str) {
    let mut parts = text.split(SPACE_MARKER);
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push(' ');
        out.push_str(part);
    }
}

#[cfg(test)]
mod tests;
