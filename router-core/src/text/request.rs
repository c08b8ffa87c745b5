//! Reads a request body once, borrowing from it.
//!
//! ```text
//!  body ─ UTF-8 ─ one pass: fields that matter are kept, the rest is skipped ─► Fields ─ by API ─► Input: a chat, or finished prompts
//! ```

mod chat;
mod fields;
mod load;
mod prompts;
mod scalar;

use std::borrow::Cow;

use super::api::{Api, BodyFormat};
use super::error::{BodyError, Unscorable};
use super::form;
use super::json::{Cursor, Json};

pub(super) use chat::{Chat, check_forwarded};
pub(super) use fields::Fields;
pub use load::MAX_LOAD_UNITS;
pub(super) use prompts::Given;
pub(super) use scalar::flag;

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
    /// The end user that the client names.
    pub user: Option<Cow<'a, str>>,
    /// Most tokens that may be generated per sequence.
    pub max_tokens: Option<u64>,
    /// Sequences that the engine will run: prompts times `n`, from 1 to [`MAX_LOAD_UNITS`].
    pub load_units: u32,
    /// Most bytes of the body that can become text of a prompt; nothing where the model isn't run or reads no text. Media doesn't count.
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
    Given {
        /// One or more, in order.
        prompts: Vec<Given<'a>>,
        /// Whether the tokenizer adds its special tokens.
        add_special_tokens: bool,
    },
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
    let text = utf8(body)?;
    let mut cursor = Cursor::new(text);
    if !matches!(cursor.peek(), Some(b'{') | None) {
        // Still say "not JSON" where it isn't.
        cursor.skip()?;
        cursor.end()?;
        return Err(BodyError::NotObject);
    }
    let mut fields = Fields::default();
    let mut user = None;
    cursor.object(|cursor, key| {
        match fields.slot(api, &key) {
            Some(slot) => *slot = cursor.value()?,
            None if key == "user" => user = cursor.aside()?,
            None => cursor.skip()?,
        }
        Ok::<_, BodyError>(())
    })?;
    cursor.end()?;
    let media = fields.media_bytes();
    let prefill_bytes = if api.runs_model() {
        text.len().saturating_sub(media)
    } else {
        0
    };
    let request = fields.finish(api, cursor.flaws(), prefill_bytes as u64)?;
    Ok(Request {
        user: user.filter(|user| !user.is_empty()),
        ..request
    })
}

fn utf8(body: &[u8]) -> Result<&str, BodyError> {
    // Only the standard library tells where, and only that one is slow.
    simdutf8::basic::from_utf8(body)
        .or_else(|_| core::str::from_utf8(body))
        .map_err(|e| BodyError::Utf8 {
            at: e.valid_up_to(),
        })
}

fn from_form(api: Api, body: &[u8]) -> Request<'_> {
    let form = form::read(body);
    let stream = form.stream.map(|word| Json::String(word.into()));
    Request {
        api,
        model: form.model.map(Cow::Borrowed),
        stream: stream.is_some_and(|word| scalar::is_set(&word)),
        cache_salt: None,
        user: None,
        max_tokens: None,
        load_units: 1,
        prefill_bytes: 0,
        input: Err(Unscorable::Api),
    }
}

#[cfg(test)]
mod tests;
