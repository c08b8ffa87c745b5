//! Operations that templates are rewritten to; see [`super::rewrite`].

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::text::python;

/// Adds the filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("__concat", concat);
    environment.add_filter("__percent", percent);
    environment.add_filter("__letters", letters);
    environment.add_filter("__sliceable", sliceable);
}

/// `a ~ b ~ …`
#[expect(
    clippy::needless_pass_by_value,
    reason = "the template engine passes arguments by value"
)]
fn concat(state: &State<'_, '_>, first: &Value, rest: Rest<Value>) -> Result<String, Error> {
    let length = |value: &Value| value.as_str().map_or(8, str::len);
    let capacity = rest
        .iter()
        .map(length)
        .fold(length(first), usize::saturating_add);
    state.consume_fuel((capacity / 64) as u64)?;
    let mut joined = String::with_capacity(capacity);
    for value in core::iter::once(first).chain(rest.iter()) {
        python::write_str(&mut joined, value)?;
    }
    Ok(joined)
}

/// `format % values`
fn percent(state: &State<'_, '_>, text: &str, values: &Value) -> Result<String, Error> {
    python::percent(state, text, values)
}

/// What can be sliced as the template engine does it: strings, lists and tuples.
fn sliceable(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String if !value.is_safe() => Ok(value.clone()),
        ValueKind::Seq | ValueKind::Iterable
            if value.len().is_some() && !python::is_iterator(value) =>
        {
            Ok(value.clone())
        }
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            "value can't be sliced",
        )),
    }
}

/// What a loop runs through: of a string, its letters.
fn letters(value: &Value) -> Value {
    match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect::<Vec<_>>().into(),
        None => value.clone(),
    }
}
