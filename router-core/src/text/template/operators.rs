//! Operations that templates are rewritten to; see [`super::rewrite`].

use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::filters;
use crate::text::python;

/// Adds the filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("__concat", concat);
    environment.add_filter("__percent", percent);
    environment.add_filter("__iterable", iterable);
    environment.add_filter("__add", add_values);
    environment.add_filter("__slice", slice);
    environment.add_filter("__index", index);
}

fn invalid(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
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
fn percent(state: &State<'_, '_>, format: &Value, values: &Value) -> Result<String, Error> {
    match format.as_str() {
        Some(text) if !format.is_safe() => python::percent(state, text, values),
        _ => Err(invalid("only a string can be formatted")),
    }
}

/// `value[start:stop:step]` of strings, lists and tuples.
fn slice(
    state: &State<'_, '_>,
    value: &Value,
    start: &Value,
    stop: &Value,
    step: &Value,
) -> Result<Value, Error> {
    let bound = |value: &Value| {
        if value.is_none() {
            return Ok(None);
        }
        i64::try_from(value.clone()).map(Some)
    };
    let bounds = Bounds {
        start: bound(start)?,
        stop: bound(stop)?,
        step: bound(step)?.unwrap_or(1),
    };
    match value.kind() {
        // A part of a marked string would be marked.
        ValueKind::String if !value.is_safe() => {
            let text = value.as_str().unwrap_or_default();
            state.consume_fuel((text.len() / 16) as u64)?;
            if bounds.step == 1 && text.is_ascii() {
                let (start, stop) = bounds.ends(text.len());
                return Ok(text.get(start..stop).unwrap_or_default().into());
            }
            let letters: Vec<char> = text.chars().collect();
            Ok(bounds.of(&letters)?.collect::<String>().into())
        }
        ValueKind::Seq | ValueKind::Iterable if !python::is_iterator(value) => {
            let items: Vec<Value> = value.try_iter()?.collect();
            state.consume_fuel(items.len() as u64)?;
            let part: Vec<Value> = bounds.of(&items)?.collect();
            Ok(if value.is_tuple() {
                Tuple::from(part).into()
            } else {
                part.into()
            })
        }
        // As for any item that isn't there.
        ValueKind::None => Ok(Value::UNDEFINED),
        _ => Err(invalid("value can't be sliced")),
    }
}

/// `key` as the index of a list; a float is none, and lists have no undefined items either.
fn index(key: &Value) -> Value {
    if key.kind() == ValueKind::Number && !key.is_integer() {
        return Value::UNDEFINED;
    }
    key.clone()
}

/// Bounds of a slice, as written.
struct Bounds {
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
}

impl Bounds {
    /// Begin and end of a slice with step one, of `length` items.
    fn ends(&self, length: usize) -> (usize, usize) {
        let place = |bound: i64| {
            let bound = if bound < 0 {
                i64::try_from(length)
                    .unwrap_or(i64::MAX)
                    .saturating_add(bound)
            } else {
                bound
            };
            usize::try_from(bound.max(0)).unwrap_or(length).min(length)
        };
        let (start, stop) = (self.start.map_or(0, place), self.stop.map_or(length, place));
        (start, stop.max(start))
    }

    /// The items inside the bounds, in order.
    fn of<T: Clone>(&self, items: &[T]) -> Result<impl Iterator<Item = T>, Error> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let forward = self.step > 0;
        // Where a walk may stand: one before the first item is -1.
        let (lowest, highest) = if forward {
            (0, length)
        } else {
            (-1, length - 1)
        };
        let place = |bound: i64| {
            let bound = if bound < 0 {
                bound.saturating_add(length)
            } else {
                bound
            };
            bound.clamp(lowest, highest)
        };
        let [first, last] = if forward {
            [lowest, highest]
        } else {
            [highest, lowest]
        };
        let (mut at, end) = (
            self.start.map_or(first, place),
            self.stop.map_or(last, place),
        );
        if self.step == 0 {
            return Err(invalid("a slice needs a step"));
        }
        let step = self.step;
        Ok(core::iter::from_fn(move || {
            if (forward && at >= end) || (!forward && at <= end) {
                return None;
            }
            let item = usize::try_from(at)
                .ok()
                .and_then(|at| items.get(at).cloned());
            at = at.saturating_add(step);
            item
        }))
    }
}

/// What a loop runs through: of a string, its letters.
fn iterable(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            let letters = value.as_str().unwrap_or_default().chars();
            Ok(letters.map(Value::from).collect::<Vec<_>>().into())
        }
        ValueKind::None => Err(invalid("None is not iterable")),
        _ => Ok(value.clone()),
    }
}

/// `a + b` where strings may be marked as safe: the others are escaped, and the sum is marked too.
fn add_values(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        if !left.is_safe() && !right.is_safe() {
            return Ok(Value::from([a, b].concat()));
        }
        let sum = [left, right].map(|text| filters::escape(text).map(|text| text.to_string()));
        let [left, right] = sum;
        return Ok(Value::from_safe_string(left? + &right?));
    }
    if left.is_integer() && right.is_integer() {
        let (a, b) = (
            i128::try_from(left.clone())?,
            i128::try_from(right.clone())?,
        );
        let sum = a
            .checked_add(b)
            .ok_or_else(|| invalid("sum is too large"))?;
        return Ok(i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from));
    }
    if left.is_number() && right.is_number() {
        return Ok(Value::from(
            f64::try_from(left.clone())? + f64::try_from(right.clone())?,
        ));
    }
    let is_list = |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
            && !value.is_tuple()
            && !python::is_iterator(value)
    };
    if is_list(left) && is_list(right) {
        let items = left.try_iter()?.chain(right.try_iter()?);
        return Ok(items.collect::<Vec<_>>().into());
    }
    Err(invalid("operands can't be added"))
}
