//! From a syntax tree to a plan: expressions.

use minijinja::Value;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, CompareOpKind, UnaryOpKind};
use minijinja::value::ValueKind;

use super::super::walk;
use super::macros::bind;
use super::scope::Scopes;
use super::tree::{Arithmetic, Comparison, Expr, Filter, LoopField, Method, Test};
use crate::text::tojson::Style;

/// Compiles expressions, whose names were taken note of.
pub(super) struct Expressions<'a, 's>(pub(super) &'a Scopes<'s>);

impl<'s> Expressions<'_, 's> {
    /// Compiles an expression.
    pub(super) fn expr(&self, expr: &ast::Expr<'s>) -> Expr {
        match expr {
            ast::Expr::Const(node) => constant(&node.value),
            ast::Expr::Var(node) => self.variable(node.id),
            ast::Expr::Slice(node) => {
                let bound = |bound: &Option<ast::Expr<'s>>| {
                    bound.as_ref().map_or(Expr::None, |bound| self.expr(bound))
                };
                let base = self.expr(&node.expr);
                let bounds = [&node.start, &node.stop, &node.step].map(bound);
                let [start, stop, step] = bounds;
                Expr::Slice(Box::new([base, start, stop, step]))
            }
            ast::Expr::UnaryOp(node) => {
                let inner = Box::new(self.expr(&node.expr));
                match node.op {
                    UnaryOpKind::Not => Expr::Not(inner),
                    UnaryOpKind::Neg => match *inner {
                        Expr::Int(integer) => integer.checked_neg().map_or(Expr::GiveUp, Expr::Int),
                        _ => Expr::Negative(inner),
                    },
                }
            }
            ast::Expr::BinOp(node) => self.operation(node),
            ast::Expr::Compare(node) => {
                let operands = node.ops.iter();
                let operands =
                    operands.map(|operand| (comparison(operand.op), self.expr(&operand.expr)));
                Expr::Compare(Box::new(self.expr(&node.expr)), operands.collect())
            }
            ast::Expr::IfExpr(node) => {
                let other = node.false_expr.as_ref();
                let other = other.map_or(Expr::Undefined, |other| self.expr(other));
                Expr::If(Box::new([
                    self.expr(&node.test_expr),
                    self.expr(&node.true_expr),
                    other,
                ]))
            }
            ast::Expr::Filter(node) => self.filter(node).unwrap_or(Expr::GiveUp),
            ast::Expr::Test(node) => self.test(node).unwrap_or(Expr::GiveUp),
            ast::Expr::GetAttr(node) => self.attribute(node),
            ast::Expr::GetItem(node) => Expr::Item(Box::new([
                self.expr(&node.expr),
                self.expr(&node.subscript_expr),
            ])),
            ast::Expr::Call(node) => self.call(node).unwrap_or(Expr::GiveUp),
            ast::Expr::List(node) => Expr::List(self.exprs(&node.items)),
            ast::Expr::Tuple(node) => Expr::Tuple(self.exprs(&node.items)),
            ast::Expr::Map(node) => {
                let entries = node.keys.iter().zip(&node.values);
                let entries: Option<Box<[_]>> = entries
                    .map(|(key, value)| match self.expr(key) {
                        Expr::Text(key) => Some((key, self.expr(value))),
                        _ => None,
                    })
                    .collect();
                entries.map_or(Expr::GiveUp, dict)
            }
        }
    }

    fn exprs(&self, exprs: &[ast::Expr<'s>]) -> Box<[Expr]> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn variable(&self, name: &str) -> Expr {
        let is_special = SPECIAL.contains(&name)
            || FUNCTIONS.contains(&name)
            || self.0.macros.iter().any(|other| other.name == name);
        match self.0.slot(name) {
            Some(slot) if !is_special => Expr::Slot(slot),
            _ => Expr::GiveUp,
        }
    }

    /// Whether an expression may change or end what is computed after it.
    pub(super) fn has_effect(&self, expr: &ast::Expr<'_>) -> bool {
        let is_macro = |name| self.0.macros.iter().any(|other| other.name == name);
        let mut has_effect = false;
        walk::each_expr(expr, &mut |part| {
            has_effect |= match part {
                ast::Expr::Call(call) => match &call.expr {
                    ast::Expr::Var(name) => name.id == "raise_exception" || is_macro(name.id),
                    _ => false,
                },
                _ => false,
            };
        });
        has_effect
    }

    fn attribute(&self, node: &ast::GetAttr<'s>) -> Expr {
        match &node.expr {
            ast::Expr::Var(name) if name.id == "loop" => {
                match (self.0.loops.last(), loop_field(node.name)) {
                    (Some(number), Some(field)) => Expr::Loop(*number, field),
                    _ => Expr::GiveUp,
                }
            }
            base => Expr::Attribute(Box::new(self.expr(base)), node.name.into()),
        }
    }

    fn operation(&self, node: &ast::BinOp<'s>) -> Expr {
        let pair = || [self.expr(&node.left), self.expr(&node.right)];
        let compare = |how| {
            let [left, right] = pair();
            Expr::Compare(Box::new(left), [(how, right)].into())
        };
        let arithmetic = |how| Expr::Arithmetic(how, Box::new(pair()));
        match node.op {
            BinOpKind::Eq => compare(Comparison::Equal),
            BinOpKind::Ne => compare(Comparison::NotEqual),
            BinOpKind::Lt => compare(Comparison::Less),
            BinOpKind::Lte => compare(Comparison::LessOrEqual),
            BinOpKind::Gt => compare(Comparison::Greater),
            BinOpKind::Gte => compare(Comparison::GreaterOrEqual),
            BinOpKind::In => compare(Comparison::In),
            BinOpKind::ScAnd => Expr::And(Box::new(pair())),
            BinOpKind::ScOr => Expr::Or(Box::new(pair())),
            BinOpKind::Sub => arithmetic(Arithmetic::Subtract),
            BinOpKind::Mul => arithmetic(Arithmetic::Multiply),
            BinOpKind::FloorDiv => arithmetic(Arithmetic::Divide),
            BinOpKind::Rem => arithmetic(Arithmetic::Remainder),
            BinOpKind::Div | BinOpKind::Pow => Expr::GiveUp,
            BinOpKind::Add => {
                let [left, right] = pair();
                sum(left, right)
            }
            BinOpKind::Concat => {
                let mut parts = Vec::new();
                for part in pair() {
                    match part {
                        Expr::Join(inner) => parts.extend(inner),
                        part => parts.push(part),
                    }
                }
                Expr::Join(parts.into())
            }
        }
    }

    fn filter(&self, node: &ast::Filter<'s>) -> Option<Expr> {
        let inner = node.expr.as_ref()?;
        let value = Box::new(match node.name {
            "join" | "list" | "first" => self.items(inner),
            _ => self.expr(inner),
        });
        if node.name == "tojson" {
            return Some(Expr::ToJson(value, Box::new(style(&node.args)?)));
        }
        if matches!(node.name, "default" | "d") {
            let (given, flags) = node.args.split_first()?;
            let CallArg::Pos(given) = given else {
                return None;
            };
            let is_for_false = match flags {
                [] => false,
                [CallArg::Pos(flag) | CallArg::Kwarg("boolean", flag)] => match self.expr(flag) {
                    Expr::Bool(flag) => flag,
                    _ => return None,
                },
                _ => return None,
            };
            // Jinja2 computes it also where it isn't needed.
            if self.has_effect(given) {
                return None;
            }
            let given = [self.expr(given)].into();
            return Some(Expr::Filter(Filter::Default(is_for_false), value, given));
        }
        let args = positional(&node.args, |arg| self.expr(arg))?;
        Some(Expr::Filter(
            plain_filter(node.name, args.len())?,
            value,
            args,
        ))
    }

    fn test(&self, node: &ast::Test<'s>) -> Option<Expr> {
        let args = positional(&node.args, |arg| self.expr(arg))?;
        let test = plain_test(node.name, args.len())?;
        if let (Test::Defined, ast::Expr::Var(name)) = (test, &node.expr)
            && FUNCTIONS.contains(&name.id)
        {
            return Some(Expr::Bool(true));
        }
        Some(Expr::Test(test, Box::new(self.expr(&node.expr)), args))
    }

    fn call(&self, node: &ast::Call<'s>) -> Option<Expr> {
        if is_plain_call(node, "namespace") {
            let entries: Option<_> = node
                .args
                .iter()
                .map(|arg| match arg {
                    CallArg::Kwarg(name, value) => Some(((*name).into(), self.expr(value))),
                    _ => None,
                })
                .collect();
            return entries.map(Expr::Namespace);
        }
        if let ast::Expr::Var(name) = &node.expr {
            let mut macros = self.0.macros.iter();
            if let Some(number) = macros.position(|other| other.name == name.id) {
                let places = bind(self.0.macros.get(number)?, &node.args)?;
                let values = node.args.iter().map(|arg| match arg {
                    CallArg::Pos(value) | CallArg::Kwarg(_, value) => self.expr(value),
                    CallArg::PosSplat(_) | CallArg::KwargSplat(_) => Expr::GiveUp,
                });
                return Some(Expr::Call(number, places.into_iter().zip(values).collect()));
            }
        }
        let args = positional(&node.args, |arg| self.expr(arg))?;
        if is_plain_call(node, "strftime_now") {
            let [format] = Vec::from(args).try_into().ok()?;
            return Some(Expr::Time(Box::new(format)));
        }
        let ast::Expr::GetAttr(callee) = &node.expr else {
            return None;
        };
        let (method, fewest, most) = match callee.name {
            "strip" => (Method::Strip, 0, 1),
            "lstrip" => (Method::StripLeft, 0, 1),
            "rstrip" => (Method::StripRight, 0, 1),
            "startswith" => (Method::StartsWith, 1, 1),
            "endswith" => (Method::EndsWith, 1, 1),
            "split" => (Method::Split, 1, 2),
            "rsplit" => (Method::SplitRight, 1, 2),
            "replace" => (Method::Replace, 2, 2),
            "upper" => (Method::Upper, 0, 0),
            "lower" => (Method::Lower, 0, 0),
            "join" => (Method::Join, 1, 1),
            "get" => (Method::Get, 1, 2),
            _ => return None,
        };
        (fewest..=most).contains(&args.len()).then(|| {
            let base = Box::new(self.expr(&callee.expr));
            Expr::Method(method, base, args)
        })
    }
}

