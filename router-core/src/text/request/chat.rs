//! Chats: what a chat template sees.

use super::fields::Fields;
use super::scalar::flag;
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// What a chat template sees of a request; [`Json::Null`] where absent.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the API has these flags")]
pub(in crate::text) struct Chat<'a> {
    /// In the form of `/v1/chat/completions`, whatever the request's own form.
    pub(in crate::text) messages: Vec<Json<'a>>,
    /// Null, or a list in the same form.
    pub(in crate::text) tools: Json<'a>,
    pub(in crate::text) tool_choice_none: bool,
    pub(in crate::text) documents: Json<'a>,
    pub(in crate::text) kwargs: Json<'a>,
    pub(in crate::text) reasoning_effort: Json<'a>,
    pub(in crate::text) add_generation_prompt: bool,
    pub(in crate::text) continue_final_message: bool,
    pub(in crate::text) add_special_tokens: bool,
    /// Whether the server's default template arguments count.
    pub(in crate::text) takes_default_kwargs: bool,
    /// Whether the messages go through the engine's validation of chat messages, which orders the keys of tool calls and knows the
    /// older name of reasoning.
    pub(in crate::text) is_validated: bool,
    /// Whether this was an Anthropic request, for which the engine asks the template two things: whether it takes system messages in
    /// the middle (else they are moved to the start) and whether the effort `none` changes anything (else it becomes `low`).
    pub(in crate::text) is_anthropic: bool,
}

impl<'a> Chat<'a> {
    /// A chat that only has messages, with what is usual else.
    pub(in crate::text) fn new(messages: Vec<Json<'a>>) -> Self {
        Self {
            messages,
            tools: Json::Null,
            tool_choice_none: false,
            documents: Json::Null,
            kwargs: Json::Null,
            reasoning_effort: Json::Null,
            add_generation_prompt: true,
            continue_final_message: false,
            add_special_tokens: false,
            takes_default_kwargs: true,
            is_validated: true,
            is_anthropic: false,
        }
    }

    /// Takes over the request's own template arguments, unless it brings a template.
    pub(in crate::text) fn with_kwargs(mut self, kwargs: Json<'a>) -> Result<Self, Unscorable> {
        if kwargs.get("chat_template").is_some() {
            return Err(Unscorable::RequestTemplate);
        }
        if !matches!(kwargs, Json::Null | Json::Object(_)) {
            return Err(Unscorable::Invalid);
        }
        self.kwargs = kwargs;
        Ok(self)
    }
}

/// Reads a chat completion.
pub(super) fn read(fields: Fields<'_>) -> Result<Chat<'_>, Unscorable> {
    if matches!(&fields.tools, Json::Array(tools) if tools.is_empty()) {
        return Err(Unscorable::Invalid);
    }
    if !matches!(fields.documents, Json::Null | Json::Array(_)) {
        return Err(Unscorable::Invalid);
    }
    check_forwarded(&fields.kv_transfer_params, &fields.messages)?;
    let chat = Chat {
        tools: fields.tools,
        tool_choice_none: fields.tool_choice.as_str() == Some("none"),
        documents: fields.documents,
        reasoning_effort: fields.reasoning_effort,
        add_generation_prompt: flag(&fields.add_generation_prompt, true)?,
        continue_final_message: flag(&fields.continue_final_message, false)?,
        add_special_tokens: flag(&fields.add_special_tokens, false)?,
        ..own_template(
            fields.messages,
            &fields.chat_template,
            fields.chat_template_kwargs,
        )?
    };
    check_end(chat)
}

/// Reads the messages of an embeddings request. No tools, no default template arguments, and the end stays as it is.
pub(super) fn embeddings(fields: Fields<'_>) -> Result<Chat<'_>, Unscorable> {
    let chat = Chat {
        add_generation_prompt: flag(&fields.add_generation_prompt, false)?,
        continue_final_message: flag(&fields.continue_final_message, false)?,
        add_special_tokens: flag(&fields.add_special_tokens, false)?,
        takes_default_kwargs: false,
        ..own_template(
            fields.messages,
            &fields.chat_template,
            fields.chat_template_kwargs,
        )?
    };
    check_end(chat)
}

fn own_template<'a>(
    messages: Json<'a>,
    template: &Json<'a>,
    kwargs: Json<'a>,
) -> Result<Chat<'a>, Unscorable> {
    let Json::Array(messages) = messages else {
        return Err(Unscorable::Invalid);
    };
    if *template != Json::Null {
        return Err(Unscorable::RequestTemplate);
    }
    Chat::new(messages).with_kwargs(kwargs)
}

/// A message can't be both continued and followed by the start of another.
fn check_end(chat: Chat<'_>) -> Result<Chat<'_>, Unscorable> {
    if chat.continue_final_message && chat.add_generation_prompt {
        return Err(Unscorable::Invalid);
    }
    Ok(chat)
}

/// Makes sure that no token ids of an earlier prefill take the place of the messages. Engines leave them alone where there is media.
pub(in crate::text) fn check_forwarded(
    transfer: &Json<'_>,
    messages: &Json<'_>,
) -> Result<(), Unscorable> {
    let messages = match messages {
        Json::Array(messages) => messages.as_slice(),
        _ => &[],
    };
    if transfer.get("prompt_token_ids").is_some() && !messages.iter().any(has_media) {
        return Err(Unscorable::ForwardedTokens);
    }
    Ok(())
}

/// Content part types that hold text.
const TEXT_KINDS: [&str; 6] = [
    "text",
    "input_text",
    "output_text",
    "refusal",
    "thinking",
    "tool_reference",
];

/// Fields that make a content part media, whatever its type.
const MEDIA_KEYS: [&str; 10] = [
    "image_url",
    "image_pil",
    "image_embeds",
    "input_image",
    "input_audio",
    "audio_url",
    "audio_embeds",
    "video_url",
    "video_embeds",
    "prompt_embeds",
];

fn has_media(message: &Json<'_>) -> bool {
    let is_media = |part: &Json<'_>| {
        let is_text = match part.get("type") {
            None => !part.has("type"),
            Some(kind) => kind.as_str().is_some_and(|kind| TEXT_KINDS.contains(&kind)),
        };
        matches!(part, Json::Object(_)) && (!is_text || MEDIA_KEYS.iter().any(|key| part.has(key)))
    };
    matches!(message.get("content"), Some(Json::Array(parts)) if parts.iter().any(is_media))
}
