//! Chat templates, rendered as Jinja2 renders them for the engine.
//!
//! Jinja2 settings: `trim_blocks`, `lstrip_blocks`, loop controls, no escaping, immutable sandbox. A template that the engine would
//! fail on may render here or fail too; such a request gets no reply from any endpoint, so its text doesn't matter.

mod content_format;
mod environment;
mod facts;
mod filters;
mod operators;
mod plan;
mod rewrite;
mod source;
mod walk;

use std::collections::HashSet;
use std::io::{self, Write};

use minijinja::machinery::parse;
use minijinja::{Environment, ErrorKind, Value};

use super::datum::Context;
use super::error::{ProfileError, Unscorable};
use super::messages::ContentFormat;
use super::strftime::LocalTime;
use super::value::{Variables, dict};
use facts::Facts;
use plan::Plan;

/// Longest prompt that is rendered, in bytes.
pub const MAX_PROMPT_BYTES: usize = 32 << 20;

/// Work that one rendering may do: instructions, and one for each 64 bytes of text made or read on the way.
pub const FUEL: u64 = 8_000_000;

/// The one template of an environment.
const NAME: &str = "chat";

/// A compiled chat template.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    plan: Option<Plan>,
    format: ContentFormat,
    knows_developer: bool,
    tells_time: bool,
    /// Names that the template reads somewhere.
    names: HashSet<Box<str>>,
}

/// Whether a template fails on a system message that isn't the first.
///
/// Follows vLLM 0.32 (`entrypoints/anthropic/serving.py`), which tries the template without its own additions to Jinja2: one that uses
/// them here counts as failing.
pub(super) fn wants_system_first(source: &str) -> bool {
    let Ok(environment) = compile_bare(source) else {
        return true;
    };
    let message = |role: &str| {
        let entry = |key: &str, value: &str| (Value::from(key), Value::from(value));
        dict([entry("role", role), entry("content", "t")].into_iter())
    };
    let mut variables = Variables(Vec::new());
    let roles = ["system", "user", "system", "user"];
    variables.set("messages", roles.map(message).into_iter().collect());
    variables.set("add_generation_prompt", Value::from(false));
    let mut out = Limited {
        bytes: Vec::new(),
        full: false,
    };
    environment
        .get_template(NAME)
        .and_then(|template| template.render_captured_to(Value::from_object(variables), &mut out))
        .is_err()
}

fn compile_bare(source: &str) -> Result<Environment<'static>, minijinja::Error> {
    let tree = parse(source, NAME, environment::jinja_syntax()?)?;
    let mut environment = environment::bare()?;
    let rewritten = rewrite::rewrite(&tree, &Facts::collect(&tree));
    environment.add_template_owned(NAME, rewritten)?;
    Ok(environment)
}

impl ChatTemplate {
    /// Compiles `source`; `format` overrides what its syntax tree tells.
    pub(super) fn compile(
        source: &str,
        format: Option<ContentFormat>,
    ) -> Result<Self, ProfileError> {
        let knows_developer = source.contains("\"developer\"") || source.contains("'developer'");
        let tells_time = source.contains("strftime_now");
        let compile = |source| ProfileError::Template { source };
        let syntax = environment::jinja_syntax().map_err(compile)?;
        let source = source::adapt(source, &syntax).map_err(compile)?;
        let mut environment = environment::new().map_err(compile)?;
        let (format, rewritten, names, plan) = {
            let tree = parse(&source, NAME, syntax).map_err(compile)?;
            let facts = Facts::collect(&tree);
            (
                format.unwrap_or_else(|| content_format::detect(&facts)),
                rewrite::rewrite(&tree, &facts),
                rewrite::names(&tree),
                Plan::compile(&tree),
            )
        };
        environment
            .add_template_owned(NAME, rewritten)
            .map_err(compile)?;
        Ok(Self {
            environment,
            plan,
            format,
            knows_developer,
            tells_time,
            names,
        })
    }

    pub(super) fn format(&self) -> ContentFormat {
        self.format
    }

    /// Whether the template may read a variable.
    pub(super) fn reads(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn knows_developer(&self) -> bool {
        self.knows_developer
    }

    /// Renders the template; the result is UTF-8. `capacity` is about how long it will be.
    pub(super) fn render(
        &self,
        context: &Context<'_>,
        now: LocalTime,
        capacity: usize,
    ) -> Result<Vec<u8>, Unscorable> {
        let capacity = capacity.min(MAX_PROMPT_BYTES);
        let planned = self.plan.as_ref();
        match planned.and_then(|plan| plan.run(context, now, capacity)) {
            Some(text) => Ok(text.into_bytes()),
            None => self.render_by_engine(context, now, capacity),
        }
    }

    /// Renders what the plan gave up on.
    fn render_by_engine(
        &self,
        context: &Context<'_>,
        now: LocalTime,
        capacity: usize,
    ) -> Result<Vec<u8>, Unscorable> {
        let mut variables = Variables(Vec::with_capacity(context.0.len() + 1));
        for (name, value) in &context.0 {
            variables.set(name, value.to_value());
        }
        if self.tells_time {
            let tell = move |format: &str| now.strftime(format);
            variables.set("strftime_now", Value::from_function(tell));
        }
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|_| Unscorable::Template)?;
        let mut out = Limited {
            bytes: Vec::with_capacity(capacity),
            full: false,
        };
        match template.render_captured_to(Value::from_object(variables), &mut out) {
            Ok(_) => Ok(out.bytes),
            Err(_) if out.full => Err(Unscorable::Limit),
            Err(error) if error.kind() == ErrorKind::OutOfFuel => Err(Unscorable::Limit),
            Err(_) => Err(Unscorable::Template),
        }
    }
}

/// Collects bytes up to [`MAX_PROMPT_BYTES`].
struct Limited {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_PROMPT_BYTES - self.bytes.len() {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
