//! Walks through the expressions of a syntax tree.

use minijinja::machinery::ast::{CallArg, Expr};

/// Calls `visit` for an expression and all that it is made of, the outermost first.
pub(super) fn each_expr<'a>(expr: &'a Expr<'a>, visit: &mut impl FnMut(&'a Expr<'a>)) {
    visit(expr);
    match expr {
        Expr::Var(_) | Expr::Const(_) => {}
        Expr::Slice(node) => {
            each_expr(&node.expr, visit);
            for part in [&node.start, &node.stop, &node.step].into_iter().flatten() {
                each_expr(part, visit);
            }
        }
        Expr::UnaryOp(node) => each_expr(&node.expr, visit),
        Expr::BinOp(node) => {
            each_expr(&node.left, visit);
            each_expr(&node.right, visit);
        }
        Expr::Compare(node) => {
            each_expr(&node.expr, visit);
            for operand in &node.ops {
                each_expr(&operand.expr, visit);
            }
        }
        Expr::IfExpr(node) => {
            each_expr(&node.test_expr, visit);
            each_expr(&node.true_expr, visit);
            if let Some(other) = &node.false_expr {
                each_expr(other, visit);
            }
        }
        Expr::Filter(node) => {
            if let Some(inner) = &node.expr {
                each_expr(inner, visit);
            }
            each_arg(&node.args, visit);
        }
        Expr::Test(node) => {
            each_expr(&node.expr, visit);
            each_arg(&node.args, visit);
        }
        Expr::GetAttr(node) => each_expr(&node.expr, visit),
        Expr::GetItem(node) => {
            each_expr(&node.expr, visit);
            each_expr(&node.subscript_expr, visit);
        }
        Expr::Call(node) => {
            each_expr(&node.expr, visit);
            each_arg(&node.args, visit);
        }
        Expr::List(node) => each_of(&node.items, visit),
        Expr::Tuple(node) => each_of(&node.items, visit),
        Expr::Map(node) => {
            each_of(&node.keys, visit);
            each_of(&node.values, visit);
        }
    }
}

/// Calls `visit` for each expression among arguments.
pub(super) fn each_arg<'a>(args: &'a [CallArg<'a>], visit: &mut impl FnMut(&'a Expr<'a>)) {
    for arg in args {
        match arg {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => each_expr(value, visit),
        }
    }
}

fn each_of<'a>(exprs: &'a [Expr<'a>], visit: &mut impl FnMut(&'a Expr<'a>)) {
    for expr in exprs {
        each_expr(expr, visit);
    }
}
