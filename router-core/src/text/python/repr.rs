//! `str()` and `repr()` of template values.

use core::fmt::{self, Write};

use minijinja::Value;
use minijinja::value::ValueKind;

use super::iterators::{Generator, Group, Range, View};
use crate::text::value::BigInt;

/// Deepest nesting that is written; deeper values come from no request.
const MAX_DEPTH: usize = 600;

/// Writes `str(value)`; an undefined value is empty.
pub(in crate::text) fn write_str(out: &mut impl Write, value: &Value) -> fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => Ok(()),
        None => write_value(out, value, 0),
    }
}

fn write_value(out: &mut impl Write, value: &Value, depth: usize) -> fmt::Result {
    if depth > MAX_DEPTH {
        return Err(fmt::Error);
    }
    match value.kind() {
        // Python says that it is marked as safe.
        ValueKind::String if value.is_safe() => Err(fmt::Error),
        ValueKind::String => write_repr(out, value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(float) => write_float(out, float, ["nan", "inf"]),
            Err(_) => Err(fmt::Error),
        },
        ValueKind::Map => {
            out.write_char('{')?;
            for (i, key) in value.try_iter().map_err(|_| fmt::Error)?.enumerate() {
                out.write_str(if i == 0 { "" } else { ", " })?;
                write_value(out, &key, depth + 1)?;
                out.write_str(": ")?;
                write_value(
                    out,
                    &value.get_item(&key).map_err(|_| fmt::Error)?,
                    depth + 1,
                )?;
            }
            out.write_char('}')
        }
        ValueKind::Iterable if value.downcast_object_ref::<Generator>().is_some() => {
            Err(fmt::Error)
        }
        ValueKind::Seq if value.downcast_object_ref::<Range>().is_some() => write!(out, "{value}"),
        ValueKind::Seq | ValueKind::Iterable => {
            let view = value.downcast_object_ref::<View>();
            if let Some(view) = view {
                write!(out, "{}(", view.name)?;
            }
            let tuple = value.is_tuple() || value.downcast_object_ref::<Group>().is_some();
            out.write_char(if tuple { '(' } else { '[' })?;
            let mut count = 0;
            for item in value.try_iter().map_err(|_| fmt::Error)? {
                out.write_str(if count == 0 { "" } else { ", " })?;
                write_value(out, &item, depth + 1)?;
                count += 1;
            }
            out.write_str(if tuple && count == 1 { "," } else { "" })?;
            out.write_char(if tuple { ')' } else { ']' })?;
            out.write_str(if view.is_some() { ")" } else { "" })
        }
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => write!(out, "{value}"),
        // Other objects print their address or their type.
        _ => match value.downcast_object_ref::<BigInt>() {
            Some(integer) => out.write_str(integer.digits()),
            None => Err(fmt::Error),
        },
    }
}

/// Writes a float as Python does: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16 on.
/// `names` are the words for not-a-number and infinity.
pub(in crate::text) fn write_float(
    out: &mut impl Write,
    value: f64,
    names: [&str; 2],
) -> fmt::Result {
    let [nan, infinity] = names;
    if value.is_nan() {
        return out.write_str(nan);
    }
    if value.is_infinite() {
        return write!(out, "{}{infinity}", if value < 0.0 { "-" } else { "" });
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let spelled = format!("{value:e}");
        let (digits, exponent) = spelled.split_once('e').ok_or(fmt::Error)?;
        let exponent: i32 = exponent.parse().map_err(|_| fmt::Error)?;
        let sign = if exponent < 0 { '-' } else { '+' };
        return write!(out, "{digits}e{sign}{:02}", exponent.abs());
    }
    write!(out, "{value:?}")
}

/// Writes a string in quotes as `repr` does.
fn write_repr(out: &mut impl Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.write_char(quote)?;
    for letter in text.chars() {
        match letter {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            _ if letter == quote => write!(out, "\\{letter}")?,
            _ if is_printable(letter) => out.write_char(letter)?,
            _ => match u32::from(letter) {
                code @ 0..=0xff => write!(out, "\\x{code:02x}")?,
                code @ 0x100..=0xffff => write!(out, "\\u{code:04x}")?,
                code => write!(out, "\\U{code:08x}")?,
            },
        }
    }
    out.write_char(quote)
}

/// Printable as Python has it, near enough: no control character, no separator but the space, no format character in common use.
fn is_printable(letter: char) -> bool {
    letter == ' '
        || !(letter.is_control()
            || letter.is_whitespace()
            || matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{e0001}'..='\u{e007f}' | '\u{f0000}'..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f64) -> String {
        let mut out = String::new();
        write_float(&mut out, value, ["nan", "inf"]).unwrap();
        out
    }

    #[test]
    fn floats_are_spelled_as_in_python() {
        for (value, spelled) in [
            (1.0, "1.0"),
            (1000.0, "1000.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(value), spelled);
        }
    }

    #[test]
    fn containers_are_spelled_as_in_python() {
        let (json, _) = crate::text::json::Json::parse(
            r#"{"a":[1,1.0,null,true,"it's","say \"x\"\n","\u0001é\u200b"],"b":{},"c":12345678901234567890123456789012345678901234567890}"#,
        )
        .unwrap();
        let mut out = String::new();
        write_str(&mut out, &crate::text::value::from_json(&json)).unwrap();
        assert_eq!(
            out,
            r#"{'a': [1, 1.0, None, True, "it's", 'say "x"\n', '\x01é\u200b'], 'b': {}, 'c': 12345678901234567890123456789012345678901234567890}"#
        );
    }
}
