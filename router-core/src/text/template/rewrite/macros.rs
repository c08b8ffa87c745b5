//! Macros whose parameters have defaults.
//!
//! The template engine takes a default also where an undefined value is passed, and knows none of the other parameters in it. Jinja2
//! takes it only where nothing is passed. So each such macro has one more parameter, in which a call says what it passes, and its
//! defaults are assigned at the start of its body.

use std::collections::HashMap;

use minijinja::machinery::ast::{CallArg, Expr, Macro};

/// The parameter that tells which others are passed, as `|name|name|`.
const GIVEN: &str = "__given";

/// The macros of a template that have defaults, with the names of their parameters.
#[derive(Default)]
pub(super) struct Macros<'a>(HashMap<&'a str, Vec<&'a str>>);

impl<'a> Macros<'a> {
    pub(super) fn collect(macros: &[&'a Macro<'a>]) -> Self {
        Self(
            macros
                .iter()
                .filter(|found| !found.defaults.is_empty())
                .map(|found| (found.name, parameters(found)))
                .collect(),
        )
    }

    /// The argument that says what a call passes; none for a call of something else, or one that takes its arguments from a value.
    pub(super) fn given(&self, callee: &Expr<'_>, args: &[CallArg<'_>]) -> Option<String> {
        let Expr::Var(name) = callee else {
            return None;
        };
        let parameters = self.0.get(name.id)?;
        let mut given = String::from("|");
        for (i, arg) in args.iter().enumerate() {
            let name = match arg {
                CallArg::Pos(_) => parameters.get(i).copied()?,
                CallArg::Kwarg(name, _) => name,
                CallArg::PosSplat(_) | CallArg::KwargSplat(_) => return None,
            };
            given.push_str(name);
            given.push('|');
        }
        Some(format!("{GIVEN}=\"{given}\""))
    }
}

/// The parameters of a macro as written: all without defaults, and one that says what is passed.
pub(super) fn head(node: &Macro<'_>) -> String {
    let mut names = parameters(node).join(", ");
    if !node.defaults.is_empty() {
        names.push_str(", __given=\"\"");
    }
    format!("({names})")
}

/// Parameters that have defaults, each with the test that nothing was passed for it.
pub(super) fn defaults<'a>(
    node: &'a Macro<'a>,
) -> impl Iterator<Item = (&'a str, String, &'a Expr<'a>)> {
    let required = node.args.len().saturating_sub(node.defaults.len());
    parameters(node)
        .into_iter()
        .skip(required)
        .zip(&node.defaults)
        .map(|(name, default)| {
            let test = format!("{name} is undefined and \"|{name}|\" not in {GIVEN}");
            (name, test, default)
        })
}

fn parameters<'a>(node: &Macro<'a>) -> Vec<&'a str> {
    let name = |parameter: &Expr<'a>| match parameter {
        Expr::Var(name) => name.id,
        _ => "",
    };
    node.args.iter().map(name).collect()
}
