//! What all exchanges of one VM share: configuration, shards, models, load.

use std::collections::BTreeSet;

use prefixway_core::lifecycle::{Finish, Leg, Usage as Reported};
use prefixway_core::load::speculation::{DEFAULT_TTL_MS, Origin, ttl_ms};
use prefixway_core::load::{Ledger, LoadView, RequestId, Speculation};
use prefixway_core::proto::{EndpointUsage, Outcome, Policy, Routed, Usage, up};
use prefixway_core::schedule::DEFAULT_BETA;
use prefixway_core::snapshot::{EndpointKey, Update};
use prefixway_core::text::Api;

use crate::config::{Config, Mode};
use crate::decision::{self, Choice, Sight};
use crate::host::HostError;
use crate::metrics::{Metrics, Reason};
use crate::models::Models;
use crate::shard::Shard;

/// Age at which prefix knowledge is ignored when the policy says nothing.
const DEFAULT_MAX_AGE_MS: u64 = 5_000;
/// Prompt bytes that are hashed when the policy says nothing.
const DEFAULT_MAX_PROMPT_BYTES: usize = 4 << 20;
/// How often load is reported to the indexer.
const USAGE_PERIOD_MS: u64 = 50;
/// How often slowly changing gauges are written.
const GAUGE_PERIOD_MS: u64 = 500;

/// How an exchange ended, and what the engine reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// From the lifecycle.
    pub(crate) finish: Finish<EndpointKey>,
    /// From the answer's end.
    pub(crate) usage: Option<Reported>,
}

/// State of one configured plugin in one VM.
#[derive(Debug)]
pub(crate) struct Plugin {
    config: Config,
    metrics: Metrics,
    gateway: String,
    vm: u32,
    policy: Policy,
    models: Models,
    shards: Vec<Shard>,
    ledger: Ledger,
    load: LoadView,
    speculation: Speculation,
    next_request: u64,
    /// Requests whose answer is not streamed, by the time at which their prefill should be over.
    prefills: BTreeSet<(u64, RequestId)>,
    usage_at_ms: u64,
    gauges_at_ms: u64,
    is_ready: bool,
}

impl Plugin {
    /// A plugin with nothing but its configuration.
    pub(crate) fn new(config: Config, now_ns: u64) -> Self {
        let per_shard = config.max_vm_bytes / config.indexers.len().max(1);
        let shards = config
            .indexers
            .iter()
            .map(|cluster| Shard::new(cluster, per_shard))
            .collect();
        Self {
            metrics: Metrics::define(),
            gateway: format!("{now_ns:016x}"),
            vm: 0,
            policy: Policy::default(),
            models: Models::default(),
            shards,
            ledger: Ledger::default(),
            load: LoadView::default(),
            speculation: Speculation::default(),
            next_request: 1,
            prefills: BTreeSet::new(),
            usage_at_ms: 0,
            gauges_at_ms: 0,
            is_ready: false,
            config,
        }
    }

    /// The plugin's metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts and logs a host call that failed.
    pub(crate) fn host_error(&mut self, error: HostError) {
        self.metrics.host_errors.count();
        log::debug!("host call failed: {error}");
    }

    /// The mode that configuration and policy allow.
    pub(crate) fn mode(&self) -> Mode {
        let policy = Mode::from_name(&self.policy.mode).unwrap_or(Mode::On);
        self.config.mode.and(policy)
    }

    /// Whether both configuration and policy allow the explain header.
    pub(crate) fn may_explain(&self) -> bool {
        self.config.explain && self.policy.explain
    }

    /// Longest request body that is read.
    pub(crate) fn max_body_bytes(&self) -> usize {
        let limit = self.policy.max_body_bytes as usize;
        if limit == 0 {
            self.config.max_body_bytes
        } else {
            limit.min(self.config.max_body_bytes)
        }
    }

    /// The endpoint with this address, of this rank if there is such a one.
    pub(crate) fn endpoint(&self, address: &str, rank: Option<u32>) -> Option<EndpointKey> {
        [rank, None]
            .into_iter()
            .map(|rank| EndpointKey::new(address, rank))
            .find(|key| self.place_of(*key).is_some())
    }

    /// Shard and id of an endpoint.
    fn place_of(&self, key: EndpointKey) -> Option<(usize, u32)> {
        self.shards.iter().enumerate().find_map(|(number, shard)| {
            let endpoints = shard.endpoints();
            let info = endpoints.list().get(endpoints.place_of(key)?)?;
            Some((number, info.id.0))
        })
    }