/// A filter with so many arguments.
pub(super) fn plain_filter(name: &str, args: usize) -> Option<Filter> {
    let (filter, most) = match name {
        "trim" => (Filter::Trim, 1),
        "length" | "count" => (Filter::Length, 0),
        "upper" => (Filter::Upper, 0),
        "lower" => (Filter::Lower, 0),
        "string" => (Filter::String, 0),
        "list" => (Filter::List, 0),
        "first" => (Filter::First, 0),
        "last" => (Filter::Last, 0),
        "join" => (Filter::Join, 1),
        "replace" if args == 2 => (Filter::Replace, 2),
        _ => return None,
    };
    (args <= most).then_some(filter)
}

/// A test with so many arguments.
pub(super) fn plain_test(name: &str, args: usize) -> Option<Test> {
    let test = match (name, args) {
        ("equalto" | "==" | "eq", 1) => Test::Compare(Comparison::Equal),
        ("ne" | "!=", 1) => Test::Compare(Comparison::NotEqual),
        ("in", 1) => Test::Compare(Comparison::In),
        ("defined", 0) => Test::Defined,
        ("undefined", 0) => Test::Undefined,
        ("none", 0) => Test::None,
        ("string", 0) => Test::String,
        ("mapping", 0) => Test::Mapping,
        ("sequence", 0) => Test::Sequence,
        ("iterable", 0) => Test::Iterable,
        ("number", 0) => Test::Number,
        ("integer", 0) => Test::Integer,
        ("boolean", 0) => Test::Boolean,
        ("true", 0) => Test::True,
        ("false", 0) => Test::False,
        _ => return None,
    };
    Some(test)
}

