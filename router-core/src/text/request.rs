//! Reads a request body once, borrowing from it.

use std::borrow::Cow;

use super::api::{Api, BodyFormat};
use super::error::{BodyError, Unscorable};
use super::form;
use super::json::{Cursor, Flaws, Json};

/// Most units of load that one request books, whatever it claims.
pub const MAX_LOAD_UNITS: u32 = 1024;

/// UTF-8 byte order mark, which Python's reader passes over.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A request body, read as far as routing needs it.
///
/// `null` counts as absent, unknown fields are passed over, of a repeated field the last value counts.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The API the body was sent to.
    pub api: Api,
    /// The requested model or adapter.
    pub model: Option<Cow<'a, str>>,
    /// Whether the reply is streamed.
    pub stream: bool,
    /// Requests with different salts share no cache.
    pub cache_salt: Option<Cow<'a, str>>,
    /// Most tokens that may be generated per sequence.
    pub max_tokens: Option<u64>,
    /// Sequences that the engine will run: prompts times `n`, from 1 to [`MAX_LOAD_UNITS`].
    pub load_units: u32,
    /// Most bytes of the body that can become text of a prompt; nothing where the model isn't run or reads no text.
    pub prefill_bytes: u64,
    /// What the prompt is made from, or why there is none.
    pub(super) input: Result<Input<'a>, Unscorable>,
}

/// What a prompt is made from.
#[derive(Clone, Debug)]
pub(super) enum Input<'a> {
    /// Messages for a chat template.
    Chat(Box<Chat<'a>>),
    /// Finished prompts.
    Completions {
        /// One or more, in order.
        prompts: Vec<Given<'a>>,
        /// Whether the tokenizer adds its special tokens.
        add_special_tokens: bool,
    },
}

/// A prompt that needs no template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// The fields that a chat template sees; [`Json::Null`] where absent.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the API has these flags")]
pub(super) struct Chat<'a> {
    pub(super) messages: Vec<Json<'a>>,
    pub(super) tools: Json<'a>,
    pub(super) tool_choice_none: bool,
    pub(super) documents: Json<'a>,
    pub(super) kwargs: Json<'a>,
    pub(super) reasoning_effort: Json<'a>,
    pub(super) add_generation_prompt: bool,
    pub(super) continue_final_message: bool,
    pub(super) add_special_tokens: bool,
}

/// Reads `body`, sent to `api`.
///
/// A form is never an error: what can't be found in it is absent.
///
/// # Errors
///
/// The body is not UTF-8 or not a JSON object, or `model` is of the wrong type. Other fields of a wrong type are no error here: the
/// engine will refuse them, and the request has no prompt.
pub fn parse(api: Api, body: &[u8]) -> Result<Request<'_>, BodyError> {
    if api.body_format() == BodyFormat::Form {
        return Ok(from_form(api, body));
    }
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let text = core::str::from_utf8(body).map_err(|e| BodyError::Utf8 {
        at: e.valid_up_to(),
    })?;
    let mut cursor = Cursor::new(text);
    if !matches!(cursor.peek(), Some(b'{') | None) {
        // Still say "not JSON" where it isn't.
        cursor.skip()?;
        cursor.end()?;
        return Err(BodyError::NotObject);
    }
    let mut fields = Fields::default();
    cursor.object(|cursor, key| {
        match fields.slot(api, &key) {
            Some(slot) => *slot = cursor.value()?,
            None => cursor.skip()?,
        }
        Ok::<_, BodyError>(())
    })?;
    cursor.end()?;
    let prefill_bytes = if api.runs_model() { body.len() } else { 0 };
    fields.finish(api, cursor.flaws(), prefill_bytes as u64)
}

fn from_form(api: Api, body: &[u8]) -> Request<'_> {
    let form = form::read(body);
    let stream = form.stream.map(|word| Json::String(word.into()));
    Request {
        api,
        model: form.model.map(Cow::Borrowed),
        stream: stream.is_some_and(|word| flag(&word, false) == Ok(true)),
        cache_salt: None,
        max_tokens: None,
        load_units: 1,
        prefill_bytes: 0,
        input: Err(Unscorable::Api),
    }
}

/// Declares the top-level fields that are read, and which APIs read them.
macro_rules! fields {
    ($($field:ident: $apis:pat,)*) => {
        #[derive(Debug)]
        struct Fields<'a> {
            $($field: Json<'a>,)*
        }

        impl Default for Fields<'_> {
            fn default() -> Self {
                Self { $($field: Json::Null,)* }
            }
        }

        impl<'a> Fields<'a> {
            fn slot(&mut self, api: Api, key: &str) -> Option<&mut Json<'a>> {
                $(if key == stringify!($field) && matches!(api, $apis) {
                    return Some(&mut self.$field);
                })*
                None
            }
        }
    };
}

fields! {
    messages: Api::Chat,
    model: _,
    stream: _,
    cache_salt: _,
    max_tokens: Api::Chat | Api::Completions | Api::Messages,
    max_completion_tokens: Api::Chat,
    max_output_tokens: Api::Responses,
    n: Api::Chat | Api::Completions,
    tools: Api::Chat,
    tool_choice: Api::Chat,
    documents: Api::Chat,
    chat_template: Api::Chat,
    chat_template_kwargs: Api::Chat,
    reasoning_effort: Api::Chat,
    add_generation_prompt: Api::Chat,
    continue_final_message: Api::Chat,
    kv_transfer_params: Api::Chat,
    prompt: Api::Completions,
    prompt_embeds: Api::Completions,
    add_special_tokens: Api::Chat | Api::Completions,
    truncate_prompt_tokens: Api::Chat | Api::Completions,
    prompt_logprobs: Api::Chat | Api::Completions,
}