    /// Chooses an endpoint for a request, or `None` when it is to pass as it is.
    pub(crate) fn decide(&mut self, api: Api, body: &[u8], now_ns: u64) -> Option<Choice> {
        let now_ms = now_ns / 1_000_000;
        let result = self.sight(now_ms).and_then(|sight| decision::decide(&sight, api, body));
        match result {
            Ok(choice) => {
                self.next_request += 1;
                self.metrics.decided(choice.reason);
                if let Some(reason) = choice.unscorable {
                    self.metrics.unscorable(reason);
                }
                Some(choice)
            }
            Err(reason) => {
                self.metrics.decided(reason);
                None
            }
        }
    }

    fn sight(&self, now_ms: u64) -> Result<Sight<'_>, Reason> {
        let seed = self.shards.iter().find_map(|shard| shard.replica().seed());
        let max_age_ms = match self.policy.max_age_ms {
            0 => DEFAULT_MAX_AGE_MS,
            ms => u64::from(ms),
        };
        let max_prompt_bytes = match self.policy.max_prompt_bytes {
            0 => DEFAULT_MAX_PROMPT_BYTES,
            bytes => bytes as usize,
        };
        Ok(Sight {
            models: &self.models,
            shards: self
                .shards
                .iter()
                .map(|shard| shard.sight(now_ms, max_age_ms))
                .collect(),
            seed: seed.ok_or(Reason::NoSnapshot)?,
            ledger: &self.ledger,
            load: &self.load,
            speculation: &self.speculation,
            beta: if self.policy.beta > 0.0 {
                self.policy.beta
            } else {
                DEFAULT_BETA
            },
            max_prompt_bytes,
            utc_offset_s: self.policy.utc_offset_s,
            now_ms,
            request: RequestId(self.next_request),
            explain: self.may_explain(),
        })
    }

    /// A decision was carried out: `leg` counts as load from now on.
    pub(crate) fn started(&mut self, choice: &Choice, leg: Leg<EndpointKey>, steered: bool) {
        self.ledger
            .start(choice.request, leg.endpoint, choice.prefill_tokens);
        if !choice.streamed {
            let work = choice.queued_tokens as f64 + f64::from(choice.prefill_tokens);
            let ms = (1000.0 * work / choice.prefill_tokens_per_s.max(1.0)).clamp(0.0, 600_000.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped"
            )]
            let due_ms = leg.sent_ms.saturating_add(ms as u64);
            self.prefills.insert((due_ms, choice.request));
        }
        self.metrics
            .matched_tokens
            .record(u64::from(choice.predicted_tokens));
        if steered {
            self.expect(choice, leg.endpoint, leg.sent_ms);
        }
    }

    /// Expects an endpoint to hold the prompt soon, and tells the indexer.
    fn expect(&mut self, choice: &Choice, endpoint: EndpointKey, now_ms: u64) {
        if choice.prompt.rungs.is_empty() {
            return;
        }
        let base_ms = match self.policy.speculative_ttl_ms {
            0 => DEFAULT_TTL_MS,
            ms => u64::from(ms),
        };
        let ttl = ttl_ms(
            base_ms,
            choice.queued_tokens,
            choice.prefill_tokens,
            choice.prefill_tokens_per_s,
        );
        self.speculation.add(
            self.origin(choice),
            endpoint,
            &choice.prompt.rungs,
            choice.bytes_per_token,
            now_ms.saturating_add(ttl),
        );
        if let Some((shard, id)) = self.place_of(endpoint) {
            let rungs = choice.prompt.rungs.iter();
            let record = up::Kind::Routed(Routed {
                request: self.wire_request(choice.request),
                endpoint: id,
                rungs: rungs.flat_map(|rung| rung.hash.to_le_bytes()).collect(),
                prompt_bytes: choice.prompt.bytes,
                predicted_cached_tokens: choice.predicted_tokens,
                estimated_prompt_tokens: choice.prompt_tokens,
            });
            self.push(shard, record);
        }
    }

    fn origin(&self, choice: &Choice) -> Origin {
        Origin {
            vm: self.vm,
            request: choice.request,
        }
    }

    /// A request's number that is unique within the gateway.
    fn wire_request(&self, request: RequestId) -> u64 {
        u64::from(self.vm) << 40 | request.0
    }

    fn push(&mut self, shard: usize, record: up::Kind) {
        if let Some(shard) = self.shards.get_mut(shard)
            && shard.push(record)
        {
            self.metrics.dropped_records.count();
        }
    }

    /// Another endpoint serves the request than was chosen.
    pub(crate) fn moved(&mut self, choice: &Choice, endpoint: EndpointKey, now_ms: u64) {
        self.ledger.served_by(choice.request, endpoint);
        self.speculation.cancel(self.origin(choice));
        self.expect(choice, endpoint, now_ms);
    }

    /// The first byte of the answer came.
    pub(crate) fn prefilled(&mut self, choice: &Choice) {
        self.ledger.prefilled(choice.request);
    }

    /// The exchange is over.
    pub(crate) fn finished(&mut self, choice: &Choice, answer: &Answer) {
        self.ledger.finish(choice.request);
        let finish = &answer.finish;
        if finish.failed {
            self.metrics.failed.count();
            self.speculation.cancel(self.origin(choice));
        }
        let ttft_ms = finish.ttft_ms.filter(|_| choice.streamed);
        if let Some(ms) = ttft_ms {
            self.metrics.ttft_ms.record(u64::from(ms));
        }
        let reported = answer.usage.unwrap_or_default();
        if let Some(cached) = reported.cached_tokens {
            self.metrics.cached_tokens.add(cached);
            self.metrics.predicted_tokens.add(choice.predicted_tokens);
        }
        if let Some((shard, id)) = self.place_of(finish.endpoint) {
            let record = up::Kind::Outcome(Outcome {
                request: self.wire_request(choice.request),
                endpoint: id,
                ttft_ms: ttft_ms.unwrap_or(0),
                predicted_cached_tokens: choice.predicted_tokens,
                cached_tokens: reported.cached_tokens,
                prompt_tokens: reported.prompt_tokens,
                failed: finish.failed,
            });
            self.push(shard, record);
        }
    }

    /// Periodic work; bounded.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.speculation.expire(now_ms);
        while let Some((due_ms, request)) = self.prefills.first().copied()
            && due_ms <= now_ms
        {
            self.prefills.pop_first();
            self.ledger.prefilled(request);
        }
        if now_ms >= self.usage_at_ms {
            self.usage_at_ms = now_ms + USAGE_PERIOD_MS;
            self.report_usage();
        }
        for shard in &mut self.shards {
            if shard.tick(now_ms, &self.config.pools, &self.gateway) {
                self.metrics.stream_ends.count();
            }
        }
        self.write_gauges(now_ms);
    }

    fn report_usage(&mut self) {
        let mut by_shard = vec![Usage::default(); self.shards.len()];
        for (key, usage) in self.ledger.usages() {
            let Some((shard, endpoint)) = self.place_of(key) else {
                continue;
            };
            if let Some(record) = by_shard.get_mut(shard) {
                record.endpoints.push(EndpointUsage {
                    endpoint,
                    in_flight: usage.in_flight,
                    queued_prefill_tokens: usage.queued_prefill_tokens,
                });
            }
        }
        for (shard, usage) in by_shard.into_iter().enumerate() {
            self.push(shard, up::Kind::Usage(usage));
        }
    }

    fn write_gauges(&mut self, now_ms: u64) {
        let ages: Vec<Option<u64>> = self.shards.iter().map(|s| s.age_ms(now_ms)).collect();
        let is_ready = ages.iter().any(Option::is_some);
        if is_ready != self.is_ready {
            self.is_ready = is_ready;
            self.metrics.ready_vms.adjust(if is_ready { 1 } else { -1 });
        }
        if now_ms < self.gauges_at_ms {
            return;
        }
        self.gauges_at_ms = now_ms + GAUGE_PERIOD_MS;
        if let Some(oldest) = ages.into_iter().flatten().max() {
            self.metrics.index_age.record(oldest.div_ceil(1000));
        }
        let tables = self.shards.iter().map(|s| s.replica().snapshot().table.len());
        self.metrics.index_rungs.record(tables.sum::<usize>() as u64);
    }

    /// A message came on a stream.
    pub(crate) fn message(&mut self, token: u32, size: usize, now_ms: u64) {
        let Some(shard) = self.shards.iter_mut().find(|s| s.token() == Some(token)) else {
            return;
        };
        match shard.message(size, now_ms) {
            Ok(Update::Policy(policy)) => self.set_policy(policy),
            Ok(Update::Load(load)) => self.load.set_gateways(shard.endpoints(), &load, now_ms),
            Ok(_) => {}
            Err(error) => {
                self.metrics.resyncs.count();
                log::warn!("stream to the indexer starts over: {error}");
            }
        }
    }

    fn set_policy(&mut self, policy: Policy) {
        self.models = Models::from_policy(&policy, |model, error| {
            log::warn!("model {model} is routed by load only, its profile can't be used: {error}");
        });
        self.policy = policy;
    }

    /// A stream ended.
    pub(crate) fn stream_ended(&mut self, token: u32, status: u32, now_ms: u64) {
        if let Some(shard) = self.shards.iter_mut().find(|s| s.token() == Some(token)) {
            shard.closed(now_ms);
            self.metrics.stream_ends.count();
            log::info!("stream to the indexer ended with status {status}");
        }
    }
}
