//! From a syntax tree to a plan: statements.

use minijinja::machinery::ast::{self, Stmt as Ast};

use super::super::rewrite::may_end_early;
use super::expressions::{Expressions, is_plain_call, positional};
use super::macros;
use super::scope::{Scopes, Signature};
use super::tree::{Block, Entries, Expr, For, If, Iterable, Macro, Scoped, Stmt, Targets};

/// Compiles the statements of a template.
#[derive(Default)]
pub(super) struct Compiler<'s> {
    pub(super) scopes: Scopes<'s>,
    /// Loops so far.
    pub(super) loops: usize,
    /// The template's macros, in the order of [`Scopes::macros`].
    pub(super) macros: Vec<Macro>,
}

impl<'s> Compiler<'s> {
    /// A whole template.
    pub(super) fn template(&mut self, stmts: &'s [Ast<'s>]) -> Scoped {
        self.scopes.macros = macros::signatures(stmts);
        let known = &self.scopes.macros;
        let is_repeated = |(i, one): (usize, &Signature<'_>)| {
            known.iter().take(i).any(|other| other.name == one.name)
        };
        self.scopes.hides_function = known.iter().enumerate().any(is_repeated);
        self.inner(stmts)
    }

    /// Statements of the innermost scope.
    fn scoped(&mut self, stmts: &'s [Ast<'s>]) -> Scoped {
        let inits = self.scopes.analyze(stmts);
        let body = self.block(stmts);
        Scoped { inits, body }
    }

    fn inner(&mut self, stmts: &'s [Ast<'s>]) -> Scoped {
        self.scopes.open();
        let scoped = self.scoped(stmts);
        self.scopes.close();
        scoped
    }

    pub(super) fn block(&mut self, stmts: &'s [Ast<'s>]) -> Block {
        let mut block = Vec::with_capacity(stmts.len());
        self.append(stmts, &mut block);
        let mut merged: Vec<Stmt> = Vec::with_capacity(block.len());
        for stmt in block {
            match (merged.last_mut(), stmt) {
                (Some(Stmt::Raw(before)), Stmt::Raw(text)) => {
                    *before = [&**before, &*text].concat().into();
                }
                (_, stmt) => merged.push(stmt),
            }
        }
        merged.into()
    }

    fn append(&mut self, stmts: &'s [Ast<'s>], block: &mut Vec<Stmt>) {
        for stmt in stmts {
            match stmt {
                Ast::Template(node) => self.append(&node.children, block),
                _ => block.push(self.stmt(stmt)),
            }
        }
    }

    pub(super) fn expr(&self, expr: &ast::Expr<'s>) -> Expr {
        Expressions(&self.scopes).expr(expr)
    }

    fn stmt(&mut self, stmt: &'s Ast<'s>) -> Stmt {
        match stmt {
            Ast::EmitRaw(node) => Stmt::Raw(node.raw.into()),
            Ast::EmitExpr(node) => match self.emitted(&node.expr) {
                Expr::Text(text) => Stmt::Raw(text),
                expr => Stmt::Emit(expr),
            },
            Ast::IfCond(node) => Stmt::If(Box::new(If {
                test: self.expr(&node.expr),
                then: self.block(&node.true_body),
                other: self.block(&node.false_body),
            })),
            Ast::ForLoop(node) => self.for_loop(node).unwrap_or(Stmt::GiveUp),
            Ast::Set(node) => self.set(&node.target, &node.expr),
            Ast::SetBlock(node) if node.filter.is_none() => match &node.target {
                ast::Expr::Var(name) => {
                    let body = self.inner(&node.body);
                    let slot = self.scopes.slot(name.id);
                    slot.map_or(Stmt::GiveUp, |slot| Stmt::Capture(slot, body))
                }
                _ => Stmt::GiveUp,
            },
            Ast::WithBlock(node) => self.with(node).unwrap_or(Stmt::GiveUp),
            Ast::Macro(node) => self.define(node).unwrap_or(Stmt::GiveUp),
            Ast::Break(_) => Stmt::Break,
            Ast::Continue(_) => Stmt::Continue,
            _ => Stmt::GiveUp,
        }
    }

    /// What is written out: there the mark of a safe string makes no difference.
    fn emitted(&self, expr: &ast::Expr<'s>) -> Expr {
        match expr {
            ast::Expr::Filter(node) if node.name == "safe" && node.args.is_empty() => node
                .expr
                .as_ref()
                .map_or(Expr::GiveUp, |inner| self.expr(inner)),
            _ => self.expr(expr),
        }
    }

    fn set(&self, target: &ast::Expr<'s>, value: &ast::Expr<'s>) -> Stmt {
        let value = self.expr(value);
        let slot = |name: &ast::Expr<'s>| match name {
            ast::Expr::Var(name) => self.scopes.slot(name.id),
            _ => None,
        };
        match target {
            ast::Expr::Var(_) => slot(target).map(|slot| Stmt::Set(slot, value)),
            ast::Expr::GetAttr(node) => {
                slot(&node.expr).map(|slot| Stmt::SetAttribute(slot, node.name.into(), value))
            }
            _ => None,
        }
        .unwrap_or(Stmt::GiveUp)
    }

    fn with(&mut self, node: &'s ast::WithBlock<'s>) -> Option<Stmt> {
        for (target, _) in &node.assignments {
            name_of(target)?;
        }
        let values: Vec<Expr> = node
            .assignments
            .iter()
            .map(|(_, value)| self.expr(value))
            .collect();
        self.scopes.open();
        let mut targets = Vec::with_capacity(values.len());
        for (target, value) in node.assignments.iter().zip(values) {
            let slot = self.scopes.fresh();
            self.scopes
                .give(name_of(&target.0).unwrap_or_default(), slot);
            targets.push((slot, value));
        }
        let body = self.scoped(&node.body);
        self.scopes.close();
        Some(Stmt::With(targets.into(), body))
    }

    fn for_loop(&mut self, node: &'s ast::ForLoop<'s>) -> Option<Stmt> {
        // Jinja2 also does the other part where no round came to its end.
        if node.recursive || (!node.else_body.is_empty() && may_end_early(&node.body)) {
            return None;
        }
        let items = self.iterable(&node.iter);
        let number = self.loops;
        self.loops += 1;
        let names: Vec<&'s str> = match &node.target {
            ast::Expr::List(names) => names.items.iter().map(name_of).collect::<Option<_>>()?,
            target => vec![name_of(target)?],
        };
        let slots: Vec<usize> = names.iter().map(|_| self.scopes.fresh()).collect();
        let give = |scopes: &mut Scopes<'s>| {
            scopes.open();
            for (name, slot) in names.iter().zip(&slots) {
                scopes.give(name, *slot);
            }
        };
        // Names that the body assigns are not those of the filter.
        let filter = node.filter_expr.as_ref().map(|filter| {
            give(&mut self.scopes);
            self.scopes.analyze_expr(filter);
            let filter = self.expr(filter);
            self.scopes.close();
            filter
        });
        give(&mut self.scopes);
        self.scopes.loops.push(number);
        let body = self.scoped(&node.body);
        self.scopes.loops.pop();
        self.scopes.close();
        let other = self.inner(&node.else_body);
        Some(Stmt::For(Box::new(For {
            number,
            targets: match (&node.target, slots.as_slice()) {
                (ast::Expr::Var(_), [slot]) => Targets::One(*slot),
                _ => Targets::Each(slots.into()),
            },
            items,
            filter,
            body,
            other,
        })))
    }

    fn iterable(&self, expr: &ast::Expr<'s>) -> Iterable {
        let entries = |value: &ast::Expr<'s>, which| Iterable::Entries(self.expr(value), which);
        match expr {
            ast::Expr::Call(call) if is_plain_call(call, "range") => Iterable::Range(
                positional(&call.args, |arg| self.expr(arg))
                    .unwrap_or_else(|| [Expr::GiveUp].into()),
            ),
            ast::Expr::Call(call) if call.args.is_empty() => match &call.expr {
                ast::Expr::GetAttr(method) => match method.name {
                    "items" => entries(&method.expr, Entries::Both),
                    "keys" => entries(&method.expr, Entries::Keys),
                    "values" => entries(&method.expr, Entries::Values),
                    _ => Iterable::Value(self.expr(expr)),
                },
                _ => Iterable::Value(self.expr(expr)),
            },
            ast::Expr::Filter(node) if node.name == "items" && node.args.is_empty() => {
                match &node.expr {
                    Some(value) => entries(value, Entries::BothOrUndefined),
                    None => Iterable::Value(Expr::GiveUp),
                }
            }
            _ => Iterable::Value(Expressions(&self.scopes).items(expr)),
        }
    }

    /// The next macro at the top; others are not known.
    fn define(&mut self, node: &'s ast::Macro<'s>) -> Option<Stmt> {
        let number = self.macros.len();
        let next = self.scopes.macros.get(number)?;
        let parameters = next.parameters.clone();
        if next.name != node.name || self.scopes.depth() != 1 {
            return None;
        }
        let compiled = self.macro_body(node, &parameters);
        self.macros.push(compiled);
        Some(Stmt::Define(number))
    }
}

fn name_of<'s>(target: &ast::Expr<'s>) -> Option<&'s str> {
    match target {
        ast::Expr::Var(name) => Some(name.id),
        _ => None,
    }
}
