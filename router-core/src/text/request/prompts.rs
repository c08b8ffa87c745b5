//! Prompts that need no template: text and token ids.

use std::borrow::Cow;

use super::fields::Fields;
use super::scalar::{count, flag, is_set, token_ids};
use super::{Input, chat};
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// A prompt that needs no template.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::text) enum Given<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Token ids.
    Tokens {
        /// Up to the first that stands for media.
        ids: Vec<u32>,
        /// Whether more follow that don't stand for text.
        truncated: bool,
    },
}

impl Given<'_> {
    fn tokens(items: &[Json<'_>]) -> Result<Self, Unscorable> {
        Ok(Self::Tokens {
            ids: token_ids(items)?,
            truncated: false,
        })
    }
}

/// Reads a completion.
pub(super) fn completions(fields: Fields<'_>) -> Result<Input<'_>, Unscorable> {
    if fields.prompt_embeds != Json::Null {
        return Err(Unscorable::Embeddings);
    }
    // Only renderers with code of their own know where a suffix goes.
    if fields.suffix != Json::Null {
        return Err(Unscorable::Api);
    }
    Ok(Input::Given {
        prompts: read(fields.prompt)?,
        add_special_tokens: flag(&fields.add_special_tokens, true)?,
    })
}

/// Reads an embeddings request: a chat, in `messages` or `input`, or prompts.
pub(super) fn embeddings(mut fields: Fields<'_>) -> Result<Input<'_>, Unscorable> {
    if fields.messages == Json::Null && is_chat(&fields.input) {
        fields.messages = fields.input.take();
    }
    match (&fields.messages, &fields.input) {
        (Json::Null, _) => Ok(Input::Given {
            prompts: read(fields.input)?,
            add_special_tokens: flag(&fields.add_special_tokens, true)?,
        }),
        // Several conversations.
        (Json::Array(items), Json::Null) if matches!(items.first(), Some(Json::Array(_))) => {
            Err(Unscorable::Batch)
        }
        (_, Json::Null) => chat::embeddings(fields).map(Input::from),
        _ => Err(Unscorable::Invalid),
    }
}

/// Whether a list is one of messages: objects with a role.
fn is_chat(json: &Json<'_>) -> bool {
    let is_message = |item: &Json<'_>| item.get("role").is_some_and(|role| role.as_str().is_some());
    matches!(json, Json::Array(items) if !items.is_empty() && items.iter().all(is_message))
}

/// Reads token ids with sampling parameters.
pub(super) fn generate<'a>(fields: &Fields<'a>) -> Result<Input<'a>, Unscorable> {
    let sampling = &fields.sampling_params;
    let reads_cache = match sampling.get("skip_reading_prefix_cache") {
        Some(skips) => !is_set(skips),
        None => {
            sampling.get("prompt_logprobs").is_none()
                && sampling.get("prompt_logprob_token_ids").is_none()
        }
    };
    if !reads_cache {
        return Err(Unscorable::NoCacheRead);
    }
    if matches!(&fields.content_parts, Json::Array(parts) if !parts.is_empty()) {
        // The engine itself puts the media in.
        return Err(Unscorable::Media);
    }
    let Json::Array(items) = &fields.token_ids else {
        return Err(Unscorable::Invalid);
    };
    let media = first_media(&fields.features)?;
    let text = items.get(..media.unwrap_or(items.len())).unwrap_or(items);
    if text.is_empty() {
        return Err(Unscorable::Media);
    }
    Ok(Input::Given {
        prompts: vec![Given::Tokens {
            ids: token_ids(text)?,
            truncated: media.is_some(),
        }],
        add_special_tokens: false,
    })
}

/// Offset of the first token that stands for media.
fn first_media(features: &Json<'_>) -> Result<Option<usize>, Unscorable> {
    let Some(Json::Object(modalities)) = features.get("mm_placeholders") else {
        return match features {
            Json::Null => Ok(None),
            _ => Err(Unscorable::Invalid),
        };
    };
    let mut first = None;
    for (_, ranges) in modalities {
        let Json::Array(ranges) = ranges else {
            return Err(Unscorable::Invalid);
        };
        for range in ranges {
            let offset = range.get("offset").and_then(count);
            let offset = offset.and_then(|offset| usize::try_from(offset).ok());
            let offset = offset.ok_or(Unscorable::Invalid)?;
            first = Some(first.map_or(offset, |first: usize| first.min(offset)));
        }
    }
    Ok(first)
}

/// Reads one prompt or a list of them.
fn read(prompt: Json<'_>) -> Result<Vec<Given<'_>>, Unscorable> {
    match prompt {
        Json::String(text) => Ok(vec![Given::Text(text)]),
        Json::Array(items) if matches!(items.first(), Some(Json::Number(_))) => {
            Ok(vec![Given::tokens(&items)?])
        }
        Json::Array(items) if !items.is_empty() => items
            .into_iter()
            .map(|item| match item {
                Json::String(text) => Ok(Given::Text(text)),
                Json::Array(ids) => Given::tokens(&ids),
                _ => Err(Unscorable::Invalid),
            })
            .collect(),
        _ => Err(Unscorable::Invalid),
    }
}
