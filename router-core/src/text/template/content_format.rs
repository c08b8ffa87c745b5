//! Finds out which content format a template wants, from its syntax tree.
//!
//! Follows vLLM 0.32 (`renderers/hf.py`): a template that loops over `<message>.content` wants parts, where `<message>` is a loop
//! variable over `messages` or a variable assigned from it. Macro arguments that receive such content count, and so does, outside
//! macros, a plain variable named `content`. vLLM gives up on targets that are no plain name and takes strings then.

use minijinja::machinery::ast::{self, CallArg, Expr};

use super::facts::Facts;
use crate::text::messages::ContentFormat;

/// A loop or assignment target is no plain name.
struct NotAName;

/// The content format of a template.
pub(super) fn detect(facts: &Facts<'_>) -> ContentFormat {
    match loops_over_content(facts) {
        Ok(true) => ContentFormat::OpenAi,
        Ok(false) | Err(NotAName) => ContentFormat::String,
    }
}

fn loops_over_content(facts: &Facts<'_>) -> Result<bool, NotAName> {
    let message_names = message_names(facts)?;
    let is_content = |expr: &Expr<'_>| {
        message_names
            .iter()
            .any(|name| accesses(expr, name, Some("content")))
    };
    let content_params: Vec<Vec<&str>> = facts
        .macros
        .iter()
        .map(|found| content_params(facts, found, &is_content))
        .collect();
    for found in &facts.loops {
        let target = name_of(&found.node.target);
        if is_content(&found.node.iter) {
            return target.map(|_| true);
        }
        let Expr::Var(variable) = &found.node.iter else {
            continue;
        };
        let is_param = found.macros.iter().any(|&index| {
            content_params
                .get(index)
                .is_some_and(|params| params.contains(&variable.id))
        });
        if is_param || (found.macros.is_empty() && variable.id == "content") {
            return target.map(|_| true);
        }
    }
    Ok(false)
}

/// Variables that hold messages one by one.
fn message_names<'a>(facts: &Facts<'a>) -> Result<Vec<&'a str>, NotAName> {
    // `messages` and whatever is assigned from it, directly or not.
    let mut lists = vec!["messages"];
    let mut done = 0;
    while let Some(&list) = lists.get(done) {
        done += 1;
        for (target, value) in &facts.assignments {
            if accesses(value, list, None) {
                let name = name_of(target)?;
                if !lists.contains(&name) {
                    lists.push(name);
                }
            }
        }
    }
    facts
        .loops
        .iter()
        .filter(|found| {
            lists
                .iter()
                .any(|list| accesses(&found.node.iter, list, None))
        })
        .map(|found| name_of(&found.node.target))
        .collect()
}

/// Parameters of a macro that receive message content in some call.
fn content_params<'a>(
    facts: &Facts<'a>,
    found: &ast::Macro<'a>,
    is_content: &impl Fn(&Expr<'_>) -> bool,
) -> Vec<&'a str> {
    let params: Vec<&str> = found
        .args
        .iter()
        .filter_map(|arg| name_of(arg).ok())
        .collect();
    let mut received = Vec::new();
    for call in &facts.calls {
        if !matches!(&call.expr, Expr::Var(name) if name.id == found.name) {
            continue;
        }
        for (i, arg) in call.args.iter().enumerate() {
            let param = match arg {
                CallArg::Pos(value) if is_content(value) => params.get(i).copied(),
                CallArg::Kwarg(name, value) if is_content(value) => {
                    params.iter().find(|param| *param == name).copied()
                }
                _ => None,
            };
            received.extend(param);
        }
    }
    received
}

/// Whether `expr` is the variable, or its attribute or item `key`; seen through filters, tests and slices.
fn accesses(expr: &Expr<'_>, variable: &str, key: Option<&str>) -> bool {
    let is_variable = |expr: &Expr<'_>| matches!(expr, Expr::Var(found) if found.id == variable);
    match (expr, key) {
        (Expr::Filter(filter), _) => filter
            .expr
            .as_ref()
            .is_some_and(|inner| accesses(inner, variable, key)),
        (Expr::Test(test), _) => accesses(&test.expr, variable, key),
        (Expr::Slice(slice), _) => accesses(&slice.expr, variable, key),
        (Expr::GetAttr(attribute), Some(key)) => {
            attribute.name == key && is_variable(&attribute.expr)
        }
        (Expr::GetItem(item), Some(key)) => {
            matches!(&item.subscript_expr, Expr::Const(found) if found.value.as_str() == Some(key))
                && is_variable(&item.expr)
        }
        (_, Some(_)) => false,
        (expr, None) => is_variable(expr),
    }
}

fn name_of<'a>(target: &Expr<'a>) -> Result<&'a str, NotAName> {
    match target {
        Expr::Var(name) => Ok(name.id),
        _ => Err(NotAName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::machinery::parse;

    fn format(source: &str) -> ContentFormat {
        let syntax = minijinja::syntax::SyntaxConfig::default();
        detect(&Facts::collect(&parse(source, "template", syntax).unwrap()))
    }

    #[test]
    fn loops_over_message_content_want_parts() {
        for source in [
            "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
            "{% for m in messages %}{% if 1 %}{% else %}{% for c in m['content'] %}{% endfor %}{% endif %}{% endfor %}",
            "{% for m in messages[1:] %}{% for c in m.content | selectattr('type') %}{% endfor %}{% endfor %}",
            "{% set x = messages[1:] %}{% set y = x %}{% for m in y | list %}{% for c in m.content[:1] %}{% endfor %}{% endfor %}",
            "{% for content in content %}{% endfor %}",
            "{% macro f(a, b) %}{% for c in b %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(1, m.content) }}{% endfor %}",
            "{% macro f(a, b) %}{% for c in b %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(1, b=m['content']) }}{% endfor %}",
        ] {
            assert_eq!(format(source), ContentFormat::OpenAi, "{source}");
        }
    }

    #[test]
    fn everything_else_wants_strings() {
        for source in [
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}",
            "{% for c in messages[0].content %}{% endfor %}",
            "{% macro f(content) %}{% for c in content %}{% endfor %}{% endmacro %}{{ f(x) }}",
            "{% macro f(b) %}{% for c in b %}{% endfor %}{% endmacro %}{% for m in messages %}{{ g(m.content) }}{% endfor %}",
            // A target that is no plain name makes vLLM give up.
            "{% set ns.x = messages[1:] %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
        ] {
            assert_eq!(format(source), ContentFormat::String, "{source}");
        }
    }
}
