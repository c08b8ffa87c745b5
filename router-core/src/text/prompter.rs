//! From requests to prompts.

use minijinja::Value;

use super::canonical::Canonicaliser;
use super::error::{ProfileError, Unscorable};
use super::json::Json;
use super::messages::{self, CONTINUE_TAG, Conversation, MEDIA_TAG, Preparation};
use super::profile::PromptProfile;
use super::python::strip;
use super::request::{Chat, Given, Input, Request};
use super::strftime::LocalTime;
use super::template::ChatTemplate;
use super::tools;
use super::value::{Variables, from_json};
use crate::hash::Space;

/// A prompt in the form that chunk hashes are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What [`Prompt::text`] holds.
    pub space: Space,
    /// Canonical text, or token ids as u32 LE.
    pub text: Vec<u8>,
    /// Whether more follows in the engine's prompt that isn't text, from the first media item on.
    pub truncated: bool,
    /// The prompt text before canonicalisation; only from a prompter that keeps it, and not for token ids.
    pub rendered: Option<String>,
}

/// A compiled profile.
#[derive(Debug)]
pub struct Prompter {
    template: Option<ChatTemplate>,
    tool_template: Option<ChatTemplate>,
    special_tokens: Vec<(Box<str>, Value)>,
    default_kwargs: Vec<(Box<str>, Value)>,
    exclude_tools: bool,
    canonicaliser: Canonicaliser,
    surrounding: [String; 2],
    keeps_rendered: bool,
}

/// Names that a template can't be given: the engine refuses some and its template environment hides the others.
const REFUSED_KWARGS: [&str; 5] = [
    "messages",
    "conversation",
    "chat_template",
    "tokenize",
    "return_dict",
];
const HIDDEN_KWARGS: [&str; 8] = [
    "range",
    "dict",
    "lipsum",
    "cycler",
    "joiner",
    "namespace",
    "raise_exception",
    "strftime_now",
];

impl Prompter {
    /// Compiles a profile.
    ///
    /// # Errors
    ///
    /// A template or the default arguments can't be read.
    pub fn try_new(profile: PromptProfile) -> Result<Self, ProfileError> {
        let compile = |template: Option<super::Template>| {
            template
                .map(|template| {
                    ChatTemplate::compile(&template.source, Some(template.content_format))
                })
                .transpose()
        };
        let default_kwargs = match profile.default_kwargs.as_deref().map(Json::parse) {
            None => Vec::new(),
            Some(Ok((Json::Object(entries), _))) => entries
                .iter()
                .map(|(name, value)| (name.as_ref().into(), from_json(value)))
                .collect(),
            Some(_) => return Err(ProfileError::DefaultKwargs),
        };
        Ok(Self {
            template: compile(profile.template)?,
            tool_template: compile(profile.tool_template)?,
            special_tokens: profile
                .special_tokens
                .into_iter()
                .map(|(name, literal)| (name.into(), Value::from(literal)))
                .collect(),
            default_kwargs,
            exclude_tools: profile.exclude_tools_when_tool_choice_none,
            canonicaliser: Canonicaliser::compile(profile.canonicalisation)?,
            surrounding: profile.surrounding,
            keeps_rendered: false,
        })
    }

    /// Makes [`Prompt::rendered`] available, at the cost of a copy of each prompt.
    #[must_use]
    pub fn keep_rendered(mut self) -> Self {
        self.keeps_rendered = true;
        self
    }

    /// The prompt of a request that holds one.
    ///
    /// `now` is what a template sees that prints the date.
    ///
    /// # Errors
    ///
    /// Why the request has no prompt text.
    pub fn prompt(&self, request: &Request<'_>, now: LocalTime) -> Result<Prompt, Unscorable> {
        match request.input.as_ref().map_err(|&reason| reason)? {
            Input::Chat(chat) => self.chat(chat, now),
            Input::Completions {
                prompts,
                add_special_tokens,
            } => match prompts.as_slice() {
                [prompt] => Ok(self.given(prompt, *add_special_tokens)),
                _ => Err(Unscorable::Batch),
            },
        }
    }

