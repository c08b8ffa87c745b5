//! From requests to prompts.

use super::canonical::Canonicaliser;
use super::dialect::{self, Render, Rendered};
use super::error::{ProfileError, Unscorable};
use super::profile::PromptProfile;
use super::request::{Chat, Given, Input, Request};
use super::strftime::LocalTime;
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
    renderer: Box<dyn Render>,
    canonicaliser: Canonicaliser,
    surrounding: [String; 2],
    keeps_rendered: bool,
}

impl Prompter {
    /// Compiles a profile.
    ///
    /// # Errors
    ///
    /// A template or the default arguments can't be read.
    pub fn try_new(profile: PromptProfile) -> Result<Self, ProfileError> {
        Ok(Self {
            renderer: dialect::compile(&profile)?,
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
            Input::Given {
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
            Input::Given {
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
            Given::Tokens { ids, truncated } => Prompt {
                space: Space::Token,
                text: ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
                truncated: *truncated,
                rendered: None,
            },
        }
    }

    fn chat(&self, chat: &Chat<'_>, now: LocalTime) -> Result<Prompt, Unscorable> {
        let Rendered { text, truncated } = self.renderer.render(chat, now)?;
        Ok(self.finish(text, chat.add_special_tokens, truncated))
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
