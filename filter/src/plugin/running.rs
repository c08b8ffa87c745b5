//! A plugin at work: decides, keeps load, follows or leads the shards.

mod choosing;
mod sample;
mod waiting;

use std::collections::BTreeSet;
use std::rc::Rc;

pub(crate) use choosing::{Choice, Fate, Incoming};
pub(crate) use waiting::Paused;

use prefixway_core::lifecycle::{Finish, Usage};
use prefixway_core::load::{RequestId, orca};
use prefixway_core::mode::{Arm, Mode};
use prefixway_core::prompters::Prompters;
use prefixway_core::proto::Policy;
use prefixway_core::shared::Member;
use prefixway_core::snapshot::{EndpointKey, PromptHashes};
use prefixway_core::view::{Ending, Gate, Handed, RoutingView, Said, ViewConfig, Wanted};

use crate::host::Headers;
use crate::metrics::Metrics;
use crate::shared::HostData;
use crate::streams::Streams;

/// How often slowly changing gauges are written.
const GAUGE_PERIOD_MS: u64 = 500;
/// Longest prefill that is believed of an answer that is not streamed.
const MAX_PREFILL_MS: f64 = 600_000.0;

/// Answers to steered requests over which is judged whether choices are obeyed.
const OBEYED_WINDOW: u32 = 32;
/// How many of them the first choice has to serve: retries and restarts cost some, an upstream that picks by itself most.
const MIN_OBEYED: u32 = 24;

/// How an exchange ended, and what the engine reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    /// From the lifecycle.
    pub(crate) finish: Finish<EndpointKey>,
    /// What it says of its tokens.
    pub(crate) usage: Option<Usage>,
    /// Its HTTP status; `None` when none came.
    pub(crate) status: Option<u16>,
    /// How the request was handled.
    pub(crate) told: &'a Told,
}

impl Answer<'_> {
    /// Whether the request was at fault: that is no failure of the endpoint.
    fn is_clients_fault(&self) -> bool {
        self.status
            .is_some_and(|status| (400..500).contains(&status))
    }
}

/// How a request was handled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Mode of its route.
    pub(crate) mode: Mode,
    /// Name of its route, where that is known.
    pub(crate) route: Option<String>,
    /// Arm of its session, in an experiment.
    pub(crate) arm: Option<Arm>,
    /// Whether it was sent where the decision said.
    pub(crate) is_steered: bool,
    /// Whether somebody served it who is no endpoint: then its usage says nothing of one.
    pub(crate) is_stranger: bool,
    /// What the engine said of its load with the answer.
    pub(crate) report: Option<orca::Report>,
    /// When it was decided.
    pub(crate) decided_ms: u64,
}

/// A request that has gone on and is not counted yet.
#[derive(Debug)]
struct Departure {
    choice: Rc<Choice>,
    is_steered: bool,
    at_ms: u64,
}

impl Departure {
    /// Prompts to tell others of: those of a request that is not steered go nobody knows where.
    fn prompts(&self) -> &[PromptHashes] {
        if self.is_steered {
            &self.choice.chosen.prompts
        } else {
            &[]
        }
    }
}

/// State of a plugin at work.
#[derive(Debug)]
pub(crate) struct Running {
    data: HostData,
    view: RoutingView,
    streams: Streams,
    prompters: Prompters,
    /// Requests that wait for an endpoint.
    gate: Gate<Paused>,
    /// Those that go on with the next tick.
    handed: Vec<Handed<Paused>>,
    /// What of a request's headers matters.
    wanted: Wanted,
    next_request: u64,
    /// Counted with the next call of any kind, at the latest by a tick: telling others about a request must not delay it.
    departures: Vec<Departure>,
    /// Requests whose answer is not streamed, by the time at which their prefill should be over.
    prefills: BTreeSet<(u64, RequestId)>,
    gauges_at_ms: u64,
    is_ready: bool,
    is_leader: bool,
    resyncs: u64,
    /// Shards known to hash with another seed, by number.
    refused: Vec<usize>,
    /// From when on another decision may be told in full.
    sample_at_ms: u64,
    /// Answers to steered requests, newest in the lowest bit: 1 where the first choice served.
    obeyed: u32,
    /// How many there were, as far as that matters.
    answered: u32,
    is_disobeyed: bool,
}

