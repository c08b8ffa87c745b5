//! What the owner of the index tells pages and metrics.

mod copies;
mod gauges;

use std::collections::BTreeMap;

use prefixway_core::index::ApproximateStats;
use serde::Serialize;

use super::Ingest;
use super::closed_loop::TrustReport;
use super::endpoints::Endpoint;
use super::feed::Feed;
use super::knowledge::Knowledge;
use super::models::Model;
pub use copies::{CopiesReport, GatewayReport, VmReport};

use crate::calibration::{EngineReport, EngineState, Facts};
use crate::publish::Totals;
use crate::scrape::Health;

/// State of everything at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether every source has caught up once, or the grace is over.
    pub ready: bool,
    /// Endpoints whose source has not, by address.
    pub waiting_for: Vec<String>,
    /// All endpoints.
    pub endpoints: Vec<EndpointReport>,
    /// All models.
    pub models: Vec<ModelReport>,
    /// The index and what is published of it.
    pub index: IndexReport,
    /// What gateways have of that.
    pub copies: CopiesReport,
}

/// One endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointReport {
    /// Number, as in the stream.
    pub id: u32,
    /// `ip:port`, as Envoy spells it.
    pub address: String,
    /// Data-parallel rank, when the engine takes it by header.
    pub rank: Option<u32>,
    /// Id of its model.
    pub model: String,
    /// both, prefill or decode.
    pub role: &'static str,
    /// Whether it may be sent requests.
    pub healthy: bool,
    /// Whether its publisher is connected.
    pub connected: bool,
    /// State of its event source.
    pub state: &'static str,
    /// What is known of its cache: precise, partial, approximate or blind.
    pub knowledge: Knowledge,
    /// Tokens that its cache has room for; `None`: it does not say.
    pub cache_tokens: Option<u64>,
    /// Prefill rate that gateways reckon with, in tokens per second: as configured, or as replies show it.
    pub prefill_tokens_per_s: f64,
    /// Whether that proves right in replies.
    pub trust: TrustReport,
    /// What decisions say of it; `None` where there are none that count.
    pub decisions: Option<DecisionsReport>,
    /// Tokens per block; 0 = not known yet.
    pub block_size: u32,
    /// Next sequence number to apply.
    pub next_seq: u64,
    /// Holes seen.
    pub gaps: u64,
    /// Times all knowledge of it was dropped.
    pub resets: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Batches that came twice.
    pub duplicates: u64,
    /// Live batches that found no room while a replay ran.
    pub overflows: u64,
    /// Times it was asked whether all is as expected, since it was quiet or gapped.
    pub soundings: u64,
    /// Times it was not read since its share of the queue was full.
    pub waits: u64,
    /// Updates and batches of it that wait to be applied.
    pub queued_jobs: usize,
    /// Requests in flight, all gateways.
    pub in_flight: u32,
    /// Prompt tokens sent and not yet prefilled, all gateways.
    pub queued_prefill_tokens: u64,
    /// Running requests, scraped.
    pub running: Option<u32>,
    /// Waiting requests, scraped.
    pub waiting: Option<u32>,
    /// Share of KV cache in use, scraped.
    pub kv_usage_ratio: Option<f64>,
    /// What calibration found; `None`: it has not been asked.
    pub engine: Option<EngineFacts>,
}

/// An engine as calibration found it.
#[derive(Clone, Debug, Serialize)]
pub struct EngineFacts {
    /// fits, differs, unavailable or unreachable.
    pub calibration: &'static str,
    /// Why it does not fit; empty where it does.
    pub reason: String,
    /// What it says of itself.
    #[serde(flatten)]
    pub facts: Facts,
}

/// What is remembered of decisions for an endpoint.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DecisionsReport {
    /// Tokens reckoned to have room.
    pub capacity_tokens: u64,
    /// Tokens credited.
    pub used_tokens: u64,
    /// Rungs credited.
    pub rungs: usize,
    /// Rungs dropped to make room.
    pub evicted_rungs: u64,
    /// Whether some were dropped to stay within the bytes of the index.
    pub is_cut: bool,
}

/// One model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Profile id.
    pub id: String,
    /// Values of `model` that mean the base model.
    pub names: Vec<String>,
    /// Values of `model` that mean an adapter.
    pub adapters: Vec<String>,
    /// Pool that serves it.
    pub pool: String,
    /// Revision of its profile, hexadecimal.
    pub revision: String,
    /// precise, approximate or unknown.
    pub state: &'static str,
    /// Why it is not precise; empty otherwise.
    pub state_reason: String,
    /// What is known of the caches of its endpoints together: precise, partial, approximate or blind.
    pub knowledge: Knowledge,
    /// Endpoints by what is known of their caches.
    pub endpoints: BTreeMap<&'static str, usize>,
    /// How its files compare with its engines: off, pending, unavailable, calibrated or differs.
    pub calibration: &'static str,
    /// What its profile assumes where its files leave room; empty when its text is not known.
    pub assumes: &'static str,
    /// Endpoints that spell prompts otherwise.
    pub odd_endpoints: Vec<String>,
    /// Engines' local time minus UTC in seconds; `None`: as the policy says.
    pub utc_offset_s: Option<i32>,
    /// Learned mean; 0 = not known yet.
    pub bytes_per_token: f64,
}

