//! The template engine, set up to behave like Jinja2 as engines set it up.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{StringInput, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
};

use super::FUEL;
use super::facts::MARKUP_FILTERS;
use crate::text::{python, tojson};

/// An environment without templates.
pub(super) fn new() -> Environment<'static> {
    let mut environment = bare();
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// An environment without what engines add to Jinja2.
pub(super) fn bare() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
    {
        environment.set_syntax(syntax);
    }
    environment.set_debug(false);
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(python::call_method);
    environment.set_formatter(format);
    environment.add_filter("tojson", tojson::filter);
    environment.add_filter("trim", trim);
    environment.add_filter("string", string);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_test("callable", is_callable);
    environment
}

/// Makes filters fail that give markup. Jinja2 escapes whatever is added to markup, which can't be done here; a template that does
/// that has no text on the paths where it does.
pub(super) fn refuse_markup(environment: &mut Environment<'static>) {
    for filter in MARKUP_FILTERS {
        environment.add_filter(filter, |_: &Value| -> Result<Value, Error> {
            Err(Error::new(
                ErrorKind::InvalidOperation,
                "adding to markup is not supported",
            ))
        });
    }
}

/// Writes a value as Python's `str` does; an undefined one is empty.
fn format(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return out.write_str(text).map_err(Error::from);
    }
    if value.is_undefined() {
        return Ok(());
    }
    python::write_str(out, value).map_err(Error::from)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string()))
}

/// `trim`, with Python's idea of white space.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the template engine passes arguments by value"
)]
fn trim(text: StringInput<'_>, chars: Option<StringInput<'_>>) -> Value {
    let chars = chars.as_ref().map(StringInput::as_str);
    Value::from(python::strip(text.as_str(), chars, true, true))
}

fn string(value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    let mut text = String::new();
    if !value.is_undefined() {
        python::write_str(&mut text, value)?;
    }
    Ok(Value::from(text))
}

/// Whatever has a length and items: also strings and dicts.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain
}
