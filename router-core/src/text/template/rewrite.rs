//! Writes a parsed template out again with the operations that the template engine does in another way than Jinja2 spelled as calls
//! of our own filters ([`super::operators`]).
//!
//! Rewritten are: `a ~ b` (joins with `str()`), `'…' % x` (formats), slices, macros with defaults, what loops run through, and what
//! names mean in scopes ([`scopes`]); and `a + b` in templates that mark strings as safe.
//! What the template engine can't do becomes a filter that doesn't exist, which fails where it is reached.
//! White space control has been applied by the parser, so that the text between tags is written as it stands, with delimiters that
//! no template uses.

mod constants;
mod expressions;
mod macros;
mod scopes;

use core::fmt::Write;
use std::collections::HashSet;

use minijinja::machinery::ast::{Expr, FilterBlock, ForLoop, Macro, SetBlock, Stmt, WithBlock};
use minijinja::syntax::SyntaxConfig;

use super::facts::Facts;
use expressions::Expressions;
use macros::Macros;
use scopes::{Scope, Scopes};

/// Begin and end of a block, of a variable and of a comment in the rewritten source.
const BLOCK: [&str; 2] = ["\u{1}%", "%\u{1}"];
const VARIABLE: [&str; 2] = ["\u{1}=", "=\u{1}"];
const COMMENT: [&str; 2] = ["\u{1}#", "#\u{1}"];

/// A name that no template can write.
const UNDEFINED: &str = "__undefined";

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
pub(super) fn rewrite<'a>(template: &'a Stmt<'a>, facts: &Facts<'a>) -> String {
    let macros = Macros::collect(&facts.macros);
    let mut writer = Writer {
        out: String::new(),
        expressions: Expressions {
            macros,
            marks: facts.marks,
        },
        scopes: Scopes::default(),
    };
    match template {
        Stmt::Template(node) => writer.scope(writer.inner(&[], &node.children), &node.children),
        _ => writer.stmt(template),
    }
    writer.out
}

/// The names that a template reads somewhere.
pub(super) fn names<'a>(template: &'a Stmt<'a>) -> HashSet<Box<str>> {
    let mut names = HashSet::new();
    if let Stmt::Template(node) = template {
        for stmt in &node.children {
            scopes::names_of_stmt(stmt, &mut names);
        }
    }
    names.into_iter().map(Box::from).collect()
}

struct Writer<'a> {
    out: String,
    expressions: Expressions<'a>,
    scopes: Scopes<'a>,
}

impl<'a> Writer<'a> {
    fn block(&mut self, inner: &str) {
        let [open, close] = BLOCK;
        for part in [open, " ", inner, " ", close] {
            self.out.push_str(part);
        }
    }

