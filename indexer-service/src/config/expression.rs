//! CEL, as far as it judges endpoints: read once here, and sent to gateways as a tree.
//!
//! ```text
//!  "endpoint.waiting < 4.0 && endpoint.labels['zone'] == 'a'" ─► cel's parser ─► Node, checked ─► gateways
//! ```

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};
use cel::parser::Parser;
use prefixway_core::schedule::expression::{Node, Operator, Parameters, Variable};

/// Longest expression.
const MAX_BYTES: usize = 4096;

/// Why an expression can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpressionError {
    /// Too long.
    #[error("is longer than {MAX_BYTES} bytes")]
    Long,
    /// Not CEL.
    #[error("is not CEL: {0}")]
    Syntax(String),
    /// CEL that is not evaluated here.
    #[error("uses {0}, which is not evaluated here")]
    Unsupported(String),
    /// No such name.
    #[error("asks for {0:?}, which there is not")]
    Unknown(String),
    /// Whole numbers are cut off when they are divided in CEL.
    #[error(
        "divides whole numbers, which cuts the rest off in CEL: write one of them with a point"
    )]
    WholeDivision,
    /// A part gets what it can't use.
    #[error("{0}")]
    Kind(String),
}

/// Reads an expression.
pub(super) fn compile(text: &str) -> Result<Parameters, ExpressionError> {
    if text.len() > MAX_BYTES {
        return Err(ExpressionError::Long);
    }
    let parsed = Parser::new()
        .max_recursion_depth(32)
        .parse(text)
        .map_err(|errors| {
            let first = errors.errors.first().map(|error| error.msg.clone());
            ExpressionError::Syntax(first.unwrap_or_else(|| errors.to_string()))
        })?;
    let tree = node(&parsed)?;
    tree.kind()
        .map_err(|problem| ExpressionError::Kind(problem.to_string()))?;
    Ok(Parameters {
        expression: text.to_owned(),
        tree,
    })
}

fn node(expr: &IdedExpr) -> Result<Node, ExpressionError> {
    match &expr.expr {
        Expr::Literal(literal) => literal_node(literal),
        Expr::Ident(name) => Err(ExpressionError::Unknown(name.clone())),
        Expr::Select(select) => select_node(select),
        Expr::Call(call) => call_node(call),
        Expr::Comprehension(_) => Err(unsupported("all, exists, map or filter")),
        Expr::List(_) => Err(unsupported("a list outside of in")),
        Expr::Map(_) | Expr::Struct(_) => Err(unsupported("a map")),
        Expr::Unspecified => Err(unsupported("nothing")),
    }
}

fn unsupported(what: impl Into<String>) -> ExpressionError {
    ExpressionError::Unsupported(what.into())
}

fn literal_node(literal: &LiteralValue) -> Result<Node, ExpressionError> {
    Ok(match literal {
        LiteralValue::Boolean(truth) => Node::Bool(*truth.inner()),
        LiteralValue::Double(number) => Node::Number(*number.inner()),
        LiteralValue::Int(number) => Node::Number(*number.inner() as f64),
        LiteralValue::UInt(number) => Node::Number(*number.inner() as f64),
        LiteralValue::String(text) => Node::Text(text.inner().to_owned()),
        LiteralValue::Bytes(_) => return Err(unsupported("bytes")),
        LiteralValue::Null => return Err(unsupported("null")),
    })
}

/// `request.model`, `endpoint.labels.zone`, `has(endpoint.labels.zone)`.
fn select_node(select: &SelectExpr) -> Result<Node, ExpressionError> {
    let field = select.field.as_str();
    let value = match &select.operand.expr {
        Expr::Ident(root) => {
            let name = format!("{root}.{field}");
            Variable::from_name(&name)
                .map(Node::Variable)
                .ok_or(ExpressionError::Unknown(name))?
        }
        operand => entry(operand, field)?,
    };
    if select.test {
        // What is not there is empty.
        let value = match value {
            Node::Label(_) | Node::Header(_) => value,
            _ => return Err(unsupported("has of what is always there")),
        };
        return Ok(Node::Binary(
            Operator::Unequal,
            Box::new(value),
            Box::new(Node::Text(String::new())),
        ));
    }
    Ok(value)
}

/// An entry of `endpoint.labels` or `request.headers`.
fn entry(map: &Expr, key: &str) -> Result<Node, ExpressionError> {
    let Expr::Select(SelectExpr { operand, field, .. }) = map else {
        return Err(unsupported("a field of a value"));
    };
    match (&operand.expr, field.as_str()) {
        (Expr::Ident(root), "labels") if root == "endpoint" => Ok(Node::Label(key.to_owned())),
        (Expr::Ident(root), "headers") if root == "request" => {
            Ok(Node::Header(key.to_ascii_lowercase()))
        }
        (Expr::Ident(root), field) => {
            Err(ExpressionError::Unknown(format!("{root}.{field}.{key}")))
        }
        _ => Err(unsupported("a field of a value")),
    }
}

