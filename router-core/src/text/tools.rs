//! Tool definitions as request validation writes them out again.

use minijinja::Value;

use super::error::Unscorable;
use super::json::Json;
use super::request;
use super::value::{dict, from_json};

/// Reads `tools`: `None` where absent.
///
/// Each tool becomes `{"type", "function": {"name", "description", "parameters"[, "strict"][, "defer_loading"]}[, "defer_loading"]}`:
/// the order is fixed, an absent description or parameters is null, other keys are dropped.
pub(super) fn read(tools: &Json<'_>) -> Result<Option<Value>, Unscorable> {
    match tools {
        Json::Null => Ok(None),
        Json::Array(tools) => {
            let tools = tools.iter().map(read_one).collect::<Result<Vec<_>, _>>()?;
            Ok(Some(tools.into()))
        }
        _ => Err(Unscorable::Invalid),
    }
}

fn read_one(tool: &Json<'_>) -> Result<Value, Unscorable> {
    let function = tool
        .get("function")
        .filter(|f| matches!(f, Json::Object(_)))
        .ok_or(Unscorable::Invalid)?;
    let name = function
        .get("name")
        .filter(|name| name.as_str().is_some())
        .ok_or(Unscorable::Invalid)?;
    let own = tool.get("defer_loading");
    let is_deferred = flag(own)?;
    let entry = |key: &str, value: Option<&Json<'_>>| {
        (Value::from(key), value.map_or(Value::from(()), from_json))
    };
    let mut entries = vec![
        entry("name", Some(name)),
        entry("description", function.get("description")),
        entry("parameters", function.get("parameters")),
    ];
    for (key, value) in [
        ("strict", flag(function.get("strict"))?),
        (
            "defer_loading",
            flag(function.get("defer_loading"))?.or(is_deferred),
        ),
    ] {
        if let Some(set) = value {
            entries.push((Value::from(key), Value::from(set)));
        }
    }
    let mut entries = vec![
        (Value::from("type"), Value::from("function")),
        (Value::from("function"), dict(entries.into_iter())),
    ];
    if let Some(is_deferred) = is_deferred {
        entries.push((Value::from("defer_loading"), Value::from(is_deferred)));
    }
    Ok(dict(entries.into_iter()))
}

/// A flag that may be absent.
fn flag(value: Option<&Json<'_>>) -> Result<Option<bool>, Unscorable> {
    value.map(|value| request::flag(value, false)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tojson;

    #[test]
    fn tools_are_written_in_fixed_order_with_nulls() {
        let (json, _) = Json::parse(
            r#"[{"x":1,"function":{"strict":true,"parameters":{"b":1,"a":[1.0,1e3]},"name":"f","y":2},"type":"function"},
                {"type":"function","function":{"name":"noop"},"defer_loading":true}]"#,
        )
        .unwrap();
        let tools = read(&json).unwrap().unwrap();
        assert_eq!(
            tojson::dumps(&tools, &tojson::Style::default()).unwrap(),
            r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"b": 1, "a": [1.0, 1000.0]}, "strict": true}}, "#.to_owned()
                + r#"{"type": "function", "function": {"name": "noop", "description": null, "parameters": null, "defer_loading": true}, "defer_loading": true}]"#
        );
    }

    #[test]
    fn a_nameless_tool_is_refused() {
        for text in [
            "{}",
            "[{}]",
            r#"[{"function":{}}]"#,
            r#"[{"function":{"name":3}}]"#,
        ] {
            assert_eq!(
                read(&Json::parse(text).unwrap().0).unwrap_err(),
                Unscorable::Invalid,
                "{text}"
            );
        }
        assert!(read(&Json::Null).unwrap().is_none());
    }
}
