//! Expressions, written with parentheses around every operation.

use core::fmt::Write;

use minijinja::Value;
use minijinja::machinery::ast::{BinOp, BinOpKind, Call, CompareOpKind, Expr, UnaryOpKind};
use minijinja::value::ValueKind;

use super::super::source::quote;
use super::{arguments, expr};
use crate::text::python;

/// Writes an expression.
pub(super) fn write(out: &mut String, node: &Expr<'_>) {
    // Writing to a string can't fail.
    _ = match node {
        Expr::Var(node) => write!(out, "{}", node.id),
        Expr::Const(node) => {
            constant(out, &node.value);
            Ok(())
        }
        Expr::Slice(node) => {
            let part = |part: &Option<Expr<'_>>| part.as_ref().map(expr).unwrap_or_default();
            write!(
                out,
                "{}[{}:{}:{}]",
                base(&node.expr),
                part(&node.start),
                part(&node.stop),
                // A slice without a step needs no second colon, but takes it.
                part(&node.step)
            )
        }
        Expr::UnaryOp(node) => {
            let op = match node.op {
                UnaryOpKind::Not => "not ",
                UnaryOpKind::Neg => "-",
            };
            write!(out, "({op}({}))", expr(&node.expr))
        }
        Expr::BinOp(node) => {
            operation(out, node);
            Ok(())
        }
        Expr::Compare(node) => {
            _ = write!(out, "({}", expr(&node.expr));
            for operand in &node.ops {
                _ = write!(out, " {} {}", comparison(operand.op), expr(&operand.expr));
            }
            write!(out, ")")
        }
        Expr::IfExpr(node) => {
            _ = write!(
                out,
                "({} if {}",
                expr(&node.true_expr),
                expr(&node.test_expr)
            );
            if let Some(other) = &node.false_expr {
                _ = write!(out, " else {}", expr(other));
            }
            write!(out, ")")
        }
        Expr::Filter(node) => {
            if let Some(inner) = &node.expr {
                _ = write!(out, "{}|", filtered(inner));
            }
            write!(out, "{}", node.name).and_then(|()| match node.args.as_slice() {
                [] => Ok(()),
                args => write!(out, "({})", arguments(args)),
            })
        }
        Expr::Test(node) => {
            _ = write!(out, "({} is {}", filtered(&node.expr), node.name);
            if !node.args.is_empty() {
                _ = write!(out, "({})", arguments(&node.args));
            }
            write!(out, ")")
        }
        Expr::GetAttr(node) => write!(out, "{}.{}", base(&node.expr), node.name),
        Expr::GetItem(node) => write!(out, "{}[{}]", base(&node.expr), expr(&node.subscript_expr)),
        Expr::Call(node) => {
            out.push_str(&call(node));
            Ok(())
        }
        Expr::List(node) => write!(out, "[{}]", list(&node.items)),
        Expr::Tuple(node) => match node.items.as_slice() {
            [item] => write!(out, "({},)", expr(item)),
            items => write!(out, "({})", list(items)),
        },
        Expr::Map(node) => {
            out.push('{');
            for (i, (key, value)) in node.keys.iter().zip(&node.values).enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                _ = write!(out, "{comma}{}: {}", expr(key), expr(value));
            }
            write!(out, "}}")
        }
    };
}

/// Writes a call.
pub(super) fn call(node: &Call<'_>) -> String {
    format!("{}({})", base(&node.expr), arguments(&node.args))
}

