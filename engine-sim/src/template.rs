//! Renders chat requests to prompt text as vLLM does with jinja2, independently of the code under test.
//!
//! Known gaps: the `generation` tag, numbers beyond 64 bits, and Python string methods other than the usual ones.

mod messages;
mod python;

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, ErrorKind, Value, context};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use thiserror::Error;

use messages::ContentFormat;

const TEMPLATE: &str = "chat";
/// Marks the end of the last message while `continue_final_message` renders; the text is cut there.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Why a template can't be loaded or a request can't be rendered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A file of the model folder can't be read.
    #[error("can't read {path}")]
    Read {
        /// Path of the file.
        path: String,
        /// What the file system says.
        #[source]
        source: std::io::Error,
    },
    /// `tokenizer_config.json` is not JSON.
    #[error("can't parse tokenizer_config.json")]
    Config(#[source] serde_json::Error),
    /// The model has no chat template.
    #[error("the model has no chat template")]
    Absent,
    /// The template's syntax is wrong, or it raised an error.
    #[error("can't render the chat template")]
    Render(#[source] minijinja::Error),
    /// A message has no `role`, or content other than text.
    #[error("message {position} is not supported: {reason}")]
    Message {
        /// Position in `messages`, from 0.
        position: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The part of a chat request that decides its prompt text.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ChatInput {
    /// Messages in order.
    pub messages: Vec<Json>,
    /// Tools, or `None`.
    pub tools: Option<Vec<Json>>,
    /// Documents for templates that take them.
    pub documents: Option<Json>,
    /// Free variables for the template.
    pub chat_template_kwargs: Option<Map<String, Json>>,
    /// Whether the template opens an assistant message; `None` is true.
    pub add_generation_prompt: Option<bool>,
    /// Whether the last message is left open.
    pub continue_final_message: Option<bool>,
    /// Effort, passed to the template.
    pub reasoning_effort: Option<String>,
}

/// A loaded chat template with the model's special tokens.
#[derive(Debug)]
pub struct Template {
    source: String,
    environment: Environment<'static>,
    special_tokens: Map<String, Json>,
    content_format: ContentFormat,
    names_developer: bool,
}

impl Template {
    /// Loads the template and special tokens of a model folder.
    ///
    /// # Errors
    /// [`TemplateError::Read`], [`TemplateError::Config`], [`TemplateError::Absent`], or [`TemplateError::Render`] for a syntax error.
    pub fn from_model_dir(folder: &Path) -> Result<Self, TemplateError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|source| TemplateError::Read {
                path: path.display().to_string(),
                source,
            })
        };
        let config: Map<String, Json> =
            serde_json::from_str(&read("tokenizer_config.json")?).map_err(TemplateError::Config)?;
        let source = match config.get("chat_template").and_then(Json::as_str) {
            _ if folder.join("chat_template.jinja").exists() => read("chat_template.jinja")?,
            Some(source) => source.to_owned(),
            None => return Err(TemplateError::Absent),
        };
        Self::try_new(&source, special_tokens(&config))
    }

    /// Compiles a template; `special_tokens` become its variables.
    ///
    /// # Errors
    /// [`TemplateError::Render`] for a syntax error.
    pub fn try_new(source: &str, special_tokens: Map<String, Json>) -> Result<Self, TemplateError> {
        let mut environment = python_like();
        environment
            .add_template_owned(TEMPLATE, source.to_owned())
            .map_err(TemplateError::Render)?;
        Ok(Self {
            source: source.to_owned(),
            environment,
            special_tokens,
            content_format: ContentFormat::of_template(source),
            names_developer: source.contains("developer"),
        })
    }

    /// Gives the template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Gives the prompt text of a chat request.
    ///
    /// # Errors
    /// [`TemplateError::Message`] for content that isn't text, [`TemplateError::Render`] for what the template refuses.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let mut messages = messages::normalize(&input.messages, self.content_format)?;
        if !self.names_developer {
            messages::fold_developer(&mut messages, self.content_format);
        }
        let continues = input.continue_final_message.unwrap_or(false);
        if continues {
            messages::append_to_last(&mut messages, CONTINUE_TAG);
        }
        let mut variables = self.special_tokens.clone();
        variables.extend(input.chat_template_kwargs.clone().unwrap_or_default());
        if let Some(effort) = &input.reasoning_effort {
            variables
                .entry("enable_thinking")
                .or_insert(Json::Bool(effort != "none"));
            variables.insert("reasoning_effort".to_owned(), Json::String(effort.clone()));
        }
        let text = self.render_with(&context! {
            messages => value(messages),
            tools => input.tools.as_deref().map(messages::tools).map(value),
            documents => input.documents.as_ref().map(value),
            add_generation_prompt => input.add_generation_prompt.unwrap_or(true),
            ..value(variables)
        })?;
        Ok(if continues { cut_at_tag(text) } else { text })
    }

    fn render_with(&self, variables: &Value) -> Result<String, TemplateError> {
        self.environment
            .get_template(TEMPLATE)
            .and_then(|template| template.render(variables))
            .map_err(TemplateError::Render)
    }
}

fn value(content: impl serde::Serialize) -> Value {
    Value::from(Serde(content))
}

/// Cuts at the tag; where the template trimmed the tag's space, it trims its text too.
fn cut_at_tag(mut text: String) -> String {
    if let Some(at) = text.rfind(CONTINUE_TAG.trim_end()) {
        let is_trimmed = !text
            .get(at..)
            .is_some_and(|rest| rest.starts_with(CONTINUE_TAG));
        text.truncate(at);
        if is_trimmed {
            text.truncate(text.trim_end().len());
        }
    }
    text
}

/// Collects `bos_token`, `eos_token` and the like; each is a string or an object with `content`.
fn special_tokens(config: &Map<String, Json>) -> Map<String, Json> {
    let text = |value: &Json| match value {
        Json::String(text) => Some(text.clone()),
        Json::Object(fields) => fields
            .get("content")
            .and_then(Json::as_str)
            .map(str::to_owned),
        _ => None,
    };
    config
        .iter()
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, value)| Some((name.clone(), Json::String(text(value)?))))
        .collect()
}

/// Sets minijinja up to behave as the jinja2 environment of transformers.
fn python_like() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
    {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(python::call_method);
    environment.add_filter("trim", |text: &str| python::strip(text, None).to_owned());
    environment.add_filter("tojson", |value: &Value, options: Kwargs| {
        python::to_json(value, &options)
    });
    environment.add_function(
        "raise_exception",
        |message: &str| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(
                ErrorKind::InvalidOperation,
                message.to_owned(),
            ))
        },
    );
    environment.add_function("strftime_now", |format: &str| {
        python::strftime(std::time::SystemTime::now(), format)
    });
    environment
}

#[cfg(test)]
mod tests;
