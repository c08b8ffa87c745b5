//! Replaying a capture of a real engine: what would have been predicted, compared with what the engine said.
//!
//! ```text
//!  events.jsonl ─► sequence ─► index ─► publisher ─► base segments, deltas ─► replica ─┐
//!  requests.jsonl ─► body ─► prompt text ─► chunk hashes ─► probe ◄────────────────────┘
//!                                                             │
//!                     usage of the reply ─► compare ◄─ predicted cached tokens
//! ```
//!
//! Predictions see what a gateway sees: the body of a request, the published table and the model's profile. Everything else in a
//! capture (rendered prompts, token ids, usage) is only compared with. In token space the captured token ids take the place of the
//! prompt text, as in requests that carry them; then no model is needed.

mod capture;
mod model;
mod published;
mod report;

pub use capture::CaptureError;
pub use model::ModelError;
pub use report::{PerRequest, Report};

use std::collections::BTreeSet;
use std::path::Path;

use capture::{Capture, Line};
use model::Model;
use prefixway_core::hash::Space;
use prefixway_core::text::{Api, LocalTime, Prompt, Request, parse};
use published::{PublishedPath, Query};
use report::{Judged, Prediction};

/// Why a capture can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The capture can't be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The model folder can't be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The table can't be published.
    #[error("can't publish the index")]
    Publish(#[from] prefixway_core::snapshot::PublishError),
    /// The published table can't be followed.
    #[error("can't follow the published table")]
    Replica(#[from] prefixway_core::snapshot::ReplicaError),
}

impl ReplayError {
    /// What the user can do next.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Model(_) => Some(crate::model_dir::HINT),
            Self::Capture(_) => Some(
                "--events and --requests take a capture's events.jsonl and requests.jsonl, one JSON object a line",
            ),
            Self::Publish(_) | Self::Replica(_) => None,
        }
    }
}

/// What cached tokens are predicted from.
#[derive(Clone, Copy, Debug)]
pub enum By<'a> {
    /// The prompt text that the model of a folder makes of a request.
    Text {
        /// Model folder as on a hub.
        model_dir: &'a Path,
    },
    /// The engine's own token ids of the prompt.
    TokenIds,
}

/// Replays the events and requests of a capture.
///
/// # Errors
/// A file can't be read, or the model's prompts can't be derived.
pub fn run(by: By<'_>, events: &Path, requests: &Path) -> Result<Report, ReplayError> {
    let capture = Capture::load(events, requests)?;
    let model = match by {
        By::Text { model_dir } => Some(Model::load(model_dir)?),
        By::TokenIds => None,
    };
    let adapters = capture.adapters();
    let mut path = PublishedPath::try_new(model.as_ref(), &capture)?;
    let mut report = Report::new(match by {
        By::Text { .. } => "text",
        By::TokenIds => "token",
    });
    for line in &capture.requests {
        path.apply_until(&line.seq_before)?;
        replay(line, model.as_ref(), &adapters, &path, &mut report);
    }
    report.finish(path.decode_errors());
    Ok(report)
}

fn replay(
    line: &Line,
    model: Option<&Model>,
    adapters: &BTreeSet<String>,
    path: &PublishedPath<'_>,
    report: &mut Report,
) {
    let Some(body) = &line.body else {
        return;
    };
    report.requests += 1;
    let api = Api::from_path(&line.path);
    let request = api.and_then(|api| parse(api, body.get().as_bytes()).ok());
    let prompt = match (&request, model) {
        (None, _) => Err("body"),
        (Some(request), Some(model)) => text_of(line, request, model),
        (Some(_), None) => token_ids_of(line),
    };
    if let Some(model) = model {
        let is_chat = api == Some(Api::Chat);
        compare_text(line, model, is_chat, prompt.as_ref().ok(), report);
    }
    let Some(actual) = line.cached_tokens().filter(|_| !line.concurrent) else {
        return;
    };
    let prediction = prompt.map(|prompt| {
        let adapter = request
            .as_ref()
            .and_then(|request| request.model.as_deref());
        let query = Query {
            adapter: adapter
                .filter(|name| adapters.contains(*name))
                .unwrap_or_default(),
            salt: request
                .as_ref()
                .and_then(|request| request.cache_salt.as_deref())
                .unwrap_or_default(),
            prompt: &prompt,
            rank: line.rank(),
            token_ids: line.prompt_token_ids.as_deref().unwrap_or_default(),
        };
        Prediction {
            tokens: path.predict(&query),
            exact: path.exact(&query),
            by_token_ids: path.by_token_ids(&query),
        }
    });
    report.judge(Judged {
        i: line.i,
        kind: line.kind.clone(),
        actual,
        prediction,
    });
}

fn text_of(line: &Line, request: &Request<'_>, model: &Model) -> Result<Prompt, &'static str> {
    // Seconds are all that a template can show.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a Unix time, whole seconds"
    )]
    let now = LocalTime::from_unix(line.t_start.unwrap_or_default() as i64, 0);
    let prompt = model.prompter.prompt(request, now);
    prompt.map_err(prefixway_core::text::Unscorable::reason)
}

fn token_ids_of(line: &Line) -> Result<Prompt, &'static str> {
    let ids = line.prompt_token_ids.as_ref().ok_or("no token ids")?;
    Ok(Prompt {
        space: Space::Token,
        text: ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
        truncated: false,
        rendered: None,
    })
}

/// Compares our prompt text with the engine's.
fn compare_text(
    line: &Line,
    model: &Model,
    is_chat: bool,
    prompt: Option<&Prompt>,
    report: &mut Report,
) {
    let Some(rendered) = &line.rendered else {
        return;
    };
    let prompt = prompt.filter(|prompt| prompt.space == Space::Text);
    if is_chat {
        report.render_compared += 1;
        let is_equal = prompt.and_then(|prompt| prompt.rendered.as_ref()) == Some(rendered);
        report.render_equal += usize::from(is_equal);
    }
    if let Some(ids) = &line.prompt_token_ids {
        report.bytes_compared += 1;
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| model.tokens.bytes(id))
            .copied()
            .collect();
        report.bytes_equal += usize::from(prompt.is_some_and(|prompt| prompt.text == bytes));
    }
}

#[cfg(test)]
mod tests;
