//! Load of the endpoints, as one VM of one gateway sees it.
//!
//! ```text
//!   own requests (Ledger) ─┐
//!   other VMs' records ────┼─► LoadView ─► queued prefill tokens and requests in flight per endpoint
//!   other gateways (Load) ─┘
//! ```
//!
//! Everything is absolute and kept by [`EndpointKey`], so nothing is lost or counted twice when a VM, the leader or the indexer
//! restarts. Endpoints the indexer says nothing about have *unknown* load, which is not the same as none.

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
    pub is_known: bool,
    /// Share of KV cache in use, scraped.
    pub kv_usage_ratio: Option<f64>,
    /// Waiting requests, scraped.
    pub waiting: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Scraped {
    usage: Usage,
    kv_usage_ratio: Option<f64>,
    waiting: Option<u32>,
    received_ms: u64,
}

/// Load caused by others: the VMs of this proxy, and other gateways.
#[derive(Clone, Debug, Default)]
pub struct LoadView {
    vms: HashMap<EndpointKey, Usage>,
    gateways: HashMap<EndpointKey, Scraped>,
    /// What engines said with replies, and when.
    reported: HashMap<EndpointKey, (orca::Report, u64)>,
}

impl LoadView {
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
        self.gateways.retain(|_, scraped| {
            scraped.received_ms.saturating_add(MAX_LOAD_AGE_MS) >= received_ms
        });
        for of in &load.endpoints {
            let Some(info) = endpoints.by_id(crate::endpoint::EndpointId(of.endpoint)) else {
                continue;
            };
            let usage = Usage {
                in_flight: of.in_flight,
                queued_prefill_tokens: of.queued_prefill_tokens,
            };
            let scraped = Scraped {
                usage,
                kv_usage_ratio: of.kv_usage_ratio,
                waiting: of.waiting,
                received_ms,
            };
            self.gateways.insert(info.key, scraped);
        }
    }

    /// Load of an endpoint: `own` of this VM, and all others'.
    pub fn of(&self, key: EndpointKey, own: &Ledger, now_ms: u64) -> EndpointLoad {
        let usage = own
            .usage(key)
            .plus(self.vms.get(&key).copied().unwrap_or_default());
        let is_fresh = |at_ms: u64| now_ms.saturating_sub(at_ms) <= MAX_LOAD_AGE_MS;
        let scraped = self.gateways.get(&key);
        let scraped = scraped.filter(|scraped| is_fresh(scraped.received_ms));
        let mut load = match scraped {
            Some(scraped) => EndpointLoad {
                usage: usage.plus(scraped.usage),
                is_known: true,
                kv_usage_ratio: scraped.kv_usage_ratio,
                waiting: scraped.waiting,
            },
            None => EndpointLoad {
                usage,
                ..EndpointLoad::default()
            },
        };
        let reported = self.reported.get(&key);
        let scraped_ms = scraped.map_or(0, |scraped| scraped.received_ms);
        if let Some((report, at_ms)) = reported.filter(|(_, at_ms)| is_fresh(*at_ms))
            && *at_ms >= scraped_ms
        {
            load.waiting = report.waiting.or(load.waiting);
            load.kv_usage_ratio = report.kv_usage_ratio.or(load.kv_usage_ratio);
        }
        load
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
        assert!(!view.of(key, &own, 0).is_known);
        let load = proto::EndpointLoad {
            endpoint: 7,
            in_flight: 9,
            queued_prefill_tokens: 1,
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
        assert_eq!(
            (
                view.of(key, &own, now).usage,
                view.of(key, &own, now).is_known
            ),
            (usage(13, 126), true)
        );
        assert_eq!(
            (
                view.of(key, &own, now + 1).usage,
                view.of(key, &own, now + 1).is_known
            ),
            (usage(4, 125), false)
        );
        view.set_vms(core::iter::empty());
        own.finish(RequestId(1));
        assert!(view.of(key, &own, now + 1).usage.is_zero());
    }
}
