//! Filters that put values in order. Values that Python can't compare have none.

use core::cmp::Ordering;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};

use super::{attribute_of, invalid};
use crate::text::python;

/// Adds the filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("sort", sort);
    environment.add_filter("dictsort", dictsort);
    environment.add_filter(
        "min",
        |state: &State<'_, '_>, value: &Value, args: Rest<Value>, keywords: Kwargs| {
            extreme(
                state,
                value,
                &Arguments::new(args, keywords),
                Ordering::Less,
            )
        },
    );
    environment.add_filter(
        "max",
        |state: &State<'_, '_>, value: &Value, args: Rest<Value>, keywords: Kwargs| {
            extreme(
                state,
                value,
                &Arguments::new(args, keywords),
                Ordering::Greater,
            )
        },
    );
}

/// Positional and keyword arguments of a filter.
struct Arguments {
    positional: Rest<Value>,
    keywords: Kwargs,
}

impl Arguments {
    fn new(positional: Rest<Value>, keywords: Kwargs) -> Self {
        Self {
            positional,
            keywords,
        }
    }

    fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        let value = match self.positional.get(index) {
            Some(value) => Some(value.clone()),
            None => self.keywords.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none()))
    }

    fn flag(&self, index: usize, name: &str) -> Result<bool, Error> {
        Ok(self.get(index, name)?.is_some_and(|flag| flag.is_true()))
    }

    fn end(&self) -> Result<(), Error> {
        self.keywords.assert_all_used()
    }
}

fn sort(
    state: &State<'_, '_>,
    value: &Value,
    args: Rest<Value>,
    keywords: Kwargs,
) -> Result<Vec<Value>, Error> {
    let args = Arguments::new(args, keywords);
    let (reverse, case_sensitive) = (args.flag(0, "reverse")?, args.flag(1, "case_sensitive")?);
    let attribute = args.get(2, "attribute")?;
    args.end()?;
    if value.is_none() {
        return Err(invalid("None is not iterable"));
    }
    let paths: Vec<Value> = match attribute
        .as_ref()
        .map(|attribute| (attribute, attribute.as_str()))
    {
        None => Vec::new(),
        Some((_, Some(paths))) => paths.split(',').map(Value::from).collect(),
        Some((index, None)) => vec![index.clone()],
    };
    let keyed = value.try_iter()?.map(|item| {
        let key = match paths.as_slice() {
            [] => vec![fold(item.clone(), case_sensitive)],
            paths => paths
                .iter()
                .map(|path| Ok(fold(attribute_of(&item, path)?, case_sensitive)))
                .collect::<Result<_, Error>>()?,
        };
        Ok((key, item))
    });
    in_order(state, keyed.collect::<Result<_, Error>>()?, reverse)
}

fn dictsort(
    state: &State<'_, '_>,
    value: &Value,
    args: Rest<Value>,
    keywords: Kwargs,
) -> Result<Vec<Value>, Error> {
    let args = Arguments::new(args, keywords);
    let case_sensitive = args.flag(0, "case_sensitive")?;
    let by = args.get(1, "by")?.unwrap_or_else(|| Value::from("key"));
    let reverse = args.flag(2, "reverse")?;
    args.end()?;
    let index = match by.as_str() {
        Some("key") => 0,
        Some("value") => 1,
        _ => return Err(invalid("only keys and values can be sorted by")),
    };
    if value.kind() != ValueKind::Map {
        return Err(invalid("only a mapping has items"));
    }
    let keyed = python::dict_items(value)?.into_iter().map(|item| {
        let key = fold(item.get_item(&Value::from(index))?, case_sensitive);
        Ok((vec![key], item))
    });
    in_order(state, keyed.collect::<Result<_, Error>>()?, reverse)
}

/// The first of the items that are `wanted` compared to all others; undefined where there are none.
fn extreme(
    state: &State<'_, '_>,
    value: &Value,
    args: &Arguments,
    wanted: Ordering,
) -> Result<Value, Error> {
    let case_sensitive = args.flag(0, "case_sensitive")?;
    let attribute = args.get(1, "attribute")?;
    args.end()?;
    if value.is_none() {
        return Err(invalid("None is not iterable"));
    }
    let mut best: Option<(Value, Value)> = None;
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        let key = match &attribute {
            Some(path) => attribute_of(&item, path)?,
            None => item.clone(),
        };
        let key = fold(key, case_sensitive);
        let better = match &best {
            Some((best, _)) => compare(&key, best)? == wanted,
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map(|(_, item)| item).unwrap_or_default())
}

/// A string in small letters where case doesn't count.
fn fold(key: Value, case_sensitive: bool) -> Value {
    match key.as_str() {
        Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
        _ => key,
    }
}

fn in_order(
    state: &State<'_, '_>,
    mut keyed: Vec<(Vec<Value>, Value)>,
    reverse: bool,
) -> Result<Vec<Value>, Error> {
    let comparisons = keyed
        .len()
        .saturating_mul(keyed.len().checked_ilog2().unwrap_or(0) as usize);
    state.consume_fuel(comparisons as u64)?;
    let mut failed = None;
    keyed.sort_by(|(a, _), (b, _)| {
        let ordering = compare_lists(a, b).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            Ordering::Equal
        });
        if reverse {
            ordering.reverse()
        } else {
            ordering
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(keyed.into_iter().map(|(_, item)| item).collect()),
    }
}

fn compare_lists(a: &[Value], b: &[Value]) -> Result<Ordering, Error> {
    match a.iter().zip(b).find(|(a, b)| a != b) {
        Some((a, b)) => compare(a, b),
        None => Ok(a.len().cmp(&b.len())),
    }
}

/// Python's `<` and `>`.
fn compare(a: &Value, b: &Value) -> Result<Ordering, Error> {
    let is_number = |value: &Value| match value.kind() {
        ValueKind::Bool => true,
        ValueKind::Number => f64::try_from(value.clone()).is_ok_and(|number| !number.is_nan()),
        _ => false,
    };
    let list = |value: &Value| match value.kind() {
        ValueKind::Seq | ValueKind::Iterable if !python::is_iterator(value) => {
            value.try_iter().ok().map(Iterator::collect::<Vec<Value>>)
        }
        _ => None,
    };
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return Ok(a.cmp(b));
    }
    if is_number(a) && is_number(b) {
        return Ok(a.cmp(b));
    }
    match (list(a), list(b)) {
        (Some(x), Some(y)) if a.is_tuple() == b.is_tuple() => compare_lists(&x, &y),
        _ => Err(invalid("values can't be compared")),
    }
}
