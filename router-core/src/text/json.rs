//! A borrowed JSON reader with the habits of Python's `json` module.
//!
//! Engines read request bodies with Python, so what Python accepts must be read here and what Python keeps must be kept:
//! the order of keys, integers of any size, the difference between `1` and `1.0`, `NaN`. A string without escapes borrows from
//! the body. Nesting is bounded by [`MAX_DEPTH`], also where a value is only skipped.

mod cursor;
mod string;

use std::borrow::Cow;
use std::collections::HashSet;

pub(super) use cursor::{Cursor, Flaws};
pub(super) use string::next_special;

/// Deepest nesting of arrays and objects that is read; Python's own limit is near 1,000.
pub const MAX_DEPTH: usize = 512;

/// Most values that are kept of one text; a value takes up to 100 bytes of memory, however short its spelling.
pub const MAX_VALUES: usize = 1 << 19;

/// Objects up to this many keys are checked for repeated keys pair by pair.
const SMALL_OBJECT: usize = 16;

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as spelled, or `NaN`, `Infinity`, `-Infinity`.
    Number(&'a str),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array in order.
    Array(Vec<Json<'a>>),
    /// An object in order of first appearance; of a repeated key the last value counts, as in Python.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub struct JsonError {
    /// Byte offset at which reading stopped.
    pub at: usize,
    /// What is wrong there.
    pub problem: JsonProblem,
}

/// Kinds of [`JsonError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonProblem {
    /// The text ends inside a value.
    #[error("unexpected end")]
    End,
    /// A character that can't stand here.
    #[error("unexpected character")]
    Character,
    /// A raw control character inside a string.
    #[error("control character in a string")]
    Control,
    /// An escape that does not exist.
    #[error("invalid escape")]
    Escape,
    /// Text after the value.
    #[error("extra data")]
    Extra,
    /// Nesting deeper than [`MAX_DEPTH`].
    #[error("nesting deeper than {MAX_DEPTH}")]
    Depth,
}

impl<'a> Json<'a> {
    /// Reads a whole text.
    pub(super) fn parse(text: &'a str) -> Result<(Self, Flaws), JsonError> {
        let mut cursor = Cursor::new(text);
        let value = cursor.value()?;
        cursor.end()?;
        Ok((value, cursor.flaws()))
    }

    /// The value under `key`, unless this is no object or the key is absent or null.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(entries) => entries
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value)
                .filter(|value| !matches!(value, Json::Null)),
            _ => None,
        }
    }

    /// Whether this is an object with `key`, even if null.
    pub(super) fn has(&self, key: &str) -> bool {
        matches!(self, Json::Object(entries) if entries.iter().any(|(name, _)| name == key))
    }

    /// The value, leaving null.
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::Null)
    }

    /// The value under `key`, leaving null in its place; null unless this is an object with such a key.
    pub(super) fn take_key(&mut self, key: &str) -> Self {
        match self {
            Json::Object(entries) => entries
                .iter_mut()
                .find(|(name, _)| name == key)
                .map_or(Json::Null, |(_, value)| value.take()),
            _ => Json::Null,
        }
    }

    /// The string, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }
}

