//! The endpoints as gateways see them.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use prefixway_core::endpoint::{EndpointId, HolderId, Tier};
use prefixway_core::index::SourceId;
use prefixway_core::proto;
use prefixway_core::sequence::SourceState;

use super::closed_loop::Proof;
use super::feed::Feed;
use super::holder_ids::HolderIds;
use super::knowledge::{Cache, Knowledge};
use crate::calibration::EngineReport;
use crate::config::Config;
use crate::metrics::EndpointLabel;
use crate::publish::Totals;
use crate::scrape::parse::{Adapters, Figures};
use crate::scrape::{Health, Sample};

/// Adapters come and go with requests, so what is new of them alone is told this often at most.
const ADAPTERS_EVERY: Duration = Duration::from_millis(500);

/// One endpoint's state.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) id: EndpointId,
    pub(super) source: SourceId,
    pub(super) label: EndpointLabel,
    pub(super) settings: crate::config::Endpoint,
    pub(super) health: Health,
    /// Tokens per block, 0 until a scrape says.
    pub(super) block_size: u32,
    /// Newest figures and when they were read.
    pub(super) figures: Option<(Figures, Instant)>,
    /// Requests in them that no gateway accounted for then: clients that pass by the gateways, or gateways that are silent.
    pub(super) others: u32,
    /// Adapters in its engine, as it said last.
    pub(super) adapters: Adapters,
    /// Live incarnation, by tier.
    pub(super) holders: [HolderId; 3],
    /// `None` without an event source.
    pub(super) feed: Option<Feed>,
    /// Times that it was not read since its share of the queue was full, as told in the metrics.
    pub(super) waits: u64,
    /// Whether the index dropped blocks to stay within its bound.
    pub(super) is_cut: bool,
    /// Whether it spells prompts otherwise than its model, so that its tokens say nothing about requests.
    pub(super) is_odd: bool,
    /// What calibration found; `None`: it has not been asked.
    pub(super) engine: Option<EngineReport>,
    /// Its cache as its metrics show it.
    pub(super) cache: Cache,
    /// What is known of its cache.
    pub(super) knowledge: Knowledge,
    /// Whether that proves right.
    pub(super) proof: Proof,
    /// Prefill rate that gateways reckon with.
    pub(super) prefill_tokens_per_s: f64,
}

/// All endpoints.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) list: Vec<Endpoint>,
    revision: u64,
    is_changed: bool,
    /// Whether adapters have changed that were not told yet.
    has_other_adapters: bool,
    /// When the last change was told.
    told_at: Option<Instant>,
}

impl Endpoints {
    /// Endpoints of the settings.
    pub(super) fn new(config: &Config, ids: &mut HolderIds) -> Self {
        let mut endpoints = Self {
            list: Vec::new(),
            revision: 0,
            is_changed: true,
            has_other_adapters: false,
            told_at: None,
        };
        for (settings, number) in config.endpoints.iter().zip(0u32..) {
            let holders = ids.take(Instant::now());
            let endpoint = label(&settings.address.to_string(), settings.rank);
            endpoints.list.push(Endpoint {
                id: EndpointId(number),
                source: SourceId(number),
                label: EndpointLabel { endpoint },
                settings: settings.clone(),
                // Envoy has health checks of its own, so doubt begins with the first failed look, not before it.
                health: Health::Well,
                block_size: 0,
                figures: None,
                others: 0,
                adapters: Adapters::default(),
                holders,
                feed: settings
                    .events
                    .as_ref()
                    .map(|events| Feed::new(events.replay.is_some(), number)),
                waits: 0,
                is_cut: false,
                is_odd: false,
                engine: None,
                cache: Cache::default(),
                knowledge: Knowledge::Blind,
                proof: Proof::default(),
                prefill_tokens_per_s: settings.prefill_tokens_per_s,
            });
        }
        endpoints
    }

    pub(super) fn by_id(&self, id: u32) -> Option<&Endpoint> {
        self.list.get(usize::try_from(id).ok()?)
    }

    pub(super) fn by_id_mut(&mut self, id: u32) -> Option<&mut Endpoint> {
        self.list.get_mut(usize::try_from(id).ok()?)
    }

