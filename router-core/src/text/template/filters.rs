//! Filters of Jinja2 that the template engine lacks, or has in another way.

mod numbers;
mod order;
mod strings;

pub(super) use strings::escape;

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use crate::text::python::{self, Generator, Group};

/// Filters that return a generator: the template engine's own, which make lists, are kept under a name that no template can spell.
const GENERATORS: [(&str, &str); 8] = [
    ("map", "map list"),
    ("select", "select list"),
    ("reject", "reject list"),
    ("selectattr", "selectattr list"),
    ("rejectattr", "rejectattr list"),
    ("batch", "batch list"),
    ("slice", "slice list"),
    ("unique", "unique list"),
];

/// Filters that Jinja2 doesn't have.
const FOREIGN: [&str; 5] = ["split", "lines", "bool", "chain", "zip"];

/// Adds and replaces filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("map list", filters::map);
    environment.add_filter("select list", filters::select);
    environment.add_filter("reject list", filters::reject);
    environment.add_filter("selectattr list", filters::selectattr);
    environment.add_filter("rejectattr list", filters::rejectattr);
    environment.add_filter("batch list", filters::batch);
    environment.add_filter("slice list", filters::slice);
    environment.add_filter("unique list", filters::unique);
    for (name, list) in GENERATORS {
        environment.add_filter(
            name,
            move |state: &mut State<'_, '_>, args: Rest<Value>, keywords: Kwargs| {
                let keywords = if name == "map" {
                    without_no_default(keywords)?
                } else {
                    keywords
                };
                let list = apply(state, list, args, keywords)?;
                let items: Vec<Value> = list.try_iter()?.collect();
                Ok::<_, Error>(Value::from_object(Generator::new(items)))
            },
        );
    }
    for name in FOREIGN {
        environment.remove_filter(name);
    }
    environment.add_filter("items", items);
    environment.add_filter("reverse", reverse);
    environment.add_filter("round list", filters::round);
    environment.add_filter("round", round);
    environment.add_filter("groupby list", filters::groupby);
    environment.add_filter("groupby", groupby);
    numbers::add(environment);
    order::add(environment);
    strings::add(environment);
}

fn invalid(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

/// Applies one of the template engine's own filters.
fn apply(
    state: &mut State<'_, '_>,
    name: &str,
    mut args: Rest<Value>,
    keywords: Kwargs,
) -> Result<Value, Error> {
    if keywords.args().next().is_some() {
        args.push(keywords.into());
    }
    state.apply_filter(name, &args)
}

/// The arguments of `map`, to which a default of `none` is none.
fn without_no_default(keywords: Kwargs) -> Result<Kwargs, Error> {
    if !keywords
        .peek::<Value>("default")
        .is_ok_and(|value| value.is_none())
    {
        return Ok(keywords);
    }
    let others = keywords.args().filter(|name| *name != "default");
    others
        .map(|name| Ok((name.to_owned(), keywords.peek::<Value>(name)?)))
        .collect()
}

/// `str(value)`; an undefined value is empty.
fn soft_string(value: &Value) -> Result<Cow<'_, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Cow::Borrowed(text));
    }
    let mut text = String::new();
    if !value.is_undefined() {
        python::write_str(&mut text, value)?;
    }
    Ok(Cow::Owned(text))
}

/// `reverse`: a string, or an iterator.
fn reverse(value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    if value.is_none() || value.is_undefined() {
        return Err(invalid("nothing to reverse"));
    }
    let mut items: Vec<Value> = value.try_iter()?.collect();
    items.reverse();
    Ok(Value::from_object(Generator::new(items)))
}

/// `round`; other than `common`, the methods make a float of an integer.
fn round(
    state: &mut State<'_, '_>,
    value: &Value,
    args: Rest<Value>,
    keywords: Kwargs,
) -> Result<Value, Error> {
    let method = match args.get(1) {
        Some(method) => Some(method.clone()),
        None => keywords.peek::<Option<Value>>("method").ok().flatten(),
    };
    let is_common = method.is_none_or(|method| method.as_str() == Some("common"));
    let value = if value.is_integer() && !is_common {
        Value::from(f64::try_from(value.clone())?)
    } else {
        value.clone()
    };
    let mut all = vec![value];
    all.extend(args.0);
    apply(state, "round list", Rest(all), keywords)
}

fn items(value: &Value) -> Result<Value, Error> {
    let mut pairs = Vec::new();
    if value.kind() == ValueKind::Map {
        pairs.extend(python::dict_items(value)?);
    } else if !value.is_undefined() {
        return Err(invalid("only a mapping has items"));
    }
    Ok(Value::from_object(Generator::new(pairs)))
}

/// `groupby`, whose groups are tuples with names.
fn groupby(
    state: &mut State<'_, '_>,
    args: Rest<Value>,
    keywords: Kwargs,
) -> Result<Vec<Value>, Error> {
    apply(state, "groupby list", args, keywords)?
        .try_iter()?
        .map(|group| {
            let [grouper, list] = [0, 1].map(|i| group.get_item(&Value::from(i)));
            Ok(Value::from_object(Group([grouper?, list?])))
        })
        .collect()
}

/// An item of an item, by a path of names and indices.
fn attribute_of(item: &Value, attribute: &Value) -> Result<Value, Error> {
    let Some(path) = attribute.as_str() else {
        return item.get_item(attribute);
    };
    let mut found = item.clone();
    for part in path.split('.') {
        if found.is_undefined() {
            return Err(invalid("an undefined value has no attributes"));
        }
        let key = part
            .parse::<u32>()
            .map_or_else(|_| Value::from(part), Value::from);
        found = found.get_item(&key)?;
    }
    Ok(found)
}
