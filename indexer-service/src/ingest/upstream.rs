//! What gateways report: usage, decisions, outcomes.

use std::time::{Duration, Instant};

use prefixway_core::index::Speculation;
use prefixway_core::proto::{self, up};

use super::Ingest;
use crate::metrics::{Outcome, ResultLabel};
use crate::publish::StreamId;

/// Most rungs credited for one decision; they grow with the logarithm of the prompt, so this is more than any prompt has.
const MAX_RUNGS: usize = 2048;
/// Life of a speculation that no event will ever confirm: the endpoint sends none, or the model's text is not known.
const APPROXIMATE_TTL: Duration = Duration::from_mins(2);
/// Block size assumed for the metric while none is known.
const USUAL_BLOCK_TOKENS: u32 = 16;

impl Ingest {
    pub(super) fn up(&mut self, stream: StreamId, message: proto::Up, now: Instant) {
        match message.kind {
            Some(up::Kind::Usage(mut usage)) => {
                let is_known = |id| self.endpoints.by_id(id).is_some();
                usage.endpoints.retain(|usage| is_known(usage.endpoint));
                self.gateways.used(stream, &usage, now);
            }
            Some(up::Kind::Routed(routed)) => self.routed(stream, &routed, now),
            Some(up::Kind::Outcome(outcome)) => self.outcome(stream, &outcome),
            // A second Subscribe is refused where the stream is read; an unknown kind comes from a newer gateway.
            Some(up::Kind::Subscribe(_)) | None => {}
        }
        self.gateways.taken(stream, message.seq);
    }

    fn routed(&mut self, stream: StreamId, routed: &proto::Routed, now: Instant) {
        let now_ms = self.now_ms(now);
        let (Some(gateway), Some(endpoint)) = (
            self.gateways.gateway(stream),
            self.endpoints.by_id(routed.endpoint),
        ) else {
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
        let (hashes, _) = routed.rungs.as_chunks::<8>();
        let rungs: Vec<u64> = hashes
            .iter()
            .take(MAX_RUNGS)
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        if rungs.is_empty() {
            return;
        }
        let model = self.models.get(endpoint.settings.model);
        let is_confirmed = endpoint.feed.is_some()
            && !endpoint.is_odd
            && model.is_some_and(|model| model.approximate_reason().is_none());
        let ttl = if is_confirmed {
            let uncached = routed
                .estimated_prompt_tokens
                .saturating_sub(routed.predicted_cached_tokens);
            // Long prompts take longer to appear in events.
            let prefill = f64::from(uncached) / endpoint.settings.prefill_tokens_per_s.max(1.0);
            self.config.policy.speculative_ttl + Duration::from_secs_f64(prefill.min(600.0))
        } else {
            APPROXIMATE_TTL
        };
        let expires_ms = now_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let [holder, ..] = endpoint.holders;
        let id = self.index.credit_speculative(&Speculation {
            holder,
            rungs: &rungs,
            prompt_tokens: routed.estimated_prompt_tokens,
            prompt_bytes: routed.prompt_bytes,
            expires_ms,
        });
        self.speculated
            .insert(gateway, routed.request, id, expires_ms);
    }

    fn outcome(&mut self, stream: StreamId, outcome: &proto::Outcome) {
        let Some(gateway) = self.gateways.gateway(stream) else {
            return;
        };
        let result = if outcome.failed {
            Outcome::Failed
        } else {
            Outcome::Ok
        };
        self.metrics
            .outcomes
            .get_or_create_owned(&ResultLabel { result })
            .inc();
        let speculation = self.speculated.remove(gateway, outcome.request);
        if outcome.failed
            && let Some(id) = speculation
        {
            self.index.cancel(id);
        }
        if let Some(cached) = outcome.cached_tokens {
            self.metrics
                .prediction_error
                .observe(f64::from(cached.abs_diff(outcome.predicted_cached_tokens)));
        }
    }
}
