//! What gateways report: usage, decisions, outcomes.

use std::time::{Duration, Instant};

use prefixway_core::hash::Space;
use prefixway_core::index::{Decided, Speculation};
use prefixway_core::proto::{self, up};

use super::speculation::{Credit, Sent};
use super::{Ingest, Knowledge};
use crate::metrics::{Outcome, ResultLabel};
use crate::publish::StreamId;

/// Most rungs credited for one decision; they grow with the logarithm of the prompt, so this is more than any prompt has.
const MAX_RUNGS: usize = 2048;
/// Longest time for which a request can be taken back or corrected, and what was claimed of it be held against the reply.
const LONGEST_REQUEST: Duration = Duration::from_mins(10);
/// Block size assumed for the metric while none is known.
const USUAL_BLOCK_TOKENS: u32 = 16;

impl Ingest {
    pub(super) fn up(&mut self, stream: StreamId, message: proto::Up, now: Instant) {
        match message.kind {
            Some(up::Kind::Together(together)) => {
                for up in together.ups {
                    self.one(stream, up, now);
                }
            }
            _ => self.one(stream, message, now),
        }
    }

    fn one(&mut self, stream: StreamId, message: proto::Up, now: Instant) {
        match message.kind {
            Some(up::Kind::Usage(mut usage)) => {
                let is_known = |id| self.endpoints.by_id(id).is_some();
                usage.endpoints.retain(|usage| is_known(usage.endpoint));
                self.gateways.used(stream, &usage, now);
            }
            Some(up::Kind::Copies(copies)) => {
                self.gateways
                    .told_copies(stream, &copies, &self.publisher, now);
            }
            Some(up::Kind::Routed(routed)) => self.routed(stream, &routed, now),
            Some(up::Kind::Moved(moved)) => self.moved(stream, &moved, now),
            Some(up::Kind::Outcome(outcome)) => self.outcome(stream, &outcome, now),
            Some(up::Kind::Sampled(sampled)) => self.sampled(stream, *sampled),
            // A second Subscribe is refused where the stream is read, and nothing has them inside; an unknown kind comes from a newer gateway.
            Some(up::Kind::Subscribe(_) | up::Kind::Together(_)) | None => {}
        }
        self.gateways.taken(stream, message.seq);
    }

    fn routed(&mut self, stream: StreamId, routed: &proto::Routed, now: Instant) {
        let Some(endpoint) = self.endpoints.by_id(routed.endpoint) else {
            return;
        };
        self.metrics
            .decisions
            .get_or_create_owned(&endpoint.label)
            .inc();
        let block = if endpoint.block_size == 0 {
            USUAL_BLOCK_TOKENS
        } else {
            endpoint.block_size
        };
        self.metrics
            .matched_blocks
            .observe(f64::from(routed.predicted_cached_tokens / block));
        self.credit(stream, routed, now);
    }

    /// A request went on to another endpoint than was decided.
    fn moved(&mut self, stream: StreamId, moved: &proto::Routed, now: Instant) {
        let Some(gateway) = self.gateways.gateway(stream) else {
            return;
        };
        if let Some(sent) = self.speculated.remove(gateway, moved.request) {
            self.take_back(&sent);
        }
        self.credit(stream, moved, now);
    }

