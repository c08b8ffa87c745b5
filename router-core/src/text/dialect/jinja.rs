//! Chats through the model's chat template.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::{Render, Rendered};
use crate::text::datum::{Context, Datum};
use crate::text::error::{ProfileError, Unscorable};
use crate::text::json::Json;
use crate::text::messages::{self, CONTINUE_TAG, Conversation, FirstMedia, MEDIA_TAG, Preparation};
use crate::text::profile::{PromptProfile, Template};
use crate::text::python::strip;
use crate::text::request::Chat;
use crate::text::strftime::LocalTime;
use crate::text::template::{self, ChatTemplate};
use crate::text::tools;

/// Names that a template can't be given: the engine refuses the first, and sets the second itself or keeps them from the template.
const REFUSED_KWARGS: [&str; 3] = ["messages", "conversation", "chat_template"];
const HIDDEN_KWARGS: [&str; 10] = [
    "return_dict",
    "tokenize",
    "range",
    "dict",
    "lipsum",
    "cycler",
    "joiner",
    "namespace",
    "raise_exception",
    "strftime_now",
];

/// A compiled template with all that it sees besides the request.
#[derive(Debug)]
pub(super) struct Jinja {
    template: Option<ChatTemplate>,
    tool_template: Option<ChatTemplate>,
    special_tokens: Vec<(Box<str>, Box<str>)>,
    /// A JSON object.
    default_kwargs: Option<Box<str>>,
    exclude_tools: bool,
    /// Whether system messages of an Anthropic request are moved to the start.
    wants_system_first: bool,
    /// The effort of an Anthropic request that turns thinking off, once one has come.
    least_effort: OnceLock<&'static str>,
}

impl Jinja {
    pub(super) fn compile(profile: &PromptProfile) -> Result<Self, ProfileError> {
        let compile = |template: Option<&Template>| {
            template
                .map(|template| {
                    ChatTemplate::compile(&template.source, Some(template.content_format))
                })
                .transpose()
        };
        let default_kwargs = profile.default_kwargs.as_deref();
        if default_kwargs
            .is_some_and(|kwargs| !matches!(Json::parse(kwargs), Ok((Json::Object(_), _))))
        {
            return Err(ProfileError::DefaultKwargs);
        }
        Ok(Self {
            template: compile(profile.template.as_ref())?,
            tool_template: compile(profile.tool_template.as_ref())?,
            special_tokens: profile
                .special_tokens
                .iter()
                .map(|(name, literal)| (name.as_str().into(), literal.as_str().into()))
                .collect(),
            default_kwargs: default_kwargs.map(Into::into),
            exclude_tools: profile.exclude_tools_when_tool_choice_none,
            wants_system_first: [&profile.template, &profile.tool_template]
                .into_iter()
                .flatten()
                .any(|template| template::wants_system_first(&template.source)),
            least_effort: OnceLock::new(),
        })
    }