/// Names that Jinja2 gives a meaning that is not known here.
const SPECIAL: [&str; 9] = [
    "loop", "varargs", "kwargs", "caller", "self", "dict", "lipsum", "cycler", "joiner",
];

/// Functions that are known here.
pub(super) const FUNCTIONS: [&str; 4] = ["range", "namespace", "raise_exception", "strftime_now"];

/// Whether a call is one of a function by its name.
pub(super) fn is_plain_call(call: &ast::Call<'_>, name: &str) -> bool {
    matches!(&call.expr, ast::Expr::Var(function) if function.id == name)
}

/// Arguments without names; none if one has a name.
pub(super) fn positional<'s>(
    args: &[CallArg<'s>],
    compile: impl Fn(&ast::Expr<'s>) -> Expr,
) -> Option<Box<[Expr]>> {
    let values = args.iter().map(|arg| match arg {
        CallArg::Pos(value) => Some(compile(value)),
        _ => None,
    });
    values.collect()
}

/// `left + right`, with the operands of sums inside the left one; texts that meet become one.
fn sum(left: Expr, right: Expr) -> Expr {
    let mut parts = match left {
        Expr::Sum(parts) => parts.into_vec(),
        left => vec![left],
    };
    match (parts.last_mut(), right) {
        (Some(Expr::Text(before)), Expr::Text(text)) => {
            *before = [&**before, &*text].concat().into();
        }
        (_, right) => parts.push(right),
    }
    Expr::Sum(parts.into())
}

/// A dict; of a repeated key the last value counts.
fn dict(entries: Box<[(Box<str>, Expr)]>) -> Expr {
    let is_repeated = entries
        .iter()
        .enumerate()
        .any(|(i, (key, _))| entries.iter().take(i).any(|(other, _)| other == key));
    if is_repeated {
        Expr::GiveUp
    } else {
        Expr::Dict(entries)
    }
}

/// A constant, as the parser folds them.
fn constant(value: &Value) -> Expr {
    let items = || -> Box<[Expr]> {
        let items = value.try_iter().into_iter().flatten();
        items.map(|item| constant(&item)).collect()
    };
    match value.kind() {
        ValueKind::String if !value.is_safe() => {
            Expr::Text(value.as_str().unwrap_or_default().into())
        }
        ValueKind::None => Expr::None,
        ValueKind::Bool => Expr::Bool(value.is_true()),
        ValueKind::Number if value.is_integer() => {
            i64::try_from(value.clone()).map_or(Expr::GiveUp, Expr::Int)
        }
        ValueKind::Number => f64::try_from(value.clone()).map_or(Expr::GiveUp, Expr::Float),
        ValueKind::Seq if value.is_tuple() => Expr::Tuple(items()),
        ValueKind::Seq => Expr::List(items()),
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            let entries: Option<Box<[_]>> = keys
                .map(|key| Some((key.as_str()?.into(), constant(&value.get_item(&key).ok()?))))
                .collect();
            entries.map_or(Expr::GiveUp, Expr::Dict)
        }
        _ => Expr::GiveUp,
    }
}

