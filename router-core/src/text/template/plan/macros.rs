//! Macros: compiling and calling them.

use minijinja::machinery::ast::{self, CallArg, Stmt as Ast};

use super::GiveUp;
use super::compile::Compiler;
use super::run::Run;
use super::scope::Signature;
use super::tree::{Expr, Macro};
use crate::text::datum::Datum;

/// Names of the macros and of their parameters; macros elsewhere than at the top are not known.
pub(super) fn signatures<'s>(stmts: &'s [Ast<'s>]) -> Vec<Signature<'s>> {
    let mut found = Vec::new();
    for stmt in stmts {
        match stmt {
            Ast::Template(node) => found.extend(signatures(&node.children)),
            Ast::Macro(node) => {
                let names = node.args.iter().map(|name| match name {
                    ast::Expr::Var(name) => name.id,
                    _ => "",
                });
                found.push(Signature {
                    name: node.name,
                    parameters: names.collect(),
                });
            }
            _ => {}
        }
    }
    found
}

/// The parameter that each argument of a call is for; none if Python wouldn't take them.
pub(super) fn bind(signature: &Signature<'_>, args: &[CallArg<'_>]) -> Option<Vec<usize>> {
    let mut places = Vec::with_capacity(args.len());
    for (i, arg) in args.iter().enumerate() {
        let place = match arg {
            CallArg::Pos(_) if i < signature.parameters.len() => i,
            CallArg::Kwarg(name, _) => signature
                .parameters
                .iter()
                .position(|other| other == name)?,
            _ => return None,
        };
        if places.contains(&place) {
            return None;
        }
        places.push(place);
    }
    Some(places)
}

impl<'s> Compiler<'s> {
    /// Compiles a macro.
    pub(super) fn macro_body(&mut self, node: &'s ast::Macro<'s>, parameters: &[&'s str]) -> Macro {
        let (first_slot, first_loop) = (self.scopes.slots, self.loops);
        // A loop around the macro is not one of its own.
        let loops_around = core::mem::take(&mut self.scopes.loops);
        self.scopes.open();
        let slots: Vec<usize> = parameters
            .iter()
            .map(|name| {
                let slot = self.scopes.fresh();
                self.scopes.give(name, slot);
                slot
            })
            .collect();
        let inits = self.scopes.analyze_with(&node.defaults, &node.body);
        let required = slots.len().saturating_sub(node.defaults.len());
        let defaults: Vec<Expr> = node
            .defaults
            .iter()
            .map(|default| self.expr(default))
            .collect();
        let body = self.block(&node.body);
        self.scopes.close();
        self.scopes.loops = loops_around;
        let defaults = core::iter::repeat_with(|| None)
            .take(required)
            .chain(defaults.into_iter().map(Some));
        Macro {
            parameters: slots.into_iter().zip(defaults).collect(),
            inits,
            body,
            slots: first_slot..self.scopes.slots,
            loops: first_loop..self.loops,
        }
    }
}

impl<'a> Run<'a> {
    /// Calls a macro, which writes to the text.
    pub(super) fn call(&mut self, number: usize, args: &'a [(usize, Expr)]) -> Result<(), GiveUp> {
        let called = self.plan.macros.get(number).ok_or(GiveUp)?;
        if !self.defined.contains(&number) {
            return Err(GiveUp);
        }
        let mut given: Vec<Option<Datum<'a>>> = vec![None; called.parameters.len()];
        for (place, value) in args {
            let value = self.eval(value)?;
            *given.get_mut(*place).ok_or(GiveUp)? = Some(value);
        }
        // What a call further out still needs.
        let kept = self.calls.contains(&number).then(|| {
            let slots = self.slots.get(called.slots.clone()).map(<[_]>::to_vec);
            let loops = self.loops.get(called.loops.clone()).map(<[_]>::to_vec);
            (slots.unwrap_or_default(), loops.unwrap_or_default())
        });
        self.calls.push(number);
        self.init(&called.inits);
        for ((slot, _), value) in called.parameters.iter().zip(&given) {
            self.store(*slot, value.clone().unwrap_or(Datum::Undefined));
        }
        for ((slot, default), value) in called.parameters.iter().zip(&given) {
            if let (Some(default), None) = (default, value) {
                let value = self.eval(default)?;
                self.store(*slot, value);
            }
        }
        self.whole(&called.body)?;
        self.calls.pop();
        if let Some((slots, loops)) = kept {
            for (slot, value) in called.slots.clone().zip(slots) {
                self.store(slot, value);
            }
            for (place, state) in called.loops.clone().zip(loops) {
                *self.loops.get_mut(place).ok_or(GiveUp)? = state;
            }
        }
        Ok(())
    }
}