    pub(super) fn by_source(&mut self, source: SourceId) -> Option<&mut Endpoint> {
        self.list.get_mut(usize::try_from(source.0).ok()?)
    }

    /// Number of the state that [`Self::message`] told last.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Says that something in [`Self::message`] is different now.
    pub(super) fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether something changed since the last call, of adapters since a while; then the revision is a new one.
    pub(super) fn take_changed(&mut self, now: Instant) -> bool {
        let told_at = self.told_at;
        let is_due = told_at.is_none_or(|at| now.duration_since(at) >= ADAPTERS_EVERY);
        let is_told = self.is_changed || self.has_other_adapters && is_due;
        if !is_told {
            return false;
        }
        self.is_changed = false;
        self.has_other_adapters = false;
        self.told_at = Some(now);
        self.revision += 1;
        true
    }

    /// Takes a look at an engine; whether it answers again after it did not, and the sources of ranks that have lost what they held.
    /// `totals` is what gateways have in flight.
    pub(super) fn scraped(
        &mut self,
        sample: &Sample,
        totals: &Totals,
        now: Instant,
    ) -> (bool, Vec<SourceId>) {
        let mut is_back = false;
        let mut lost = Vec::new();
        for endpoint in self
            .list
            .iter_mut()
            .filter(|endpoint| endpoint.settings.address == sample.address)
        {
            let is_well = sample.health == Health::Well;
            let mut is_changed = endpoint.health != sample.health;
            is_back |= is_well && endpoint.health != Health::Well;
            endpoint.health = sample.health;
            let mut is_lost = endpoint.cache.answers(is_well, now);
            let figures = sample
                .figures
                .as_ref()
                .and_then(|ranks| match endpoint.settings.rank {
                    Some(rank) => ranks.get(&rank).copied(),
                    None => total(ranks.values()),
                });
            if let Some(figures) = figures {
                is_lost |= endpoint.cache.look(&figures);
                endpoint.figures = Some((figures, now));
                let (accounted, _) = totals.on(endpoint.id.0);
                let inside = figures.running.saturating_add(figures.waiting);
                endpoint.others = inside.saturating_sub(accounted);
                if let Some(size) = figures.block_size {
                    is_changed |= endpoint.block_size != size;
                    endpoint.block_size = size;
                }
                let adapters = match endpoint.settings.rank {
                    Some(rank) => sample.adapters.get(&rank).cloned().unwrap_or_default(),
                    None => all_adapters(&sample.adapters),
                };
                self.has_other_adapters |= endpoint.adapters != adapters;
                endpoint.adapters = adapters;
            }
            self.is_changed |= is_changed;
            if is_lost {
                lost.push(endpoint.source);
            }
        }
        (is_back, lost)
    }

    /// The message for a gateway of these pools; no pools: all.
    pub(super) fn message(&self, config: &Config, pools: &[String]) -> proto::Endpoints {
        let pool_of = |endpoint: &Endpoint| {
            config
                .models
                .get(endpoint.settings.model)
                .map(|model| model.pool.clone())
        };
        let answers: HashSet<usize> = self
            .list
            .iter()
            .filter(|endpoint| endpoint.health == Health::Well)
            .map(|endpoint| endpoint.settings.model)
            .collect();
        let endpoints = self.list.iter().filter_map(|endpoint| {
            let pool = pool_of(endpoint).unwrap_or_default();
            let mut message = (pools.is_empty() || pools.contains(&pool))
                .then(|| endpoint.message(config, pool))?;
            // Where nobody answers in time it is likelier that this service doesn't hear: gateways go on with all of them.
            message.healthy |=
                endpoint.health == Health::Silent && !answers.contains(&endpoint.settings.model);
            Some(message)
        });
        proto::Endpoints {
            revision: self.revision,
            endpoints: endpoints.collect(),
        }
    }
}