impl<'a> Fields<'a> {
    fn finish(
        mut self,
        api: Api,
        flaws: Flaws,
        prefill_bytes: u64,
    ) -> Result<Request<'a>, BodyError> {
        let model = match core::mem::replace(&mut self.model, Json::Null) {
            Json::Null => None,
            Json::String(model) => Some(model),
            _ => return Err(BodyError::ModelType),
        };
        let stream = flag(&self.stream, false).unwrap_or(false);
        let max_tokens = [
            &self.max_completion_tokens,
            &self.max_tokens,
            &self.max_output_tokens,
        ]
        .into_iter()
        .find_map(count);
        let n = count(&self.n).unwrap_or(1);
        let salt = core::mem::replace(&mut self.cache_salt, Json::Null);
        let (cache_salt, salt_fits) = match salt {
            Json::Null => (None, true),
            Json::String(salt) => (Some(salt), true),
            _ => (None, false),
        };
        let input = if salt_fits {
            flaws.check().and_then(|()| self.input(api))
        } else {
            Err(Unscorable::Invalid)
        };
        let prompts = match &input {
            Ok(Input::Completions { prompts, .. }) => prompts.len() as u64,
            _ => 1,
        };
        let units = n
            .saturating_mul(prompts)
            .clamp(1, u64::from(MAX_LOAD_UNITS));
        let load_units = u32::try_from(units).unwrap_or(MAX_LOAD_UNITS);
        Ok(Request {
            api,
            model,
            stream,
            cache_salt,
            max_tokens,
            load_units,
            prefill_bytes,
            input,
        })
    }

    fn input(self, api: Api) -> Result<Input<'a>, Unscorable> {
        if self.prompt_logprobs != Json::Null {
            return Err(Unscorable::NoCacheRead);
        }
        if self.truncate_prompt_tokens != Json::Null {
            return Err(Unscorable::Truncation);
        }
        match api {
            Api::Chat => self.chat().map(|chat| Input::Chat(Box::new(chat))),
            Api::Completions => self.completions(),
            _ => Err(Unscorable::Api),
        }
    }

    fn chat(self) -> Result<Chat<'a>, Unscorable> {
        let Json::Array(messages) = self.messages else {
            return Err(Unscorable::Invalid);
        };
        if self.chat_template != Json::Null
            || self.chat_template_kwargs.get("chat_template").is_some()
        {
            return Err(Unscorable::RequestTemplate);
        }
        if self.kv_transfer_params.get("prompt_token_ids").is_some() {
            return Err(Unscorable::ForwardedTokens);
        }
        if !matches!(self.chat_template_kwargs, Json::Null | Json::Object(_))
            || !matches!(self.documents, Json::Null | Json::Array(_))
        {
            return Err(Unscorable::Invalid);
        }
        let add_generation_prompt = flag(&self.add_generation_prompt, true)?;
        let continue_final_message = flag(&self.continue_final_message, false)?;
        if continue_final_message && add_generation_prompt {
            return Err(Unscorable::Invalid);
        }
        Ok(Chat {
            messages,
            tools: self.tools,
            tool_choice_none: self.tool_choice.as_str() == Some("none"),
            documents: self.documents,
            kwargs: self.chat_template_kwargs,
            reasoning_effort: self.reasoning_effort,
            add_generation_prompt,
            continue_final_message,
            add_special_tokens: flag(&self.add_special_tokens, false)?,
        })
    }

    fn completions(self) -> Result<Input<'a>, Unscorable> {
        if self.prompt_embeds != Json::Null {
            return Err(Unscorable::Embeddings);
        }
        let prompts = match self.prompt {
            Json::String(text) => vec![Given::Text(text)],
            Json::Array(items) if matches!(items.first(), Some(Json::Number(_))) => {
                vec![Given::Tokens(token_ids(items)?)]
            }
            Json::Array(items) if !items.is_empty() => items
                .into_iter()
                .map(|item| match item {
                    Json::String(text) => Ok(Given::Text(text)),
                    Json::Array(ids) => token_ids(ids).map(Given::Tokens),
                    _ => Err(Unscorable::Invalid),
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(Unscorable::Invalid),
        };
        let add_special_tokens = flag(&self.add_special_tokens, true)?;
        Ok(Input::Completions {
            prompts,
            add_special_tokens,
        })
    }
}

fn token_ids(items: Vec<Json<'_>>) -> Result<Vec<u32>, Unscorable> {
    items
        .into_iter()
        .map(|item| match item {
            Json::Number(id) => id.parse().map_err(|_| Unscorable::Invalid),
            _ => Err(Unscorable::Invalid),
        })
        .collect()
}

/// A flag as engines read it: also 0 and 1, and their usual words.
fn flag(json: &Json<'_>, default: bool) -> Result<bool, Unscorable> {
    match json {
        Json::Null => Ok(default),
        Json::Bool(flag) => Ok(*flag),
        Json::Number("1" | "1.0") => Ok(true),
        Json::Number("0" | "0.0") => Ok(false),
        Json::String(word) => match word.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err(Unscorable::Invalid),
        },
        _ => Err(Unscorable::Invalid),
    }
}

/// A count, also spelled `16.0`, `1.6e1` or `"16"`.
fn count(json: &Json<'_>) -> Option<u64> {
    let spelled = match json {
        Json::Number(spelled) => spelled,
        Json::String(spelled) => spelled.as_ref(),
        _ => return None,
    };
    spelled.parse().ok().or_else(|| {
        let value: f64 = spelled.parse().ok()?;
        let whole = value >= 0.0 && value.fract() == 0.0 && value < 9e15;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, positive and below 2^53"
        )]
        whole.then_some(value as u64)
    })
}

#[cfg(test)]
mod tests;