/// The index and what is published of it.
#[derive(Clone, Debug, Serialize)]
pub struct IndexReport {
    /// Number of the version line, hexadecimal.
    pub epoch: String,
    /// Version of the published table.
    pub version: u64,
    /// Rungs published.
    pub rungs: usize,
    /// Distinct holder sets published.
    pub sets: usize,
    /// Blocks over all sources.
    pub blocks: usize,
    /// Memory of the index, about.
    pub bytes: usize,
    /// Speculations under way.
    pub speculations: usize,
    /// Open streams.
    pub gateways: usize,
    /// Time since the last change.
    pub age_ms: u64,
    /// Events that could not be read.
    pub decode_errors: u64,
    /// Blocks stored under an unknown parent.
    pub orphan_blocks: u64,
    /// Blocks dropped to stay within the bound.
    pub evicted_blocks: u64,
    /// Stores that repeated what was known.
    pub duplicate_stores: u64,
    /// Removals of what was not known.
    pub unknown_removes: u64,
    /// Blocks whose content contradicted what their hash stood for.
    pub conflicts: u64,
    /// What each endpoint takes.
    pub sources: Vec<SourceReport>,
    /// What the endpoints of each model take, by its id.
    pub models: BTreeMap<String, ModelSize>,
}

/// What one endpoint takes in the index.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// The endpoint, as `address` or `address#rank`.
    pub endpoint: String,
    /// Id of its model.
    pub model: String,
    /// Blocks it holds, each a pair of endpoint and block.
    pub blocks: usize,
    /// Bytes that only it uses, about.
    pub bytes: usize,
    /// Whether blocks were dropped to stay within the bound.
    pub is_partial: bool,
    /// Rungs that decisions alone credit it with.
    pub decided_rungs: usize,
}

/// What the endpoints of a model take in the index.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ModelSize {
    /// Its endpoints.
    pub endpoints: usize,
    /// Pairs of endpoint and block.
    pub blocks: usize,
    /// Bytes that only one of them uses, about.
    pub bytes: usize,
    /// Rungs that decisions alone credit them with.
    pub decided_rungs: usize,
}

impl Report {
    pub(super) fn new(ingest: &Ingest) -> Self {
        let waiting_for: Vec<String> = ingest
            .endpoints
            .list
            .iter()
            .filter(|endpoint| {
                endpoint
                    .feed
                    .as_ref()
                    .is_some_and(|feed| !feed.has_been_live())
            })
            .map(|endpoint| endpoint.label.endpoint.clone())
            .collect();
        let totals = ingest.gateways.totals();
        Self {
            ready: waiting_for.is_empty() || ingest.started.elapsed() >= ingest.config.ready_grace,
            waiting_for,
            endpoints: ingest
                .endpoints
                .list
                .iter()
                .map(|endpoint| EndpointReport::new(ingest, &totals, endpoint))
                .collect(),
            models: ingest
                .models
                .iter()
                .zip(0..)
                .map(|(model, number)| ModelReport::new(ingest, model, number))
                .collect(),
            index: IndexReport::new(ingest),
            copies: CopiesReport::new(ingest),
        }
    }
}

impl IndexReport {
    fn new(ingest: &Ingest) -> Self {
        let stats = ingest.index.stats();
        let age = ingest.last_change.elapsed();
        let sources: Vec<SourceReport> = ingest
            .endpoints
            .list
            .iter()
            .map(|endpoint| SourceReport::new(ingest, endpoint))
            .collect();
        let mut models: BTreeMap<String, ModelSize> = BTreeMap::new();
        for source in &sources {
            let size = models.entry(source.model.clone()).or_default();
            size.endpoints += 1;
            size.blocks += source.blocks;
            size.bytes += source.bytes;
            size.decided_rungs += source.decided_rungs;
        }
        Self {
            epoch: format!("{:016x}", ingest.publisher.epoch()),
            version: ingest.publisher.version(),
            rungs: ingest.publisher.table().len(),
            sets: ingest.publisher.sets().len(),
            blocks: stats.blocks,
            bytes: stats.bytes,
            speculations: stats.speculations,
            gateways: ingest.gateways.len(),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            decode_errors: stats.counters.decode_errors,
            orphan_blocks: stats.counters.orphan_blocks,
            evicted_blocks: stats.counters.evicted_blocks,
            duplicate_stores: stats.counters.duplicate_stores,
            unknown_removes: stats.counters.unknown_removes,
            conflicts: stats.counters.conflicts,
            sources,
            models,
        }
    }
}

