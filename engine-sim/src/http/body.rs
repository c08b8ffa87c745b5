//! Request fields that both completion endpoints share.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::error::ApiError;
use crate::engine::Shared;
use crate::sequence::Scope;

/// Choices per request at most.
const MAX_CHOICES: usize = 64;
/// Characters of a cache salt at most, as in vLLM.
const MAX_SALT_CHARS: usize = 1_024;

/// Options of a completion; fields that change nothing here are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    pub(super) model: Option<String>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    n: Option<usize>,
    pub(super) stream: Option<bool>,
    #[serde(rename = "stream_options")]
    streaming: Option<StreamOptions>,
    cache_salt: Option<String>,
    session_id: Option<String>,
    return_token_ids: Option<bool>,
    return_prompt_text: Option<bool>,
    pub(super) add_special_tokens: Option<bool>,
    vllm_xargs: Option<Map<String, Json>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Options after checks.
#[derive(Debug)]
pub(super) struct Checked {
    /// Name to report as the reply's model.
    pub(super) model: String,
    pub(super) scope: Scope,
    pub(super) session_id: Option<String>,
    /// Output tokens asked for; `None` leaves it to the engine.
    pub(super) max_tokens: Option<usize>,
    pub(super) choices: usize,
    pub(super) returns: Returns,
    pub(super) reports_reused: bool,
    /// Output to give instead of generated words (`vllm_xargs.forced_token_ids`, an extension of the simulator).
    pub(super) forced: Option<Vec<u32>>,
    /// `X-Request-Id`, or a number of the engine's own.
    pub(super) request_id: String,
}

/// What a reply holds besides text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Returns {
    pub(super) token_ids: bool,
    pub(super) prompt_text: bool,
    /// A last chunk with the usage, when streaming.
    pub(super) usage_chunk: bool,
}

impl Options {
    pub(super) fn check(self, shared: &Shared, headers: &HeaderMap) -> Result<Checked, ApiError> {
        let lora = shared
            .adapter(self.model.as_deref())
            .map_err(ApiError::UnknownModel)?;
        let max_tokens = self.max_completion_tokens.or(self.max_tokens);
        if max_tokens == Some(0) {
            return Err(ApiError::OutOfRange {
                key: "max_tokens",
                allowed: "at least 1",
            });
        }
        let choices = self.n.unwrap_or(1);
        if !(1..=MAX_CHOICES).contains(&choices) {
            return Err(ApiError::OutOfRange {
                key: "n",
                allowed: "1 to 64",
            });
        }
        let salt_chars = self.cache_salt.as_ref().map(|salt| salt.chars().count());
        if salt_chars.is_some_and(|chars| !(1..=MAX_SALT_CHARS).contains(&chars)) {
            return Err(ApiError::OutOfRange {
                key: "cache_salt",
                allowed: "1 to 1024 characters",
            });
        }
        let header = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let extra = |name: &str| self.vllm_xargs.as_ref().and_then(|extra| extra.get(name));
        let forced = extra("forced_token_ids")
            .and_then(Json::as_array)
            .map(|ids| {
                let id = |id: &Json| id.as_u64().and_then(|id| u32::try_from(id).ok());
                ids.iter().filter_map(id).collect()
            });
        let reports_reused = extra("kv_cache_report_mode").and_then(Json::as_str) == Some("full");
        Ok(Checked {
            model: lora
                .as_ref()
                .map_or(&shared.labels.model_name, |lora| &lora.name)
                .clone(),
            scope: Scope {
                lora,
                salt: self.cache_salt,
            },
            session_id: self.session_id.or_else(|| header("x-session-id")),
            max_tokens,
            choices,
            returns: Returns {
                token_ids: self.return_token_ids.unwrap_or(false),
                prompt_text: self.return_prompt_text.unwrap_or(false),
                usage_chunk: self
                    .streaming
                    .and_then(|options| options.include_usage)
                    .unwrap_or(false),
            },
            reports_reused,
            forced,
            request_id: header("x-request-id")
                .unwrap_or_else(|| format!("{:016x}", shared.next_id().0)),
        })
    }
}
