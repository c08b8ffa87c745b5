//! JSON values as a template sees them.

use core::cmp::Ordering;
use core::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{DynObject, Enumerator, Object, ObjectExt, ObjectRepr};

use super::json::Json;

/// Objects with more keys than this are kept in a hash map.
const LINEAR_KEYS: usize = 24;

/// Makes a template value of `json`.
pub(super) fn from_json(json: &Json<'_>) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(spelled) => number(spelled),
        Json::String(text) => Value::from(text.as_ref()),
        Json::Array(items) => items.iter().map(from_json).collect::<Vec<_>>().into(),
        Json::Object(entries) => dict(
            entries
                .iter()
                .map(|(key, value)| (Value::from(key.as_ref()), from_json(value))),
        ),
    }
}

/// Makes a dict of entries with distinct keys, in order.
pub(super) fn dict(entries: impl Iterator<Item = (Value, Value)>) -> Value {
    let entries: Vec<_> = entries.collect();
    if entries.len() > LINEAR_KEYS {
        Value::from_pairs(entries)
    } else {
        Value::from_object(Dict(entries))
    }
}

/// A number as Python's `json` module reads it: without fraction and exponent an integer of any size, else a float.
fn number(spelled: &str) -> Value {
    match spelled {
        "NaN" => return Value::from(f64::NAN),
        "Infinity" => return Value::from(f64::INFINITY),
        "-Infinity" => return Value::from(f64::NEG_INFINITY),
        _ => {}
    }
    if spelled.contains(['.', 'e', 'E']) {
        return spelled.parse::<f64>().map_or(Value::UNDEFINED, Value::from);
    }
    integer(spelled)
}

/// An integer of any size.
pub(super) fn integer(digits: &str) -> Value {
    // The template engine compares an integer with a float by way of the float, and takes the largest of a signed type for the float
    // above it; so those are kept in the unsigned type.
    if let Ok(small) = digits.parse::<i64>() {
        match u64::try_from(small) {
            Ok(unsigned) if small == i64::MAX => Value::from(unsigned),
            _ => Value::from(small),
        }
    } else if let Ok(large) = digits.parse::<i128>() {
        match u128::try_from(large) {
            Ok(unsigned) if large == i128::MAX => Value::from(unsigned),
            _ => Value::from(large),
        }
    } else {
        Value::from_object(BigInt(digits.into()))
    }
}

/// A Python dict with few keys, in order.
///
/// As in Jinja2, `x.name` finds the dict's own methods before its keys and `x['name']` finds keys only.
#[derive(Debug)]
pub(super) struct Dict(Vec<(Value, Value)>);

impl Dict {
    fn find(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(key, _)| key.as_str() == Some(name))
            .map(|(_, value)| value)
    }
}

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some(name) => self.find(name).cloned(),
            None => self
                .0
                .iter()
                .find(|(other, _)| other == key)
                .map(|(_, value)| value.clone()),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        if changes_dict(name) {
            return Some(Value::UNDEFINED);
        }
        if is_dict_method(name) {
            return Some(Value::from_object(BoundMethod));
        }
        self.find(name).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_rev_key_value_enumerator(|this| Box::new(this.0.iter().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Names that hide keys of the same name in attribute syntax.
pub(super) fn is_dict_method(name: &str) -> bool {
    changes_dict(name)
        || matches!(
            name,
            "items" | "get" | "keys" | "values" | "copy" | "fromkeys"
        )
}

/// Names of the methods among them that change a dict. Templates can't reach those: to them they are undefined.
fn changes_dict(name: &str) -> bool {
    matches!(name, "pop" | "update" | "clear" | "popitem" | "setdefault")
}

/// What `x.items` is when nobody calls it: something defined, true and of no other use.
#[derive(Debug)]
struct BoundMethod;

impl Object for BoundMethod {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// An integer beyond 128 bits, kept as its digits.
pub(super) struct BigInt(Box<str>);

impl BigInt {
    /// The digits, with sign.
    pub(super) fn digits(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BigInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Object for BigInt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        let (mine, theirs) = (self.0.strip_prefix('-'), other.0.strip_prefix('-'));
        let by_size = |a: &str, b: &str| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
        Some(match (mine, theirs) {
            (None, None) => by_size(&self.0, &other.0),
            (Some(mine), Some(theirs)) => by_size(theirs, mine),
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
        })
    }
}

/// The template's variables. Unlike in [`Dict`], no name is special.
#[derive(Debug)]
pub(super) struct Variables(pub(super) Vec<(Box<str>, Value)>);

impl Variables {
    /// Sets `name`, replacing an earlier value.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(other, _)| **other == *name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
    }
}

impl Object for Variables {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        self.0
            .iter()
            .find(|(key, _)| **key == *name)
            .map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(key, _)| Value::from(&**key)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        from_json(&Json::parse(text).unwrap().0)
    }

    #[test]
    fn integers_and_floats_stay_apart() {
        assert!(value("1").is_integer());
        assert!(!value("1.0").is_integer());
        assert!(!value("1e3").is_integer());
        assert_eq!(value("-0").to_string(), "0");
        let digits = "123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(value(digits).to_string(), digits);
    }

    #[test]
    fn integers_equal_floats_only_where_they_are_the_same_number() {
        for (integer, float, ordering) in [
            (
                "9223372036854775807",
                "9223372036854775808.0",
                Ordering::Less,
            ),
            (
                "9223372036854775808",
                "9223372036854775808.0",
                Ordering::Equal,
            ),
            (
                "9223372036854775809",
                "9223372036854775808.0",
                Ordering::Greater,
            ),
            (
                "-9223372036854775808",
                "-9223372036854775808.0",
                Ordering::Equal,
            ),
            (
                "18446744073709551615",
                "18446744073709551616.0",
                Ordering::Less,
            ),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            (
                "170141183460469231731687303715884105727",
                "170141183460469231731687303715884105728.0",
                Ordering::Less,
            ),
        ] {
            let (integer, float) = (value(integer), value(float));
            assert_eq!(integer.cmp(&float), ordering, "{integer} {float}");
            assert_eq!(integer == float, ordering == Ordering::Equal, "{integer}");
            assert_eq!(float == integer, ordering == Ordering::Equal, "{integer}");
            assert!(integer.is_integer());
        }
    }

    #[test]
    fn attribute_syntax_prefers_methods_and_item_syntax_finds_keys() {
        let dict = value(r#"{"items":1,"name":2}"#);
        assert_eq!(
            dict.get_item(&Value::from("items")).unwrap(),
            Value::from(1)
        );
        assert_ne!(dict.get_attr("items").unwrap(), Value::from(1));
        assert_eq!(dict.get_attr("name").unwrap(), Value::from(2));
        assert!(dict.get_attr("absent").unwrap().is_undefined());
    }

    #[test]
    fn large_objects_keep_their_order() {
        let entries: Vec<String> = (0..100).map(|i| format!("\"k{i}\":{i}")).collect();
        let dict = value(&format!("{{{}}}", entries.join(",")));
        let keys: Vec<String> = dict
            .try_iter()
            .unwrap()
            .map(|key| key.to_string())
            .collect();
        assert_eq!(keys, (0..100).map(|i| format!("k{i}")).collect::<Vec<_>>());
    }
}
