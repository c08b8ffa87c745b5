//! Bodies of any API: read or refused, and in the main as another JSON reader does it.

use prefixway_core::text::{Api, BodyError, BodyFormat, MAX_LOAD_UNITS, parse};
use serde_json::Value;

/// The first byte picks the API, the others are the body.
pub(crate) fn check(data: &[u8]) {
    let Some((&first, body)) = data.split_first() else {
        return;
    };
    let api = Api::ALL[usize::from(first) % Api::ALL.len()];
    let ours = parse(api, body);
    if let Ok(request) = &ours {
        assert!((1..=MAX_LOAD_UNITS).contains(&request.load_units));
    }
    if api.body_format() == BodyFormat::Form {
        return;
    }
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let Ok(text) = std::str::from_utf8(body) else {
        assert!(matches!(ours, Err(BodyError::Utf8 { .. })));
        return;
    };
    match (serde_json::from_str::<Value>(text), ours) {
        (Ok(Value::Object(fields)), Ok(request)) => {
            assert_eq!(
                request.model.as_deref(),
                fields.get("model").and_then(Value::as_str)
            );
            let salt = fields.get("cache_salt").and_then(Value::as_str);
            assert!(request.cache_salt.as_deref() == salt || request.cache_salt.is_none());
            if let Some(Value::Bool(stream)) = fields.get("stream") {
                assert!(request.stream == *stream || !request.stream);
            }
        }
        (Ok(Value::Object(fields)), Err(BodyError::ModelType)) => {
            let model = fields.get("model");
            assert!(model.is_some_and(|model| !model.is_string() && !model.is_null()));
        }
        (Ok(value), Err(BodyError::NotObject)) => assert!(!value.is_object()),
        (Ok(_), ours) => panic!("a JSON text is not read: {ours:?}"),
        (Err(error), Ok(_)) => assert!(
            is_read_by_python_only(&error, text),
            "read although {error}"
        ),
        (Err(_), Err(_)) => {}
    }
}

/// What Python reads and the other reader refuses: half a surrogate pair, numbers beyond a double, words for what is no number, and
/// nesting up to a limit of our own.
fn is_read_by_python_only(error: &serde_json::Error, text: &str) -> bool {
    let message = error.to_string();
    [
        "surrogate",
        "hex escape",
        "number out of range",
        "recursion limit",
    ]
    .iter()
    .any(|known| message.contains(known))
        || text.contains("NaN")
        || text.contains("Infinity")
}