    /// A scope inside the current one, with its parameters.
    fn inner(&self, parameters: &[&'a Expr<'a>], body: &'a [Stmt<'a>]) -> Scope<'a> {
        self.scopes.inner(names_of(parameters), body, false)
    }

    /// Writes what is inside a scope.
    fn scope(&mut self, scope: Scope<'a>, body: &'a [Stmt<'a>]) {
        self.enter(scope);
        self.stmts(body);
        self.scopes.leave();
    }

    fn enter(&mut self, mut scope: Scope<'a>) {
        let start = core::mem::take(&mut scope.start);
        self.scopes.enter(scope);
        for name in start.undefined {
            self.block(&format!("set {name} = {UNDEFINED}"));
        }
        for name in start.outer {
            self.block(&format!("set {name} = {name}"));
        }
    }

    fn stmts(&mut self, stmts: &'a [Stmt<'a>]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt<'a>) {
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
            Stmt::WithBlock(node) => self.with_block(node),
            Stmt::Set(node) => {
                self.block(&format!(
                    "set {} = {}",
                    target(&node.target),
                    self.expr(&node.expr)
                ));
            }
            Stmt::SetBlock(node) => self.set_block(node),
            Stmt::FilterBlock(node) => self.filter_block(node),
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
            // There is nothing to load, what blocks see is not what stands around them, and marks of escaped text are not kept
            // through every operation.
            Stmt::AutoEscape(_)
            | Stmt::Block(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_) => self.unsupported(),
        }
    }

    fn macro_body(&mut self, node: &'a Macro<'a>) {
        let parameters = node.args.iter().collect::<Vec<_>>();
        let names = names_of(&parameters).into_iter().chain(["caller"]);
        let scope = self.scopes.inner(names, &node.body, false);
        self.enter(scope);
        for (name, test, default) in macros::defaults(node) {
            let default = self.expr(default);
            self.block(&format!("if {test}"));
            self.block(&format!("set {name} = {default}"));
            self.block("endif");
        }
        self.stmts(&node.body);
        self.scopes.leave();
    }

    fn expr(&self, expr: &Expr<'_>) -> String {
        self.expressions.expr(expr)
    }

    fn unsupported(&mut self) {
        let [open, close] = VARIABLE;
        // Writing to a string can't fail.
        _ = write!(self.out, "{open} ''|unsupported_statement {close}");
    }

    fn for_loop(&mut self, node: &'a ForLoop<'a>) {
        // Jinja2 also does the other part where no round came to its end.
        if !node.else_body.is_empty() && may_end_early(&node.body) {
            return self.unsupported();
        }
        let other = self.inner(&[], &node.else_body);
        let other_is_scope = !other.assigned.is_empty();
        // The template engine loses count of scopes where a round ends inside one.
        if other_is_scope && may_end_early(&node.else_body) {
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
        let names = names_of(&[&node.target]).into_iter().chain(["loop"]);
        let round = self.scopes.inner(names, &node.body, true);
        self.scope(round, &node.body);
        if !node.else_body.is_empty() {
            self.block("else");
            if other_is_scope {
                self.block("with");
            }
            self.scope(other, &node.else_body);
            if other_is_scope {
                self.block("endwith");
            }
        }
        self.block("endfor");
    }

    fn with_block(&mut self, node: &'a WithBlock<'a>) {
        if may_end_early(&node.body) {
            return self.unsupported();
        }
        let targets: Vec<&Expr<'_>> = node.assignments.iter().map(|(target, _)| target).collect();
        let names: Vec<String> = targets
            .iter()
            .map(|target| match target {
                Expr::List(_) => format!("({})", self::target(target)),
                _ => self::target(target),
            })
            .collect();
        let values: Vec<String> = node
            .assignments
            .iter()
            .map(|(_, value)| self.expr(value))
            .collect();
        // Jinja2 computes all values outside.
        let head = if values_read(&node.assignments) {
            format!("({}) = ({})", names.join(", "), values.join(", "))
        } else {
            let assignments = names
                .iter()
                .zip(&values)
                .map(|(name, value)| format!("{name} = {value}"));
            assignments.collect::<Vec<_>>().join(", ")
        };
        self.block(&format!("with {head}"));
        self.scope(self.inner(&targets, &node.body), &node.body);
        self.block("endwith");
    }

    fn set_block(&mut self, node: &'a SetBlock<'a>) {
        let scope = self.inner(&[], &node.body);
        // Jinja2 computes arguments of the filter inside.
        let mut read = HashSet::new();
        if let Some(filter) = &node.filter {
            scopes::names(filter, &mut read);
        }
        let reads_inside = scope.assigned.iter().any(|name| read.contains(name));
        if reads_inside || may_end_early(&node.body) {
            return self.unsupported();
        }
        let filter = node
            .filter
            .as_ref()
            .map(|chain| format!(" | {}", self.expr(chain)));
        self.block(&format!(
            "set {}{}",
            target(&node.target),
            filter.unwrap_or_default()
        ));
        self.block("with");
        self.scope(scope, &node.body);
        self.block("endwith");
        self.block("endset");
    }

    fn filter_block(&mut self, node: &'a FilterBlock<'a>) {
        if may_end_early(&node.body) {
            return self.unsupported();
        }
        // Around the filter, as Jinja2 computes its arguments inside.
        self.block("with");
        self.enter(self.inner(&[], &node.body));
        self.block(&format!("filter {}", self.expr(&node.filter)));
        self.stmts(&node.body);
        self.block("endfilter");
        self.scopes.leave();
        self.block("endwith");
    }
}

/// The names among targets or parameters.
fn names_of<'a>(targets: &[&'a Expr<'a>]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for target in targets {
        match target {
            Expr::Var(name) => names.push(name.id),
            Expr::List(items) => names.extend(names_of(&items.items.iter().collect::<Vec<_>>())),
            _ => {}
        }
    }
    names
}

/// Whether a value reads a name that is assigned before it.
fn values_read<'a>(assignments: &'a [(Expr<'a>, Expr<'a>)]) -> bool {
    let mut assigned: Vec<&str> = Vec::new();
    assignments.iter().any(|(target, value)| {
        let mut read = HashSet::new();
        scopes::names(value, &mut read);
        let found = assigned.iter().any(|name| read.contains(name));
        assigned.extend(names_of(&[target]));
        found
    })
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
pub(super) fn may_end_early(body: &[Stmt<'_>]) -> bool {
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
