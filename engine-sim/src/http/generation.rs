//! One choice of a reply while it is generated.

use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::body::Checked;
use super::error::ApiError;
use crate::engine::{Shared, TokenUpdate};
use crate::sequence::Request;
use crate::tokenizer::Output;

/// A choice: its output is known, its tokens arrive one by one.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) index: usize,
    pub(super) prompt: Vec<u32>,
    pub(super) output: Output,
    pub(super) finish_reason: &'static str,
    updates: mpsc::Receiver<TokenUpdate>,
    received: usize,
    cached_tokens: usize,
}

/// A token that arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) token: u32,
    pub(super) text: String,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

impl Generation {
    /// Decides the output of choice `index` for `prompt` and hands it to the scheduler.
    pub(super) async fn start(
        shared: &Shared,
        options: &Checked,
        index: usize,
        prompt: Vec<u32>,
    ) -> Result<Self, ApiError> {
        if prompt.is_empty() {
            return Err(ApiError::EmptyPrompt);
        }
        let limit = shared.config.max_model_len as usize;
        let natural = shared.config.natural_output_tokens as usize;
        let room = limit.saturating_sub(prompt.len());
        let forced = options.forced.as_ref().filter(|ids| !ids.is_empty());
        let wanted = forced.map(Vec::len).or(options.max_tokens);
        let count = wanted.unwrap_or(natural.min(room));
        if room == 0 || count > room {
            return Err(ApiError::TooLong {
                limit,
                prompt: prompt.len(),
                output: count,
            });
        }
        let tokens = match forced {
            Some(ids) => ids.clone(),
            None => shared.tokenizer.generate(
                &prompt,
                shared.config.seed.wrapping_add(index as u64),
                count,
            )?,
        };
        let output = shared.tokenizer.output(tokens)?;
        let request = Request {
            id: shared.next_id(),
            prompt: prompt.clone(),
            output: output.tokens.clone(),
            scope: options.scope.clone(),
            session_id: options.session_id.clone(),
            reports_reused: options.reports_reused,
        };
        Ok(Self {
            index,
            prompt,
            output,
            finish_reason: if options.max_tokens.is_some() {
                "length"
            } else {
                "stop"
            },
            updates: shared.submit(request).await,
            received: 0,
            cached_tokens: 0,
        })
    }

    /// Waits for the next token.
    pub(super) async fn next(&mut self) -> Result<Arrived, ApiError> {
        let update = self.updates.recv().await.ok_or(ApiError::Stopped)?;
        let position = self.received;
        self.received += 1;
        self.cached_tokens = update.cached_tokens;
        Ok(Arrived {
            token: self
                .output
                .tokens
                .get(position)
                .copied()
                .unwrap_or_default(),
            text: self
                .output
                .pieces
                .get(position)
                .cloned()
                .unwrap_or_default(),
            is_first: position == 0,
            is_last: update.is_last,
        })
    }

    /// Waits for the last token.
    pub(super) async fn finish(&mut self) -> Result<(), ApiError> {
        while !self.next().await?.is_last {}
        Ok(())
    }

    pub(super) fn text(&self) -> String {
        self.output.pieces.concat()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            prompt: self.prompt.len(),
            completion: self.received,
            cached: self.cached_tokens,
        }
    }
}

/// Tokens of a reply.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    prompt: usize,
    completion: usize,
    cached: usize,
}

impl Usage {
    /// Adds another prompt of the request.
    pub(super) fn add_prompt(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.completion += other.completion;
    }

    /// Adds another choice for the same prompt.
    pub(super) fn add_choice(&mut self, other: Self) {
        self.completion += other.completion;
    }

    pub(super) fn to_json(self, shared: &Shared) -> Json {
        // vLLM leaves the details out, too, where nothing was cached.
        let details = shared.config.prompt_tokens_details && self.cached > 0;
        json!({
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": details.then(|| json!({"cached_tokens": self.cached})),
        })
    }
}

/// Adds up the choices of a request, `choices` per prompt in order.
pub(super) fn total(generations: &[Usage], choices: usize) -> Usage {
    let mut sum = Usage::default();
    for (position, &usage) in generations.iter().enumerate() {
        if position % choices.max(1) == 0 {
            sum.add_prompt(usage);
        } else {
            sum.add_choice(usage);
        }
    }
    sum
}
