//! Runs a plan: expressions.

use super::operators::{self, compare, contains, equal, is_true};
use super::run::Run;
use super::tree::{Arithmetic, Comparison, Expr, Test};
use super::{GiveUp, strings};
use crate::text::datum::{Datum, Dict, List, Text};

/// Most lists and dicts with others inside that are made, which bounds how deep they nest.
const MAX_NESTED: usize = 1_000;

impl<'a> Run<'a> {
    /// Whether the value of an expression is true.
    pub(super) fn test(&mut self, expr: &'a Expr) -> Result<bool, GiveUp> {
        self.inside(|run| run.test_operation(expr))
    }

    fn test_operation(&mut self, expr: &'a Expr) -> Result<bool, GiveUp> {
        match expr {
            Expr::Compare(first, rest) => self.comparison(first, rest),
            Expr::Not(inner) => Ok(!self.test(inner)?),
            Expr::And(parts) => {
                let [left, right] = &**parts;
                Ok(self.test(left)? && self.test(right)?)
            }
            Expr::Or(parts) => {
                let [left, right] = &**parts;
                Ok(self.test(left)? || self.test(right)?)
            }
            Expr::Test(test, value, args) => {
                let value = self.eval(value)?;
                self.tests(*test, &value, args)
            }
            _ => is_true(&self.eval(expr)?),
        }
    }

