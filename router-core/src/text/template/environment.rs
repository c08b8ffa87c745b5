//! The template engine, set up to behave like Jinja2 as engines set it up.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
};

use super::{FUEL, filters, operators, rewrite};
use crate::text::value::BigInt;
use crate::text::{python, tojson};

/// The syntax of chat templates.
pub(super) fn jinja_syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
}

/// An environment for rewritten templates.
pub(super) fn new() -> Result<Environment<'static>, Error> {
    let mut environment = bare()?;
    environment.add_function("raise_exception", raise_exception);
    Ok(environment)
}

/// An environment without the functions that engines add to Jinja2.
pub(super) fn bare() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(rewrite::syntax()?);
    environment.set_debug(false);
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(python::call_method);
    environment.set_formatter(format);
    environment.add_function("range", python::Range::call);
    filters::add(&mut environment);
    operators::add(&mut environment);
    environment.add_filter("tojson", tojson::filter);
    environment.add_filter("string", string);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_test("callable", is_callable);
    environment.add_test("sameas", is_same);
    environment.add_test("number", is_number);
    environment.add_test("integer", |value: &Value| {
        value.is_integer() || is_big(value)
    });
    environment.add_test("lower", |value: &Value| {
        string(value).map(|text| python::is_all_case(&text.to_string(), false))
    });
    environment.add_test("upper", |value: &Value| {
        string(value).map(|text| python::is_all_case(&text.to_string(), true))
    });
    Ok(environment)
}

/// Writes a value as Python's `str` does; an undefined one is empty.
fn format(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return out.write_str(text).map_err(Error::from);
    }
    python::write_str(out, value).map_err(Error::from)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string()))
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
        ValueKind::Iterable => {
            value.len().is_some() && value.downcast_object_ref::<python::View>().is_none()
        }
        _ => false,
    }
}

fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Functions and macros; also what is undefined, though calling it fails.
fn is_callable(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined) && !is_big(value)
}

/// Also `true` and `false`, which are integers of Python.
fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool) || is_big(value)
}

fn is_big(value: &Value) -> bool {
    value.downcast_object_ref::<BigInt>().is_some()
}

/// Whether two values are one object: known for `none`, `true` and `false`.
fn is_same(value: &Value, other: &Value) -> Result<bool, Error> {
    let is_single = |value: &Value| matches!(value.kind(), ValueKind::None | ValueKind::Bool);
    if is_single(value) || is_single(other) {
        return Ok(value.kind() == other.kind() && value == other);
    }
    if value.kind() != other.kind() || value.is_undefined() {
        return Ok(false);
    }
    Err(Error::new(
        ErrorKind::InvalidOperation,
        "identity of objects is not known",
    ))
}
