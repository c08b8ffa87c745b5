//! Collects the nodes of a syntax tree that matter, wherever they stand.

use minijinja::machinery::ast::{Call, Expr, ForLoop, Macro, Stmt};

use super::walk;

/// Filters that give markup.
const MARKUP_FILTERS: [&str; 4] = ["safe", "escape", "e", "forceescape"];

/// Assignments, loops, macros and calls of a template.
#[derive(Default)]
pub(super) struct Facts<'a> {
    /// Target and value.
    pub(super) assignments: Vec<(&'a Expr<'a>, &'a Expr<'a>)>,
    pub(super) loops: Vec<Loop<'a>>,
    pub(super) macros: Vec<&'a Macro<'a>>,
    pub(super) calls: Vec<&'a Call<'a>>,
    /// Whether strings are marked as safe.
    pub(super) marks: bool,
    /// Macros around the current node.
    inside: Vec<usize>,
}

/// A loop and the macros around it, by index.
pub(super) struct Loop<'a> {
    pub(super) node: &'a ForLoop<'a>,
    pub(super) macros: Vec<usize>,
}

impl<'a> Facts<'a> {
    pub(super) fn collect(template: &'a Stmt<'a>) -> Self {
        let mut facts = Self::default();
        facts.stmt(template);
        facts
    }

    /// Whether what a loop's filter says of an item may change while the loop runs. Jinja2 asks it before each round, we before the first.
    pub(super) fn filter_may_change(&self, filter: &'a Expr<'a>) -> bool {
        let spaces = || {
            let targets = self.assignments.iter().map(|(target, _)| target);
            targets.filter_map(|target| match target {
                Expr::GetAttr(node) => match &node.expr {
                    Expr::Var(space) => Some(space.id),
                    _ => None,
                },
                _ => None,
            })
        };
        let mut may_change = false;
        walk::each_expr(filter, &mut |expr| {
            may_change |= match expr {
                Expr::Var(name) => spaces().any(|space| space == name.id),
                Expr::Call(call) => match &call.expr {
                    Expr::Var(name) => self.macros.iter().any(|other| other.name == name.id),
                    _ => false,
                },
                _ => false,
            };
        });
        may_change
    }

    fn stmts(&mut self, stmts: &'a [Stmt<'a>]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt<'a>) {
        match stmt {
            Stmt::Template(node) => self.stmts(&node.children),
            Stmt::EmitExpr(node) => self.expr(&node.expr),
            Stmt::ForLoop(node) => {
                self.loops.push(Loop {
                    node,
                    macros: self.inside.clone(),
                });
                self.expr(&node.iter);
                self.option(node.filter_expr.as_ref());
                self.stmts(&node.body);
                self.stmts(&node.else_body);
            }
            Stmt::IfCond(node) => {
                self.expr(&node.expr);
                self.stmts(&node.true_body);
                self.stmts(&node.false_body);
            }
            Stmt::WithBlock(node) => {
                for (_, value) in &node.assignments {
                    self.expr(value);
                }
                self.stmts(&node.body);
            }
            Stmt::Set(node) => {
                self.assignments.push((&node.target, &node.expr));
                self.expr(&node.expr);
            }
            Stmt::SetBlock(node) => {
                self.option(node.filter.as_ref());
                self.stmts(&node.body);
            }
            Stmt::AutoEscape(node) => self.stmts(&node.body),
            Stmt::FilterBlock(node) => {
                self.expr(&node.filter);
                self.stmts(&node.body);
            }
            Stmt::Block(node) => self.stmts(&node.body),
            Stmt::Macro(node) => {
                self.inside.push(self.macros.len());
                self.macros.push(node);
                for default in &node.defaults {
                    self.expr(default);
                }
                self.stmts(&node.body);
                self.inside.pop();
            }
            Stmt::CallBlock(node) => {
                self.call(&node.call);
                self.stmts(&node.macro_decl.body);
            }
            Stmt::Do(node) => self.call(&node.call),
            Stmt::EmitRaw(_)
            | Stmt::Continue(_)
            | Stmt::Break(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_) => {}
        }
    }

    fn call(&mut self, call: &'a Call<'a>) {
        self.calls.push(call);
        self.expr(&call.expr);
        walk::each_arg(&call.args, &mut |expr| self.node(expr));
    }

    fn option(&mut self, expr: Option<&'a Expr<'a>>) {
        if let Some(expr) = expr {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &'a Expr<'a>) {
        walk::each_expr(expr, &mut |expr| self.node(expr));
    }

    fn node(&mut self, expr: &'a Expr<'a>) {
        match expr {
            Expr::Filter(node) => self.marks |= MARKUP_FILTERS.contains(&node.name),
            Expr::Call(node) => self.calls.push(node),
            _ => {}
        }
    }
}
