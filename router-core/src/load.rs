//! Load of the endpoints, as one VM of one gateway sees it.
//!
//! ```text
//!   own requests (Ledger) ─┐
//!   other VMs' records ────┼─► LoadView ─► queued prefill tokens and requests in flight per endpoint
//!   other gateways (Load) ─┘
//! ```
//!
//! Everything is absolute and kept by [`EndpointKey`], so nothing is lost or counted twice when a VM, the leader or the indexer
//! restarts. Endpoints the indexer says nothing about, and engines whose own figures were never read or are too old, have *unknown* load,
//! which is not the same as none.

pub mod ledger;
pub mod orca;
pub mod speculation;

use hashbrown::HashMap;

pub use ledger::{Ledger, RequestId};
pub use speculation::Speculation;

use crate::{
    proto,
    snapshot::{EndpointKey, Endpoints},
};

/// Age in ms at which the indexer's figures no longer count: a gateway silent for so long does not either.
pub const MAX_LOAD_AGE_MS: u64 = 3_000;

/// Age in ms past which an engine's own figures are not known any more, when the policy says nothing: more than an idle engine is left alone.
pub const DEFAULT_MAX_FIGURES_AGE_MS: u64 = 5_000;

/// Work given to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sequences in flight: of each request its `n` times its prompts.
    pub in_flight: u32,
    /// Prompt tokens sent to it and not yet prefilled.
    pub queued_prefill_tokens: u64,
}

impl Usage {
    /// Whether there is none.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            in_flight: self.in_flight.saturating_add(other.in_flight),
            queued_prefill_tokens: self
                .queued_prefill_tokens
                .saturating_add(other.queued_prefill_tokens),
        }
    }
}

/// What is known of one endpoint's load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndpointLoad {
    /// Work of all gateways as far as it is known.
    pub usage: Usage,
    /// Whether other gateways' work is in it.
    pub has_others: bool,
    /// The engine's own figures, while they are not too old.
    pub engine: Option<Figures>,
    /// What the engine said with a reply after that.
    pub reported: Option<orca::Report>,
}

impl EndpointLoad {
    /// Whether it is known how busy the endpoint is.
    pub fn is_known(&self) -> bool {
        self.has_others && self.engine.is_some()
    }

    /// Sequences in flight by all accounts.
    pub fn in_flight(&self) -> u32 {
        let strangers = self.engine.map_or(0, |engine| engine.others);
        self.usage.in_flight.saturating_add(strangers)
    }

    /// Requests that wait in the engine, by its newest word.
    pub fn waiting(&self) -> Option<u32> {
        let reported = self.reported.and_then(|report| report.waiting);
        reported.or(self.engine.map(|engine| engine.waiting))
    }

    /// Share of KV cache in use, by the engine's newest word.
    pub fn kv_usage_ratio(&self) -> Option<f64> {
        let reported = self.reported.and_then(|report| report.kv_usage_ratio);
        reported.or(self.engine.map(|engine| engine.kv_usage_ratio))
    }

    /// Requests that wait in the engine and that no gateway accounts for: nobody knows their prompts.
    pub fn waiting_strangers(&self) -> u32 {
        let strangers = self.engine.map_or(0, |engine| engine.others);
        self.waiting().unwrap_or(0).min(strangers)
    }
}

/// What an engine says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Running requests.
    pub running: u32,
    /// Waiting requests.
    pub waiting: u32,
    /// Share of KV cache in use by running requests, 0 to 1.
    pub kv_usage_ratio: f64,
    /// Requests, running or waiting, that no gateway accounted for when the figures were read.
    pub others: u32,
    /// Age in ms.
    pub age_ms: u64,
}

