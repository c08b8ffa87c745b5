//! Which names a scope has of its own, as Jinja2's compiler decides it.
//!
//! Jinja2 looks at a scope's statements in order, without the scopes inside them. A name that is assigned before it is read, not only
//! in a branch, and that no scope around knows, belongs to the scope from its start on: it is undefined until the assignment, also for
//! the scopes inside, and whatever the template is given under that name. All other names are what is found outside when the scope
//! starts. (`idtracking.py` of Jinja2 3.1: `store` without a reference gives `undefined`, `load` and `branch_update` give `resolve` or
//! `alias`.)
//!
//! The template engine looks a name up when it is read, from the innermost scope outwards. That is the same but for a name that an
//! inner scope reads before its assignment, which is made undefined at the start; and for macros inside a loop, which keep what an
//! earlier round assigned, so that what a round assigns is set back at its start.

use std::collections::{HashMap, HashSet};

use minijinja::machinery::ast::{Call, Expr, Macro, Stmt};

use super::super::walk;

/// The scopes around a statement, each with the names that it knows.
#[derive(Default)]
pub(super) struct Scopes<'a>(Vec<HashSet<&'a str>>);

/// What a scope has to assign at its start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Start<'a> {
    /// Names that are undefined.
    pub(super) undefined: Vec<&'a str>,
    /// Names that are what they are outside.
    pub(super) outer: Vec<&'a str>,
}

/// A scope before it is entered.
pub(super) struct Scope<'a> {
    names: HashSet<&'a str>,
    /// The names that its own statements assign.
    pub(super) assigned: Vec<&'a str>,
    pub(super) start: Start<'a>,
}

impl<'a> Scopes<'a> {
    fn know(&self, name: &str) -> bool {
        self.0.iter().any(|names| names.contains(name))
    }

    /// Looks at a scope inside the current one: its parameters, then its statements. `again`: whether it is run through several times.
    pub(super) fn inner(
        &self,
        parameters: impl IntoIterator<Item = &'a str>,
        body: &'a [Stmt<'a>],
        again: bool,
    ) -> Scope<'a> {
        let mut reader = Reader {
            outside: self,
            own: HashMap::new(),
            read_inside: HashSet::new(),
            undefined: Vec::new(),
            has_macros: false,
        };
        for name in parameters {
            reader.own.insert(name, Origin::Parameter);
        }
        for stmt in body {
            reader.stmt(stmt, false);
        }
        reader.finish(again)
    }

    /// Enters a scope.
    pub(super) fn enter(&mut self, scope: Scope<'a>) {
        self.0.push(scope.names);
    }

    /// Leaves the innermost scope.
    pub(super) fn leave(&mut self) {
        self.0.pop();
    }
}

/// Where a scope has a name from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Parameter,
    /// Only read.
    Read,
    /// Assigned, and until then what is found outside.
    Outer,
    /// Assigned, and until then undefined.
    Undefined,
}

/// Looks at the statements of one scope.
struct Reader<'s, 'a> {
    outside: &'s Scopes<'a>,
    own: HashMap<&'a str, Origin>,
    /// What the scopes inside read so far.
    read_inside: HashSet<&'a str>,
    /// What has to be made undefined at the start.
    undefined: Vec<&'a str>,
    has_macros: bool,
}

