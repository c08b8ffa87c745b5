//! Tool calls of an assistant message.

use crate::text::datum::{Datum, Entry, Text};
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// Reads `tool_calls`; the arguments become objects.
///
/// Validation puts the keys `id`, `function` (with `arguments` and `name`) and `type` first, in this order; whatever else the client
/// wrote follows. Without it the order stays.
pub(super) fn read<'a>(
    calls: &'a Json<'a>,
    is_validated: bool,
) -> Result<Vec<Datum<'a>>, Unscorable> {
    let Json::Array(calls) = calls else {
        return Err(Unscorable::Invalid);
    };
    calls
        .iter()
        .map(|call| read_one(call, is_validated))
        .collect()
}

fn read_one<'a>(call: &'a Json<'a>, is_validated: bool) -> Result<Datum<'a>, Unscorable> {
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
        return Ok(with_value(call, "function", function));
    }
    let mut entries = Vec::with_capacity(3);
    if let Some(id) = call.get("id") {
        entries.push(("id".into(), Datum::from_json(id)));
    }
    entries.push(("function".into(), function));
    entries.push(("type".into(), Datum::text("function")));
    entries.extend(further_fields(call, &["id", "function", "type"]));
    Ok(Datum::dict(entries))
}

fn read_function<'a>(function: &'a Json<'a>, is_validated: bool) -> Result<Datum<'a>, Unscorable> {
    let arguments = arguments(function.get("arguments"))?;
    if !is_validated {
        return Ok(with_value(function, "arguments", arguments));
    }
    let mut entries = Vec::with_capacity(2);
    entries.push(("arguments".into(), arguments));
    if let Some(name) = function.get("name") {
        entries.push(("name".into(), Datum::from_json(name)));
    }
    entries.extend(further_fields(function, &["arguments", "name"]));
    Ok(Datum::dict(entries))
}

/// An object with another value under `key`, at the end if it is new.
fn with_value<'a>(object: &'a Json<'a>, key: &'static str, value: Datum<'a>) -> Datum<'a> {
    let Json::Object(fields) = object else {
        return Datum::Undefined;
    };
    let mut entries: Vec<Entry<'a>> = fields
        .iter()
        .map(|(name, old)| {
            let value = if name == key {
                value.clone()
            } else {
                Datum::from_json(old)
            };
            (Text::Borrowed(name), value)
        })
        .collect();
    if !object.has(key) {
        entries.push((key.into(), value));
    }
    Datum::dict(entries)
}

/// Fields of an object other than `known`, in order.
fn further_fields<'a>(object: &'a Json<'a>, known: &'a [&str]) -> impl Iterator<Item = Entry<'a>> {
    let fields = match object {
        Json::Object(fields) => fields.as_slice(),
        _ => &[],
    };
    fields
        .iter()
        .filter(|(key, _)| !known.contains(&key.as_ref()))
        .map(|(key, value)| (Text::Borrowed(key), Datum::from_json(value)))
}

/// Arguments as an object; whatever is none becomes an empty one.
fn arguments<'a>(arguments: Option<&'a Json<'a>>) -> Result<Datum<'a>, Unscorable> {
    match arguments {
        Some(object @ Json::Object(_)) => Ok(Datum::from_json(object)),
        Some(Json::String(text)) => {
            let Ok((object @ Json::Object(_), flaws)) = Json::parse(text) else {
                return Ok(Datum::dict([]));
            };
            flaws.check()?;
            Ok(Datum::from_owned(object))
        }
        _ => Ok(Datum::dict([])),
    }
}