    /// The effort that turns thinking off: `none`, unless the template fails on that or takes it for another one.
    fn least_effort(&self, now: LocalTime) -> &'static str {
        self.least_effort.get_or_init(|| {
            let render = |effort: &'static str| {
                let text = |text: &'static str| Json::String(text.into());
                let message = vec![
                    ("role".into(), text("user")),
                    ("content".into(), text("Hi")),
                ];
                let chat = Chat {
                    reasoning_effort: text(effort),
                    ..Chat::new(vec![Json::Object(message)])
                };
                self.render(&chat, now).ok().map(|rendered| rendered.text)
            };
            let Some(none) = render("none") else {
                return "low";
            };
            let is_other = |effort| render(effort).as_ref() != Some(&none);
            if ["low", "medium", "high", "xhigh", "max"]
                .into_iter()
                .all(is_other)
            {
                "none"
            } else {
                "low"
            }
        })
    }

    /// The one system message of an Anthropic request, where it has others than the first and the template doesn't take them.
    fn merged_system<'a>(&self, chat: &Chat<'a>) -> Option<Json<'a>> {
        if !chat.is_anthropic
            || !self.wants_system_first
            || !chat.messages.iter().skip(1).any(is_system)
        {
            return None;
        }
        let texts: String = chat
            .messages
            .iter()
            .filter(|message| is_system(message))
            .filter_map(|message| message.get("content")?.as_str())
            .collect();
        let text = |text: Cow<'static, str>| Json::String(text);
        let entries = vec![
            ("role".into(), text("system".into())),
            ("content".into(), text(texts.into())),
        ];
        Some(Json::Object(entries))
    }

    /// Everything the template sees.
    ///
    /// Arguments that the template doesn't read are dropped, as the engine does: a request may have any number of them.
    fn context<'a>(
        &'a self,
        template: &ChatTemplate,
        chat: &'a Chat<'a>,
        defaults: &'a Json<'a>,
        messages: Datum<'a>,
        tools: Option<Datum<'a>>,
        now: LocalTime,
    ) -> Result<Context<'a>, Unscorable> {
        let mut context = Context(Vec::with_capacity(16));
        for (name, literal) in &self.special_tokens {
            context.set(name, Datum::text(literal));
        }
        context.set("documents", Datum::None);
        context.set("tools", Datum::None);
        if let (true, Json::Object(defaults)) = (chat.takes_default_kwargs, defaults) {
            for (name, value) in defaults {
                context.set(name, Datum::from_json(value));
            }
        }
        if let Some(tools) = tools {
            context.set("tools", tools);
        }
        if let Json::Object(entries) = &chat.kwargs {
            for (name, value) in entries {
                // The engine takes null and "auto" for "not set".
                if matches!(value, Json::Null) || value.as_str() == Some("auto") {
                    continue;
                }
                let tokenizes = name == "tokenize" && *value != Json::Bool(false);
                if tokenizes || REFUSED_KWARGS.contains(&name.as_ref()) {
                    return Err(Unscorable::Invalid);
                }
                if template.reads(name) && !HIDDEN_KWARGS.contains(&name.as_ref()) {
                    context.set(name, Datum::from_json(value));
                }
            }
        }
        if chat.documents != Json::Null {
            context.set("documents", Datum::from_json(&chat.documents));
        }
        if let Some(effort) = chat.reasoning_effort.as_str() {
            let effort = if chat.is_anthropic && effort == "none" {
                self.least_effort(now)
            } else {
                effort
            };
            context.set("reasoning_effort", Datum::text(effort));
            if !chat.kwargs.has("enable_thinking") {
                context.set("enable_thinking", Datum::Bool(effort != "none"));
            }
        }
        context.set(
            "add_generation_prompt",
            Datum::Bool(chat.add_generation_prompt),
        );
        context.set("messages", messages);
        Ok(context)
    }

    /// Renders a chat whose messages are prepared in one way; also whether there is media.
    fn render_prepared(
        &self,
        template: &ChatTemplate,
        chat: &Chat<'_>,
        how: Preparation,
        tools: Option<Datum<'_>>,
        now: LocalTime,
    ) -> Result<(Vec<u8>, bool), Unscorable> {
        let merged = self.merged_system(chat);
        let Conversation {
            messages,
            media,
            content_bytes,
        } = match &merged {
            None => messages::prepare(chat.messages.iter(), how)?,
            Some(merged) => {
                let others = chat.messages.iter().filter(|message| !is_system(message));
                messages::prepare(core::iter::once(merged).chain(others), how)?
            }
        };
        let defaults = match self.default_kwargs.as_deref().map(Json::parse) {
            Some(Ok((defaults, _))) => defaults,
            _ => Json::Null,
        };
        let capacity = content_bytes + 64 * chat.messages.len() + 1024;
        let context = self.context(template, chat, &defaults, messages, tools, now)?;
        let mut text = template.render(&context, now, capacity)?;
        if chat.continue_final_message {
            cut_at_continue_tag(&mut text)?;
        }
        Ok((text, media))
    }
}

