//! Templates that run directly on the values of a request.
//!
//! ```text
//!  syntax tree ─ compile ─► Plan ─ run ─► text
//!                                    └──► GiveUp: the template engine renders the chat from the start
//! ```
//!
//! A plan does what most templates consist of, without a copy of what it is given: names are slots, sums and loops write straight into
//! the text, and a string that is cut stays a part of the request. It knows few operations and those only of the kinds of values that
//! they are usual for. Whatever else it meets it gives up on, so that the rules of Jinja2 that are hard to get right are written
//! down in one place only, and an error is the template engine's.

mod compile;
mod emit;
mod eval;
mod expressions;
mod macros;
mod operators;
mod run;
mod scope;
mod streams;
mod strings;
mod tree;

use minijinja::machinery::ast::Stmt;

use self::compile::Compiler;
use self::run::Run;
use self::tree::{Macro, Scoped, Slot};
use crate::text::datum::Context;
use crate::text::strftime::LocalTime;

/// Work that one run may do; an operation takes one, and so do 64 bytes of text that are made or read on the way.
const FUEL: u64 = super::FUEL / 4;

/// A plan can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GiveUp;

/// A compiled template.
#[derive(Debug)]
pub(super) struct Plan {
    whole: Scoped,
    macros: Vec<Macro>,
    /// Names of the request that the template reads, and their slots.
    request: Vec<(Box<str>, Slot)>,
    slots: usize,
    loops: usize,
}

impl Plan {
    /// Compiles a template; none if it hides names that have a meaning of their own.
    pub(super) fn compile(template: &Stmt<'_>) -> Option<Self> {
        let Stmt::Template(template) = template else {
            return None;
        };
        let mut compiler = Compiler::default();
        let whole = compiler.template(&template.children);
        let Compiler {
            scopes,
            loops,
            macros,
        } = compiler;
        (!scopes.hides_function).then(|| Self {
            whole,
            macros,
            request: scopes
                .request
                .iter()
                .map(|(name, slot)| ((*name).into(), *slot))
                .collect(),
            slots: scopes.slots,
            loops,
        })
    }

    /// Renders the template; none if the plan gives up. `capacity` is about how long the text will be.
    pub(super) fn run(
        &self,
        context: &Context<'_>,
        now: LocalTime,
        capacity: usize,
    ) -> Option<String> {
        let mut run = Run::new(self, context, now, capacity);
        match run.scoped(&self.whole) {
            Ok(()) => Some(run.out),
            Err(GiveUp) => None,
        }
    }
}

#[cfg(test)]
mod tests;
