//! The one task that owns the index and everything derived from it.
//!
//! ```text
//!  Update (kv_events) ─► turns ─► feed (sequence) ─► Index ─┐
//!  Command::Up (grpc) ─► speculation ──────────────► Index ─┤ every tick (<= 20 ms)
//!  Command::Scraped   ─► endpoints                          ▼
//!                                 Endpoints, Policy  ─► Publisher ─► deltas ─► publish ─► gateways
//! ```
//!
//! Others talk to it by [`Handle`], over a bounded queue. At each tick, endpoints go out before deltas: a holder that a delta names is
//! always known to be live or dead.

mod calibrated;
mod closed_loop;
pub mod decisions;
mod endpoints;
mod events;
mod feed;
mod handle;
mod holder_ids;
mod knowledge;
mod models;
mod pauses;
pub mod query;
mod rates;
mod report;
mod speculation;
mod table;
mod turns;
mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prefixway_core::hash::Seed;
use prefixway_core::index::{Index, IndexConfig, SourceId};
use prefixway_core::proto::{self, down::Kind};
use prefixway_core::snapshot::{PublishError, Publisher, Thinning};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

pub use closed_loop::TrustReport;
pub use handle::{Command, Handle, Stopped};
pub use knowledge::Knowledge;
pub use report::{
    CopiesReport, EndpointReport, GatewayReport, IndexReport, ModelReport, Report, VmReport,
};

use crate::calibration::{self, Hints};
use crate::config::{Config, Policy, Switch};
use crate::kv_events::{Source, Subscriber, Update};
use crate::metrics::{Metrics, Reason, ReasonLabel};
use crate::profile::Profile;
use crate::publish::{Gateways, Scraped, Subscription};
use crate::scrape::{Health, Sample};
use crate::shutdown::Shutdown;
use decisions::Decisions;
use endpoints::Endpoints;
use events::Job;
use holder_ids::HolderIds;
use models::Model;
use query::Queries;
use rates::Rates;
use speculation::Speculated;
use turns::Turns;

/// Updates put into their queues before anything else has its turn.
const UPDATES_PER_TURN: usize = 1024;
/// Deltas kept for gateways that resume: a minute and more of ticks that all changed something.
const RING_DELTAS: usize = 8192;
/// Time between two looks at what sources have to be asked.
const SOURCES_TICK: Duration = Duration::from_millis(100);
/// Longest time between two signs of life; shorter where `max_age` needs it.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// An index that can't be made.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// No room for the table.
    #[error("can't make the published table")]
    Publish(#[from] PublishError),
    /// The system gives no random bytes.
    #[error("can't draw an epoch: {0}")]
    Random(getrandom::Error),
}

/// The event sources of a configuration, numbered as its endpoints.
pub fn sources(config: &Config) -> impl Iterator<Item = Source> {
    config
        .endpoints
        .iter()
        .zip(0u32..)
        .filter_map(|(endpoint, number)| {
            Some(Source {
                id: SourceId(number),
                events: endpoint.events.clone()?,
            })
        })
}

/// Owner of the index.
#[derive(Debug)]
pub struct Ingest {
    config: Config,
    seed: Seed,
    index: Index,
    publisher: Publisher,
    /// When it is looked at next whether more rungs could be published.
    relax_at: Instant,
    endpoints: Endpoints,
    holder_ids: HolderIds,
    models: Vec<Model>,
    policy_revision: u64,
    /// Whether gateways have to be told the policy again.
    is_policy_changed: bool,
    hints: Hints,
    gateways: Gateways,
    speculated: Speculated,
    subscriber: Subscriber,
    updates: mpsc::Receiver<Update>,
    /// What waits to be done, by source.
    turns: Turns<Job>,
    commands: mpsc::Receiver<Command>,
    queries: Queries,
    decisions: Decisions,
    rates: Rates,
    metrics: Arc<Metrics>,
    started: Instant,
    last_change: Instant,
    last_heartbeat: Instant,
    sources_due: Instant,
}

/// What an [`Ingest`] is made from.
#[derive(Debug)]
pub struct Parts {
    /// Settings.
    pub config: Config,
    /// The deployment's seed.
    pub seed: Seed,
    /// Profiles of the models, in the order of the settings.
    pub profiles: Vec<Profile>,
    /// Where to say that an engine may be another one now.
    pub hints: Hints,
    /// The subscriber to [`sources`].
    pub subscriber: Subscriber,
    /// Its updates.
    pub updates: mpsc::Receiver<Update>,
    /// Metric families.
    pub metrics: Arc<Metrics>,
}

