//! Expressions, written with parentheses around every operation.

use core::fmt::Write;

use minijinja::machinery::ast::{
    BinOp, BinOpKind, Call, CallArg, CompareOpKind, Expr, UnaryOpKind,
};
use minijinja::value::ValueKind;

use super::super::source::quote;
use super::super::walk;
use super::constants;
use super::macros::Macros;
use crate::text::python;

/// Writes expressions of one template.
pub(super) struct Expressions<'a> {
    pub(super) macros: Macros<'a>,
    /// Whether the template marks strings as safe.
    pub(super) marks: bool,
}

impl Expressions<'_> {
    /// Writes an expression.
    pub(super) fn expr(&self, node: &Expr<'_>) -> String {
        let mut out = String::new();
        match node {
            // What a macro is given beyond its parameters.
            Expr::Var(node) if matches!(node.id, "varargs" | "kwargs") => {
                out.push_str("(none|unsupported_variable)");
            }
            Expr::Var(node) => out.push_str(node.id),
            Expr::Const(node) => constants::write(&mut out, &node.value),
            Expr::Slice(node) => {
                let bound = |bound: &Option<Expr<'_>>| match bound {
                    Some(bound) => self.expr(bound),
                    None => "none".to_owned(),
                };
                let (start, stop, step) =
                    (bound(&node.start), bound(&node.stop), bound(&node.step));
                let base = self.filtered(&node.expr);
                return format!("({base}|__slice({start}, {stop}, {step}))");
            }
            Expr::UnaryOp(node) => {
                let op = match node.op {
                    UnaryOpKind::Not => "not ",
                    UnaryOpKind::Neg => "-",
                };
                return format!("({op}({}))", self.expr(&node.expr));
            }
            Expr::BinOp(node) => return self.operation(node),
            Expr::Compare(node) => {
                out = format!("({}", self.expr(&node.expr));
                for operand in &node.ops {
                    // Writing to a string can't fail.
                    _ = write!(
                        out,
                        " {} {}",
                        comparison(operand.op),
                        self.expr(&operand.expr)
                    );
                }
                out.push(')');
            }
            Expr::IfExpr(node) => {
                let (value, test) = (self.expr(&node.true_expr), self.expr(&node.test_expr));
                out = format!("({value} if {test}");
                if let Some(other) = &node.false_expr {
                    _ = write!(out, " else {}", self.expr(other));
                }
                out.push(')');
            }
            Expr::Filter(node) => {
                if let Some(inner) = &node.expr {
                    out = format!("{}|", self.filtered(inner));
                }
                out.push_str(node.name);
                out.push_str(&self.in_parentheses(&node.args));
            }
            Expr::Test(node) => {
                let (value, args) = (self.filtered(&node.expr), self.in_parentheses(&node.args));
                return format!("({value} is {}{args})", node.name);
            }
            Expr::GetAttr(node) => return format!("{}.{}", self.base(&node.expr), node.name),
            Expr::GetItem(node) => {
                let mut key = self.expr(&node.subscript_expr);
                if may_be_float(&node.subscript_expr) {
                    key = format!("{}|__index", self.filtered(&node.subscript_expr));
                }
                return format!("{}[{key}]", self.base(&node.expr));
            }
            Expr::Call(node) => return self.call(node),
            Expr::List(node) => return format!("[{}]", self.list(&node.items)),
            Expr::Tuple(node) => {
                let comma = if node.items.len() == 1 { "," } else { "" };
                return format!("({}{comma})", self.list(&node.items));
            }
            Expr::Map(node) => {
                let entries = node.keys.iter().zip(&node.values);
                let entries: Vec<String> = entries
                    .map(|(key, value)| format!("{}: {}", self.expr(key), self.expr(value)))
                    .collect();
                return format!("{{{}}}", entries.join(", "));
            }
        }
        out
    }

    /// Writes a call.
    pub(super) fn call(&self, node: &Call<'_>) -> String {
        let mut args = self.arguments(&node.args);
        if let Some(given) = self.macros.given(&node.expr, &node.args) {
            args.push_str(if args.is_empty() { "" } else { ", " });
            args.push_str(&given);
        }
        format!("{}({args})", self.base(&node.expr))
    }

    fn list(&self, items: &[Expr<'_>]) -> String {
        let items: Vec<String> = items.iter().map(|item| self.expr(item)).collect();
        items.join(", ")
    }

    /// The arguments of a call, a filter or a test, without parentheses.
    fn arguments(&self, args: &[CallArg<'_>]) -> String {
        let args: Vec<String> = args
            .iter()
            .map(|arg| match arg {
                CallArg::Pos(value) => self.expr(value),
                CallArg::Kwarg(name, value) => format!("{name}={}", self.expr(value)),
                CallArg::PosSplat(value) => format!("*{}", self.expr(value)),
                CallArg::KwargSplat(value) => format!("**{}", self.expr(value)),
            })
            .collect();
        args.join(", ")
    }

    fn in_parentheses(&self, args: &[CallArg<'_>]) -> String {
        match args {
            [] => String::new(),
            args => format!("({})", self.arguments(args)),
        }
    }

    /// An expression that an attribute, an item or a call follows.
    fn base(&self, node: &Expr<'_>) -> String {
        match node {
            Expr::Filter(_) => format!("({})", self.expr(node)),
            _ => self.filtered(node),
        }
    }

    /// An expression that a filter or a test follows.
    fn filtered(&self, node: &Expr<'_>) -> String {
        match node {
            Expr::Const(constant) if constant.value.kind() != ValueKind::String => {
                format!("({})", self.expr(node))
            }
            _ => self.expr(node),
        }
    }

    fn operation(&self, node: &BinOp<'_>) -> String {
        let op = match node.op {
            BinOpKind::Concat => {
                let mut parts = Vec::new();
                collect_parts(&node.left, &mut parts);
                collect_parts(&node.right, &mut parts);
                return self.concatenation(&parts);
            }
            BinOpKind::Rem if is_string(&node.left) => {
                let (format, values) = (self.filtered(&node.left), self.expr(&node.right));
                return format!("({format}|__percent({values}))");
            }
            // Jinja2 computes what is constant and writes it into its Python code, where a power binds closer than a sign.
            BinOpKind::Pow if may_be_negative(&node.left) && !is_constant(&node.right) => {
                let (base, exponent) = (self.expr(&node.left), self.expr(&node.right));
                return format!(
                    "((-((-({base})) ** {exponent})) if (({base}) < 0) else (({base}) ** {exponent}))"
                );
            }
            BinOpKind::Add if self.marks => {
                let (left, right) = (self.filtered(&node.left), self.expr(&node.right));
                return format!("({left}|__add({right}))");
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
        format!(
            "({} {op} {})",
            self.expr(&node.left),
            self.expr(&node.right)
        )
    }

    fn concatenation(&self, parts: &[Part<'_, '_>]) -> String {
        let mut out = String::from("(");
        for (i, part) in parts.iter().enumerate() {
            out.push_str(match i {
                0 => "",
                1 => "|__concat(",
                _ => ", ",
            });
            out.push_str(&match part {
                Part::Text(text) => quote(text),
                Part::Other(node) if i == 0 => self.filtered(node),
                Part::Other(node) => self.expr(node),
            });
        }
        out.push_str(if parts.len() > 1 { "))" } else { ")" });
        out
    }
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

/// Whether Jinja2 computes an expression when it compiles the template.
fn is_constant(node: &Expr<'_>) -> bool {
    let mut constant = true;
    walk::each_expr(node, &mut |node| {
        constant &= !matches!(node, Expr::Var(_) | Expr::Call(_));
    });
    constant
}

/// Whether an expression may be a negative constant.
fn may_be_negative(node: &Expr<'_>) -> bool {
    !matches!(node, Expr::Const(_)) && is_constant(node)
}

/// Whether an expression may give a float by what it computes; it is no index of a list then, even if it is whole.
fn may_be_float(node: &Expr<'_>) -> bool {
    match node {
        Expr::Const(node) => node.value.kind() == ValueKind::Number && !node.value.is_integer(),
        Expr::UnaryOp(node) => may_be_float(&node.expr),
        Expr::BinOp(node) => match node.op {
            BinOpKind::Div | BinOpKind::Pow => true,
            BinOpKind::Add
            | BinOpKind::Sub
            | BinOpKind::Mul
            | BinOpKind::FloorDiv
            | BinOpKind::Rem => may_be_float(&node.left) || may_be_float(&node.right),
            _ => false,
        },
        Expr::IfExpr(node) => {
            may_be_float(&node.true_expr) || node.false_expr.as_ref().is_some_and(may_be_float)
        }
        Expr::Filter(node) => matches!(node.name, "float" | "round"),
        _ => false,
    }
}