/// How `tojson` lays out, where its arguments are constants.
fn style(args: &[CallArg<'_>]) -> Option<Style> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let mut given: [Option<Value>; 4] = Default::default();
    for (place, arg) in args.iter().enumerate() {
        let (place, value) = match arg {
            CallArg::Pos(value) => (place, value),
            CallArg::Kwarg(name, value) => (NAMES.iter().position(|known| known == name)?, value),
            _ => return None,
        };
        let slot = given.get_mut(place)?;
        if slot.is_some() {
            return None;
        }
        let value = value.as_const()?;
        *slot = Some(value);
    }
    let [ensure_ascii, indent, separators, sort_keys] =
        given.map(|value| value.filter(|value| !value.is_none()));
    Style::new(ensure_ascii, indent, separators, sort_keys).ok()
}

fn comparison(op: CompareOpKind) -> Comparison {
    match op {
        CompareOpKind::Eq => Comparison::Equal,
        CompareOpKind::Ne => Comparison::NotEqual,
        CompareOpKind::Lt => Comparison::Less,
        CompareOpKind::Lte => Comparison::LessOrEqual,
        CompareOpKind::Gt => Comparison::Greater,
        CompareOpKind::Gte => Comparison::GreaterOrEqual,
        CompareOpKind::In => Comparison::In,
        CompareOpKind::NotIn => Comparison::NotIn,
    }
}

fn loop_field(name: &str) -> Option<LoopField> {
    Some(match name {
        "index" => LoopField::Index,
        "index0" => LoopField::Index0,
        "revindex" => LoopField::ReverseIndex,
        "revindex0" => LoopField::ReverseIndex0,
        "first" => LoopField::First,
        "last" => LoopField::Last,
        "length" => LoopField::Length,
        "previtem" => LoopField::Previous,
        "nextitem" => LoopField::Next,
        _ => return None,
    })
}
