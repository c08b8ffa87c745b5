//! Writes a parsed template out again with the operations that the template engine does in another way than Jinja2 spelled as calls
//! of our own filters ([`super::operators`]).
//!
//! Rewritten are: `a ~ b` (joins with `str()`), `'…' % x` (formats) and loops over what may be a string (whose letters are counted).
//! White space control has been applied by the parser, so that the text between tags is written as it stands, with delimiters that
//! no template uses.

mod expressions;

use core::fmt::Write;

use minijinja::machinery::ast::{CallArg, Expr, ForLoop, Macro, Stmt};
use minijinja::syntax::SyntaxConfig;

use super::facts::Facts;

/// Begin and end of a block, of a variable and of a comment in the rewritten source.
const BLOCK: [&str; 2] = ["\u{1}%", "%\u{1}"];
const VARIABLE: [&str; 2] = ["\u{1}=", "=\u{1}"];
const COMMENT: [&str; 2] = ["\u{1}#", "#\u{1}"];

/// The syntax of what [`rewrite`] gives.
pub(super) fn syntax() -> Result<SyntaxConfig, minijinja::Error> {
    SyntaxConfig::builder()
        .block_delimiters(BLOCK[0], BLOCK[1])
        .variable_delimiters(VARIABLE[0], VARIABLE[1])
        .comment_delimiters(COMMENT[0], COMMENT[1])
        .keep_trailing_newline(true)
        .build()
}

/// Writes a template.
pub(super) fn rewrite(template: &Stmt<'_>) -> String {
    let mut writer = Writer { out: String::new() };
    writer.stmt(template);
    writer.out
}

struct Writer {
    out: String,
}

impl Writer {
    fn block(&mut self, inner: &str) {
        let [open, close] = BLOCK;
        for part in [open, " ", inner, " ", close] {
            self.out.push_str(part);
        }
    }

