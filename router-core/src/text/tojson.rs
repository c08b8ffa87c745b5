//! The `tojson` filter as engines define it: `json.dumps(value, ensure_ascii, indent, separators, sort_keys)`, with nothing escaped
//! for HTML.

mod datum;

use core::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::json::next_special;
use super::python::{self, write_float};
use super::value::BigInt;

pub(super) use datum::write_datum;

/// Deepest nesting that is written; deeper values come from no request.
const MAX_DEPTH: usize = 600;

/// How JSON is laid out.
#[derive(Clone, Debug)]
pub(super) struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            sort_keys: false,
        }
    }
}

/// The filter.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the template engine passes arguments by value"
)]
pub(super) fn filter(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    keywords: Kwargs,
) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Option<Value> {
        let keyword = || keywords.get::<Option<Value>>(name).ok().flatten();
        positional
            .get(index)
            .cloned()
            .or_else(keyword)
            .filter(|value| !value.is_none())
    };
    let style = Style::new(
        argument(0, "ensure_ascii"),
        argument(1, "indent"),
        argument(2, "separators"),
        argument(3, "sort_keys"),
    )?;
    keywords.assert_all_used()?;
    let json = dumps(value, &style)?;
    // Writing costs more per byte than copying, for which the engine charges one per 64 bytes.
    state.consume_fuel((json.len() / 16) as u64)?;
    Ok(json)
}

impl Style {
    /// A layout by the arguments of `json.dumps`.
    pub(super) fn new(
        ensure_ascii: Option<Value>,
        indent: Option<Value>,
        separators: Option<Value>,
        sort_keys: Option<Value>,
    ) -> Result<Self, Error> {
        const MAX_INDENT: usize = 64;
        let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
        let mut style = Self {
            ensure_ascii: is_true(ensure_ascii),
            sort_keys: is_true(sort_keys),
            ..Self::default()
        };
        if let Some(indent) = indent {
            style.indent = Some(match indent.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(
                    usize::try_from(i64::try_from(indent)?)
                        .unwrap_or(0)
                        .min(MAX_INDENT),
                ),
            });
            ",".clone_into(&mut style.item_separator);
        }
        if let Some(separators) = separators {
            let mut parts = separators
                .try_iter()?
                .map(|part| part.as_str().map(str::to_owned));
            match (parts.next().flatten(), parts.next().flatten(), parts.next()) {
                (Some(item), Some(key), None) => {
                    (style.item_separator, style.key_separator) = (item, key);
                }
                _ => {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        "separators must be two strings",
                    ));
                }
            }
        }
        Ok(style)
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }
}

/// `json.dumps`.
///
/// # Errors
///
/// A value that JSON can't express, such as an undefined one.
pub(super) fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write_value(&mut out, value, style, 0)?;
    Ok(out)
}

fn write_value(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    let unserializable = || {
        Error::new(
            ErrorKind::BadSerialization,
            format!("{} is not JSON serializable", value.kind()),
        )
    };
    if depth > MAX_DEPTH {
        return Err(Error::new(
            ErrorKind::BadSerialization,
            "value is nested too deeply",
        ));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::String => write_string(
            out,
            value.as_str().ok_or_else(unserializable)?,
            style.ensure_ascii,
        ),
        ValueKind::Number if value.is_integer() => write!(out, "{value}")?,
        ValueKind::Number => write_float(out, f64::try_from(value.clone())?, ["NaN", "Infinity"])?,
        ValueKind::Seq | ValueKind::Iterable if !python::is_iterator(value) => {
            let items = value.try_iter()?;
            write_items(out, style, depth, ['[', ']'], items, |out, item| {
                write_value(out, &item, style, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write_items(
                out,
                style,
                depth,
                ['{', '}'],
                keys.into_iter(),
                |out, key| {
                    write_key(out, &key, style)?;
                    out.push_str(&style.key_separator);
                    write_value(out, &value.get_item(&key)?, style, depth + 1)
                },
            )?;
        }
        _ => match value.downcast_object_ref::<BigInt>() {
            Some(integer) => out.push_str(integer.digits()),
            None => return Err(unserializable()),
        },
    }
    Ok(())
}

fn write_items(
    out: &mut String,
    style: &Style,
    depth: usize,
    [open, close]: [char; 2],
    items: impl Iterator<Item = Value>,
    mut write: impl FnMut(&mut String, Value) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    let mut empty = true;
    for item in items {
        if !empty {
            out.push_str(&style.item_separator);
        }
        empty = false;
        style.new_line(out, depth + 1);
        write(out, item)?;
    }
    if !empty {
        style.new_line(out, depth);
    }
    out.push(close);
    Ok(())
}

/// Keys that are no strings are written as strings of their JSON form.
fn write_key(out: &mut String, key: &Value, style: &Style) -> Result<(), Error> {
    match key.as_str() {
        Some(key) => write_string(out, key, style.ensure_ascii),
        None if matches!(
            key.kind(),
            ValueKind::None | ValueKind::Bool | ValueKind::Number
        ) =>
        {
            out.push('"');
            write_value(out, key, style, 0)?;
            out.push('"');
        }
        None => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                "keys must be str, int, float, bool or None",
            ));
        }
    }
    Ok(())
}