impl Running {
    /// A plugin that knows nothing yet.
    pub(crate) fn new(config: &ViewConfig, data: HostData, audits: bool) -> Self {
        let mut view = RoutingView::new(config);
        view.set_audit(audits);
        Self {
            data,
            view,
            streams: Streams::new(&config.indexers),
            prompters: Prompters::default(),
            gate: Gate::default(),
            handed: Vec::new(),
            wanted: Wanted::default(),
            next_request: 1,
            departures: Vec::new(),
            prefills: BTreeSet::new(),
            gauges_at_ms: 0,
            is_ready: false,
            is_leader: false,
            resyncs: 0,
            refused: Vec::new(),
            sample_at_ms: 0,
            obeyed: 0,
            answered: 0,
            is_disobeyed: false,
        }
    }

    /// The policy in force: that of the first shard that has one.
    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.view.policies().next()
    }

    /// What a request's headers say of how it is to be served.
    pub(crate) fn said(&self, headers: &Headers) -> Said {
        self.wanted.read(headers.iter())
    }

    /// The endpoint with this address, of this rank if there is such a one.
    pub(crate) fn endpoint(&self, address: &str, rank: Option<u32>) -> Option<EndpointKey> {
        [rank, None]
            .into_iter()
            .map(|rank| EndpointKey::new(address, rank))
            .find(|key| {
                let mut members = self.view.members().iter();
                members.any(|member| member.info().endpoints.place_of(*key).is_some())
            })
    }

    /// The request has gone on and counts as load. Only a steered one tells where its prompt will be cached.
    pub(crate) fn started(&mut self, choice: Rc<Choice>, is_steered: bool, now_ms: u64) {
        self.departures.push(Departure {
            choice,
            is_steered,
            at_ms: now_ms,
        });
    }

    /// Counts what has gone on.
    pub(crate) fn settle(&mut self, metrics: &Metrics) {
        for departure in core::mem::take(&mut self.departures) {
            let Departure { choice, at_ms, .. } = &departure;
            let prompts = departure.prompts();
            let (decision, data) = (&choice.chosen.decision, &self.data);
            let committed = self
                .view
                .commit(choice.request, decision, prompts, *at_ms, data);
            if committed.is_err() {
                metrics.host_errors.count();
            }
            let predicted = choice.chosen.decision.predicted_cached_tokens();
            metrics.matched_tokens.record(u64::from(predicted));
            if !choice.is_streamed
                && let Some(best) = choice.chosen.decision.ranking.first()
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "clamped"
                )]
                let prefill_ms = best.ttft_ms.clamp(0.0, MAX_PREFILL_MS) as u64;
                let due_ms = at_ms.saturating_add(prefill_ms);
                self.prefills.insert((due_ms, choice.request));
            }
        }
    }

    /// Another endpoint serves the request than was chosen.
    pub(crate) fn moved(&mut self, choice: &Choice, endpoint: EndpointKey, now_ms: u64) {
        let chosen = &choice.chosen;
        let (decision, prompts) = (&chosen.decision, &chosen.prompts);
        self.view
            .served_by(choice.request, endpoint, decision, prompts, now_ms);
    }

    /// Gives up what this VM holds among the others.
    pub(crate) fn end(&mut self, now_ms: u64, metrics: &Metrics) {
        let ticked = self.view.resign(now_ms, &self.data);
        if ticked.error.is_some() {
            metrics.host_errors.count();
        }
        for (shard, action) in &ticked.actions {
            let _ = self.streams.act(*shard, action, now_ms);
        }
        if self.is_ready {
            metrics.ready_vms.adjust(-1);
        }
    }

    /// A steered request is answered, by the first choice or not. When many are not, something between here and the endpoints picks by
    /// itself; that is said once.
    pub(crate) fn obeyed(&mut self, is_obeyed: bool, metrics: &Metrics) {
        if !is_obeyed {
            metrics.disobeyed.count();
        }
        self.obeyed = self.obeyed << 1 | u32::from(is_obeyed);
        self.answered = (self.answered + 1).min(OBEYED_WINDOW);
        let is_disobeyed = self.answered == OBEYED_WINDOW && self.obeyed.count_ones() < MIN_OBEYED;
        if is_disobeyed && !self.is_disobeyed {
            log::warn!(
                "{} of the last {OBEYED_WINDOW} requests were served by another endpoint than was chosen: the endpoints' cluster needs the \
                 override_host policy, and with hold_at \"body\" the filters buffer and header_mutation have to stand behind this one",
                OBEYED_WINDOW - self.obeyed.count_ones()
            );
        }
        self.is_disobeyed = is_disobeyed;
    }

    /// An engine said how busy it is.
    pub(crate) fn reported(&mut self, endpoint: EndpointKey, report: orca::Report, now_ms: u64) {
        self.view.reported(endpoint, report, now_ms);
    }

    /// The first byte of the answer came.
    pub(crate) fn first_byte(&mut self, choice: &Choice, now_ms: u64) {
        if choice.is_streamed {
            self.view.first_byte(choice.request, now_ms);
        } else {
            self.view.prefilled(choice.request);
        }
    }

    /// The exchange is over.
    pub(crate) fn finished(
        &mut self,
        choice: &Choice,
        answer: &Answer<'_>,
        now_ms: u64,
        metrics: &Metrics,
    ) {
        let (finish, told) = (&answer.finish, answer.told);
        let reported = answer.usage.unwrap_or_default();
        let indexed = choice.chosen.decision.indexed_tokens_of(finish.endpoint);
        let ending = Ending {
            is_failed: finish.failed,
            cached_tokens: reported.cached_tokens,
            prompt_tokens: reported.prompt_tokens,
            completion_tokens: reported.completion_tokens,
            status: answer.status,
            indexed_cached_tokens: indexed.filter(|_| !told.is_stranger),
            is_unsteered: !told.is_steered,
            counts_cached: choice.counts_cached,
            report: told.report,
        };
        let sample = self.sample(choice, told, now_ms);
        self.view
            .finish_sampled(choice.request, ending, sample, now_ms);
        let is_failed = finish.failed && !answer.is_clients_fault();
        if is_failed {
            metrics.failed.count();
        }
        let ttft_ms = finish.ttft_ms.filter(|_| choice.is_streamed);
        if let Some(ms) = ttft_ms {
            metrics.ttft_ms.record(u64::from(ms));
        }
        if let Some(arm) = told.arm.map(|arm| metrics.of_arm(arm)) {
            arm.requests.count();
            if is_failed {
                arm.failed.count();
            }
            if let Some(ms) = ttft_ms {
                arm.ttft_ms.record(u64::from(ms));
            }
            if let (Some(prompt), Some(cached)) = (reported.prompt_tokens, reported.cached_tokens) {
                arm.prompt_tokens.add(prompt);
                arm.cached_tokens.add(cached);
            }
        }
        if let Some(cached) = reported.cached_tokens {
            let predicted = choice.chosen.decision.predicted_cached_tokens();
            metrics.cached_tokens.add(cached);
            metrics.predicted_tokens.add(predicted);
        }
    }

    /// Periodic work; bounded.
    pub(crate) fn tick(&mut self, now_ms: u64, metrics: &Metrics) {
        while let Some((due_ms, request)) = self.prefills.first().copied()
            && due_ms <= now_ms
        {
            self.prefills.pop_first();
            self.view.prefilled(request);
        }
        for shard in self.streams.reset_silent(now_ms) {
            self.view.on_closed(shard, now_ms);
            metrics.stream_ends.count();
        }
        let ticked = self.view.tick(now_ms, &self.data);
        if let Some(error) = ticked.error {
            metrics.host_errors.count();
            log::debug!("shared data: {error}");
        }
        if ticked.has_policy {
            self.compile();
        }
        for (shard, action) in &ticked.actions {
            if self.streams.act(*shard, action, now_ms).is_err() {
                metrics.host_errors.count();
                self.view.on_closed(*shard, now_ms);
            }
        }
        self.write_gauges(now_ms, metrics);
    }

    fn compile(&mut self) {
        self.prompters = Prompters::compile(self.view.policies(), |model, error| {
            log::warn!("model {model} is routed by load only, its profile can't be used: {error}");
        });
        self.wanted = self.view.wanted();
        if let Some(error) = self.view.profile_error() {
            log::warn!("the policy's profiles can't be used, the last good ones go on: {error}");
        }
    }

    fn write_gauges(&mut self, now_ms: u64, metrics: &Metrics) {
        let members = self.view.members();
        let is_ready = members.iter().any(|member| member.snapshot().epoch != 0);
        if is_ready != self.is_ready {
            self.is_ready = is_ready;
            metrics.ready_vms.adjust(if is_ready { 1 } else { -1 });
        }
        let is_leader = members.iter().any(Member::is_leader);
        if is_leader && !self.is_leader {
            metrics.elections.count();
        }
        self.is_leader = is_leader;
        let resyncs: u64 = members.iter().map(Member::resyncs).sum();
        let more = u32::try_from(resyncs.saturating_sub(self.resyncs)).unwrap_or(u32::MAX);
        metrics.resyncs.add(more);
        self.resyncs = resyncs;
        if now_ms < self.gauges_at_ms {
            return;
        }
        self.gauges_at_ms = now_ms + GAUGE_PERIOD_MS;
        self.write_refused(is_leader, metrics);
        let members = self.view.members();
        if let Some(oldest) = members.iter().filter_map(|m| m.age_ms(now_ms)).max() {
            metrics.index_age.record(oldest.div_ceil(1000));
        }
        if is_leader {
            let rungs: usize = members.iter().map(|m| m.snapshot().table.len()).sum();
            metrics.index_rungs.record(rungs as u64);
            let thinnings = members
                .iter()
                .map(|m| m.snapshot().table.thinning().level());
            metrics
                .index_thinning
                .record(u64::from(thinnings.max().unwrap_or(0)));
            metrics
                .usable_shards
                .record(self.view.usable(now_ms) as u64);
            metrics
                .in_flight
                .record(u64::from(self.view.in_flight(now_ms)));
            metrics.waiting.record(u64::from(self.view.waiting(now_ms)));
        }
    }

    /// Tells of shards whose knowledge can't be used with that of the others.
    fn write_refused(&mut self, is_leader: bool, metrics: &Metrics) {
        let refused: Vec<usize> = self.view.refused().collect();
        for shard in refused.iter().filter(|shard| !self.refused.contains(shard)) {
            let cluster = self.streams.cluster(*shard).unwrap_or_default();
            log::warn!(
                "indexer {cluster} is refused: it hashes with another seed than the others; its endpoints are chosen by load alone"
            );
        }
        self.refused = refused;
        if is_leader {
            metrics.refused_shards.record(self.refused.len() as u64);
        }
    }

    /// A message came on a stream.
    pub(crate) fn message(&mut self, token: u32, size: usize, now_ms: u64, metrics: &Metrics) {
        let Some(shard) = self.streams.shard_of(token) else {
            return;
        };
        let message = match self.streams.read(shard, size, now_ms) {
            Ok(message) => message,
            Err(error) => {
                log::warn!("stream to the indexer starts over: {error}");
                metrics.stream_ends.count();
                self.streams.close(shard);
                self.view.on_closed(shard, now_ms);
                return;
            }
        };
        match self.view.on_message(shard, message, now_ms) {
            Ok(true) => self.compile(),
            Ok(false) => {}
            Err(error) => {
                log::warn!("copy of the index starts over: {error}");
                metrics.stream_ends.count();
                self.streams.close(shard);
            }
        }
    }

    /// A stream ended.
    pub(crate) fn stream_ended(&mut self, token: u32, status: u32, now_ms: u64, metrics: &Metrics) {
        if let Some(shard) = self.streams.ended(token) {
            self.view.on_closed(shard, now_ms);
            metrics.stream_ends.count();
            log::info!("stream to the indexer ended with status {status}");
        }
    }
}
