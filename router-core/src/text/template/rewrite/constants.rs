//! Constants, as the parser folds them.

use core::fmt::Write;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::super::source::quote;

/// Writes a constant, which the parser may have made of a list or a map.
pub(super) fn write(out: &mut String, value: &Value) {
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::String => out.push_str(&quote(value.as_str().unwrap_or_default())),
        ValueKind::None => out.push_str("none"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => {
            _ = write!(out, "{value}");
        }
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(number) if number.is_infinite() => out.push_str("1e999"),
            Ok(number) => _ = write!(out, "{number:?}"),
            Err(_) => {}
        },
        ValueKind::Map => {
            out.push('{');
            for key in items() {
                write(out, &key);
                out.push_str(": ");
                write(out, &value.get_item(&key).unwrap_or_default());
                out.push_str(", ");
            }
            out.push('}');
        }
        _ => {
            out.push(if value.is_tuple() { '(' } else { '[' });
            for item in items() {
                write(out, &item);
                out.push_str(", ");
            }
            out.push(if value.is_tuple() { ')' } else { ']' });
        }
    }
}