fn write_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    let plain = |c: char| {
        !(c == '"' || c == '\\' || c < ' ' || (ensure_ascii && !(' '..='~').contains(&c)))
    };
    let next = |rest: &str| {
        if ensure_ascii {
            rest.find(|c| !plain(c)).unwrap_or(rest.len())
        } else {
            next_special(rest.as_bytes(), 0)
        }
    };
    let mut rest = text;
    loop {
        let (run, from) = rest.split_at(next(rest));
        out.push_str(run);
        let mut letters = from.chars();
        let Some(letter) = letters.next() else {
            break;
        };
        write_escape(out, letter);
        rest = letters.as_str();
    }
    out.push('"');
}

fn write_escape(out: &mut String, letter: char) {
    match letter {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        _ => {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a string can't fail.
                _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use minijinja::Environment;

    fn eval(expression: &str) -> String {
        let mut env = Environment::new();
        env.add_filter("tojson", super::filter);
        env.compile_expression(expression)
            .unwrap()
            .eval(())
            .unwrap()
            .to_string()
    }

    #[test]
    fn layout_is_that_of_json_dumps() {
        // Each right side was printed by CPython 3.11's json.dumps(ensure_ascii=False, ...).
        for (expression, expected) in [
            (
                r#"{"b": [1, 1.0, 1e22], "a": none}|tojson"#,
                r#"{"b": [1, 1.0, 1e+22], "a": null}"#,
            ),
            (
                r#"{"b": [], "a": {}}|tojson(indent=2)"#,
                "{\n  \"b\": [],\n  \"a\": {}\n}",
            ),
            (
                r#"[1, {"a": 2}]|tojson(indent=4)"#,
                "[\n    1,\n    {\n        \"a\": 2\n    }\n]",
            ),
            (
                r#"{"b": 1, "a": 2}|tojson(sort_keys=true)"#,
                r#"{"a": 2, "b": 1}"#,
            ),
            (
                r#"{"b": 1, "a": 2}|tojson(separators=(",", ":"))"#,
                r#"{"b":1,"a":2}"#,
            ),
            (
                r#"[1, 2]|tojson(indent=1, separators=(" ;", "="))"#,
                "[\n 1 ;\n 2\n]",
            ),
            (
                r#""<a href='x'>&\u00e9\u007f\u2028\n\t\u0001\"\\"|tojson"#,
                "\"<a href='x'>&é\u{7f}\u{2028}\\n\\t\\u0001\\\"\\\\\"",
            ),
            (
                r#""é😀\u007f"|tojson(ensure_ascii=true)"#,
                r#""\u00e9\ud83d\ude00\u007f""#,
            ),
            (r#""é"|tojson(true)"#, r#""\u00e9""#),
            (
                "{1: true, none: false, 1.5: 0}|tojson",
                r#"{"1": true, "null": false, "1.5": 0}"#,
            ),
            ("[1,2][1:]|tojson", "[2]"),
        ] {
            assert_eq!(eval(expression), expected, "{expression}");
        }
    }
}
