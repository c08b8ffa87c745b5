//! From an update of the subscriber to the index.
//!
//! ```text
//!  Update ─► Turns (a queue for each source) ─► Feed ─► actions, before the other jobs of the source ─► batches of a round ─► Index::apply_all
//! ```

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prefixway_core::index::{BatchOutcome, SourceId};
use prost::bytes::Bytes;

use super::Ingest;
use super::feed::{FeedAction, FeedInput};
use super::turns::TURN_UNITS;
use crate::kv_events::Update;
use crate::metrics::{EndpointCounters, EndpointLabel, EndpointResult, Metrics, Outcome};

/// Work between two looks at ticks and commands, about 1 ms.
const ROUND_UNITS: usize = 8 * TURN_UNITS;
/// Work of a job besides its payload's.
const JOB_UNITS: usize = 128;

/// Something to do for a source.
#[derive(Debug)]
pub(super) enum Job {
    /// Came from the subscriber.
    Update(Update),
    /// Came of an update.
    Action(FeedAction),
}

impl Job {
    fn units(&self) -> usize {
        match self {
            Self::Action(FeedAction::Apply(payload)) => JOB_UNITS + payload.len(),
            Self::Action(_) | Self::Update(_) => JOB_UNITS,
        }
    }
}

/// Batches that are applied together.
type Batches = Vec<(SourceId, Bytes)>;

impl Ingest {
    /// Puts an update behind the other jobs of its source.
    pub(super) fn enqueue(&mut self, update: Update) {
        self.turns.push(update.source(), Job::Update(update));
    }

    /// Does a part of what waits, about [`ROUND_UNITS`].
    pub(super) fn work(&mut self) {
        let mut batches = Batches::new();
        let mut units = 0;
        while units < ROUND_UNITS
            && let Some(source) = self.turns.begin()
        {
            let mut left = TURN_UNITS;
            while left > 0
                && let Some(job) = self.turns.take(source)
            {
                let cost = job.units();
                left = left.saturating_sub(cost);
                units += cost;
                match job {
                    Job::Update(update) => self.update(update),
                    Job::Action(action) => self.act(source, action, &mut batches),
                }
            }
            self.turns.end(source);
        }
        self.apply(&mut batches);
    }

    /// Lets time pass for the sources, and tells how they are read.
    pub(super) fn tick_sources(&mut self) {
        for number in 0..self.endpoints.list.len() {
            let source = SourceId(u32::try_from(number).unwrap_or(u32::MAX));
            let waits = self.subscriber.waits(source);
            if let Some(endpoint) = self.endpoints.by_source(source) {
                let more = waits - std::mem::replace(&mut endpoint.waits, waits);
                self.metrics
                    .source_waits
                    .get_or_create_owned(&endpoint.label)
                    .inc_by(more);
            }
            // Between its updates, not before those that have come already.
            if self.turns.waiting(source) == 0 {
                let actions = self.step(source, FeedInput::Tick);
                self.turns
                    .push_front(source, actions.into_iter().map(Job::Action));
            }
        }
    }

    /// Has a source's events indexed anew, since what was made of them no longer holds.
    pub(super) fn replay_all(&mut self, source: SourceId) {
        // Of batches that were taken and not applied yet, too.
        self.turns
            .drop_front(source, |job| matches!(job, Job::Action(_)));
        let actions = self.step(source, FeedInput::StartOver);
        let mut later = Vec::new();
        for action in actions {
            match action {
                FeedAction::Reset => self.reset(source),
                other => later.push(Job::Action(other)),
            }
        }
        self.turns.push_front(source, later.into_iter());
    }

    fn update(&mut self, update: Update) {
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
                let (seq, payload) = (batch.seq, Bytes::from(batch.payload));
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
        let actions = self.step(source, input);
        self.turns
            .push_front(source, actions.into_iter().map(Job::Action));
    }

    /// Steps a source, and tells what changed about it.
    fn step(&mut self, source: SourceId, input: FeedInput) -> Vec<FeedAction> {
        let now_ms = self.now_ms(Instant::now());
        let Some(endpoint) = self.endpoints.by_source(source) else {
            return Vec::new();
        };
        let state = endpoint.state();
        let Some(feed) = &mut endpoint.feed else {
            return Vec::new();
        };
        let before = feed.counters();
        let actions = feed.step(input, now_ms);
        let after = feed.counters();
        let count = |family: &EndpointCounters, by: u64| {
            family.get_or_create_owned(&endpoint.label).inc_by(by);
        };
        count(&self.metrics.event_gaps, after.gaps - before.gaps);
        count(&self.metrics.source_resets, after.resets - before.resets);
        count(
            &self.metrics.event_overflows,
            after.overflowed - before.overflowed,
        );
        if endpoint.state() != state {
            tracing::info!(
                endpoint = endpoint.label.endpoint,
                state = endpoint.state(),
                "event source changed"
            );
            self.endpoints.set_changed();
        }
        actions
    }

    fn act(&mut self, source: SourceId, action: FeedAction, batches: &mut Batches) {
        match action {
            FeedAction::Apply(payload) => batches.push((source, payload)),
            FeedAction::Reset => {
                // What was to be applied before it comes before it.
                self.apply(batches);
                self.reset(source);
                if let Some(endpoint) = self.endpoints.by_source(source) {
                    let settings = &endpoint.settings;
                    self.hints.changed(settings.model, settings.address);
                }
            }
            FeedAction::Replay { request, from } => {
                tracing::debug!(source = source.0, from, "asking for a replay");
                self.subscriber.replay(source, request, from);
            }
        }
    }

    /// Applies batches, and leaves the list empty.
    fn apply(&mut self, batches: &mut Batches) {
        let Self {
            index,
            endpoints,
            metrics,
            ..
        } = self;
        let payloads = batches
            .iter()
            .map(|(source, payload)| (*source, payload.as_ref()));
        index.apply_all(payloads, |source, outcome| {
            if let Some(endpoint) = endpoints.by_source(source) {
                count_batch(metrics, &endpoint.label, outcome);
            }
        });
        batches.clear();
    }

    /// Drops what is known of a source; another incarnation begins.
    fn reset(&mut self, source: SourceId) {
        let Some(endpoint) = self.endpoints.by_source(source) else {
            return;
        };
        let now = Instant::now();
        let fresh = self.holder_ids.take(now);
        self.holder_ids.retire(endpoint.holders, now);
        self.index.reset_source(source, fresh);
        endpoint.holders = fresh;
        endpoint.is_cut = false;
        endpoint.proof.forget();
        tracing::info!(
            endpoint = endpoint.label.endpoint,
            state = endpoint.state(),
            "event source starts over"
        );
        self.endpoints.set_changed();
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