fn is_system(message: &Json<'_>) -> bool {
    message.get("role").and_then(Json::as_str) == Some("system")
}

impl Render for Jinja {
    fn render(&self, chat: &Chat<'_>, now: LocalTime) -> Result<Rendered, Unscorable> {
        let hidden = self.exclude_tools && chat.tool_choice_none;
        let tools = if hidden {
            None
        } else {
            tools::read(&chat.tools)?
        };
        let has_tools = tools.is_some() || chat.kwargs.get("tools").is_some();
        let template = match &self.tool_template {
            Some(template) if has_tools => template,
            _ => self.template.as_ref().ok_or(Unscorable::NoTemplate)?,
        };
        let render = |first_media| {
            let how = Preparation {
                format: template.format(),
                knows_developer: template.knows_developer(),
                continue_final_message: chat.continue_final_message,
                first_media,
                is_validated: chat.is_validated,
            };
            self.render_prepared(template, chat, how, tools.clone(), now)
        };
        let (mut text, truncated) = render(FirstMedia::Mark)?;
        if truncated {
            // What stands for media in the engine's text is not known where it is put into strings, and what a template makes of it
            // may stand anywhere. So the text counts as far as it is the same with a mark in place of the first media item, and up
            // to that mark.
            let (plain, _) = render(FirstMedia::Item)?;
            let mark =
                memchr::memmem::find(&text, MEDIA_TAG.as_bytes()).ok_or(Unscorable::Media)?;
            text.truncate(mark);
            text.truncate(common_start(&text, &plain));
            if text.is_empty() {
                return Err(Unscorable::Media);
            }
        }
        Ok(Rendered { text, truncated })
    }
}

/// Length of the start that two texts share, whole characters and numbers only: the first digits of two lengths may be the same.
fn common_start(a: &[u8], b: &[u8]) -> usize {
    let mut end = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    while a.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    match a.split_at_checked(end) {
        Some((kept, [_, ..])) => {
            let digits = kept.iter().rev().take_while(|byte| byte.is_ascii_digit());
            end - digits.count()
        }
        _ => end,
    }
}

/// Ends the text where the final message is to be continued. A template that trims the message has taken the space after the tag's
/// word away; then the space before it goes too.
fn cut_at_continue_tag(text: &mut Vec<u8>) -> Result<(), Unscorable> {
    let word = CONTINUE_TAG.trim_end();
    let at = memchr::memmem::rfind(text, word.as_bytes()).ok_or(Unscorable::Template)?;
    let kept = text
        .get(at..)
        .is_some_and(|tail| tail.starts_with(CONTINUE_TAG.as_bytes()));
    text.truncate(at);
    if !kept {
        let view = core::str::from_utf8(text).map_err(|_| Unscorable::Template)?;
        let len = strip(view, None, false, true).len();
        text.truncate(len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::profile::ModelFiles;

    #[test]
    fn arguments_that_nobody_reads_are_dropped() {
        let profile = PromptProfile::from_model_files(&ModelFiles {
            tokenizer_json: r#"{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#,
            tokenizer_config_json: "{}",
            chat_template: Some(
                "{% for m in messages %}{% if k7 %}{{ k8 }}{% endif %}{% endfor %}",
            ),
        });
        let jinja = Jinja::compile(&profile.unwrap()).unwrap();
        let kwargs = (0..1000).map(|i| (format!("k{i}").into(), Json::Bool(true)));
        let chat = Chat {
            kwargs: Json::Object(kwargs.collect()),
            ..Chat::new(Vec::new())
        };
        let context = jinja
            .context(
                jinja.template.as_ref().unwrap(),
                &chat,
                &Json::Null,
                Datum::None,
                None,
                LocalTime::from_unix(0, 0),
            )
            .unwrap();
        let names: Vec<&str> = context.0.iter().map(|(name, _)| *name).collect();
        assert!(names.len() < 10 && names.contains(&"k7") && names.contains(&"k8"));
    }
}