impl Endpoint {
    /// Name of the source's state, on the wire and in metrics.
    pub(super) fn state(&self) -> &'static str {
        match &self.feed {
            None => "approximate",
            Some(_) if self.is_odd => "approximate",
            Some(feed)
                if feed.state() == SourceState::Live && (feed.is_partial() || self.is_cut) =>
            {
                "partial"
            }
            Some(feed) => feed.state().as_str(),
        }
    }

    /// Takes what the engine said of its load with a reply. What replies don't say stays as it was scraped, so that nothing is taken where
    /// nothing was scraped yet; of an engine with ranks it is only the first that speaks.
    pub(super) fn reported(&mut self, outcome: &proto::Outcome, now: Instant) {
        let has_figures = outcome.waiting.is_some() || outcome.kv_usage_ratio.is_some();
        if let Some((figures, at)) = &mut self.figures
            && has_figures
            && self.settings.rank.is_none()
        {
            figures.waiting = outcome.waiting.unwrap_or(figures.waiting);
            let share = outcome
                .kv_usage_ratio
                .filter(|share| (0.0..=1.0).contains(share));
            figures.kv_usage_ratio = share.unwrap_or(figures.kv_usage_ratio);
            *at = now;
        }
    }

    fn message(&self, config: &Config, pool: String) -> proto::Endpoint {
        let model = config
            .models
            .get(self.settings.model)
            .map(|model| model.id.clone())
            .unwrap_or_default();
        proto::Endpoint {
            id: self.id.0,
            address: self.settings.address.to_string(),
            rank: self.settings.rank,
            role: self.settings.role.as_str().to_owned(),
            pool,
            accelerator: self.settings.accelerator.clone(),
            healthy: self.health == Health::Well,
            prefill_tokens_per_s: self.prefill_tokens_per_s,
            block_size: self.block_size,
            holders: Tier::ALL
                .iter()
                .zip(self.holders)
                .map(|(tier, holder)| proto::Holder {
                    id: holder.0,
                    tier: tier.as_str().to_owned(),
                })
                .collect(),
            state: self.state().to_owned(),
            model,
            adapters: self.settings.adapters.clone().unwrap_or_default(),
            lists_adapters: self.settings.adapters.is_some(),
            prefix_trust: self.proof.share(),
            labels: self.settings.labels.clone(),
            kv_tokens: self.cache.tokens.unwrap_or(0),
            running_adapters: self.adapters.running.iter().cloned().collect(),
            waiting_adapters: self.adapters.waiting.iter().cloned().collect(),
            max_adapters: self.adapters.max,
        }
    }
}

/// All names that [`Endpoint::state`] gives.
pub(super) const STATES: [&str; 8] = [
    "approximate",
    "connecting",
    "replaying",
    "live",
    "partial",
    "gapped",
    "silent",
    "gone",
];

/// An endpoint in metrics and messages: `address`, or `address#rank`.
pub(super) fn label(address: &str, rank: Option<u32>) -> String {
    match rank {
        Some(rank) => format!("{address}#{rank}"),
        None => address.to_owned(),
    }
}

/// Ranks behind one address that is routed to as a whole.
fn total<'a>(ranks: impl Iterator<Item = &'a Figures>) -> Option<Figures> {
    ranks.copied().reduce(|a, b| Figures {
        running: a.running.saturating_add(b.running),
        waiting: a.waiting.saturating_add(b.waiting),
        kv_usage_ratio: a.kv_usage_ratio.max(b.kv_usage_ratio),
        block_size: a.block_size.or(b.block_size),
        cache_tokens: sum(a.cache_tokens, b.cache_tokens, u64::saturating_add),
        caches_prefixes: a.caches_prefixes.or(b.caches_prefixes),
        prompt_tokens: sum(a.prompt_tokens, b.prompt_tokens, |a, b| a + b),
        started_s: a.started_s.or(b.started_s),
        is_asleep: a.is_asleep && b.is_asleep,
    })
}

/// Adapters of the ranks behind one address that is routed to as a whole.
fn all_adapters(ranks: &BTreeMap<u32, Adapters>) -> Adapters {
    let none = Adapters::default();
    ranks.values().fold(none, Adapters::plus)
}

/// What both say together; what only one says is not known of both.
fn sum<T>(a: Option<T>, b: Option<T>, plus: impl Fn(T, T) -> T) -> Option<T> {
    Some(plus(a?, b?))
}

#[cfg(test)]
mod tests;
