//! Python behaviour that templates rely on: methods of strings, dicts and lists, `str()` and `repr()` of values.

mod case;
mod dicts;
mod format;
mod iterators;
mod numbers;
mod repr;
mod strings;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

pub(super) use case::{capitalize, is_all as is_all_case};
pub(super) use dicts::items as dict_items;
pub(super) use format::percent;
pub(super) use iterators::{Generator, Group, Range, View, is_iterator};
pub(super) use numbers::{parse_float, parse_int};
pub(super) use repr::{write_float, write_str};
pub(super) use strings::{center, is_space, lines, strip};

/// Calls a Python method that the template engine doesn't know itself.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().ok_or(ErrorKind::UnknownMethod)?;
            let args = Args::new(args);
            let result = strings::call(state, text, method, &args)?;
            if value.is_safe() {
                return marked(result, &args);
            }
            Ok(result)
        }
        ValueKind::Map => dicts::call_dict(value, method, &Args::new(args)),
        ValueKind::Seq | ValueKind::Iterable => dicts::call_list(value, method, &Args::new(args)),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

/// The result of a method of a string that is marked as safe: marked too. Arguments would be escaped, and lists would hold marked
/// strings; both are refused.
fn marked(result: Value, args: &Args<'_>) -> Result<Value, Error> {
    let needs_escape = |value: &Value| match value.as_str() {
        Some(text) => text.contains(['&', '<', '>', '\'', '"']),
        None => !matches!(
            value.kind(),
            ValueKind::Number | ValueKind::Bool | ValueKind::None
        ),
    };
    if args.keywords.is_some() || args.positional.iter().any(needs_escape) {
        return Err(ErrorKind::InvalidOperation.into());
    }
    match result.kind() {
        ValueKind::String => Ok(Value::from_safe_string(result.to_string())),
        ValueKind::Number | ValueKind::Bool => Ok(result),
        _ => Err(ErrorKind::InvalidOperation.into()),
    }
}

/// Positional and keyword arguments of a call.
struct Args<'a> {
    positional: &'a [Value],
    keywords: Option<Kwargs>,
}

impl<'a> Args<'a> {
    fn new(args: &'a [Value]) -> Self {
        match args.split_last() {
            Some((last, positional)) if last.is_kwargs() => Self {
                positional,
                keywords: Kwargs::try_from(last.clone()).ok(),
            },
            _ => Self {
                positional: args,
                keywords: None,
            },
        }
    }

    /// The argument at `index` or by `name`; none if absent or `None`.
    fn get(&self, index: usize, name: &str) -> Option<Value> {
        let keyword = || self.keywords.as_ref()?.peek::<Value>(name).ok();
        self.positional
            .get(index)
            .cloned()
            .or_else(keyword)
            .filter(|value| !value.is_none() && !value.is_undefined())
    }

    fn required(&self, index: usize, name: &str) -> Result<Value, Error> {
        self.get(index, name)
            .ok_or_else(|| Error::from(ErrorKind::MissingArgument))
    }

    fn string(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        match self.get(index, name) {
            Some(value) if value.as_str().is_none() => Err(not_a_string()),
            value => Ok(value),
        }
    }

    fn required_string(&self, index: usize, name: &str) -> Result<Value, Error> {
        self.string(index, name)?
            .ok_or_else(|| Error::from(ErrorKind::MissingArgument))
    }

    /// A count where negative means no limit.
    fn limit(&self, index: usize, name: &str) -> Result<usize, Error> {
        match self.get(index, name) {
            None => Ok(usize::MAX),
            Some(value) => {
                let value = i64::try_from(value)?;
                Ok(usize::try_from(value).unwrap_or(usize::MAX))
            }
        }
    }
}

fn not_a_string() -> Error {
    Error::new(ErrorKind::InvalidOperation, "expected a string")
}
