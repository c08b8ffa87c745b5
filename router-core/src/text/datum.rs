//! Values that templates are given, borrowed from the request where they can be.

use core::ops::Deref;
use std::borrow::Cow;
use std::rc::Rc;

use minijinja::Value;

use super::json::Json;
use super::value::{self, integer};

/// One value.
#[derive(Clone, Debug)]
pub(super) enum Datum<'a> {
    /// Nothing of this name.
    Undefined,
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// An integer beyond 64 bits, as spelled.
    Big(&'a str),
    /// A string.
    Text(Text<'a>),
    /// A list.
    List(List<'a>),
    /// A dict whose keys are strings.
    Dict(Dict<'a>),
    /// A namespace of the template that is running, by its number.
    Namespace(usize),
}

/// A string.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

/// A list.
#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Json(&'a [Json<'a>]),
    Shared(Rc<[Datum<'a>]>),
    Part(Rc<Part<'a>>),
}

/// Some items of a list, in order or in reverse.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) of: List<'a>,
    /// Index of the first item, if there is one.
    pub(super) start: usize,
    pub(super) step: isize,
    pub(super) length: usize,
}

/// A dict, in order.
#[derive(Clone, Debug)]
pub(super) enum Dict<'a> {
    Json(&'a [(Cow<'a, str>, Json<'a>)]),
    Shared(Rc<[Entry<'a>]>),
}

/// Key and value of a dict.
pub(super) type Entry<'a> = (Text<'a>, Datum<'a>);

impl<'a> Datum<'a> {
    /// A string that lives elsewhere.
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text(Text::Borrowed(text))
    }

    /// A list of these items.
    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(List::Shared(items.into()))
    }

    /// A dict of entries with distinct keys.
    pub(super) fn dict(entries: impl Into<Rc<[Entry<'a>]>>) -> Self {
        Self::Dict(Dict::Shared(entries.into()))
    }

    /// The value of `json`, as Python's `json` module reads it.
    pub(super) fn from_json(json: &'a Json<'a>) -> Self {
        match json {
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(entries) => Self::Dict(Dict::Json(entries)),
            Json::Null => Self::None,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(spelled) => number(spelled),
        }
    }

    /// The same of JSON that lives nowhere else.
    pub(super) fn from_owned(json: Json<'a>) -> Self {
        match json {
            Json::String(text) => Self::Text(text.into()),
            Json::Array(items) => Self::list(items.into_iter().map(Self::from_owned).collect()),
            Json::Object(entries) => {
                let entries = entries.into_iter();
                let entries = entries.map(|(key, value)| (key.into(), Self::from_owned(value)));
                Self::dict(entries.collect::<Vec<_>>())
            }
            Json::Null => Self::None,
            Json::Bool(flag) => Self::Bool(flag),
            Json::Number(spelled) => number(spelled),
        }
    }

    /// The same value for the template engine.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Undefined | Self::Namespace(_) => Value::UNDEFINED,
            Self::None => Value::from(()),
            Self::Bool(flag) => Value::from(*flag),
            Self::Int(integer) => Value::from(*integer),
            Self::Float(float) => Value::from(*float),
            Self::Big(digits) => integer(digits),
            Self::Text(text) => Value::from(&**text),
            Self::List(list) => list.iter().map(|item| item.to_value()).collect(),
            Self::Dict(dict) => value::dict(
                dict.iter()
                    .map(|(key, value)| (Value::from(&*key), value.to_value())),
            ),
        }
    }
}

/// A number: without fraction and exponent an integer of any size, else a float.
fn number(spelled: &str) -> Datum<'_> {
    match spelled {
        "NaN" => return Datum::Float(f64::NAN),
        "Infinity" => return Datum::Float(f64::INFINITY),
        "-Infinity" => return Datum::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if spelled.contains(['.', 'e', 'E']) {
        return spelled.parse().map_or(Datum::Undefined, Datum::Float);
    }
    spelled.parse().map_or(Datum::Big(spelled), Datum::Int)
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Borrowed(text),
            Cow::Owned(text) => Self::Shared(text.into()),
        }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl Text<'_> {
    /// What `cut` leaves of the string.
    pub(super) fn cut(&self, cut: impl FnOnce(&str) -> &str) -> Self {
        match self {
            Self::Borrowed(text) => Self::Borrowed(cut(text)),
            Self::Shared(text) => {
                let rest = cut(text);
                if rest.len() == text.len() {
                    self.clone()
                } else {
                    Self::Shared(rest.into())
                }
            }
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Shared(items) => items.len(),
            Self::Part(part) => part.length,
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Datum<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(Datum::from_json),
            Self::Shared(items) => items.get(index).cloned(),
            Self::Part(part) => {
                let offset = isize::try_from(index).ok()?.checked_mul(part.step)?;
                let at = part.start.checked_add_signed(offset)?;
                part.of.get(at).filter(|_| index < part.length)
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Datum<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Dict<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(entries) => entries.len(),
            Self::Shared(entries) => entries.len(),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Json(entries) => entries.iter().any(|(key, _)| key == name),
            Self::Shared(entries) => entries.iter().any(|(key, _)| **key == *name),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Datum<'a>> {
        match self {
            Self::Json(entries) => entries
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| Datum::from_json(value)),
            Self::Shared(entries) => entries
                .iter()
                .find(|(key, _)| **key == *name)
                .map(|(_, value)| value.clone()),
        }
    }

    /// Key and value at a place.
    pub(super) fn at(&self, index: usize) -> Option<Entry<'a>> {
        match self {
            Self::Json(entries) => entries
                .get(index)
                .map(|(key, value)| (Text::Borrowed(key), Datum::from_json(value))),
            Self::Shared(entries) => entries.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.at(index))
    }
}

/// The template's variables.
#[derive(Debug, Default)]
pub(super) struct Context<'a>(pub(super) Vec<(&'a str, Datum<'a>)>);

impl<'a> Context<'a> {
    /// Sets `name`, replacing an earlier value.
    pub(super) fn set(&mut self, name: &'a str, value: Datum<'a>) {
        match self.0.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Datum<'a>> {
        self.0
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_template_engine() {
        let text =
            r#"{"a":[1,-0,1.0,1e3,null,true,"x\n",123456789012345678901234567890],"b":{"c":NaN}}"#;
        let (json, _) = Json::parse(text).unwrap();
        let expected = format!("{:?}", value::from_json(&json));
        let borrowed = Datum::from_json(&json).to_value();
        assert_eq!(format!("{borrowed:?}"), expected);
        let owned = Datum::from_owned(Json::parse(text).unwrap().0).to_value();
        assert_eq!(format!("{owned:?}"), expected);
    }

    #[test]
    fn parts_of_lists_run_both_ways() {
        let items: Vec<Datum<'_>> = (0..5).map(Datum::Int).collect();
        let Datum::List(of) = Datum::list(items) else {
            unreachable!()
        };
        let part = List::Part(Rc::new(Part {
            of,
            start: 3,
            step: -2,
            length: 2,
        }));
        let found: Vec<String> = part.iter().map(|item| format!("{item:?}")).collect();
        assert_eq!(found, ["Int(3)", "Int(1)"]);
        assert!(part.get(2).is_none());
    }
}
