//! From an update of the subscriber to the index.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prefixway_core::index::{BatchOutcome, SourceId};

use super::Ingest;
use super::feed::{FeedAction, FeedInput};
use crate::kv_events::Update;
use crate::metrics::{EndpointCounters, EndpointLabel, EndpointResult, Metrics, Outcome};

impl Ingest {
    pub(super) fn update(&mut self, update: Update) {
        let (source, input) = match update {
            Update::Connected(source) => (source, FeedInput::Connected),
            Update::Disconnected(source) => (source, FeedInput::Disconnected),
            Update::ReplayEnded {
                source,
                request,
                complete,
            } => {
                let result = if complete {
                    Outcome::Ok
                } else {
                    Outcome::Failed
                };
                if let Some(endpoint) = self.endpoints.by_source(source) {
                    let endpoint = endpoint.label.endpoint.clone();
                    self.metrics
                        .event_replays
                        .get_or_create_owned(&EndpointResult { endpoint, result })
                        .inc();
                }
                (source, FeedInput::ReplayEnded { request, complete })
            }
            Update::Malformed(source) => {
                if let Some(endpoint) = self.endpoints.by_source(source) {
                    self.metrics
                        .event_errors
                        .get_or_create_owned(&endpoint.label)
                        .inc();
                }
                return;
            }
            Update::Batch(batch) => {
                if let Some(endpoint) = self.endpoints.by_source(batch.source) {
                    self.metrics
                        .event_batches
                        .get_or_create_owned(&endpoint.label)
                        .inc();
                }
                let (seq, payload) = (batch.seq, batch.payload);
                let input = match batch.replay {
                    Some(request) => FeedInput::Replayed {
                        request,
                        seq,
                        payload,
                    },
                    None => FeedInput::Live { seq, payload },
                };
                (batch.source, input)
            }
        };
        self.feed(source, input);
    }

    pub(super) fn feed(&mut self, source: SourceId, input: FeedInput) {
        let is_own_doing = matches!(input, FeedInput::StartOver);
        let Some(endpoint) = self.endpoints.by_source(source) else {
            return;
        };
        let state = endpoint.state();
        let Some(feed) = &mut endpoint.feed else {
            return;
        };
        let before = feed.counters();
        let mut is_reset = false;
        for action in feed.step(input) {
            match action {
                FeedAction::Apply(payload) => {
                    let outcome = self.index.apply(source, &payload);
                    feed.applied(payload);
                    count_batch(&self.metrics, &endpoint.label, &outcome);
                }
                FeedAction::Reset => {
                    let now = Instant::now();
                    let fresh = self.holder_ids.take(now);
                    self.holder_ids.retire(endpoint.holders, now);
                    self.index.reset_source(source, fresh);
                    endpoint.holders = fresh;
                    endpoint.is_cut = false;
                    is_reset = true;
                }
                FeedAction::Replay { request, from } => {
                    tracing::debug!(
                        endpoint = endpoint.label.endpoint,
                        from,
                        "asking for a replay"
                    );
                    self.subscriber.replay(source, request, from);
                }
            }
        }
        let after = feed.counters();
        let count = |family: &EndpointCounters, by: u64| {
            family.get_or_create_owned(&endpoint.label).inc_by(by);
        };
        count(&self.metrics.event_gaps, after.gaps - before.gaps);
        count(&self.metrics.source_resets, after.resets - before.resets);
        if is_reset && !is_own_doing {
            let settings = &endpoint.settings;
            self.hints.changed(settings.model, settings.address);
        }
        if is_reset || endpoint.state() != state {
            tracing::info!(
                endpoint = endpoint.label.endpoint,
                state = endpoint.state(),
                is_reset,
                "event source changed"
            );
            self.endpoints.set_changed();
        }
    }
}

fn count_batch(metrics: &Metrics, label: &EndpointLabel, outcome: &BatchOutcome) {
    metrics
        .stored_blocks
        .get_or_create_owned(label)
        .inc_by(outcome.stored);
    metrics
        .removed_blocks
        .get_or_create_owned(label)
        .inc_by(outcome.removed);
    metrics
        .event_errors
        .get_or_create_owned(label)
        .inc_by(u64::from(outcome.info.decode_errors()));
    if let Some(made) = outcome.info.ts {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        metrics.event_delay.observe((now - made).max(0.0));
    }
}