impl<'a> Reader<'_, 'a> {
    fn finish(mut self, again: bool) -> Scope<'a> {
        let with = |wanted: Origin| {
            let found = self
                .own
                .iter()
                .filter(move |(_, origin)| **origin == wanted);
            let mut names: Vec<&str> = found.map(|(name, _)| *name).collect();
            names.sort_unstable();
            names
        };
        let (outer, undefined) = (with(Origin::Outer), with(Origin::Undefined));
        let assigned = [outer.as_slice(), &undefined].concat();
        let start = if again && self.has_macros {
            Start { undefined, outer }
        } else {
            self.undefined.sort_unstable();
            Start {
                undefined: self.undefined,
                outer: Vec::new(),
            }
        };
        Scope {
            names: self.own.into_keys().collect(),
            assigned,
            start,
        }
    }

    /// Looks at a statement; `in_branch`: it may be passed over.
    fn stmt(&mut self, stmt: &'a Stmt<'a>, in_branch: bool) {
        match stmt {
            Stmt::EmitExpr(node) => self.read(&node.expr),
            Stmt::Do(node) => self.call(&node.call),
            Stmt::Set(node) => {
                self.read(&node.expr);
                self.assign(&node.target, in_branch);
            }
            Stmt::IfCond(node) => {
                self.read(&node.expr);
                for stmt in node.true_body.iter().chain(&node.false_body) {
                    self.stmt(stmt, true);
                }
            }
            Stmt::ForLoop(node) => {
                self.read(&node.iter);
                if let Some(expr) = &node.filter_expr {
                    names(expr, &mut self.read_inside);
                }
                self.inside(&node.body);
                self.inside(&node.else_body);
            }
            Stmt::WithBlock(node) => {
                for (_, value) in &node.assignments {
                    self.read(value);
                }
                self.inside(&node.body);
            }
            Stmt::SetBlock(node) => {
                if let Some(filter) = &node.filter {
                    names(filter, &mut self.read_inside);
                }
                self.inside(&node.body);
                self.assign(&node.target, in_branch);
            }
            Stmt::FilterBlock(node) => {
                self.read(&node.filter);
                self.inside(&node.body);
            }
            Stmt::Macro(node) => {
                // Its body runs after the assignment.
                self.assign_name(node.name, in_branch);
                self.macro_body(node);
            }
            Stmt::CallBlock(node) => {
                self.call(&node.call);
                self.macro_body(&node.macro_decl);
            }
            // What isn't supported reads nothing.
            _ => {}
        }
    }

    fn macro_body(&mut self, node: &'a Macro<'a>) {
        self.has_macros = true;
        for default in &node.defaults {
            names(default, &mut self.read_inside);
        }
        self.inside(&node.body);
    }

    fn inside(&mut self, body: &'a [Stmt<'a>]) {
        for stmt in body {
            names_of_stmt(stmt, &mut self.read_inside);
        }
    }

    fn call(&mut self, node: &'a Call<'a>) {
        let mut found = HashSet::new();
        names_of_call(node, &mut found);
        for name in found {
            self.read_name(name);
        }
    }

    fn read(&mut self, expr: &'a Expr<'a>) {
        let mut found = HashSet::new();
        names(expr, &mut found);
        for name in found {
            self.read_name(name);
        }
    }

    fn read_name(&mut self, name: &'a str) {
        if !self.outside.know(name) {
            self.own.entry(name).or_insert(Origin::Read);
        }
    }

    fn assign(&mut self, target: &'a Expr<'a>, in_branch: bool) {
        match target {
            Expr::Var(name) => self.assign_name(name.id, in_branch),
            Expr::List(items) => {
                for item in &items.items {
                    self.assign(item, in_branch);
                }
            }
            // An attribute of a namespace.
            _ => self.read(target),
        }
    }

    fn assign_name(&mut self, name: &'a str, in_branch: bool) {
        match self.own.get_mut(name) {
            Some(origin @ Origin::Read) => *origin = Origin::Outer,
            Some(_) => {}
            None if in_branch || self.outside.know(name) => {
                self.own.insert(name, Origin::Outer);
            }
            None => {
                self.own.insert(name, Origin::Undefined);
                if self.read_inside.contains(name) {
                    self.undefined.push(name);
                }
            }
        }
    }
}

/// The names that an expression reads.
pub(super) fn names<'a>(expr: &'a Expr<'a>, found: &mut HashSet<&'a str>) {
    walk::each_expr(expr, &mut |expr| {
        if let Expr::Var(name) = expr {
            found.insert(name.id);
        }
    });
}

fn names_of_call<'a>(call: &'a Call<'a>, found: &mut HashSet<&'a str>) {
    names(&call.expr, found);
    walk::each_arg(&call.args, &mut |expr| {
        if let Expr::Var(name) = expr {
            found.insert(name.id);
        }
    });
}

/// The names that a statement reads, with all that is inside it.
pub(super) fn names_of_stmt<'a>(stmt: &'a Stmt<'a>, found: &mut HashSet<&'a str>) {
    let mut bodies: Vec<&'a [Stmt<'a>]> = Vec::new();
    match stmt {
        Stmt::EmitExpr(node) => names(&node.expr, found),
        Stmt::Do(node) => names_of_call(&node.call, found),
        Stmt::Set(node) => {
            names(&node.expr, found);
            names_of_target(&node.target, found);
        }
        Stmt::IfCond(node) => {
            names(&node.expr, found);
            bodies.extend([node.true_body.as_slice(), &node.false_body]);
        }
        Stmt::ForLoop(node) => {
            names(&node.iter, found);
            if let Some(expr) = &node.filter_expr {
                names(expr, found);
            }
            bodies.extend([node.body.as_slice(), &node.else_body]);
        }
        Stmt::WithBlock(node) => {
            for (_, value) in &node.assignments {
                names(value, found);
            }
            bodies.push(&node.body);
        }
        Stmt::SetBlock(node) => {
            if let Some(filter) = &node.filter {
                names(filter, found);
            }
            names_of_target(&node.target, found);
            bodies.push(&node.body);
        }
        Stmt::FilterBlock(node) => {
            names(&node.filter, found);
            bodies.push(&node.body);
        }
        Stmt::Macro(node) => {
            for default in &node.defaults {
                names(default, found);
            }
            bodies.push(&node.body);
        }
        Stmt::CallBlock(node) => {
            names_of_call(&node.call, found);
            for default in &node.macro_decl.defaults {
                names(default, found);
            }
            bodies.push(&node.macro_decl.body);
        }
        _ => {}
    }
    for stmt in bodies.into_iter().flatten() {
        names_of_stmt(stmt, found);
    }
}

/// The namespaces among targets.
fn names_of_target<'a>(target: &'a Expr<'a>, found: &mut HashSet<&'a str>) {
    match target {
        Expr::Var(_) => {}
        Expr::List(items) => {
            for item in &items.items {
                names_of_target(item, found);
            }
        }
        _ => names(target, found),
    }
}