    /// Writes a block that holds others.
    fn around(&mut self, name: &str, head: &str, body: &[Stmt<'_>]) {
        self.block(&format!("{name} {head}"));
        self.stmts(body);
        self.block(&format!("end{name}"));
    }

    fn stmts(&mut self, stmts: &[Stmt<'_>]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt<'_>) {
        match stmt {
            Stmt::Template(node) => self.stmts(&node.children),
            Stmt::EmitRaw(node) => self.out.push_str(node.raw),
            Stmt::EmitExpr(node) => {
                let [open, close] = VARIABLE;
                let inner = expr(&node.expr);
                for part in [open, " ", &inner, " ", close] {
                    self.out.push_str(part);
                }
            }
            Stmt::ForLoop(node) => self.for_loop(node),
            Stmt::IfCond(node) => {
                self.block(&format!("if {}", expr(&node.expr)));
                self.stmts(&node.true_body);
                if !node.false_body.is_empty() {
                    self.block("else");
                    self.stmts(&node.false_body);
                }
                self.block("endif");
            }
            Stmt::WithBlock(node) => {
                let assignments: Vec<String> = node
                    .assignments
                    .iter()
                    .map(|(target, value)| format!("{} = {}", self::target(target), expr(value)))
                    .collect();
                self.around("with", &assignments.join(", "), &node.body);
            }
            Stmt::Set(node) => {
                self.block(&format!(
                    "set {} = {}",
                    target(&node.target),
                    expr(&node.expr)
                ));
            }
            Stmt::SetBlock(node) => {
                let filter = node
                    .filter
                    .as_ref()
                    .map(|chain| format!(" | {}", expr(chain)));
                let head = format!("{}{}", target(&node.target), filter.unwrap_or_default());
                self.around("set", &head, &node.body);
            }
            Stmt::FilterBlock(node) => self.around("filter", &expr(&node.filter), &node.body),
            Stmt::Macro(node) => {
                self.around(
                    "macro",
                    &format!("{}{}", node.name, parameters(node)),
                    &node.body,
                );
            }
            Stmt::CallBlock(node) => {
                let head = format!(
                    "{} {}",
                    parameters(&node.macro_decl),
                    expressions::call(&node.call)
                );
                self.block(&format!("call{head}"));
                self.stmts(&node.macro_decl.body);
                self.block("endcall");
            }
            Stmt::Do(node) => self.block(&format!("do {}", expressions::call(&node.call))),
            Stmt::Continue(_) => self.block("continue"),
            Stmt::Break(_) => self.block("break"),
            Stmt::Block(node) => self.around("block", node.name, &node.body),
            // There is nothing to load, and marks of escaped text are not kept through every operation.
            Stmt::AutoEscape(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_) => {
                let [open, close] = VARIABLE;
                // Writing to a string can't fail.
                _ = write!(self.out, "{open} ''|unsupported_statement {close}");
            }
        }
    }

    fn for_loop(&mut self, node: &ForLoop<'_>) {
        let mut iterable = expr(&node.iter);
        if may_be_string(&node.iter) && Facts::of(&node.body).variables.contains("loop") {
            iterable.push_str("|__letters");
        }
        let condition = node
            .filter_expr
            .as_ref()
            .map(|filter| format!(" if {}", expr(filter)));
        self.block(&format!(
            "for {} in {iterable}{}{}",
            target(&node.target),
            condition.unwrap_or_default(),
            if node.recursive { " recursive" } else { "" },
        ));
        self.stmts(&node.body);
        if !node.else_body.is_empty() {
            self.block("else");
            self.stmts(&node.else_body);
        }
        self.block("endfor");
    }
}

fn expr(expr: &Expr<'_>) -> String {
    let mut out = String::new();
    expressions::write(&mut out, expr);
    out
}

/// What is assigned to: a name, an attribute, or several of them.
fn target(target: &Expr<'_>) -> String {
    match target {
        Expr::List(names) => {
            let names: Vec<String> = names
                .items
                .iter()
                .map(|name| match name {
                    Expr::List(_) => format!("({})", self::target(name)),
                    _ => expr(name),
                })
                .collect();
            match names.as_slice() {
                [name] => format!("{name},"),
                _ => names.join(", "),
            }
        }
        _ => expr(target),
    }
}

/// Parameters of a macro; the last ones have defaults.
fn parameters(node: &Macro<'_>) -> String {
    let required = node.args.len().saturating_sub(node.defaults.len());
    let parameters: Vec<String> = node
        .args
        .iter()
        .enumerate()
        .map(
            |(i, name)| match i.checked_sub(required).and_then(|i| node.defaults.get(i)) {
                Some(default) => format!("{}={}", expr(name), expr(default)),
                None => expr(name),
            },
        )
        .collect();
    format!("({})", parameters.join(", "))
}

/// Whether an expression may give a string.
fn may_be_string(iterable: &Expr<'_>) -> bool {
    match iterable {
        Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => false,
        Expr::Filter(filter) => !matches!(
            filter.name,
            "list"
                | "sort"
                | "map"
                | "select"
                | "reject"
                | "selectattr"
                | "rejectattr"
                | "items"
                | "dictsort"
                | "groupby"
                | "batch"
                | "slice"
                | "unique"
        ),
        Expr::Call(call) => match &call.expr {
            Expr::GetAttr(method) => !matches!(
                method.name,
                "items" | "keys" | "values" | "split" | "rsplit" | "splitlines"
            ),
            Expr::Var(function) => function.id != "range",
            _ => true,
        },
        _ => true,
    }
}

/// The arguments of a call, a filter or a test, without parentheses.
fn arguments(args: &[CallArg<'_>]) -> String {
    let args: Vec<String> = args
        .iter()
        .map(|arg| match arg {
            CallArg::Pos(value) => expr(value),
            CallArg::Kwarg(name, value) => format!("{name}={}", expr(value)),
            CallArg::PosSplat(value) => format!("*{}", expr(value)),
            CallArg::KwargSplat(value) => format!("**{}", expr(value)),
        })
        .collect();
    args.join(", ")
}
