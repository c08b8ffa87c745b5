//! Tool calls of an assistant message.

use minijinja::Value;

use crate::text::error::Unscorable;
use crate::text::json::Json;
use crate::text::value::{dict, from_json};

/// Reads `tool_calls`; the arguments become objects.
///
/// Validation puts the keys `id`, `function` (with `arguments` and `name`) and `type` first, in this order; whatever else the client
/// wrote follows. Without it the order stays.
pub(super) fn read(calls: &Json<'_>, is_validated: bool) -> Result<Vec<Value>, Unscorable> {
    let Json::Array(calls) = calls else {
        return Err(Unscorable::Invalid);
    };
    calls
        .iter()
        .map(|call| read_one(call, is_validated))
        .collect()
}

fn read_one(call: &Json<'_>, is_validated: bool) -> Result<Value, Unscorable> {
    let function = call
        .get("function")
        .filter(|f| matches!(f, Json::Object(_)))
        .ok_or(Unscorable::Invalid)?;
    if call
        .get("type")
        .is_some_and(|kind| kind.as_str() != Some("function"))
    {
        return Err(Unscorable::Invalid);
    }
    let function = read_function(function, is_validated)?;
    if !is_validated {
        return Ok(with_value(call, "function", &function));
    }
    let mut entries = Vec::with_capacity(3);
    if let Some(id) = call.get("id") {
        entries.push((Value::from("id"), from_json(id)));
    }
    entries.push((Value::from("function"), function));
    entries.push((Value::from("type"), Value::from("function")));
    entries.extend(further_fields(call, &["id", "function", "type"]));
    Ok(dict(entries.into_iter()))
}

fn read_function(function: &Json<'_>, is_validated: bool) -> Result<Value, Unscorable> {
    let arguments = arguments(function.get("arguments"))?;
    if !is_validated {
        return Ok(with_value(function, "arguments", &arguments));
    }
    let mut entries = Vec::with_capacity(2);
    entries.push((Value::from("arguments"), arguments));
    if let Some(name) = function.get("name") {
        entries.push((Value::from("name"), from_json(name)));
    }
    entries.extend(further_fields(function, &["arguments", "name"]));
    Ok(dict(entries.into_iter()))
}

/// An object with another value under `key`, at the end if it is new.
fn with_value(object: &Json<'_>, key: &str, value: &Value) -> Value {
    let Json::Object(fields) = object else {
        return Value::UNDEFINED;
    };
    let mut entries: Vec<_> = fields
        .iter()
        .map(|(name, old)| {
            let value = if name == key {
                value.clone()
            } else {
                from_json(old)
            };
            (Value::from(name.as_ref()), value)
        })
        .collect();
    if !object.has(key) {
        entries.push((Value::from(key), value.clone()));
    }
    dict(entries.into_iter())
}

/// Fields of an object other than `known`, in order.
fn further_fields<'a>(
    object: &'a Json<'_>,
    known: &'a [&str],
) -> impl Iterator<Item = (Value, Value)> + 'a {
    let fields = match object {
        Json::Object(fields) => fields.as_slice(),
        _ => &[],
    };
    fields
        .iter()
        .filter(|(key, _)| !known.contains(&key.as_ref()))
        .map(|(key, value)| (Value::from(key.as_ref()), from_json(value)))
}

/// Arguments as an object; whatever is none becomes an empty one.
fn arguments(arguments: Option<&Json<'_>>) -> Result<Value, Unscorable> {
    match arguments {
        Some(object @ Json::Object(_)) => Ok(from_json(object)),
        Some(Json::String(text)) => {
            let Ok((object @ Json::Object(_), flaws)) = Json::parse(text) else {
                return Ok(dict(core::iter::empty()));
            };
            flaws.check()?;
            Ok(from_json(&object))
        }
        _ => Ok(dict(core::iter::empty())),
    }
}
