//! Runs a plan: what is written, and strings that are put together.

use core::fmt::Write;

use super::GiveUp;
use super::run::Run;
use super::tree::Expr;
use crate::text::datum::Datum;
use crate::text::python::write_float;
use crate::text::tojson::write_datum;

impl<'a> Run<'a> {
    /// Writes the value of an expression as `str` does.
    pub(super) fn emit(&mut self, expr: &'a Expr) -> Result<(), GiveUp> {
        match expr {
            Expr::Text(text) => self.push(text),
            _ => self.inside(|run| run.emit_operation(expr)),
        }
    }

    fn emit_operation(&mut self, expr: &'a Expr) -> Result<(), GiveUp> {
        match expr {
            Expr::Join(parts) => parts.iter().try_for_each(|part| self.emit(part)),
            Expr::Sum(parts) => self.emit_sum(parts),
            Expr::ToJson(value, style) => {
                let value = self.eval(value)?;
                let start = self.out.len();
                write_datum(&mut self.out, &value, style).map_err(|_| GiveUp)?;
                // Makes sure of the limit.
                self.push("")?;
                self.pay((self.out.len() - start) / 16)
            }
            Expr::If(parts) => {
                let [test, value, other] = &**parts;
                let is_true = self.test(test)?;
                self.emit(if is_true { value } else { other })
            }
            Expr::Call(number, args) => self.call(*number, args),
            _ => {
                let value = self.eval(expr)?;
                self.emit_value(&value)
            }
        }
    }

    fn emit_value(&mut self, value: &Datum<'a>) -> Result<(), GiveUp> {
        match value {
            Datum::Text(text) => return self.push(text),
            Datum::Undefined => {}
            Datum::None => self.out.push_str("None"),
            Datum::Bool(true) => self.out.push_str("True"),
            Datum::Bool(false) => self.out.push_str("False"),
            Datum::Int(integer) => write!(self.out, "{integer}").map_err(|_| GiveUp)?,
            Datum::Float(float) => {
                write_float(&mut self.out, *float, ["nan", "inf"]).map_err(|_| GiveUp)?;
            }
            Datum::Big(digits) => self.out.push_str(digits),
            Datum::List(_) | Datum::Dict(_) | Datum::Namespace(_) => return Err(GiveUp),
        }
        Ok(())
    }

    /// Writes an expression that has to be a string.
    fn emit_text(&mut self, expr: &'a Expr) -> Result<(), GiveUp> {
        match expr {
            Expr::Text(text) => self.push(text),
            _ => self.inside(|run| run.emit_text_operation(expr)),
        }
    }

    fn emit_text_operation(&mut self, expr: &'a Expr) -> Result<(), GiveUp> {
        match expr {
            Expr::Join(_) | Expr::ToJson(..) | Expr::Call(..) => self.emit(expr),
            Expr::Sum(parts) => {
                let (first, rest) = parts.split_first().ok_or(GiveUp)?;
                self.emit_text(first)?;
                rest.iter().try_for_each(|part| self.emit_text(part))
            }
            Expr::If(parts) => {
                let [test, value, other] = &**parts;
                let is_true = self.test(test)?;
                self.emit_text(if is_true { value } else { other })
            }
            _ => match self.eval(expr)? {
                Datum::Text(text) => self.push(&text),
                _ => Err(GiveUp),
            },
        }
    }

    fn emit_sum(&mut self, parts: &'a [Expr]) -> Result<(), GiveUp> {
        let (first, rest) = parts.split_first().ok_or(GiveUp)?;
        if is_text(first) {
            self.emit_text(first)?;
        } else {
            match self.eval(first)? {
                Datum::Text(text) => self.push(&text)?,
                other => {
                    let sum = self.sum(other, rest)?;
                    return self.emit_value(&sum);
                }
            }
        }
        rest.iter().try_for_each(|part| self.emit_text(part))
    }

    /// A sum that doesn't begin with a string.
    fn sum(&mut self, first: Datum<'a>, rest: &'a [Expr]) -> Result<Datum<'a>, GiveUp> {
        rest.iter().try_fold(first, |sum, part| {
            let part = self.eval(part)?;
            match (sum, part) {
                (Datum::Int(a), Datum::Int(b)) => a.checked_add(b).map(Datum::Int).ok_or(GiveUp),
                (Datum::List(a), Datum::List(b)) => {
                    self.pay(a.len() + b.len())?;
                    Ok(Datum::list(a.iter().chain(b.iter()).collect()))
                }
                _ => Err(GiveUp),
            }
        })
    }

    /// The value of a sum.
    pub(super) fn eval_sum(&mut self, parts: &'a [Expr]) -> Result<Datum<'a>, GiveUp> {
        let (first, rest) = parts.split_first().ok_or(GiveUp)?;
        if is_text(first) {
            return self.capture(|run| run.emit_sum(parts)).map(Datum::Text);
        }
        match self.eval(first)? {
            Datum::Text(text) => {
                let sum = self.capture(|run| {
                    run.push(&text)?;
                    rest.iter().try_for_each(|part| run.emit_text(part))
                });
                sum.map(Datum::Text)
            }
            other => self.sum(other, rest),
        }
    }
}

/// Whether the value of an expression is a string, if it has one.
fn is_text(expr: &Expr) -> bool {
    match expr {
        Expr::Text(_) | Expr::Join(_) | Expr::ToJson(..) | Expr::Call(..) => true,
        Expr::Sum(parts) => parts.first().is_some_and(is_text),
        _ => false,
    }
}
