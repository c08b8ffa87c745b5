//! `str.format` and the `%` operator of strings.

use minijinja::formatting::{self, FormatStyle};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::{Args, write_str};

/// Numbers in a format may have this many digits: widths and precisions beyond them are refused.
const MAX_DIGITS: usize = 4;

/// `text.format(…)`
pub(super) fn braces(state: &State<'_, '_>, text: &str, args: &Args<'_>) -> Result<String, Error> {
    // What a conversion, an attribute or a spec makes of a value is known for strings and numbers only.
    let plain = text.split('{').skip(1).all(|field| {
        let field = field.split('}').next().unwrap_or_default();
        field.chars().all(|c| c.is_alphanumeric() || c == '_')
    });
    let printed = |value: &Value| {
        if plain {
            as_printed(value)
        } else {
            as_scalar(value)
        }
    };
    let mut values = args
        .positional
        .iter()
        .map(printed)
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(keywords) = &args.keywords {
        let named = keywords
            .args()
            .map(|name| Ok((name, printed(&keywords.peek::<Value>(name)?)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        values.push(Kwargs::from_iter(named).into());
    }
    format(state, FormatStyle::StrFormat, text, &values)
}

/// `text % values`
pub(in crate::text) fn percent(
    state: &State<'_, '_>,
    text: &str,
    values: &Value,
) -> Result<String, Error> {
    let named = text.contains("%(");
    let values: Vec<Value> = if named {
        if values.kind() != ValueKind::Map {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "format needs a mapping",
            ));
        }
        let entries = values
            .try_iter()?
            .map(|key| Ok((key.to_string(), as_printed(&values.get_item(&key)?)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        vec![Kwargs::from_iter(entries).into()]
    } else if values.is_tuple() {
        values
            .try_iter()?
            .map(|value| as_printed(&value))
            .collect::<Result<_, _>>()?
    } else {
        vec![as_printed(values)?]
    };
    if !named && fields(text) != values.len() {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "format needs another number of values",
        ));
    }
    format(state, FormatStyle::Printf, text, &values)
}

/// How many values a format with `%` takes.
fn fields(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let flags = after.trim_start_matches(|c: char| "#0- +.".contains(c) || c.is_ascii_digit());
        rest = flags.strip_prefix(|_: char| true).unwrap_or_default();
        count += usize::from(!flags.starts_with('%'));
    }
    count
}

fn format(
    state: &State<'_, '_>,
    style: FormatStyle,
    text: &str,
    values: &[Value],
) -> Result<String, Error> {
    let mut digits = 0;
    for byte in text.bytes() {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > MAX_DIGITS {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "number in a format is too large",
            ));
        }
    }
    let formatted = formatting::format(style, text, values)?;
    state.consume_fuel((formatted.len() / 64) as u64)?;
    Ok(formatted)
}

/// A value as formats take it that only print it: numbers as they are, everything else as its string.
fn as_printed(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Bool | ValueKind::Number => Ok(value.clone()),
        _ => {
            let mut text = String::new();
            write_str(&mut text, value)?;
            Ok(Value::from(text))
        }
    }
}

/// A value that formats can do anything with; the width of a text beyond ASCII is counted in other units there.
fn as_scalar(value: &Value) -> Result<Value, Error> {
    let known = match value.kind() {
        ValueKind::String => value.as_str().is_some_and(str::is_ascii),
        ValueKind::Bool | ValueKind::Number => true,
        _ => false,
    };
    if known {
        return Ok(value.clone());
    }
    Err(Error::new(
        ErrorKind::InvalidOperation,
        "value can't be formatted in this way",
    ))
}
