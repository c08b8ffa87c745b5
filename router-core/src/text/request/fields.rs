//! The top-level fields of a body.

use super::chat::{self, Chat};
use super::load;
use super::scalar::{count, is_set};
use super::{Input, Request, prompts};
use crate::text::api::Api;
use crate::text::error::{BodyError, Unscorable};
use crate::text::json::{Flaws, Json};
use crate::text::translate;

/// Declares the top-level fields that are read, and which APIs read them.
macro_rules! fields {
    ($($field:ident: $apis:pat,)*) => {
        /// Values of the fields that are read; [`Json::Null`] where absent.
        #[derive(Debug)]
        pub(in crate::text) struct Fields<'a> {
            $(pub(in crate::text) $field: Json<'a>,)*
        }

        impl Default for Fields<'_> {
            fn default() -> Self {
                Self { $($field: Json::Null,)* }
            }
        }

        impl<'a> Fields<'a> {
            /// Where the value of `key` goes, if `api` reads it.
            pub(super) fn slot(&mut self, api: Api, key: &str) -> Option<&mut Json<'a>> {
                $(if key == stringify!($field) && matches!(api, $apis) {
                    return Some(&mut self.$field);
                })*
                None
            }
        }
    };
}

fields! {
    messages: Api::Chat | Api::Messages | Api::Embeddings | Api::ChatBatch,
    model: _,
    stream: _,
    cache_salt: _,
    max_tokens: Api::Chat | Api::Completions | Api::Messages,
    max_completion_tokens: Api::Chat,
    max_output_tokens: Api::Responses,
    n: Api::Chat | Api::Completions,
    system: Api::Messages,
    tools: Api::Chat | Api::Messages | Api::Responses,
    tool_choice: Api::Chat | Api::Messages | Api::Responses,
    chat_template_kwargs: Api::Chat | Api::Messages | Api::Responses | Api::Embeddings,
    chat_template: Api::Chat | Api::Embeddings,
    reasoning_effort: Api::Chat,
    add_generation_prompt: Api::Chat | Api::Embeddings,
    continue_final_message: Api::Chat | Api::Embeddings,
    kv_transfer_params: Api::Chat | Api::Messages | Api::Responses,
    echo: Api::Chat | Api::Completions,
    logprobs: Api::Completions,
    prompt_logprobs: Api::Chat | Api::Completions,
    truncate_prompt_tokens: Api::Chat | Api::Completions | Api::Embeddings,
    add_special_tokens: Api::Chat | Api::Completions | Api::Embeddings,
    prompt: Api::Completions | Api::Responses,
    prompt_embeds: Api::Completions,
    suffix: Api::Completions,
    input: Api::Responses | Api::Embeddings | Api::Pooling,
    instructions: Api::Responses,
    reasoning: Api::Responses,
    previous_response_id: Api::Responses,
    thinking: Api::Messages,
    output_config: Api::Messages,
    token_ids: Api::Generate,
    features: Api::Generate,
    content_parts: Api::Generate,
    sampling_params: Api::Generate,
    documents: Api::Chat | Api::Score | Api::Rerank,
    items: Api::Score,
    text_2: Api::Score,
    data_2: Api::Score,
}

impl<'a> Fields<'a> {
    pub(super) fn finish(
        mut self,
        api: Api,
        flaws: Flaws,
        prefill_bytes: u64,
    ) -> Result<Request<'a>, BodyError> {
        let model = match self.model.take() {
            Json::Null => None,
            Json::String(model) => Some(model),
            _ => return Err(BodyError::ModelType),
        };
        let (cache_salt, salt_fits) = match self.cache_salt.take() {
            Json::Null => (None, true),
            Json::String(salt) => (Some(salt), true),
            _ => (None, false),
        };
        let stream = is_set(&self.stream);
        let max_tokens = self.max_tokens();
        let load_units = load::units(api, &self);
        let input = if salt_fits {
            flaws.check().and_then(|()| self.input(api))
        } else {
            Err(Unscorable::Invalid)
        };
        Ok(Request {
            api,
            model,
            stream,
            cache_salt,
            user: None,
            max_tokens,
            load_units,
            prefill_bytes,
            input,
        })
    }

    fn max_tokens(&self) -> Option<u64> {
        let sampling = self.sampling_params.get("max_tokens");
        [
            &self.max_completion_tokens,
            &self.max_tokens,
            &self.max_output_tokens,
        ]
        .into_iter()
        .chain(sampling)
        .find_map(count)
    }

    /// Bytes of the media that is given inline.
    pub(super) fn media_bytes(&self) -> usize {
        [
            &self.messages,
            &self.input,
            &self.features,
            &self.content_parts,
        ]
        .into_iter()
        .map(load::media_bytes)
        .sum()
    }

    fn input(self, api: Api) -> Result<Input<'a>, Unscorable> {
        self.check_cache_read(api)?;
        // -1 cuts only what the engine would refuse otherwise.
        if !matches!(self.truncate_prompt_tokens, Json::Null | Json::Number("-1")) {
            return Err(Unscorable::Truncation);
        }
        let chat = match api {
            Api::Chat => chat::read(self)?,
            Api::Messages => translate::messages(self)?,
            Api::Responses => translate::responses(self)?,
            Api::Completions => return prompts::completions(self),
            Api::Embeddings => return prompts::embeddings(self),
            Api::Generate => return prompts::generate(&self),
            _ => return Err(Unscorable::Api),
        };
        Ok(Input::Chat(Box::new(chat)))
    }

    /// Makes sure that the engine will look the prompt up in its cache. It doesn't where it has to give log probabilities of the
    /// prompt.
    fn check_cache_read(&self, api: Api) -> Result<(), Unscorable> {
        let echoes = is_set(&self.echo) && (api == Api::Chat || self.logprobs != Json::Null);
        if echoes || self.prompt_logprobs != Json::Null {
            return Err(Unscorable::NoCacheRead);
        }
        Ok(())
    }
}

impl<'a> From<Chat<'a>> for Input<'a> {
    fn from(chat: Chat<'a>) -> Self {
        Self::Chat(Box::new(chat))
    }
}
