//! Names of a template and the slots that their values are kept in, by Jinja2's rules (`idtracking.py`).
//!
//! The template, a loop's body and a few other blocks are scopes. A name that a scope assigns is its own: it starts with the value that
//! the scope around it has under this name, and ends with the scope. All of a scope's statements count for that, also those after a
//! use. A name that no scope assigns is the request's.

use minijinja::machinery::ast::{Expr, Stmt};

use super::super::walk;
use super::expressions::FUNCTIONS;
use super::tree::{Init, Slot};

/// The scopes around the current place, the innermost last.
#[derive(Default)]
pub(super) struct Scopes<'s> {
    open: Vec<Scope<'s>>,
    /// Names of the request, and their slots.
    pub(super) request: Vec<(&'s str, Slot)>,
    /// Slots so far.
    pub(super) slots: usize,
    /// Loops around the current place.
    pub(super) loops: Vec<usize>,
    /// The template's macros.
    pub(super) macros: Vec<Signature<'s>>,
    /// Whether a name of a function or a macro is used for something else, or names are used in a way that isn't known here.
    pub(super) is_unknown: bool,
}

/// A macro's name and those of its parameters.
#[derive(Debug)]
pub(super) struct Signature<'s> {
    pub(super) name: &'s str,
    pub(super) parameters: Vec<&'s str>,
}

#[derive(Default)]
struct Scope<'s> {
    names: Vec<Known<'s>>,
}

struct Known<'s> {
    name: &'s str,
    slot: Slot,
    start: Start,
    is_stored: bool,
}

/// What a name of a scope starts with.
#[derive(Clone, Copy)]
enum Start {
    /// Something that is put there: an item of a loop.
    Given,
    Undefined,
    /// What is in another slot.
    Copy(Slot),
}

impl<'s> Scopes<'s> {
    /// Opens a scope.
    pub(super) fn open(&mut self) {
        self.open.push(Scope::default());
    }

    /// How many scopes are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Closes the innermost scope.
    pub(super) fn close(&mut self) {
        self.open.pop();
    }