impl SourceReport {
    fn new(ingest: &Ingest, endpoint: &Endpoint) -> Self {
        let stats = ingest
            .index
            .source_stats(endpoint.source)
            .unwrap_or_default();
        let [holder, ..] = endpoint.holders;
        let decisions = ingest.index.approximate_stats(holder).unwrap_or_default();
        let model = ingest.models.get(endpoint.settings.model);
        Self {
            endpoint: endpoint.label.endpoint.clone(),
            model: model.map_or_else(String::new, |model| model.settings_id().to_owned()),
            blocks: stats.blocks,
            bytes: stats.bytes,
            is_partial: stats.is_partial,
            decided_rungs: decisions.rungs,
        }
    }
}

impl EndpointReport {
    fn new(ingest: &Ingest, totals: &Totals, endpoint: &Endpoint) -> Self {
        let feed = endpoint.feed.as_ref();
        let counters = feed.map(Feed::counters).unwrap_or_default();
        let (in_flight, queued_prefill_tokens) = totals.on(endpoint.id.0);
        let figures = endpoint.figures.map(|(figures, _)| figures);
        let model = ingest.config.models.get(endpoint.settings.model);
        let [holder, ..] = endpoint.holders;
        let decisions = ingest.index.approximate_stats(holder);
        Self {
            id: endpoint.id.0,
            address: endpoint.settings.address.to_string(),
            rank: endpoint.settings.rank,
            model: model.map(|model| model.id.clone()).unwrap_or_default(),
            role: endpoint.settings.role.as_str(),
            healthy: endpoint.health == Health::Well,
            connected: feed.is_some_and(Feed::is_connected),
            state: endpoint.state(),
            knowledge: endpoint.knowledge,
            cache_tokens: endpoint.cache.tokens,
            prefill_tokens_per_s: endpoint.prefill_tokens_per_s,
            trust: endpoint.proof.report(),
            decisions: decisions.map(DecisionsReport::from),
            block_size: endpoint.block_size,
            next_seq: feed.map(Feed::next_seq).unwrap_or_default(),
            gaps: counters.gaps,
            resets: counters.resets,
            replays: counters.replays,
            duplicates: counters.duplicates,
            overflows: counters.overflowed,
            soundings: feed.map(Feed::soundings).unwrap_or_default(),
            waits: ingest.subscriber.waits(endpoint.source),
            queued_jobs: ingest.turns.waiting(endpoint.source),
            in_flight,
            queued_prefill_tokens,
            running: figures.map(|figures| figures.running),
            waiting: figures.map(|figures| figures.waiting),
            kv_usage_ratio: figures.map(|figures| figures.kv_usage_ratio),
            engine: endpoint.engine.as_ref().map(EngineFacts::new),
        }
    }
}

impl From<ApproximateStats> for DecisionsReport {
    fn from(stats: ApproximateStats) -> Self {
        Self {
            capacity_tokens: stats.capacity_tokens,
            used_tokens: stats.used_tokens,
            rungs: stats.rungs,
            evicted_rungs: stats.evicted_rungs,
            is_cut: stats.is_cut,
        }
    }
}

impl EngineFacts {
    fn new(report: &EngineReport) -> Self {
        Self {
            calibration: report.state.name(),
            reason: match &report.state {
                EngineState::Fits(_) => String::new(),
                EngineState::Differs(why)
                | EngineState::Unavailable(why)
                | EngineState::Unreachable(why) => why.clone(),
            },
            facts: report.facts.clone(),
        }
    }
}

impl ModelReport {
    fn new(ingest: &Ingest, model: &Model, number: usize) -> Self {
        let profile = model.message();
        let (state, _) = model.state();
        let is_own = |endpoint: &&Endpoint| endpoint.settings.model == number;
        let own = || ingest.endpoints.list.iter().filter(is_own);
        let known_as = |knowledge: Knowledge| {
            let is_known_so = |endpoint: &&Endpoint| endpoint.knowledge == knowledge;
            (knowledge.as_str(), own().filter(is_known_so).count())
        };
        Self {
            id: profile.id,
            names: profile.names,
            adapters: profile.adapters,
            pool: profile.pool,
            revision: format!("{:016x}", profile.revision),
            state,
            state_reason: profile.state_reason,
            knowledge: Knowledge::of_all(own().map(|endpoint| endpoint.knowledge)),
            endpoints: Knowledge::ALL.into_iter().map(known_as).collect(),
            calibration: model.verdict().name(),
            assumes: match model.approximate_reason() {
                None => model.assumes(),
                Some(_) => "",
            },
            odd_endpoints: own()
                .filter(|endpoint| endpoint.is_odd)
                .map(|endpoint| endpoint.label.endpoint.clone())
                .collect(),
            utc_offset_s: profile.utc_offset_s,
            bytes_per_token: profile.bytes_per_token,
        }
    }
}