impl Ingest {
    /// An owner that knows nothing yet, and how to talk to it.
    ///
    /// # Errors
    /// No memory, or no random bytes.
    pub fn try_new(parts: Parts) -> Result<(Self, Handle), IngestError> {
        let Parts {
            config,
            seed,
            profiles,
            hints,
            subscriber,
            updates,
            metrics,
        } = parts;
        let max_bytes = usize::try_from(config.index.max_bytes).unwrap_or(usize::MAX);
        let mut index = Index::new(IndexConfig { seed, max_bytes });
        if config.index.token_space == Switch::On {
            index = index.with_token_space();
        }
        // A rung is about 23 bytes in the table and far more in the index, so the index's bound is met first.
        let max_bytes = usize::try_from(config.index.max_bytes).unwrap_or(usize::MAX);
        let publisher = table::publisher(&config, seed, Thinning::NONE, max_bytes)?;
        let models: Vec<Model> = config
            .models
            .iter()
            .zip(profiles)
            .enumerate()
            .map(|(number, (settings, profile))| {
                let verdict = calibration::initial_verdict(&config, number, &profile);
                Model::add(number, settings, profile, verdict, &mut index)
            })
            .collect();
        let mut holder_ids = HolderIds::new(config.policy.max_age);
        let endpoints = Endpoints::new(&config, &mut holder_ids);
        for endpoint in &endpoints.list {
            metrics.declare(&endpoint.label);
            if let Some(model) = models.get(endpoint.settings.model) {
                index.add_source(endpoint.source, model.id, endpoint.holders);
            }
        }
        let (handle, commands, questions) = handle::channel();
        let now = Instant::now();
        let ingest = Self {
            config,
            seed,
            index,
            publisher,
            relax_at: Instant::now(),
            endpoints,
            holder_ids,
            models,
            policy_revision: 1,
            is_policy_changed: false,
            hints,
            gateways: Gateways::new(Arc::clone(&metrics)),
            speculated: Speculated::default(),
            subscriber,
            updates,
            turns: Turns::default(),
            commands,
            queries: Queries::new(questions),
            decisions: Decisions::default(),
            rates: Rates::new(now),
            metrics,
            started: now,
            last_change: now,
            last_heartbeat: now,
            sources_due: now,
        };
        Ok((ingest, handle))
    }

