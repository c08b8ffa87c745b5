//! `json.dumps` of values that are borrowed from a request.

use core::fmt::{self, Write};

use super::{MAX_DEPTH, Style, write_string};
use crate::text::datum::{Datum, Dict, List};
use crate::text::json::Json;
use crate::text::python::write_float;

/// Appends `json.dumps(value)`.
///
/// # Errors
///
/// A value that JSON can't express, or one that is nested too deeply. Part of it may have been written.
pub(in crate::text) fn write_datum(
    out: &mut String,
    value: &Datum<'_>,
    style: &Style,
) -> fmt::Result {
    Writer { out, style }.datum(value, 0)
}

struct Writer<'o, 's> {
    out: &'o mut String,
    style: &'s Style,
}

impl Writer<'_, '_> {
    fn datum(&mut self, value: &Datum<'_>, depth: usize) -> fmt::Result {
        match value {
            Datum::Text(text) => self.string(text),
            Datum::None => self.out.push_str("null"),
            Datum::Bool(flag) => self.flag(*flag),
            Datum::Int(integer) => write!(self.out, "{integer}")?,
            Datum::Float(float) => self.float(*float)?,
            Datum::Big(digits) => self.out.push_str(digits),
            Datum::List(List::Json(items)) => self.array(items, depth)?,
            Datum::List(list) => {
                self.items(depth, ['[', ']'], list.iter(), |writer, item| {
                    writer.datum(&item, depth + 1)
                })?;
            }
            Datum::Dict(Dict::Json(entries)) => self.object(entries, depth)?,
            Datum::Dict(Dict::Shared(entries)) => {
                let mut entries: Vec<_> = entries.iter().collect();
                if self.style.sort_keys {
                    entries.sort_by_key(|(key, _)| &**key);
                }
                self.items(
                    depth,
                    ['{', '}'],
                    entries.into_iter(),
                    |writer, (key, value)| {
                        writer.key(key);
                        writer.datum(value, depth + 1)
                    },
                )?;
            }
            Datum::Undefined | Datum::Namespace(_) => return Err(fmt::Error),
        }
        Ok(())
    }

    fn json(&mut self, value: &Json<'_>, depth: usize) -> fmt::Result {
        match value {
            Json::String(text) => self.string(text),
            Json::Null => self.out.push_str("null"),
            Json::Bool(flag) => self.flag(*flag),
            Json::Number(_) => self.datum(&Datum::from_json(value), depth)?,
            Json::Array(items) => self.array(items, depth)?,
            Json::Object(entries) => self.object(entries, depth)?,
        }
        Ok(())
    }

    fn array(&mut self, items: &[Json<'_>], depth: usize) -> fmt::Result {
        self.items(depth, ['[', ']'], items.iter(), |writer, item| {
            writer.json(item, depth + 1)
        })
    }

    fn object(
        &mut self,
        entries: &[(std::borrow::Cow<'_, str>, Json<'_>)],
        depth: usize,
    ) -> fmt::Result {
        let write = |writer: &mut Self, (key, value): &(std::borrow::Cow<'_, str>, Json<'_>)| {
            writer.key(key);
            writer.json(value, depth + 1)
        };
        if !self.style.sort_keys {
            return self.items(depth, ['{', '}'], entries.iter(), write);
        }
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by_key(|(key, _)| key.as_ref());
        self.items(depth, ['{', '}'], sorted.into_iter(), write)
    }

    fn items<T>(
        &mut self,
        depth: usize,
        [open, close]: [char; 2],
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> fmt::Result,
    ) -> fmt::Result {
        if depth >= MAX_DEPTH {
            return Err(fmt::Error);
        }
        self.out.push(open);
        let mut is_empty = true;
        for item in items {
            if !is_empty {
                self.out.push_str(&self.style.item_separator);
            }
            is_empty = false;
            self.style.new_line(self.out, depth + 1);
            write(self, item)?;
        }
        if !is_empty {
            self.style.new_line(self.out, depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn key(&mut self, key: &str) {
        self.string(key);
        self.out.push_str(&self.style.key_separator);
    }

    fn string(&mut self, text: &str) {
        write_string(self.out, text, self.style.ensure_ascii);
    }

    fn flag(&mut self, flag: bool) {
        self.out.push_str(if flag { "true" } else { "false" });
    }

    fn float(&mut self, float: f64) -> fmt::Result {
        write_float(self.out, float, ["NaN", "Infinity"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tojson::dumps;
    use proptest::prelude::*;

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            "-?(0|[1-9][0-9]{0,24})",
            "-?[1-9][0-9]{0,3}\\.[0-9]{1,3}(e-?[1-9][0-9]?)?",
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::btree_map("[a-z\"\\\\é\n]{0,3}", inner, 0..4).prop_map(
                    |entries| {
                        let entries: Vec<String> = entries
                            .into_iter()
                            .rev()
                            .map(|(key, value)| {
                                format!("{}:{value}", serde_json::to_string(&key).unwrap())
                            })
                            .collect();
                        format!("{{{}}}", entries.join(","))
                    }
                ),
            ]
        })
    }

    proptest! {
        #[test]
        fn writes_what_is_written_of_the_template_engines_values(
            text in json(),
            indent in prop::option::of(0i64..3),
            ensure_ascii: bool,
            sort_keys: bool,
        ) {
            let style = Style::new(
                Some(ensure_ascii.into()),
                indent.map(Into::into),
                None,
                Some(sort_keys.into()),
            )
            .unwrap();
            let (json, _) = Json::parse(&text).unwrap();
            let expected = dumps(&Datum::from_json(&json).to_value(), &style).unwrap();
            let (copy, _) = Json::parse(&text).unwrap();
            for datum in [Datum::from_json(&json), Datum::from_owned(copy)] {
                let mut out = String::new();
                write_datum(&mut out, &datum, &style).unwrap();
                prop_assert_eq!(&out, &expected);
            }
        }
    }
}