impl Figures {
    fn of(load: &proto::EndpointLoad) -> Option<Self> {
        Some(Self {
            running: load.running.unwrap_or(0),
            waiting: load.waiting?,
            kv_usage_ratio: load.kv_usage_ratio.unwrap_or(0.0),
            others: load.others.unwrap_or(0),
            age_ms: u64::from(load.age_ms),
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Told {
    usage: Usage,
    figures: Option<Figures>,
    received_ms: u64,
}

/// Load caused by others: the VMs of this proxy, and other gateways.
#[derive(Clone, Debug, Default)]
pub struct LoadView {
    vms: HashMap<EndpointKey, Usage>,
    gateways: HashMap<EndpointKey, Told>,
    /// What engines said with replies, and when.
    reported: HashMap<EndpointKey, (orca::Report, u64)>,
    /// 0 = default.
    max_figures_age_ms: u64,
}

impl LoadView {
    /// Sets the age past which engines' figures are not known any more; 0 = [`DEFAULT_MAX_FIGURES_AGE_MS`].
    pub fn set_max_figures_age(&mut self, ms: u64) {
        self.max_figures_age_ms = ms;
    }

    /// Replaces what the other VMs of this proxy have in flight.
    pub fn set_vms(&mut self, usages: impl Iterator<Item = (EndpointKey, Usage)>) {
        self.vms.clear();
        for (key, usage) in usages {
            let sum = self.vms.entry(key).or_default();
            *sum = sum.plus(usage);
        }
    }

    /// Takes what an engine said with a reply. Its figures count instead of older ones, as long as they would; they don't make load known
    /// that is not, since they say nothing of what is on its way.
    pub fn set_reported(&mut self, key: EndpointKey, report: orca::Report, now_ms: u64) {
        self.reported
            .retain(|_, (_, at_ms)| at_ms.saturating_add(MAX_LOAD_AGE_MS) >= now_ms);
        self.reported.insert(key, (report, now_ms));
    }

    /// Takes a shard's message that was received at `received_ms`; endpoints that are no longer in it become unknown as they age.
    pub fn set_gateways(&mut self, endpoints: &Endpoints, load: &proto::Load, received_ms: u64) {
        self.gateways
            .retain(|_, told| told.received_ms.saturating_add(MAX_LOAD_AGE_MS) >= received_ms);
        for of in &load.endpoints {
            let Some(info) = endpoints.by_id(crate::endpoint::EndpointId(of.endpoint)) else {
                continue;
            };
            let usage = Usage {
                in_flight: of.in_flight,
                queued_prefill_tokens: of.queued_prefill_tokens,
            };
            let told = Told {
                usage,
                figures: Figures::of(of),
                received_ms,
            };
            self.gateways.insert(info.key, told);
        }
    }

    /// Load of an endpoint: `own` of this VM, and all others'.
    pub fn of(&self, key: EndpointKey, own: &Ledger, now_ms: u64) -> EndpointLoad {
        let usage = own
            .usage(key)
            .plus(self.vms.get(&key).copied().unwrap_or_default());
        let is_fresh = |at_ms: u64| now_ms.saturating_sub(at_ms) <= MAX_LOAD_AGE_MS;
        let told = self.gateways.get(&key).copied();
        let told = told.filter(|told| is_fresh(told.received_ms));
        let since_ms = |told: Told| now_ms.saturating_sub(told.received_ms);
        let mut load = match told {
            Some(told) => EndpointLoad {
                usage: usage.plus(told.usage),
                has_others: true,
                engine: told
                    .figures
                    .map(|figures| Figures {
                        age_ms: figures.age_ms.saturating_add(since_ms(told)),
                        ..figures
                    })
                    .filter(|figures| figures.age_ms <= self.max_age_ms()),
                reported: None,
            },
            None => EndpointLoad {
                usage,
                ..EndpointLoad::default()
            },
        };
        let reported = self.reported.get(&key);
        let told_ms = told.map_or(0, |told| told.received_ms);
        let is_newest = |(_, at_ms): &&(_, u64)| is_fresh(*at_ms) && *at_ms >= told_ms;
        load.reported = reported.filter(is_newest).map(|(report, _)| *report);
        load
    }

    fn max_age_ms(&self) -> u64 {
        match self.max_figures_age_ms {
            0 => DEFAULT_MAX_FIGURES_AGE_MS,
            ms => ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_the_sum_of_own_vms_and_gateways_and_silence_is_unknown() {
        let endpoints = Endpoints::from_message(&proto::Endpoints {
            revision: 1,
            endpoints: vec![proto::Endpoint {
                id: 7,
                address: "a:1".into(),
                ..proto::Endpoint::default()
            }],
        });
        let key = endpoints.list()[0].key;
        let usage = |in_flight, queued_prefill_tokens| Usage {
            in_flight,
            queued_prefill_tokens,
        };
        let mut own = Ledger::default();
        own.start(RequestId(1), key, 100, 1);
        let mut view = LoadView::default();
        view.set_vms([(key, usage(2, 20)), (key, usage(1, 5))].into_iter());
        assert_eq!(view.of(key, &own, 0).usage, usage(4, 125));
        assert!(!view.of(key, &own, 0).has_others);
        let load = proto::EndpointLoad {
            endpoint: 7,
            in_flight: 9,
            queued_prefill_tokens: 1,
            running: Some(12),
            waiting: Some(1),
            others: Some(4),
            age_ms: 1_500,
            ..proto::EndpointLoad::default()
        };
        let stranger = proto::EndpointLoad {
            endpoint: 8,
            ..load
        };
        view.set_gateways(
            &endpoints,
            &proto::Load {
                endpoints: vec![load, stranger],
            },
            1_000,
        );
        let now = 1_000 + MAX_LOAD_AGE_MS;
        let seen = view.of(key, &own, now);
        assert_eq!((seen.usage, seen.is_known()), (usage(13, 126), true));
        assert_eq!((seen.in_flight(), seen.waiting_strangers()), (17, 1));
        assert_eq!(seen.engine.unwrap().age_ms, 1_500 + MAX_LOAD_AGE_MS);
        let silent = view.of(key, &own, now + 1);
        assert_eq!((silent.usage, silent.is_known()), (usage(4, 125), false));
        // Figures of 1.5 s and 3 s more are too old for this policy, the other gateways' word is not.
        view.set_max_figures_age(4_499);
        let stale = view.of(key, &own, now);
        assert_eq!((stale.usage, stale.is_known()), (usage(13, 126), false));
        assert_eq!((stale.in_flight(), stale.engine), (13, None));
        view.set_vms(core::iter::empty());
        own.finish(RequestId(1));
        assert!(view.of(key, &own, now + 1).usage.is_zero());
    }
}
