//! From chats to text: one implementation for each way in which engines do it.
//!
//! ```text
//!  Chat ─► Render::render ─► Rendered { text } ─► canonical text
//!            ├─ Jinja     the model's chat template, as the engine renders it
//!            └─ Outline   no engine's text: tells chats apart and keeps their prefixes, for models whose text is not known
//! ```
//!
//! Engines render some model families by code of their own instead of a template. Such a family gets a dialect by adding a file here
//! with its [`Render`], a name in [`Dialect`] and an arm in [`compile`].

mod jinja;
mod outline;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::error::{ProfileError, Unscorable};
use super::profile::PromptProfile;
use super::request::Chat;
use super::strftime::LocalTime;

/// How a model's chats become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The chat template.
    #[default]
    Jinja,
    /// A serialisation that no engine knows. Its text says which chats continue which, and nothing about token bytes: only what is
    /// known from decisions may be looked up with it.
    Outline,
}

impl Dialect {
    /// Whether this is the dialect of a profile that doesn't name one.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    pub(super) fn is_jinja(&self) -> bool {
        *self == Self::Jinja
    }

    /// Whether the text is the engine's, so that it may be compared with what the engine's tokens spell.
    pub fn is_engine_text(self) -> bool {
        self != Self::Outline
    }
}

/// Makes the text of chats.
///
/// A renderer knows one model. It gives exactly what the engine tokenizes or a reason why it can't: never a guess.
pub(super) trait Render: fmt::Debug + Send + Sync {
    /// The text of `chat`; `now` is what a template sees that prints the date.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn render(&self, chat: &Chat<'_>, now: LocalTime) -> Result<Rendered, Unscorable>;
}

/// A chat as text.
#[derive(Debug)]
pub(super) struct Rendered {
    /// UTF-8.
    pub(super) text: Vec<u8>,
    /// Whether more follows that isn't text, from the first media item on.
    pub(super) truncated: bool,
}

/// The renderer of a profile.
///
/// # Errors
///
/// A template or the default arguments can't be read.
pub(super) fn compile(profile: &PromptProfile) -> Result<Box<dyn Render>, ProfileError> {
    Ok(match profile.dialect {
        Dialect::Jinja => Box::new(jinja::Jinja::compile(profile)?),
        Dialect::Outline => Box::new(outline::Outline),
    })
}