    /// Expects the endpoint of a decision to hold its prompt.
    fn credit(&mut self, stream: StreamId, routed: &proto::Routed, now: Instant) {
        let now_ms = self.now_ms(now);
        let (Some(gateway), Some(endpoint)) = (
            self.gateways.gateway(stream),
            self.endpoints.by_id(routed.endpoint),
        ) else {
            return;
        };
        let (hashes, _) = routed.rungs.as_chunks::<8>();
        let rungs: Vec<u64> = hashes
            .iter()
            .take(MAX_RUNGS)
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        if rungs.is_empty() {
            return;
        }
        let [holder, ..] = endpoint.holders;
        // Before the decision itself is credited. What is known by decisions alone is all expectation.
        let claim = match endpoint.knowledge {
            Knowledge::Precise | Knowledge::Partial => {
                self.index.covered_tokens(&endpoint.holders, &rungs)
            }
            Knowledge::Approximate | Knowledge::Blind => u32::MAX,
        };
        let space = if routed.token_ids {
            Space::Token
        } else {
            Space::Text
        };
        let credit = match endpoint.knowledge {
            Knowledge::Blind => return,
            Knowledge::Approximate => {
                let decided = Decided {
                    holder,
                    space,
                    rungs: &rungs,
                    prompt_tokens: routed.estimated_prompt_tokens,
                    prompt_bytes: routed.prompt_bytes,
                };
                let room = endpoint.cache_tokens(self.config.index.approximate_tokens);
                let id = self.index.remember(&decided, room);
                Credit::Decision(id)
            }
            Knowledge::Precise | Knowledge::Partial => {
                let uncached = routed
                    .estimated_prompt_tokens
                    .saturating_sub(routed.predicted_cached_tokens);
                // Long prompts take longer to appear in events.
                let prefill = f64::from(uncached) / endpoint.prefill_tokens_per_s.max(1.0);
                let ttl = self.config.policy.speculative_ttl
                    + Duration::from_secs_f64(prefill.min(600.0));
                // It counts from the decision, which may have waited for a stream.
                let age = Duration::from_millis(routed.age_ms.into());
                let Some(ttl) = ttl.checked_sub(age).filter(|left| !left.is_zero()) else {
                    return;
                };
                let id = self.index.credit_speculative(&Speculation {
                    holder,
                    space,
                    rungs: &rungs,
                    prompt_tokens: routed.estimated_prompt_tokens,
                    prompt_bytes: routed.prompt_bytes,
                    expires_ms: after(now_ms, ttl),
                });
                Credit::Speculation(id)
            }
        };
        let sent = Sent {
            endpoint: routed.endpoint,
            prompt_bytes: routed.prompt_bytes,
            credit,
            prompt_tokens: routed.estimated_prompt_tokens,
            queued_tokens: routed.queued_prefill_tokens,
            at_ms: now_ms.saturating_sub(routed.age_ms.into()),
            claim,
        };
        let until_ms = after(now_ms, LONGEST_REQUEST);
        self.speculated
            .insert(gateway, routed.request, sent, until_ms);
    }

    /// Keeps a decision that was told in full.
    fn sampled(&mut self, stream: StreamId, sampled: proto::Sampled) {
        let endpoint = self.endpoints.by_id(sampled.endpoint);
        let served_by = endpoint.map(|endpoint| endpoint.label.endpoint.clone());
        if let (Some(gateway), Some(served_by)) = (self.gateways.gateway(stream), served_by) {
            self.decisions.keep(&gateway, served_by, sampled);
        }
    }

    fn outcome(&mut self, stream: StreamId, outcome: &proto::Outcome, now: Instant) {
        let Some(gateway) = self.gateways.gateway(stream) else {
            return;
        };
        let result = match (outcome.failed, outcome.status) {
            (false, _) => Outcome::Ok,
            (true, 400..500) => Outcome::Refused,
            (true, _) => Outcome::Failed,
        };
        self.metrics
            .outcomes
            .get_or_create_owned(&ResultLabel { result })
            .inc();
        let sent = self.speculated.remove(gateway, outcome.request);
        if let Some(sent) = &sent {
            self.settle(sent, outcome);
            self.learn_rate(sent, outcome, now);
        }
        self.prove(outcome, sent.as_ref());
        if let Some(endpoint) = self.endpoints.by_id_mut(outcome.endpoint) {
            endpoint.reported(outcome, now);
        }
        if let Some(cached) = outcome.cached_tokens {
            self.metrics
                .prediction_error
                .observe(f64::from(cached.abs_diff(outcome.predicted_cached_tokens)));
        }
    }

    fn take_back(&mut self, sent: &Sent) {
        match &sent.credit {
            Credit::Speculation(id) => self.index.cancel(*id),
            Credit::Decision(id) => self.index.cancel_decision(id),
        }
    }

    /// Takes back what was credited for a request that failed or went elsewhere, and learns from one that did not.
    fn settle(&mut self, sent: &Sent, outcome: &proto::Outcome) {
        if outcome.failed || outcome.endpoint != sent.endpoint {
            self.take_back(sent);
            return;
        }
        let Some(prompt_tokens) = outcome.prompt_tokens.filter(|&tokens| tokens > 0) else {
            return;
        };
        if let Credit::Decision(id) = &sent.credit {
            self.index.correct_decision(id, prompt_tokens);
        }
        let endpoint = self.endpoints.by_id(sent.endpoint);
        let model = endpoint.and_then(|endpoint| self.models.get_mut(endpoint.settings.model));
        if let Some(model) = model {
            model.observe(sent.prompt_bytes, prompt_tokens);
            self.is_policy_changed |= model.learn(&self.index);
        }
    }
}

fn after(now_ms: u64, duration: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