    /// The value of an expression.
    pub(super) fn eval(&mut self, expr: &'a Expr) -> Result<Datum<'a>, GiveUp> {
        match expr {
            Expr::Slot(slot) => Ok(self.load(*slot)),
            Expr::Text(text) => Ok(Datum::text(text)),
            _ => self.inside(|run| run.operation(expr)),
        }
    }

    fn operation(&mut self, expr: &'a Expr) -> Result<Datum<'a>, GiveUp> {
        match expr {
            Expr::Slot(slot) => Ok(self.load(*slot)),
            Expr::Text(text) => Ok(Datum::text(text)),
            Expr::Attribute(base, name) => {
                let base = self.eval(base)?;
                self.attribute(&base, name)
            }
            Expr::Item(parts) => {
                let [base, key] = &**parts;
                self.item(base, key)
            }
            Expr::Loop(number, field) => self.loop_field(*number, *field),
            Expr::Compare(..) | Expr::Not(_) | Expr::Test(..) => self.test(expr).map(Datum::Bool),
            Expr::And(parts) => {
                let [left, right] = &**parts;
                let left = self.eval(left)?;
                if is_true(&left)? {
                    self.eval(right)
                } else {
                    Ok(left)
                }
            }
            Expr::Or(parts) => {
                let [left, right] = &**parts;
                let left = self.eval(left)?;
                if is_true(&left)? {
                    Ok(left)
                } else {
                    self.eval(right)
                }
            }
            Expr::If(parts) => {
                let [test, value, other] = &**parts;
                let is_true = self.test(test)?;
                self.eval(if is_true { value } else { other })
            }
            Expr::Sum(parts) => self.eval_sum(parts),
            Expr::Join(_) | Expr::ToJson(..) | Expr::Call(..) => {
                self.capture(|run| run.emit(expr)).map(Datum::Text)
            }
            Expr::Stream(source, stages) => self.stream(source, stages),
            Expr::Method(method, base, args) => strings::method(self, *method, base, args),
            Expr::Filter(filter, value, args) => {
                let value = self.eval(value)?;
                strings::filter(self, *filter, value, args)
            }
            Expr::Undefined => Ok(Datum::Undefined),
            Expr::None => Ok(Datum::None),
            Expr::Bool(flag) => Ok(Datum::Bool(*flag)),
            Expr::Int(integer) => Ok(Datum::Int(*integer)),
            Expr::Float(float) => Ok(Datum::Float(*float)),
            Expr::Slice(parts) => self.slice(parts),
            Expr::Negative(inner) => match self.eval(inner)? {
                Datum::Int(integer) => integer.checked_neg().map(Datum::Int).ok_or(GiveUp),
                _ => Err(GiveUp),
            },
            Expr::Arithmetic(how, parts) => {
                let [left, right] = &**parts;
                self.arithmetic(*how, left, right)
            }
            Expr::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.push(self.nested(item)?);
                }
                Ok(Datum::list(list))
            }
            Expr::Dict(entries) => {
                let mut dict = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    dict.push((Text::Borrowed(key), self.nested(value)?));
                }
                Ok(Datum::dict(dict))
            }
            Expr::Namespace(entries) => {
                let mut space = Vec::with_capacity(entries.len());
                for (name, value) in entries {
                    space.push((&**name, self.eval(value)?));
                }
                self.spaces.push(space);
                Ok(Datum::Namespace(self.spaces.len() - 1))
            }
            Expr::Time(format) => {
                let Datum::Text(format) = self.eval(format)? else {
                    return Err(GiveUp);
                };
                Ok(Datum::Text(Text::Shared(self.now.strftime(&format).into())))
            }
            Expr::Tuple(_) | Expr::GiveUp => Err(GiveUp),
        }
    }

    /// A value that goes into a list or a dict.
    fn nested(&mut self, expr: &'a Expr) -> Result<Datum<'a>, GiveUp> {
        let value = self.eval(expr)?;
        if matches!(value, Datum::List(_) | Datum::Dict(_)) {
            self.nested += 1;
            if self.nested > MAX_NESTED {
                return Err(GiveUp);
            }
        }
        Ok(value)
    }

    fn attribute(&mut self, base: &Datum<'a>, name: &str) -> Result<Datum<'a>, GiveUp> {
        if operators::is_method(name) {
            return Err(GiveUp);
        }
        match base {
            Datum::Dict(dict) => {
                self.pay(dict.len() / 16)?;
                Ok(dict.get(name).unwrap_or(Datum::Undefined))
            }
            Datum::Namespace(space) => {
                let space = self.spaces.get(*space).ok_or(GiveUp)?;
                let found = space.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| value.clone()).ok_or(GiveUp)
            }
            Datum::None => Ok(Datum::Undefined),
            _ => Err(GiveUp),
        }
    }

    fn item(&mut self, base: &'a Expr, key: &'a Expr) -> Result<Datum<'a>, GiveUp> {
        if let (Expr::Method(method, text, args), Expr::Int(index)) = (base, key)
            && let Some(part) = strings::end_of_split(self, *method, text, args, *index)?
        {
            return Ok(part);
        }
        let base = self.eval(base)?;
        if let (Datum::Dict(dict), Expr::Text(name)) = (&base, key) {
            return self.entry(dict, name);
        }
        match (&base, self.eval(key)?) {
            (Datum::Dict(dict), Datum::Text(name)) => self.entry(dict, &name),
            (Datum::List(list), Datum::Int(index)) => {
                let index = operators::place(index, list.len());
                Ok(index
                    .and_then(|index| list.get(index))
                    .unwrap_or(Datum::Undefined))
            }
            _ => Err(GiveUp),
        }
    }

    pub(super) fn entry(&mut self, dict: &Dict<'a>, name: &str) -> Result<Datum<'a>, GiveUp> {
        self.pay(dict.len() / 16)?;
        match dict.get(name) {
            Some(value) => Ok(value),
            // Then Jinja2 looks for an attribute.
            None if operators::is_method(name) => Err(GiveUp),
            None => Ok(Datum::Undefined),
        }
    }

    fn slice(&mut self, parts: &'a [Expr; 4]) -> Result<Datum<'a>, GiveUp> {
        let [base, start, stop, step] = parts;
        let base = self.eval(base)?;
        let mut bounds = [None; 3];
        for (bound, expr) in bounds.iter_mut().zip([start, stop, step]) {
            *bound = match self.eval(expr)? {
                Datum::None => None,
                Datum::Int(bound) => Some(bound),
                _ => return Err(GiveUp),
            };
        }
        let [start, stop, step] = bounds;
        match base {
            Datum::List(list) => {
                operators::part(list, start, stop, step.unwrap_or(1)).map(Datum::List)
            }
            Datum::Text(text) if step.is_none_or(|step| step == 1) && text.is_ascii() => {
                self.pay(text.len() / 64)?;
                let (start, stop) = operators::ends(start, stop, text.len());
                Ok(Datum::Text(
                    text.cut(|text| text.get(start..stop).unwrap_or_default()),
                ))
            }
            _ => Err(GiveUp),
        }
    }

    fn arithmetic(
        &mut self,
        how: Arithmetic,
        left: &'a Expr,
        right: &'a Expr,
    ) -> Result<Datum<'a>, GiveUp> {
        let (Datum::Int(left), Datum::Int(right)) = (self.eval(left)?, self.eval(right)?) else {
            return Err(GiveUp);
        };
        let result = match how {
            Arithmetic::Subtract => left.checked_sub(right),
            Arithmetic::Multiply => left.checked_mul(right),
            // Python rounds down; with a positive divisor that is what Euclid does.
            Arithmetic::Divide if right > 0 => left.checked_div_euclid(right),
            Arithmetic::Remainder if right > 0 => left.checked_rem_euclid(right),
            Arithmetic::Divide | Arithmetic::Remainder => None,
        };
        result.map(Datum::Int).ok_or(GiveUp)
    }

    fn comparison(
        &mut self,
        first: &'a Expr,
        rest: &'a [(Comparison, Expr)],
    ) -> Result<bool, GiveUp> {
        let mut left = self.eval(first)?;
        for (how, right) in rest {
            if let (Comparison::In | Comparison::NotIn, Expr::List(items) | Expr::Tuple(items)) =
                (how, right)
            {
                let mut is_in = false;
                for item in items {
                    let item = self.eval(item)?;
                    is_in = is_in || equal(&left, &item)?;
                }
                if is_in == (*how == Comparison::NotIn) {
                    return Ok(false);
                }
                left = Datum::Undefined;
                // The list would be on the left of a further comparison.
                if rest.len() > 1 {
                    return Err(GiveUp);
                }
                continue;
            }
            let right = self.eval(right)?;
            if !self.compare(*how, &left, &right)? {
                return Ok(false);
            }
            left = right;
        }
        Ok(true)
    }

    fn compare(
        &mut self,
        how: Comparison,
        left: &Datum<'a>,
        right: &Datum<'a>,
    ) -> Result<bool, GiveUp> {
        match (how, right) {
            (Comparison::In | Comparison::NotIn, Datum::Text(text)) => self.pay(text.len() / 64)?,
            (Comparison::In | Comparison::NotIn, Datum::List(list)) => self.pay(list.len())?,
            (Comparison::In | Comparison::NotIn, Datum::Dict(dict)) => self.pay(dict.len() / 16)?,
            _ => {}
        }
        match how {
            Comparison::In => contains(right, left),
            Comparison::NotIn => contains(right, left).map(|is_in| !is_in),
            Comparison::Equal => equal(left, right),
            Comparison::NotEqual => equal(left, right).map(|is_equal| !is_equal),
            Comparison::Less => compare(left, right).map(core::cmp::Ordering::is_lt),
            Comparison::LessOrEqual => compare(left, right).map(core::cmp::Ordering::is_le),
            Comparison::Greater => compare(left, right).map(core::cmp::Ordering::is_gt),
            Comparison::GreaterOrEqual => compare(left, right).map(core::cmp::Ordering::is_ge),
        }
    }

    pub(super) fn tests(
        &mut self,
        test: Test,
        value: &Datum<'a>,
        args: &'a [Expr],
    ) -> Result<bool, GiveUp> {
        Ok(match test {
            Test::Defined => !matches!(value, Datum::Undefined),
            Test::Undefined => matches!(value, Datum::Undefined),
            Test::None => matches!(value, Datum::None),
            Test::String => matches!(value, Datum::Text(_)),
            Test::Mapping => matches!(value, Datum::Dict(_)),
            Test::Boolean => matches!(value, Datum::Bool(_)),
            Test::True => matches!(value, Datum::Bool(true)),
            Test::False => matches!(value, Datum::Bool(false)),
            Test::Sequence => match value {
                Datum::Text(_) | Datum::List(_) | Datum::Dict(_) => true,
                Datum::None | Datum::Bool(_) | Datum::Int(_) | Datum::Float(_) => false,
                _ => return Err(GiveUp),
            },
            Test::Iterable => match value {
                Datum::Text(_) | Datum::List(_) | Datum::Dict(_) | Datum::Undefined => true,
                Datum::None | Datum::Bool(_) | Datum::Int(_) | Datum::Float(_) => false,
                _ => return Err(GiveUp),
            },
            Test::Number => match value {
                Datum::Int(_) | Datum::Float(_) | Datum::Bool(_) => true,
                Datum::Text(_) | Datum::List(_) | Datum::Dict(_) | Datum::None => false,
                _ => return Err(GiveUp),
            },
            Test::Integer => match value {
                Datum::Int(_) => true,
                Datum::Text(_)
                | Datum::List(_)
                | Datum::Dict(_)
                | Datum::None
                | Datum::Float(_) => false,
                _ => return Err(GiveUp),
            },
            Test::Compare(how) => {
                let [arg] = args else {
                    return Err(GiveUp);
                };
                let arg = self.eval(arg)?;
                return self.compare(how, value, &arg);
            }
        })
    }
}

/// The list of a value that has to be one.
pub(super) fn list(value: Datum<'_>) -> Result<List<'_>, GiveUp> {
    match value {
        Datum::List(list) => Ok(list),
        _ => Err(GiveUp),
    }
}