    /// Runs until `shutdown`; then all streams end.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut tick = tokio::time::interval(self.config.index.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = shutdown.wait();
        tokio::pin!(stop);
        loop {
            // In this order: neither commands nor ticks wait for a flood of events, nor new events for the work of old ones.
            tokio::select! {
                biased;
                () = &mut stop => return,
                _ = tick.tick() => self.tick(Instant::now()),
                Some(command) = self.commands.recv() => self.command(command, Instant::now()),
                Some(update) = self.updates.recv() => {
                    self.enqueue(update);
                    for _ in 1..UPDATES_PER_TURN {
                        let Ok(update) = self.updates.try_recv() else { break };
                        self.enqueue(update);
                    }
                    self.work();
                    self.answer_next();
                }
                // Yields, so that the others of this task and of the runtime have their turn.
                () = tokio::task::yield_now(), if !self.turns.is_empty() => {
                    self.work();
                    self.answer_next();
                }
                Some(query) = self.queries.queue.recv() => self.answer(query),
                () = tokio::task::yield_now(), if self.queries.is_searching() => self.search(),
            }
        }
    }

    fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Scraped(sample) => self.scraped(&sample, now),
            Command::Calibrated(calibrated) => self.calibrated(*calibrated),
            Command::Subscribe { subscribe, reply } => self.subscribe(subscribe, reply),
            Command::Up { stream, message } => self.up(stream, message, now),
            Command::Closed(stream) => self.gateways.close(stream),
            Command::Policy(policy) => self.policy(*policy),
            Command::Decisions(wanted, reply) => {
                let _ = reply.send(self.decisions.page(&wanted));
            }
            Command::Report(reply) => {
                self.know();
                // Nobody waits for it any more: nothing to do.
                let _ = reply.send(Report::new(self));
            }
        }
    }

    /// Gateways go by another policy from now on.
    fn policy(&mut self, policy: Policy) {
        self.holder_ids.set_max_age(policy.max_age);
        self.config.policy = policy;
        self.is_policy_changed = true;
    }

    fn scraped(&mut self, sample: &Sample, now: Instant) {
        let totals = self.gateways.totals();
        let (is_back, lost) = self.endpoints.scraped(sample, &totals, now);
        for source in lost {
            self.lost(source);
        }
        for endpoint in self
            .endpoints
            .list
            .iter()
            .filter(|endpoint| endpoint.settings.address == sample.address)
        {
            if is_back {
                self.hints.changed(endpoint.settings.model, sample.address);
            }
            self.metrics
                .endpoint_healthy
                .get_or_create_owned(&endpoint.label)
                .set(i64::from(sample.health == Health::Well));
        }
    }

    fn subscribe(&mut self, subscribe: proto::Subscribe, reply: oneshot::Sender<Subscription>) {
        // Every stream stands where the deltas that follow begin.
        self.publish();
        self.make_room(subscribe.max_table_bytes);
        let start = self
            .publisher
            .start(subscribe.have_epoch, subscribe.have_version);
        let is_resumed = matches!(&start.hello.kind, Some(Kind::Hello(hello)) if hello.resume);
        if !is_resumed {
            let reason = match subscribe.have_epoch {
                0 => Reason::New,
                epoch if epoch != self.publisher.epoch() => Reason::Epoch,
                _ => Reason::Version,
            };
            self.metrics
                .resyncs
                .get_or_create_owned(&ReasonLabel { reason })
                .inc();
        }
        tracing::info!(
            gateway = subscribe.gateway,
            resumed = is_resumed,
            version = self.publisher.version(),
            "stream opened"
        );
        let policy = models::policy(
            &self.config,
            &self.models,
            &subscribe.pools,
            self.policy_revision,
        );
        let endpoints = self.endpoints.message(&self.config, &subscribe.pools);
        let mut first = vec![start.hello];
        first.extend(
            [Kind::Policy(Box::new(policy)), Kind::Endpoints(endpoints)]
                .map(|kind| proto::Down { kind: Some(kind) }),
        );
        first.extend(start.body);
        let subscription = self.gateways.open(subscribe, first);
        if let Err(unwanted) = reply.send(subscription) {
            self.gateways.close(unwanted.id);
        }
    }

    fn tick(&mut self, now: Instant) {
        let now_ms = self.now_ms(now);
        self.index.expire(now_ms);
        self.speculated.expire(now_ms);
        if now >= self.sources_due {
            self.sources_due = now + SOURCES_TICK;
            self.tick_sources();
            self.refresh_rates(now);
        }
        self.know();
        self.publish();
        let scraped: Vec<Scraped> = self
            .endpoints
            .list
            .iter()
            .map(|endpoint| Scraped {
                endpoint: endpoint.id.0,
                figures: endpoint.figures,
                others: endpoint.others,
            })
            .collect();
        self.gateways.tick(&scraped, now);
        if now.duration_since(self.last_heartbeat) >= HEARTBEAT.min(self.config.policy.max_age / 4)
        {
            self.last_heartbeat = now;
            self.gateways.broadcast(&Kind::Heartbeat(proto::Heartbeat {
                unix_ms: unix_ms(),
                version: self.publisher.version(),
            }));
            self.mark_cut_sources();
            self.relax_table(now);
            let now = SystemTime::now();
            for model in &mut self.models {
                self.is_policy_changed |= model.tell_time(now);
            }
        }
    }

    /// Sends gateways what is new: endpoints, policy, deltas.
    fn publish(&mut self) {
        if self.endpoints.take_changed(Instant::now()) {
            let Self {
                gateways,
                endpoints,
                config,
                ..
            } = self;
            gateways.send_by_pools(|pools| Kind::Endpoints(endpoints.message(config, pools)));
        }
        let changes = self.index.take_changes();
        if !changes.is_empty() {
            self.last_change = Instant::now();
            for model in &mut self.models {
                self.is_policy_changed |= model.learn(&self.index);
            }
        }
        if std::mem::take(&mut self.is_policy_changed) {
            self.policy_revision += 1;
            let Self {
                gateways,
                models,
                config,
                policy_revision,
                ..
            } = self;
            gateways.send_by_pools(|pools| {
                Kind::Policy(Box::new(models::policy(
                    config,
                    models,
                    pools,
                    *policy_revision,
                )))
            });
        }
        if changes.is_empty() {
            return;
        }
        match self.publisher.apply(&changes) {
            Ok(deltas) => {
                for delta in deltas {
                    self.metrics.deltas.inc();
                    self.metrics
                        .delta_bytes
                        .inc_by((delta.upserts.len() + delta.removes.len()) as u64);
                    self.gateways.broadcast(&Kind::Delta(delta));
                }
            }
            Err(error) => self.table_is_full(&error),
        }
    }

    fn mark_cut_sources(&mut self) {
        let mut is_changed = false;
        for endpoint in &mut self.endpoints.list {
            let is_cut = self.index.is_partial(endpoint.source);
            is_changed |= endpoint.is_cut != is_cut;
            endpoint.is_cut = is_cut;
        }
        if is_changed {
            self.endpoints.set_changed();
        }
    }

    fn now_ms(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Unix time in ms, by this clock.
fn unix_ms() -> u64 {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}
