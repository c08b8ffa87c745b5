//! Tool definitions as request validation writes them out again.

use super::datum::{Datum, Entry};
use super::error::Unscorable;
use super::json::Json;
use super::request;

/// Reads `tools`: `None` where absent.
///
/// Each tool becomes `{"type", "function": {"name", "description", "parameters"[, "strict"][, "defer_loading"]}[, "defer_loading"]}`:
/// the order is fixed, an absent description or parameters is null, other keys are dropped.
pub(super) fn read<'a>(tools: &'a Json<'a>) -> Result<Option<Datum<'a>>, Unscorable> {
    match tools {
        Json::Null => Ok(None),
        Json::Array(tools) => {
            let tools = tools.iter().map(read_one).collect::<Result<Vec<_>, _>>()?;
            Ok(Some(Datum::list(tools)))
        }
        _ => Err(Unscorable::Invalid),
    }
}

fn read_one<'a>(tool: &'a Json<'a>) -> Result<Datum<'a>, Unscorable> {
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
    let entry = |key: &'static str, value: Option<&'a Json<'a>>| -> Entry<'a> {
        (key.into(), value.map_or(Datum::None, Datum::from_json))
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
            entries.push((key.into(), Datum::Bool(set)));
        }
    }
    let mut entries = vec![
        ("type".into(), Datum::text("function")),
        ("function".into(), Datum::dict(entries)),
    ];
    if let Some(is_deferred) = is_deferred {
        entries.push(("defer_loading".into(), Datum::Bool(is_deferred)));
    }
    Ok(Datum::dict(entries))
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
        let mut written = String::new();
        tojson::write_datum(&mut written, &tools, &tojson::Style::default()).unwrap();
        assert_eq!(
            written,
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