    /// Takes note of the names of a scope's statements.
    pub(super) fn analyze(&mut self, stmts: &'s [Stmt<'s>]) -> Box<[Init]> {
        self.stmts(stmts, false);
        self.settle()
    }

    /// The same of a macro's defaults and its statements.
    pub(super) fn analyze_with(
        &mut self,
        exprs: &'s [Expr<'s>],
        stmts: &'s [Stmt<'s>],
    ) -> Box<[Init]> {
        self.exprs(exprs);
        self.analyze(stmts)
    }

    /// Takes note of the names that an expression reads in a scope of its own.
    pub(super) fn analyze_expr(&mut self, expr: &'s Expr<'s>) {
        self.expr(expr);
        self.settle();
    }

    /// Decides which names of the innermost scope need slots of their own.
    fn settle(&mut self) -> Box<[Init]> {
        let Some(scope) = self.open.last_mut() else {
            return Box::default();
        };
        let mut inits = Vec::new();
        for name in &mut scope.names {
            match name.start {
                Start::Given => {}
                Start::Copy(from) if !name.is_stored => name.slot = from,
                Start::Copy(from) => inits.push(Init {
                    slot: name.slot,
                    from: Some(from),
                }),
                Start::Undefined => inits.push(Init {
                    slot: name.slot,
                    from: None,
                }),
            }
        }
        inits.into()
    }

    /// The slot of a name that was taken note of.
    pub(super) fn slot(&self, name: &str) -> Option<Slot> {
        self.open.iter().rev().find_map(|scope| {
            let mut names = scope.names.iter();
            names.find(|other| other.name == name).map(|name| name.slot)
        })
    }

    /// A name that is given its value from outside.
    pub(super) fn give(&mut self, name: &'s str, slot: Slot) {
        self.define(name, slot, Start::Given);
    }

    /// A slot that nothing uses yet.
    pub(super) fn fresh(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    fn is_reserved(&self, name: &str) -> bool {
        name == "loop"
            || FUNCTIONS.contains(&name)
            || self.macros.iter().any(|other| other.name == name)
    }

    fn define(&mut self, name: &'s str, slot: Slot, start: Start) {
        self.is_unknown |= matches!(start, Start::Given) && self.is_reserved(name);
        if let Some(scope) = self.open.last_mut() {
            scope.names.push(Known {
                name,
                slot,
                start,
                is_stored: false,
            });
        }
    }

    /// The slot of a name of the request.
    fn requested(&mut self, name: &'s str) -> Slot {
        if let Some((_, slot)) = self.request.iter().find(|(other, _)| *other == name) {
            return *slot;
        }
        let slot = self.fresh();
        self.request.push((name, slot));
        slot
    }

    fn load(&mut self, name: &'s str) {
        let is_loop = name == "loop" && !self.loops.is_empty();
        if !is_loop && self.slot(name).is_none() {
            let (slot, from) = (self.fresh(), self.requested(name));
            self.define(name, slot, Start::Copy(from));
        }
    }

    fn store(&mut self, name: &'s str, is_in_branch: bool) {
        self.is_unknown |= self.is_reserved(name);
        let Some((own, around)) = self.open.split_last() else {
            return;
        };
        if own.names.iter().all(|other| other.name != name) {
            let mut around = around.iter().rev().flat_map(|scope| &scope.names);
            let outer = around.find(|other| other.name == name);
            let start = match outer.map(|outer| outer.slot) {
                Some(slot) => Start::Copy(slot),
                None if is_in_branch => Start::Copy(self.requested(name)),
                None => Start::Undefined,
            };
            let slot = self.fresh();
            self.define(name, slot, start);
        }
        let own = self.open.last_mut().map(|scope| scope.names.iter_mut());
        for other in own.into_iter().flatten() {
            other.is_stored |= other.name == name;
        }
    }

    fn stmts(&mut self, stmts: &'s [Stmt<'s>], is_in_branch: bool) {
        for stmt in stmts {
            self.stmt(stmt, is_in_branch);
        }
    }

    fn stmt(&mut self, stmt: &'s Stmt<'s>, is_in_branch: bool) {
        match stmt {
            Stmt::Template(node) => self.stmts(&node.children, is_in_branch),
            Stmt::EmitExpr(node) => self.expr(&node.expr),
            Stmt::ForLoop(node) => self.expr(&node.iter),
            Stmt::IfCond(node) => {
                self.expr(&node.expr);
                self.stmts(&node.true_body, true);
                self.stmts(&node.false_body, true);
            }
            Stmt::WithBlock(node) => {
                for (_, value) in &node.assignments {
                    self.expr(value);
                }
            }
            Stmt::Set(node) => {
                self.expr(&node.expr);
                self.target(&node.target, is_in_branch);
            }
            Stmt::SetBlock(node) => self.target(&node.target, is_in_branch),
            Stmt::EmitRaw(_) | Stmt::Macro(_) | Stmt::Break(_) | Stmt::Continue(_) => {}
            // They read and assign names too, though they are not run here.
            _ => self.is_unknown = true,
        }
    }

    fn target(&mut self, target: &'s Expr<'s>, is_in_branch: bool) {
        match target {
            Expr::Var(node) => self.store(node.id, is_in_branch),
            Expr::GetAttr(node) => self.expr(&node.expr),
            Expr::List(node) => {
                for name in &node.items {
                    self.target(name, is_in_branch);
                }
            }
            _ => {}
        }
    }

    fn exprs(&mut self, exprs: &'s [Expr<'s>]) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &'s Expr<'s>) {
        walk::each_expr(expr, &mut |part| {
            if let Expr::Var(node) = part {
                self.load(node.id);
            }
        });
    }
}
