//! What questions about prompts have in common: a bounded body, few at a time, an answer in time.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use prefixway_core::hash::{Scope, Space};
use prefixway_core::snapshot::PromptHashes;
use prefixway_core::text::{
    Api, BodyError, LocalTime, Prompt, PromptProfile, Prompter, Unscorable, parse,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Pages;
use super::problem::Problem;
use crate::ingest::query::{ModelView, PrefixView, Query};

/// Longest body that is read.
pub(super) const MAX_BODY_BYTES: usize = 16 << 20;
/// Bodies that are read and rendered at the same time.
const MAX_AT_ONCE: usize = 4;
/// Time that a body may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a token id.
const TOKEN_BYTES: usize = 4;

/// Admits questions that need a body.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_AT_ONCE)))
    }
}

impl Gate {
    /// A place among those whose body is read now.
    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.0.try_acquire().map_err(|_| {
            Problem::unavailable("too many questions are under way").hint("ask again in a second")
        })
    }
}

/// Reads a body to its end.
pub(super) async fn read(body: Body) -> Result<Bytes, Problem> {
    let whole = axum::body::to_bytes(body, MAX_BODY_BYTES);
    match tokio::time::timeout(BODY_LIMIT, whole).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {MAX_BODY_BYTES} bytes, or was cut off"),
        )),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body took too long",
        )),
    }
}

/// The model that a name means.
pub(super) async fn model(pages: &Pages, name: Option<String>) -> Result<ModelView, Problem> {
    let asked = name.clone();
    let view = pages
        .ask(|reply| Query::Model { name: asked, reply })
        .await?;
    view.ok_or_else(|| match name {
        Some(name) => {
            let shown: String = name.chars().take(200).collect();
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("model {shown:?} is not served"),
            )
            .hint("/api/v1/models lists the names of models and adapters")
        }
        None => Problem::bad("no model is named")
            .hint("several models are served and none is the default: name one"),
    })
}

/// A prompt as it is looked up.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) hashes: PromptHashes,
    /// Tokens, where they were given.
    pub(super) tokens: Option<u32>,
    /// Whether more follows that isn't text.
    pub(super) is_truncated: bool,
}

/// The name of the model in a body for an engine.
pub(super) fn named(api: Api, body: &[u8]) -> Result<Option<String>, Problem> {
    let request = parse(api, body).map_err(|error| unreadable(&error))?;
    Ok(request.model.map(std::borrow::Cow::into_owned))
}

/// Spells the prompt of a body for an engine, as gateways do.
pub(super) fn spell(view: &ModelView, api: Api, body: &[u8]) -> Result<Asked, Problem> {
    let request = parse(api, body).map_err(|error| unreadable(&error))?;
    let profile: PromptProfile = serde_json::from_slice(&view.profile.prompt_profile)
        .map_err(|error| broken(&error.to_string()))?;
    let prompter = Prompter::try_new(profile).map_err(|error| broken(&error.to_string()))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let prompt = prompter
        .prompt(&request, LocalTime::from_unix(seconds, view.utc_offset_s))
        .map_err(unscorable)?;
    let salt = request.cache_salt.as_deref().unwrap_or_default();
    match prompt.space {
        Space::Text => Ok(hashed(view, &prompt, salt, None)),
        Space::Token => {
            let (ids, _) = prompt.text.as_chunks::<TOKEN_BYTES>();
            let ids: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
            of_tokens(view, &ids, salt)
        }
    }
}

/// A prompt of token ids, by the text that they spell.
pub(super) fn of_tokens(view: &ModelView, ids: &[u32], salt: &str) -> Result<Asked, Problem> {
    let Some(vocabulary) = &view.vocabulary else {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "token ids of this model spell no known text",
        )
        .hint(
            "its state in /api/v1/models says why; ask with the text of the prompt or the chat",
        ));
    };
    let mut text = Vec::new();
    vocabulary.append(ids, &mut text);
    let prompt = Prompt {
        space: Space::Text,
        text,
        truncated: false,
        rendered: None,
    };
    let tokens = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    Ok(hashed(view, &prompt, salt, Some(tokens)))
}

fn hashed(view: &ModelView, prompt: &Prompt, salt: &str, tokens: Option<u32>) -> Asked {
    let scope = Scope {
        space: Space::Text,
        profile: &view.profile.id,
        revision: view.profile.revision,
        adapter: view.adapter.as_deref().unwrap_or_default(),
        salt,
    };
    let scope = scope.hash(view.seed);
    Asked {
        hashes: PromptHashes::new(scope, &prompt.text, view.seed, view.max_prompt_bytes),
        tokens,
        is_truncated: prompt.truncated,
    }
}

/// What endpoints hold of a prompt.
pub(super) async fn held(
    pages: &Pages,
    model: usize,
    prompt: PromptHashes,
) -> Result<PrefixView, Problem> {
    let query = |reply| Query::Prefix {
        model,
        prompt,
        reply,
    };
    pages.ask(query).await
}

fn unreadable(error: &BodyError) -> Problem {
    Problem::bad(error.to_string())
}

fn broken(error: &str) -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the model's profile can't be used: {error}"),
    )
}

fn unscorable(why: Unscorable) -> Problem {
    let problem = Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        format!("the request has no prompt text: {why}"),
    );
    match why {
        Unscorable::Batch => problem.hint("ask for one prompt at a time"),
        _ => problem.hint("gateways route such requests by load alone"),
    }
}
