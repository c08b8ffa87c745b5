//! Iterables of Python that are no lists: generators, views, groups and ranges.

use core::fmt;
use std::sync::{Arc, Mutex};

use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr};
use minijinja::{Error, ErrorKind, Value};

/// Most items of a range, as the sandbox has it.
const MAX_RANGE: u64 = 100_000;

/// Whether a value is iterable in Python without being a list, a tuple, a dict or a string.
pub(in crate::text) fn is_iterator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
        || value.downcast_object_ref::<Range>().is_some()
        || value.downcast_object_ref::<View>().is_some()
}

/// What a generator function returns: true, without a length, and gone once it was walked through.
pub(in crate::text) struct Generator(Mutex<Vec<Value>>);

impl Generator {
    pub(in crate::text) fn new(items: Vec<Value>) -> Self {
        Self(Mutex::new(items))
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<generator object>")
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let items = self.0.lock().map(|mut items| core::mem::take(&mut *items));
        Enumerator::Iter(Box::new(items.unwrap_or_default().into_iter()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What `keys`, `values` and `items` of a dict return.
pub(in crate::text) struct View {
    pub(in crate::text) name: &'static str,
    pub(in crate::text) items: Vec<Value>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|view| Box::new(view.items.iter().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }
}

/// What `groupby` lists: a tuple of what a group has in common and its items, which have names.
#[derive(Debug)]
pub(in crate::text) struct Group(pub(in crate::text) [Value; 2]);

impl Object for Group {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some("grouper") => self.0.first().cloned(),
            Some("list") => self.0.last().cloned(),
            Some(_) => None,
            None => self.0.get(key.as_usize()?).cloned(),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// `range`.
#[derive(Clone, Copy)]
pub(in crate::text) struct Range {
    start: i64,
    stop: i64,
    step: i64,
}

impl Range {
    /// `range(stop)` and `range(start, stop[, step])`.
    pub(in crate::text) fn call(
        first: i64,
        stop: Option<i64>,
        step: Option<i64>,
    ) -> Result<Value, Error> {
        let (start, stop) = stop.map_or((0, first), |stop| (first, stop));
        let range = Self {
            start,
            stop,
            step: step.unwrap_or(1),
        };
        match range.len() {
            Some(length) if length <= MAX_RANGE => Ok(Value::from_object(range)),
            _ => Err(Error::new(
                ErrorKind::InvalidOperation,
                "range is too long or has no step",
            )),
        }
    }

    fn len(self) -> Option<u64> {
        let distance = i128::from(self.stop) - i128::from(self.start);
        let step = i128::from(self.step);
        if step == 0 {
            return None;
        }
        let steps = (distance + step - step.signum()) / step;
        u64::try_from(steps.max(0)).ok()
    }

    fn item(self, index: u64) -> Option<i64> {
        if index >= self.len()? {
            return None;
        }
        self.start
            .checked_add(self.step.checked_mul(i64::try_from(index).ok()?)?)
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, stop, step } = self;
        match step {
            1 => write!(f, "range({start}, {stop})"),
            _ => write!(f, "range({start}, {stop}, {step})"),
        }
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = u64::try_from(key.as_i64()?).ok()?;
        self.item(index).map(Value::from)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let length = self.len().and_then(|length| usize::try_from(length).ok());
        Enumerator::Seq(length.unwrap_or(0))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_python() {
        for (start, stop, step, items) in [
            (0, 3, 1, &[0, 1, 2][..]),
            (5, 0, -2, &[5, 3, 1]),
            (1, 10, 4, &[1, 5, 9]),
            (0, -1, 1, &[]),
            (3, 3, -1, &[]),
        ] {
            let range = Range { start, stop, step };
            let found: Vec<i64> = (0..).map_while(|index| range.item(index)).collect();
            assert_eq!(found, items);
            assert_eq!(range.len(), Some(items.len() as u64));
        }
        assert!(Range::call(i64::MIN, Some(i64::MAX), None).is_err());
        assert!(Range::call(0, Some(1), Some(0)).is_err());
    }
}
