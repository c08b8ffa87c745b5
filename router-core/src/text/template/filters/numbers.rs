//! Filters that make numbers.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the template engine passes arguments by value"
)]

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, Value};

use super::invalid;
use crate::text::python;
use crate::text::value::{BigInt, integer};

/// Adds the filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("int", int);
    environment.add_filter("float", float);
}

/// `int`: what can't be read becomes the default.
fn int(
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    keywords: Kwargs,
) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => keywords
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0)),
    };
    let base = match base {
        Some(base) => base,
        None => keywords.get::<Option<u32>>("base")?.unwrap_or(10),
    };
    keywords.assert_all_used()?;
    if base != 10 {
        return Err(invalid("other bases than 10 are not supported"));
    }
    match value.kind() {
        ValueKind::Bool => Ok(Value::from(i64::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => Ok(value.clone()),
        ValueKind::Number => whole(f64::try_from(value.clone())?).unwrap_or(Ok(default)),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            match (python::parse_int(text)?, python::parse_float(text)?) {
                (Some(digits), _) => Ok(integer(&digits)),
                (None, Some(number)) => whole(number).unwrap_or(Ok(default)),
                (None, None) => Ok(default),
            }
        }
        _ if value.downcast_object_ref::<BigInt>().is_some() => Ok(value.clone()),
        _ => Ok(default),
    }
}

/// `int(number)`; none where Python says that there is no such value and the default counts.
fn whole(number: f64) -> Option<Result<Value, Error>> {
    if number.is_nan() {
        return None;
    }
    if number.is_infinite() {
        return Some(Err(invalid("infinity is no integer")));
    }
    Some(Ok(integer(&format!("{:.0}", number.trunc()))))
}

/// `float`: what can't be read becomes the default.
fn float(value: &Value, default: Option<Value>, keywords: Kwargs) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => keywords
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0.0)),
    };
    keywords.assert_all_used()?;
    match value.kind() {
        ValueKind::Bool => Ok(Value::from(if value.is_true() { 1.0 } else { 0.0 })),
        ValueKind::Number => Ok(Value::from(f64::try_from(value.clone())?)),
        ValueKind::String => {
            let number = python::parse_float(value.as_str().unwrap_or_default())?;
            Ok(number.map_or(default, Value::from))
        }
        _ if value.downcast_object_ref::<BigInt>().is_some() => {
            Err(invalid("integer is too large"))
        }
        _ => Ok(default),
    }
}
