//! Writes a parsed template out again with the operations that the template engine does in another way than Jinja2 spelled as calls
//! of our own filters ([`super::operators`]).
//!
//! Rewritten are: `a ~ b` (joins with `str()`), `'…' % x` (formats), slices, macros with defaults, and what loops run
//! through; and `a + b` in templates that mark strings as safe.
//! What the template engine can't do becomes a filter that doesn't exist, which fails where it is reached.
//! White space control has been applied by the parser, so that the text between tags is written as it stands, with delimiters that
//! no template uses.

mod constants;
mod expressions;
mod macros;

use core::fmt::Write;

use minijinja::machinery::ast::{Expr, ForLoop, Macro, Stmt};
use minijinja::syntax::SyntaxConfig;

use super::facts::Facts;
use expressions::Expressions;
use macros::Macros;

/// Begin and end of a block, of a variable and of a comment in the rewritten source.
const BLOCK: [&str; 2] = ["\u{1}%", "%\u{1}"];
const VARIABLE: [&str; 2] = ["\u{1}=", "=\u{1}"];
const COMMENT: [&str; 2] = ["\u{1}#", "#\u{1}"];

/// Filters that give something to loop over, but no string.
const LISTS: [&str; 13] = [
    "list",
    "sort",
    "map",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
    "items",
    "dictsort",
    "groupby",
    "batch",
    "slice",
    "unique",
];

/// The syntax of what [`rewrite`] gives.
pub(super) fn syntax() -> Result<SyntaxConfig, minijinja::Error> {
    SyntaxConfig::builder()
        .block_delimiters(BLOCK[0], BLOCK[1])
        .variable_delimiters(VARIABLE[0], VARIABLE[1])
        .comment_delimiters(COMMENT[0], COMMENT[1])
        .keep_trailing_newline(true)
        .build()
}

/// Writes a template, of which `facts` were collected.
pub(super) fn rewrite(template: &Stmt<'_>, facts: &Facts<'_>) -> String {
    let macros = Macros::collect(&facts.macros);
    let mut writer = Writer {
        out: String::new(),
        expressions: Expressions {
            macros,
            marks: facts.marks,
        },
    };
    writer.stmt(template);
    writer.out
}

struct Writer<'a> {
    out: String,
    expressions: Expressions<'a>,
}

impl Writer<'_> {
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

    /// Writes a block that holds others, whose assignments end with it.
    fn scope(&mut self, name: &str, head: &str, body: &[Stmt<'_>]) {
        self.block(&format!("{name} {head}"));
        self.around("with", "", body);
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
                let inner = self.expr(&node.expr);
                for part in [open, " ", &inner, " ", close] {
                    self.out.push_str(part);
                }
            }
            Stmt::ForLoop(node) => self.for_loop(node),
            Stmt::IfCond(node) => {
                self.block(&format!("if {}", self.expr(&node.expr)));
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
                    .map(|(target, value)| {
                        format!("{} = {}", self::target(target), self.expr(value))
                    })
                    .collect();
                self.around("with", &assignments.join(", "), &node.body);
            }
            Stmt::Set(node) => {
                self.block(&format!(
                    "set {} = {}",
                    target(&node.target),
                    self.expr(&node.expr)
                ));
            }
            Stmt::SetBlock(node) => {
                let filter = node
                    .filter
                    .as_ref()
                    .map(|chain| format!(" | {}", self.expr(chain)));
                let head = format!("{}{}", target(&node.target), filter.unwrap_or_default());
                self.scope("set", &head, &node.body);
            }
            Stmt::FilterBlock(node) => self.scope("filter", &self.expr(&node.filter), &node.body),
            Stmt::Macro(node) => {
                self.block(&format!("macro {}{}", node.name, macros::head(node)));
                self.macro_body(node);
                self.block("endmacro");
            }
            Stmt::CallBlock(node) => {
                let call = self.expressions.call(&node.call);
                self.block(&format!("call{} {call}", macros::head(&node.macro_decl)));
                self.macro_body(&node.macro_decl);
                self.block("endcall");
            }
            Stmt::Do(node) => self.block(&format!("do {}", self.expressions.call(&node.call))),
            Stmt::Continue(_) => self.block("continue"),
            Stmt::Break(_) => self.block("break"),
            Stmt::Block(node) => self.around("block", node.name, &node.body),
            // There is nothing to load, and marks of escaped text are not kept through every operation.
            Stmt::AutoEscape(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_) => self.unsupported(),
        }
    }

    fn macro_body(&mut self, node: &Macro<'_>) {
        for (name, test, default) in macros::defaults(node) {
            let default = self.expr(default);
            self.block(&format!("if {test}"));
            self.block(&format!("set {name} = {default}"));
            self.block("endif");
        }
        self.stmts(&node.body);
    }

    fn expr(&self, expr: &Expr<'_>) -> String {
        self.expressions.expr(expr)
    }

    fn unsupported(&mut self) {
        let [open, close] = VARIABLE;
        // Writing to a string can't fail.
        _ = write!(self.out, "{open} ''|unsupported_statement {close}");
    }

    fn for_loop(&mut self, node: &ForLoop<'_>) {
        // Jinja2 also does the other part where no round came to its end.
        if !node.else_body.is_empty() && may_end_early(&node.body) {
            return self.unsupported();
        }
        let mut iterable = self.expr(&node.iter);
        if !is_list(&node.iter) {
            iterable.push_str("|__iterable");
        }
        let condition = node
            .filter_expr
            .as_ref()
            .map(|filter| format!(" if {}", self.expr(filter)));
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

/// What is assigned to: a name, an attribute, or several of them.
fn target(target: &Expr<'_>) -> String {
    match target {
        Expr::List(names) => {
            let names: Vec<String> = names
                .items
                .iter()
                .map(|name| match name {
                    Expr::List(_) => format!("({})", self::target(name)),
                    _ => attribute(name),
                })
                .collect();
            match names.as_slice() {
                [name] => format!("{name},"),
                _ => names.join(", "),
            }
        }
        _ => attribute(target),
    }
}

/// A name, or an attribute of one.
fn attribute(target: &Expr<'_>) -> String {
    match target {
        Expr::Var(name) => name.id.to_owned(),
        Expr::GetAttr(node) => format!("{}.{}", attribute(&node.expr), node.name),
        _ => String::new(),
    }
}

/// Whether statements of a loop's body leave a round before its end.
fn may_end_early(body: &[Stmt<'_>]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Continue(_) | Stmt::Break(_) => true,
        Stmt::IfCond(node) => may_end_early(&node.true_body) || may_end_early(&node.false_body),
        Stmt::WithBlock(node) => may_end_early(&node.body),
        Stmt::SetBlock(node) => may_end_early(&node.body),
        Stmt::FilterBlock(node) => may_end_early(&node.body),
        _ => false,
    })
}

/// Whether an expression gives a list for sure.
fn is_list(iterable: &Expr<'_>) -> bool {
    match iterable {
        Expr::Var(name) => name.id == "messages",
        Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => true,
        Expr::Filter(filter) => LISTS.contains(&filter.name),
        Expr::Call(call) => match &call.expr {
            Expr::GetAttr(method) => matches!(method.name, "items" | "keys" | "values"),
            Expr::Var(function) => function.id == "range",
            _ => false,
        },
        _ => false,
    }
}
