//! Python's operators, where they are simple.

use core::cmp::Ordering;
use std::rc::Rc;

use super::GiveUp;
use crate::text::datum::{Datum, List, Part};
use crate::text::value::is_dict_method;

/// Whether a value is true.
pub(super) fn is_true(value: &Datum<'_>) -> Result<bool, GiveUp> {
    Ok(match value {
        Datum::Undefined | Datum::None => false,
        Datum::Bool(flag) => *flag,
        Datum::Int(integer) => *integer != 0,
        Datum::Text(text) => !text.is_empty(),
        Datum::List(list) => list.len() > 0,
        Datum::Dict(dict) => dict.len() > 0,
        Datum::Namespace(_) => true,
        Datum::Float(_) | Datum::Big(_) => return Err(GiveUp),
    })
}

/// `left == right`
pub(super) fn equal(left: &Datum<'_>, right: &Datum<'_>) -> Result<bool, GiveUp> {
    use Datum::{Bool, Dict, Int, List, None, Text, Undefined};
    Ok(match (left, right) {
        (Text(left), Text(right)) => **left == **right,
        (None, None) | (Undefined, Undefined) => true,
        (Bool(left), Bool(right)) => left == right,
        (Int(left), Int(right)) => left == right,
        (Bool(flag), Int(integer)) | (Int(integer), Bool(flag)) => *integer == i64::from(*flag),
        (List(left), List(right)) if left.len() != right.len() => false,
        (Dict(left), Dict(right)) if left.len() != right.len() => false,
        (List(_), List(_)) | (Dict(_), Dict(_)) => return Err(GiveUp),
        (
            Text(_) | None | Undefined | Bool(_) | Int(_) | List(_) | Dict(_),
            Text(_) | None | Undefined | Bool(_) | Int(_) | List(_) | Dict(_),
        ) => false,
        _ => return Err(GiveUp),
    })
}

/// `left < right` and its like.
pub(super) fn compare(left: &Datum<'_>, right: &Datum<'_>) -> Result<Ordering, GiveUp> {
    match (left, right) {
        (Datum::Int(left), Datum::Int(right)) => Ok(left.cmp(right)),
        (Datum::Text(left), Datum::Text(right)) => Ok((**left).cmp(&**right)),
        _ => Err(GiveUp),
    }
}

/// `item in all`
pub(super) fn contains(all: &Datum<'_>, item: &Datum<'_>) -> Result<bool, GiveUp> {
    match (all, item) {
        (Datum::Text(text), Datum::Text(part)) => {
            Ok(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some())
        }
        (Datum::Dict(dict), Datum::Text(name)) => Ok(dict.has(name)),
        (Datum::List(list), _) => {
            for other in list.iter() {
                if equal(item, &other)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(GiveUp),
    }
}

/// The place that an index names, counted from the end if negative.
pub(super) fn place(index: i64, length: usize) -> Option<usize> {
    if index < 0 {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    } else {
        usize::try_from(index).ok()
    }
}

/// Begin and end of a slice with step one.
pub(super) fn ends(start: Option<i64>, stop: Option<i64>, length: usize) -> (usize, usize) {
    let end = |bound: i64| match place(bound, length) {
        Some(place) => place.min(length),
        None if bound < 0 => 0,
        None => length,
    };
    let (start, stop) = (start.map_or(0, end), stop.map_or(length, end));
    (start, stop.max(start))
}

/// `list[start:stop:step]`, for steps of one either way.
pub(super) fn part(
    list: List<'_>,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> Result<List<'_>, GiveUp> {
    let (from, length, step) = match step {
        1 => {
            let (start, stop) = ends(start, stop, list.len());
            (start, stop - start, 1)
        }
        -1 if start.is_none() && stop.is_none() => (list.len().saturating_sub(1), list.len(), -1),
        _ => return Err(GiveUp),
    };
    if let List::Part(part) = &list {
        // A part of a part is a part of the whole, so that parts don't nest.
        let from = isize::try_from(from).map_err(|_| GiveUp)?;
        let start = from
            .checked_mul(part.step)
            .and_then(|offset| part.start.checked_add_signed(offset));
        return Ok(List::Part(Rc::new(Part {
            of: part.of.clone(),
            // A part without items may start behind the end.
            start: start.unwrap_or(0),
            step: part.step * step,
            length,
        })));
    }
    Ok(List::Part(Rc::new(Part {
        of: list,
        start: from,
        step,
        length,
    })))
}

/// Whether Python has an attribute of this name on values of some kind, which then hides a key.
pub(super) fn is_method(name: &str) -> bool {
    name.starts_with('_') || is_dict_method(name)
}