    /// The prompts of a request, one for each sequence that the engine reads, in order; at least one.
    ///
    /// # Errors
    ///
    /// Why the request has no prompt text.
    pub fn prompts(
        &self,
        request: &Request<'_>,
        now: LocalTime,
    ) -> Result<Vec<Prompt>, Unscorable> {
        match request.input.as_ref().map_err(|&reason| reason)? {
            Input::Chat(chat) => Ok(vec![self.chat(chat, now)?]),
            Input::Completions {
                prompts,
                add_special_tokens,
            } => Ok(prompts
                .iter()
                .map(|prompt| self.given(prompt, *add_special_tokens))
                .collect()),
        }
    }

    fn given(&self, prompt: &Given<'_>, add_special_tokens: bool) -> Prompt {
        match prompt {
            Given::Text(text) => self.finish(text.as_bytes().to_vec(), add_special_tokens, false),
            Given::Tokens(ids) => Prompt {
                space: Space::Token,
                text: ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
                truncated: false,
                rendered: None,
            },
        }
    }

    fn chat(&self, chat: &Chat<'_>, now: LocalTime) -> Result<Prompt, Unscorable> {
        let hidden = self.exclude_tools && chat.tool_choice_none;
        let tools = if hidden {
            None
        } else {
            tools::read(&chat.tools)?
        };
        let template = match &self.tool_template {
            Some(template) if tools.is_some() => template,
            _ => self.template.as_ref().ok_or(Unscorable::NoTemplate)?,
        };
        let how = Preparation {
            format: template.format(),
            knows_developer: template.knows_developer(),
            continue_final_message: chat.continue_final_message,
        };
        let Conversation {
            messages,
            media,
            content_bytes,
        } = messages::prepare(&chat.messages, how)?;
        let capacity = content_bytes + 64 * chat.messages.len() + 1024;
        let variables = self.variables(chat, messages, tools)?;
        let mut text = template.render(variables, now, capacity)?;
        if chat.continue_final_message {
            cut_at_continue_tag(&mut text)?;
        }
        if media {
            let at = memchr::memmem::find(&text, MEDIA_TAG.as_bytes()).ok_or(Unscorable::Media)?;
            if at == 0 {
                return Err(Unscorable::Media);
            }
            text.truncate(at);
        }
        Ok(self.finish(text, chat.add_special_tokens, media))
    }

    /// Everything the template sees.
    ///
    /// The engine drops arguments that the template doesn't read; giving it those too makes no difference.
    fn variables(
        &self,
        chat: &Chat<'_>,
        messages: Value,
        tools: Option<Value>,
    ) -> Result<Variables, Unscorable> {
        let mut variables = Variables(Vec::with_capacity(16));
        variables.0.extend(self.special_tokens.iter().cloned());
        variables.set("documents", Value::from(()));
        for (name, value) in &self.default_kwargs {
            variables.set(name, value.clone());
        }
        variables.set("tools", tools.unwrap_or_else(|| Value::from(())));
        if let Json::Object(entries) = &chat.kwargs {
            for (name, value) in entries {
                if REFUSED_KWARGS.contains(&name.as_ref()) {
                    return Err(Unscorable::Invalid);
                }
                // The engine takes null and "auto" for "not set".
                let unset = matches!(value, Json::Null) || value.as_str() == Some("auto");
                if !unset && !HIDDEN_KWARGS.contains(&name.as_ref()) {
                    variables.set(name, from_json(value));
                }
            }
        }
        if chat.documents != Json::Null {
            variables.set("documents", from_json(&chat.documents));
        }
        if let Some(effort) = chat.reasoning_effort.as_str() {
            variables.set("reasoning_effort", Value::from(effort));
            if !chat.kwargs.has("enable_thinking") {
                variables.set("enable_thinking", Value::from(effort != "none"));
            }
        }
        variables.set(
            "add_generation_prompt",
            Value::from(chat.add_generation_prompt),
        );
        variables.set("messages", messages);
        Ok(variables)
    }

    fn finish(&self, text: Vec<u8>, add_special_tokens: bool, truncated: bool) -> Prompt {
        let rendered = self
            .keeps_rendered
            .then(|| String::from_utf8_lossy(&text).into_owned());
        let mut text = self.canonicaliser.apply(text);
        if add_special_tokens {
            let [before, after] = &self.surrounding;
            text.splice(0..0, before.bytes());
            if !truncated {
                text.extend_from_slice(after.as_bytes());
            }
        }
        Prompt {
            space: Space::Text,
            text,
            truncated,
            rendered,
        }
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