fn call_node(call: &CallExpr) -> Result<Node, ExpressionError> {
    let name = call.func_name.as_str();
    let binary = |operator| -> Result<Node, ExpressionError> {
        let (left, right) = match (&call.target, call.args.as_slice()) {
            (None, [left, right]) => (left, right),
            (Some(target), [argument]) => (target.as_ref(), argument),
            _ => return Err(unsupported(format!("{name} with other arguments"))),
        };
        Ok(Node::Binary(
            operator,
            Box::new(node(left)?),
            Box::new(node(right)?),
        ))
    };
    match (name, call.args.as_slice()) {
        (operators::LOGICAL_AND, _) => binary(Operator::And),
        (operators::LOGICAL_OR, _) => binary(Operator::Or),
        (operators::ADD, _) => binary(Operator::Plus),
        (operators::SUBSTRACT, _) => binary(Operator::Minus),
        (operators::MULTIPLY, _) => binary(Operator::Times),
        (operators::DIVIDE, [left, right]) => {
            if is_whole(left) && is_whole(right) {
                return Err(ExpressionError::WholeDivision);
            }
            binary(Operator::Over)
        }
        (operators::EQUALS, _) => binary(Operator::Equal),
        (operators::NOT_EQUALS, _) => binary(Operator::Unequal),
        (operators::LESS, _) => binary(Operator::Less),
        (operators::LESS_EQUALS, _) => binary(Operator::AtMost),
        (operators::GREATER, _) => binary(Operator::Greater),
        (operators::GREATER_EQUALS, _) => binary(Operator::AtLeast),
        (operators::LOGICAL_NOT, [of]) => Ok(Node::Not(Box::new(node(of)?))),
        (operators::NEGATE, [of]) => Ok(Node::Negate(Box::new(node(of)?))),
        (operators::CONDITIONAL, [condition, then, otherwise]) => Ok(Node::If(
            Box::new(node(condition)?),
            Box::new(node(then)?),
            Box::new(node(otherwise)?),
        )),
        (operators::INDEX, [map, key]) => match &key.expr {
            Expr::Literal(LiteralValue::String(key)) => entry(&map.expr, key.inner()),
            _ => Err(unsupported("an index that is no text")),
        },
        (operators::IN, [of, list]) => in_node(of, list),
        ("size", [of]) if call.target.is_none() => Ok(Node::Size(Box::new(node(of)?))),
        ("double", [of]) if call.target.is_none() => node(of),
        ("contains", [_]) => binary(Operator::Contains),
        ("startsWith", [_]) => binary(Operator::StartsWith),
        ("endsWith", [_]) => binary(Operator::EndsWith),
        ("least" | "greatest", arguments) if is_math(call) => {
            let operator = if name == "least" {
                Operator::Least
            } else {
                Operator::Greatest
            };
            let mut nodes = arguments.iter().map(node);
            let first = nodes
                .next()
                .unwrap_or_else(|| Err(unsupported("math without arguments")))?;
            nodes.try_fold(first, |sum, next| {
                Ok(Node::Binary(operator, Box::new(sum), Box::new(next?)))
            })
        }
        _ => Err(unsupported(name)),
    }
}

/// `x in ["a", "b"]`, `"zone" in endpoint.labels`.
fn in_node(of: &IdedExpr, list: &IdedExpr) -> Result<Node, ExpressionError> {
    match (&of.expr, &list.expr) {
        (_, Expr::List(list)) => {
            let list = list.elements.iter().map(node).collect::<Result<_, _>>()?;
            Ok(Node::In(Box::new(node(of)?), list))
        }
        (Expr::Literal(LiteralValue::String(key)), map) => Ok(Node::Binary(
            Operator::Unequal,
            Box::new(entry(map, key.inner())?),
            Box::new(Node::Text(String::new())),
        )),
        _ => Err(unsupported(
            "in of something else than a list, labels or headers",
        )),
    }
}

fn is_math(call: &CallExpr) -> bool {
    let target = call.target.as_ref().map(|target| &target.expr);
    matches!(target, Some(Expr::Ident(name)) if name == "math")
}

/// Whether CEL computes it in whole numbers: all that there is to ask for is a double.
fn is_whole(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_)) => true,
        Expr::Call(call) => match call.func_name.as_str() {
            "size" => true,
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::NEGATE => call.args.iter().all(is_whole),
            operators::CONDITIONAL => call.args.iter().skip(1).all(is_whole),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests;