fn list(items: &[Expr<'_>]) -> String {
    items.iter().map(expr).collect::<Vec<_>>().join(", ")
}

/// An expression that an attribute, an item or a call follows.
fn base(node: &Expr<'_>) -> String {
    match node {
        Expr::Filter(_) => format!("({})", expr(node)),
        _ => filtered(node),
    }
}

/// An expression that a filter or a test follows.
fn filtered(node: &Expr<'_>) -> String {
    match node {
        Expr::Const(constant) if constant.value.kind() != ValueKind::String => {
            format!("({})", expr(node))
        }
        _ => expr(node),
    }
}

fn operation(out: &mut String, node: &BinOp<'_>) {
    let op = match node.op {
        BinOpKind::Concat => {
            let mut parts = Vec::new();
            collect_parts(&node.left, &mut parts);
            collect_parts(&node.right, &mut parts);
            return concatenation(out, &parts);
        }
        BinOpKind::Rem if is_string(&node.left) => {
            _ = write!(
                out,
                "({}|__percent({}))",
                filtered(&node.left),
                expr(&node.right)
            );
            return;
        }
        BinOpKind::Eq => "==",
        BinOpKind::Ne => "!=",
        BinOpKind::Lt => "<",
        BinOpKind::Lte => "<=",
        BinOpKind::Gt => ">",
        BinOpKind::Gte => ">=",
        BinOpKind::ScAnd => "and",
        BinOpKind::ScOr => "or",
        BinOpKind::Add => "+",
        BinOpKind::Sub => "-",
        BinOpKind::Mul => "*",
        BinOpKind::Div => "/",
        BinOpKind::FloorDiv => "//",
        BinOpKind::Rem => "%",
        BinOpKind::Pow => "**",
        BinOpKind::In => "in",
    };
    _ = write!(out, "({} {op} {})", expr(&node.left), expr(&node.right));
}

/// One part of a concatenation.
enum Part<'a, 'e> {
    Text(String),
    Other(&'a Expr<'e>),
}

/// The operands of nested concatenations; neighbouring constants become one.
fn collect_parts<'a, 'e>(node: &'a Expr<'e>, parts: &mut Vec<Part<'a, 'e>>) {
    match node {
        Expr::BinOp(inner) if matches!(inner.op, BinOpKind::Concat) => {
            collect_parts(&inner.left, parts);
            collect_parts(&inner.right, parts);
        }
        Expr::Const(constant) => {
            let mut text = String::new();
            if python::write_str(&mut text, &constant.value).is_err() {
                parts.push(Part::Other(node));
            } else if let Some(Part::Text(before)) = parts.last_mut() {
                before.push_str(&text);
            } else {
                parts.push(Part::Text(text));
            }
        }
        _ => parts.push(Part::Other(node)),
    }
}

fn concatenation(out: &mut String, parts: &[Part<'_, '_>]) {
    out.push('(');
    for (i, part) in parts.iter().enumerate() {
        out.push_str(match i {
            0 => "",
            1 => "|__concat(",
            _ => ", ",
        });
        match part {
            Part::Text(text) => out.push_str(&quote(text)),
            Part::Other(node) if i == 0 => out.push_str(&filtered(node)),
            Part::Other(node) => write(out, node),
        }
    }
    out.push_str(if parts.len() > 1 { "))" } else { ")" });
}

fn comparison(op: CompareOpKind) -> &'static str {
    match op {
        CompareOpKind::Eq => "==",
        CompareOpKind::Ne => "!=",
        CompareOpKind::Lt => "<",
        CompareOpKind::Lte => "<=",
        CompareOpKind::Gt => ">",
        CompareOpKind::Gte => ">=",
        CompareOpKind::In => "in",
        CompareOpKind::NotIn => "not in",
    }
}

/// Whether an expression is a string for sure.
fn is_string(node: &Expr<'_>) -> bool {
    match node {
        Expr::Const(constant) => constant.value.kind() == ValueKind::String,
        Expr::BinOp(inner) => match inner.op {
            BinOpKind::Concat => true,
            BinOpKind::Add => is_string(&inner.left) || is_string(&inner.right),
            BinOpKind::Rem => is_string(&inner.left),
            _ => false,
        },
        _ => false,
    }
}

/// Writes a constant, which the parser may have made of a list or a map.
fn constant(out: &mut String, value: &Value) {
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::String => out.push_str(&quote(value.as_str().unwrap_or_default())),
        ValueKind::None => out.push_str("none"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => {
            _ = write!(out, "{value}");
        }
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(number) if number.is_infinite() => out.push_str("1e999"),
            Ok(number) => _ = write!(out, "{number:?}"),
            Err(_) => {}
        },
        ValueKind::Map => {
            out.push('{');
            for key in items() {
                constant(out, &key);
                out.push_str(": ");
                constant(out, &value.get_item(&key).unwrap_or_default());
                out.push_str(", ");
            }
            out.push('}');
        }
        _ => {
            out.push(if value.is_tuple() { '(' } else { '[' });
            for item in items() {
                constant(out, &item);
                out.push_str(", ");
            }
            out.push(if value.is_tuple() { ')' } else { ']' });
        }
    }
}
