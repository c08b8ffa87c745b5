//! Methods of dicts and lists. Those that change their object are missing: templates run in an immutable sandbox.

use minijinja::value::Tuple;
use minijinja::{Error, ErrorKind, Value};

use super::{Args, View};

pub(super) fn call_dict(dict: &Value, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "get" => {
            let key = args.required(0, "key")?;
            let object = dict.as_object().ok_or(ErrorKind::InvalidOperation)?;
            if let Some(found) = object.get_value(&key) {
                return Ok(found);
            }
            Ok(args
                .positional
                .get(1)
                .cloned()
                .unwrap_or_else(|| Value::from(())))
        }
        "keys" => Ok(view("dict_keys", dict.try_iter()?.collect())),
        "values" => {
            let values: Result<Vec<_>, _> =
                dict.try_iter()?.map(|key| dict.get_item(&key)).collect();
            Ok(view("dict_values", values?))
        }
        "items" => Ok(view("dict_items", items(dict)?)),
        "copy" => Ok(dict.clone()),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn view(name: &'static str, items: Vec<Value>) -> Value {
    Value::from_object(View { name, items })
}

/// Key and value of every entry.
pub(in crate::text) fn items(dict: &Value) -> Result<Vec<Value>, Error> {
    dict.try_iter()?
        .map(|key| {
            let value = dict.get_item(&key)?;
            Ok(Value::from(Tuple::from([key, value])))
        })
        .collect()
}

pub(super) fn call_list(list: &Value, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "count" => {
            let wanted = args.required(0, "value")?;
            Ok(list
                .try_iter()?
                .filter(|item| *item == wanted)
                .count()
                .into())
        }
        "index" => {
            let wanted = args.required(0, "value")?;
            let items: Vec<Value> = list.try_iter()?.collect();
            let place = |index: usize, absent: usize| {
                let Some(bound) = args.positional.get(index) else {
                    return Ok(absent);
                };
                let bound = i64::try_from(bound.clone())?;
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let from_start = if bound < 0 {
                    bound.saturating_add(length)
                } else {
                    bound
                };
                Ok::<_, Error>(usize::try_from(from_start.max(0)).unwrap_or(usize::MAX))
            };
            let (start, stop) = (place(1, 0)?, place(2, usize::MAX)?);
            items
                .iter()
                .enumerate()
                .take(stop)
                .skip(start)
                .find(|(_, item)| **item == wanted)
                .map(|(at, _)| Value::from(at))
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "value is not in list"))
        }
        "copy" => Ok(list.clone()),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}