/// Drops all but the last value of each repeated key; the place of the first stays.
fn merge_repeated_keys<'a>(entries: &mut Vec<(Cow<'a, str>, Json<'a>)>) {
    let repeated = if entries.len() <= SMALL_OBJECT {
        entries
            .iter()
            .enumerate()
            .any(|(i, (key, _))| entries.iter().take(i).any(|(other, _)| other == key))
    } else {
        let mut seen = HashSet::with_capacity(entries.len());
        !entries.iter().all(|(key, _)| seen.insert(key.as_ref()))
    };
    if !repeated {
        return;
    }
    let mut places = std::collections::HashMap::with_capacity(entries.len());
    let mut merged: Vec<(Cow<'a, str>, Json<'a>)> = Vec::with_capacity(entries.len());
    for (key, value) in entries.drain(..) {
        let place = *places.entry(key.clone()).or_insert(merged.len());
        match merged.get_mut(place) {
            Some((_, old)) => *old = value,
            None => merged.push((key, value)),
        }
    }
    *entries = merged;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Json<'_> {
        Json::parse(text).unwrap().0
    }

    #[test]
    fn strings_without_escapes_borrow() {
        assert!(matches!(
            read(r#""plain ü""#),
            Json::String(Cow::Borrowed("plain ü"))
        ));
        assert_eq!(
            read(r#""a\n\"\\\/\u00e9\ud83d\ude00""#),
            Json::String("a\n\"\\/é😀".into())
        );
    }

    #[test]
    fn python_only_literals_and_odd_numbers_are_kept_as_spelled() {
        for spelled in [
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "1.0",
            "1e3",
            "123456789012345678901234567890",
        ] {
            assert_eq!(read(spelled), Json::Number(spelled));
        }
    }

    #[test]
    fn malformed_texts_are_errors() {
        for text in [
            "",
            "{",
            "[1,",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "01",
            "1.",
            "-",
            "+1",
            ".5",
            "1e",
            "tru",
            "nul",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\u{1}\"",
            "[1] 2",
            "{1:2}",
            "[1 2]",
            "\u{feff}1",
            "Nan",
            "-Infinit",
        ] {
            assert!(Json::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn of_a_repeated_key_the_last_value_and_the_first_place_count() {
        let json = read(r#"{"a":1,"b":2,"a":3}"#);
        assert_eq!(
            json,
            Json::Object(vec![
                ("a".into(), Json::Number("3")),
                ("b".into(), Json::Number("2"))
            ])
        );
        let many: Vec<String> = (0..40).map(|i| format!("\"k{}\":{i}", i % 30)).collect();
        let text = format!("{{{}}}", many.join(","));
        let Json::Object(entries) = read(&text) else {
            panic!("not an object")
        };
        assert_eq!(entries.len(), 30);
        assert_eq!(entries[3], ("k3".into(), Json::Number("33")));
    }

    #[test]
    fn half_a_surrogate_pair_is_reported_and_replaced() {
        for text in [
            r#""a\ud83d b""#,
            r#""\udcad""#,
            r#""\ud83d\ud83d""#,
            r#""\ud83d\u0041""#,
        ] {
            let (value, flaws) = Json::parse(text).unwrap();
            assert!(flaws.lone_surrogate, "{text}");
            assert!(value.as_str().unwrap().contains('\u{fffd}'));
        }
        assert_eq!(
            Json::parse(r#""\ud83d\udea2""#).unwrap().1,
            Flaws::default()
        );
    }

    #[test]
    fn values_beyond_the_limit_are_passed_over() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
        assert!(!Json::parse(&list(MAX_VALUES)).unwrap().1.too_many);
        let text = list(MAX_VALUES + 1);
        let (Json::Array(items), flaws) = Json::parse(&text).unwrap() else {
            panic!("not a list")
        };
        assert!(flaws.too_many);
        assert_eq!(items.last(), Some(&Json::Null));
    }

    #[test]
    fn nesting_is_bounded_at_the_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(
            Json::parse(&nested(MAX_DEPTH + 1)).unwrap_err().problem,
            JsonProblem::Depth
        );
        for (depth, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (200_000, false)] {
            let text = nested(depth);
            let mut cursor = Cursor::new(&text);
            assert_eq!(cursor.skip().is_ok(), fits, "{depth}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_arbitrary_bytes(text in r#"[\[\]{}",:0-9a-u.\\ \-+eE]{0,24}"#) {
            let ours = Json::parse(&text);
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // serde_json refuses half surrogates and numbers out of range, which Python accepts.
            if theirs.is_ok() {
                prop_assert!(ours.is_ok(), "{text:?}");
            } else if ours.is_ok() {
                let message = theirs.unwrap_err().to_string();
                prop_assert!(message.contains("surrogate") || message.contains("out of range") || message.contains("hex escape"), "{message}");
            }
        }

        #[test]
        fn any_string_survives_encoding_and_skipping(text in any::<String>()) {
            let encoded = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(read(&encoded), Json::String(Cow::Owned(text)));
            let mut cursor = Cursor::new(&encoded);
            prop_assert!(cursor.skip().is_ok() && cursor.end().is_ok());
        }
    }
}
