//! Metric families of the indexer; every name and help text is here, once.
//!
//! Labels come from the configuration (`endpoint` is an address and rank) and from enums, never from requests.

mod labels;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use labels::{
    CalibrationLabel, EndpointEvidence, EndpointLabel, EndpointResult, EndpointState, EvidenceKind,
    ModelLabel, ModelState, Outcome, Reason, ReasonLabel, ResultLabel, StateLabel,
};

/// Counters by endpoint.
pub type EndpointCounters = Family<EndpointLabel, Counter>;

/// Gauge of a fraction or of seconds.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// All families, and the registry that encodes them.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Batches received, duplicates included.
    pub event_batches: EndpointCounters,
    /// Holes in the sequence.
    pub event_gaps: EndpointCounters,
    /// Live batches not kept while a replay ran.
    pub event_overflows: EndpointCounters,
    /// Times a source was not read for a while.
    pub source_waits: EndpointCounters,
    /// Ended replays.
    pub event_replays: Family<EndpointResult, Counter>,
    /// Times all that was known of a source was dropped.
    pub source_resets: EndpointCounters,
    /// Messages and events that could not be read.
    pub event_errors: EndpointCounters,
    /// Blocks stored.
    pub stored_blocks: EndpointCounters,
    /// Blocks removed.
    pub removed_blocks: EndpointCounters,
    /// Age of batches when they are applied.
    pub event_delay: Histogram,
    /// 1 for a source's present state, 0 for the others.
    pub source_state: Family<EndpointState, Gauge>,
    /// 1 for what is known of an endpoint's cache, 0 for the others.
    pub endpoint_knowledge: Family<EndpointState, Gauge>,
    /// Endpoints of a model by what is known of their caches.
    pub model_knowledge: Family<ModelState, Gauge>,
    /// Tokens credited to an endpoint by decisions alone.
    pub approximate_tokens: Family<EndpointLabel, Gauge>,
    /// Rungs of the published table.
    pub index_rungs: Gauge,
    /// Blocks of the index.
    pub index_blocks: Gauge,
    /// Memory of the index.
    pub index_bytes: Gauge,
    /// Time since the index last changed.
    pub index_age: FloatGauge,
    /// Version of the published table.
    pub snapshot_version: Gauge,
    /// Of 2^n rungs one is published.
    pub table_thinning: Gauge,
    /// Deltas published.
    pub deltas: Counter,
    /// Bytes of the deltas, once and not per gateway.
    pub delta_bytes: Counter,
    /// Streams open.
    pub gateways: Gauge,
    /// VMs of gateways by what their copy of the table is.
    pub gateway_vms: Family<StateLabel, Gauge>,
    /// Bases sent because a gateway could not resume.
    pub resyncs: Family<ReasonLabel, Counter>,
    /// Streams closed.
    pub streams_closed: Family<ReasonLabel, Counter>,
    /// Decisions reported by gateways.
    pub decisions: EndpointCounters,
    /// Blocks that the decisions predicted as cached.
    pub matched_blocks: Histogram,
    /// Requests that gateways saw end.
    pub outcomes: Family<ResultLabel, Counter>,
    /// Distance of predicted and real cached tokens.
    pub prediction_error: Histogram,
    /// Whole replies by what they say of the engine's cache.
    pub replies: Family<EndpointEvidence, Counter>,
    /// Tokens that the index claimed to be cached, over replies that say how many were.
    pub claimed_tokens: EndpointCounters,
    /// How many of them were.
    pub confirmed_tokens: EndpointCounters,
    /// Mean share of the claims that were right, by endpoint.
    pub precision: Family<EndpointLabel, FloatGauge>,
    /// Prefill rate that gateways reckon with, by endpoint.
    pub prefill_rate: Family<EndpointLabel, FloatGauge>,
    /// 1 for whether the index proves right about an endpoint, 0 for the others.
    pub endpoint_trust: Family<EndpointState, Gauge>,
    /// Changes of the file of settings, and whether they were taken.
    pub config_reloads: Family<ResultLabel, Counter>,
    /// Questions about the index.
    pub queries: Family<ResultLabel, Counter>,
    /// Scrapes.
    pub scrapes: Family<EndpointResult, Counter>,
    /// 1 when the endpoint answers.
    pub endpoint_healthy: Family<EndpointLabel, Gauge>,
    /// 1 for the present state.
    pub model_state: Family<ModelState, Gauge>,
    /// Looks at an engine.
    pub calibrations: Family<CalibrationLabel, Counter>,
    /// Engines that spell prompts otherwise than the model's profile.
    pub odd_endpoints: Family<ModelLabel, Gauge>,
}

