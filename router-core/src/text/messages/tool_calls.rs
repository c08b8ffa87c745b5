//! Tool calls of an assistant message.

use minijinja::Value;

use crate::text::error::Unscorable;
use crate::text::json::Json;
use crate::text::value::{dict, from_json};

/// Reads `tool_calls`; the arguments become objects.
///
/// Each call has the keys `id`, `function` (`arguments`, `name`) and `type`, in the order that request validation gives them, and then
/// whatever else the client wrote.
pub(super) fn read(calls: &Json<'_>) -> Result<Vec<Value>, Unscorable> {
    let Json::Array(calls) = calls else {
        return Err(Unscorable::Invalid);
    };
    calls.iter().map(read_one).collect()
}

fn read_one(call: &Json<'_>) -> Result<Value, Unscorable> {
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
    let mut entries = Vec::with_capacity(2);
    entries.push((
        Value::from("arguments"),
        arguments(function.get("arguments"))?,
    ));
    if let Some(name) = function.get("name") {
        entries.push((Value::from("name"), from_json(name)));
    }
    entries.extend(further_fields(function, &["arguments", "name"]));
    let function = dict(entries.into_iter());
    let mut entries = Vec::with_capacity(3);
    if let Some(id) = call.get("id") {
        entries.push((Value::from("id"), from_json(id)));
    }
    entries.push((Value::from("function"), function));
    entries.push((Value::from("type"), Value::from("function")));
    entries.extend(further_fields(call, &["id", "function", "type"]));
    Ok(dict(entries.into_iter()))
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