impl Metrics {
    /// Registers all families.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("prefixway");
        let mut metrics = Self {
            registry: Registry::default(),
            event_batches: Family::default(),
            event_gaps: Family::default(),
            event_overflows: Family::default(),
            source_waits: Family::default(),
            event_replays: Family::default(),
            source_resets: Family::default(),
            event_errors: Family::default(),
            stored_blocks: Family::default(),
            removed_blocks: Family::default(),
            event_delay: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            source_state: Family::default(),
            endpoint_knowledge: Family::default(),
            model_knowledge: Family::default(),
            approximate_tokens: Family::default(),
            index_rungs: Gauge::default(),
            index_blocks: Gauge::default(),
            index_bytes: Gauge::default(),
            index_age: FloatGauge::default(),
            snapshot_version: Gauge::default(),
            table_thinning: Gauge::default(),
            deltas: Counter::default(),
            delta_bytes: Counter::default(),
            gateways: Gauge::default(),
            gateway_vms: Family::default(),
            resyncs: Family::default(),
            streams_closed: Family::default(),
            decisions: Family::default(),
            matched_blocks: Histogram::new(exponential_buckets(1.0, 2.0, 14)),
            outcomes: Family::default(),
            prediction_error: Histogram::new(
                std::iter::once(0.0).chain(exponential_buckets(8.0, 2.0, 12)),
            ),
            replies: Family::default(),
            claimed_tokens: Family::default(),
            confirmed_tokens: Family::default(),
            precision: Family::default(),
            prefill_rate: Family::default(),
            endpoint_trust: Family::default(),
            config_reloads: Family::default(),
            queries: Family::default(),
            scrapes: Family::default(),
            endpoint_healthy: Family::default(),
            model_state: Family::default(),
            calibrations: Family::default(),
            odd_endpoints: Family::default(),
        };
        metrics.register(&mut registry);
        for reason in [Reason::New, Reason::Epoch, Reason::Version] {
            metrics.resyncs.get_or_create_owned(&ReasonLabel { reason });
        }
        for result in [Outcome::Ok, Outcome::Failed] {
            metrics.queries.get_or_create_owned(&ResultLabel { result });
            metrics
                .config_reloads
                .get_or_create_owned(&ResultLabel { result });
        }
        metrics.registry = registry;
        metrics
    }

    // Help texts end without a full stop: the encoder adds it.
    fn register(&self, r: &mut Registry) {
        r.register(
            "build",
            "Version of this build",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        r.register(
            "event_batches",
            "Event batches received, duplicates included",
            self.event_batches.clone(),
        );
        r.register(
            "event_gaps",
            "Holes in a source's sequence of batches",
            self.event_gaps.clone(),
        );
        r.register(
            "event_overflows",
            "Live batches that found no room while a replay ran, and were asked for after it",
            self.event_overflows.clone(),
        );
        r.register(
            "source_waits",
            "Times a source was not read because its share of the queue was full",
            self.source_waits.clone(),
        );
        r.register(
            "event_replays",
            "Replays asked of a publisher that have ended",
            self.event_replays.clone(),
        );
        r.register(
            "source_resets",
            "Times that all knowledge of a source was dropped",
            self.source_resets.clone(),
        );
        r.register(
            "event_errors",
            "Messages and events that could not be read",
            self.event_errors.clone(),
        );
        r.register(
            "stored_blocks",
            "Blocks that engines stored, copies included",
            self.stored_blocks.clone(),
        );
        r.register(
            "removed_blocks",
            "Blocks that engines removed, copies included",
            self.removed_blocks.clone(),
        );
        let unit = || Unit::Seconds;
        r.register_with_unit(
            "event_delay",
            "Time from an engine's step to the index, by both clocks",
            unit(),
            self.event_delay.clone(),
        );
        r.register(
            "source_state",
            "1 for the present state of an endpoint's event source",
            self.source_state.clone(),
        );
        r.register(
            "endpoint_knowledge",
            "1 for what is known of an endpoint's cache, and by what",
            self.endpoint_knowledge.clone(),
        );
        r.register(
            "model_knowledge",
            "Endpoints of a model by what is known of their caches",
            self.model_knowledge.clone(),
        );
        r.register_with_unit(
            "approximate",
            "Tokens credited to an endpoint by decisions alone",
            Unit::Other("tokens".to_owned()),
            self.approximate_tokens.clone(),
        );
        r.register(
            "index_rungs",
            "Rungs in the published table",
            self.index_rungs.clone(),
        );
        r.register(
            "index_blocks",
            "Blocks in the index, over all sources",
            self.index_blocks.clone(),
        );
        r.register_with_unit(
            "index",
            "Memory of the index, about",
            Unit::Bytes,
            self.index_bytes.clone(),
        );
        r.register_with_unit(
            "index_age",
            "Time since the index last changed",
            unit(),
            self.index_age.clone(),
        );
        r.register(
            "snapshot_version",
            "Version of the published table",
            self.snapshot_version.clone(),
        );
        r.register(
            "table_thinning",
            "Of 2^n rungs one is published, since a gateway has no room for all",
            self.table_thinning.clone(),
        );
        r.register("deltas", "Deltas published", self.deltas.clone());
        r.register_with_unit(
            "delta",
            "Size of the deltas published, once and not per gateway",
            Unit::Bytes,
            self.delta_bytes.clone(),
        );
        r.register(
            "gateways",
            "Snapshot streams that are open",
            self.gateways.clone(),
        );
        r.register(
            "gateway_vms",
            "VMs of gateways by what their copy of the table is: same, behind or different",
            self.gateway_vms.clone(),
        );
        r.register(
            "resyncs",
            "Full tables sent, because the gateway could not go on from its own",
            self.resyncs.clone(),
        );
        r.register(
            "streams_closed",
            "Snapshot streams that have ended",
            self.streams_closed.clone(),
        );
        r.register(
            "decisions",
            "Routing decisions reported by gateways, by chosen endpoint",
            self.decisions.clone(),
        );
        r.register(
            "matched_blocks",
            "Blocks that a decision predicted as cached",
            self.matched_blocks.clone(),
        );
        r.register(
            "outcomes",
            "Requests that gateways saw end",
            self.outcomes.clone(),
        );
        let tokens = Unit::Other("tokens".to_owned());
        r.register_with_unit(
            "prediction_error",
            "Distance of predicted and real cached tokens",
            tokens,
            self.prediction_error.clone(),
        );
        r.register(
            "replies",
            "Whole replies, by what they say of the engine's cache",
            self.replies.clone(),
        );
        r.register(
            "claimed_tokens",
            "Tokens that the index claimed to be cached, over replies that say how many were",
            self.claimed_tokens.clone(),
        );
        r.register(
            "confirmed_tokens",
            "Claimed tokens that were cached",
            self.confirmed_tokens.clone(),
        );
        r.register_with_unit(
            "prefix_precision",
            "Mean share of claimed tokens that were cached, over the newest replies",
            Unit::Other("ratio".to_owned()),
            self.precision.clone(),
        );
        r.register(
            "endpoint_prefill_tokens_per_second",
            "Prefill rate that gateways reckon with: as configured, or as replies show it",
            self.prefill_rate.clone(),
        );
        r.register(
            "endpoint_trust",
            "1 for whether the index proves right about the endpoint",
            self.endpoint_trust.clone(),
        );
        r.register(
            "config_reloads",
            "Changes of the file of settings, and whether they were taken",
            self.config_reloads.clone(),
        );
        r.register(
            "queries",
            "Questions about the index, and whether they were answered",
            self.queries.clone(),
        );
        r.register(
            "scrapes",
            "Scrapes of an engine's load and health",
            self.scrapes.clone(),
        );
        r.register(
            "endpoint_healthy",
            "1 when the endpoint answers its health check",
            self.endpoint_healthy.clone(),
        );
        r.register(
            "model_state",
            "1 for the present state of a model's prompt text",
            self.model_state.clone(),
        );
        r.register(
            "calibrations",
            "Looks at an engine's tokenizer and template, by how it compares with the model's files",
            self.calibrations.clone(),
        );
        r.register(
            "odd_endpoints",
            "Endpoints that spell prompts otherwise than the model's profile",
            self.odd_endpoints.clone(),
        );
    }

    /// Makes the series of an endpoint, so that they are there before anything happens.
    pub fn declare(&self, endpoint: &EndpointLabel) {
        for family in [
            &self.event_batches,
            &self.event_gaps,
            &self.event_overflows,
            &self.source_waits,
            &self.source_resets,
            &self.event_errors,
            &self.stored_blocks,
            &self.removed_blocks,
            &self.decisions,
        ] {
            family.get_or_create_owned(endpoint);
        }
    }

    /// All families in the `OpenMetrics` text format.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        if let Err(error) = text::encode(&mut out, &self.registry) {
            tracing::error!(%error, "can't encode metrics");
        }
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_convention() {
        let metrics = Metrics::new();
        let label = EndpointLabel {
            endpoint: "127.0.0.1:1#0".to_owned(),
        };
        metrics.declare(&label);
        metrics.event_gaps.get_or_create_owned(&label).inc();
        metrics
            .resyncs
            .get_or_create_owned(&ReasonLabel {
                reason: Reason::Epoch,
            })
            .inc();
        let text = metrics.encode();
        for expected in [
            "prefixway_build_info{version=\"0.1.0\"} 1",
            "prefixway_event_gaps_total{endpoint=\"127.0.0.1:1#0\"} 1",
            "prefixway_resyncs_total{reason=\"epoch\"} 1",
            "prefixway_resyncs_total{reason=\"version\"} 0",
            "prefixway_decisions_total{endpoint=\"127.0.0.1:1#0\"} 0",
            "prefixway_index_bytes 0",
            "prefixway_index_age_seconds 0.0",
            "prefixway_delta_bytes_total 0",
            "prefixway_event_delay_seconds_count 0",
            "prefixway_prediction_error_tokens_count 0",
            "# TYPE prefixway_decisions counter",
            "# TYPE prefixway_matched_blocks histogram",
        ] {
            assert!(text.contains(expected), "expected {expected}\ngot {text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.starts_with("prefixway_"), "{line}");
        }
    }
}
