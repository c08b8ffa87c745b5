//! Load that gateways cause, summed up for each gateway over all others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prefixway_core::proto;

use crate::scrape::parse::Figures;

/// A gateway that is silent for this long no longer counts.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// An endpoint with its scraped figures.
#[derive(Clone, Copy, Debug)]
pub struct Scraped {
    /// Endpoint id.
    pub endpoint: u32,
    /// Newest figures and when they were read; `None` when there are none.
    pub figures: Option<(Figures, Instant)>,
    /// Requests in them that no gateway accounted for then.
    pub others: u32,
}

/// Sums are wide enough for any number of gateways, so that a gateway's own part can be taken out again.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    in_flight: u64,
    queued_prefill_tokens: u128,
}

/// Newest usage of each gateway, by name: a gateway that reconnects does not count twice.
#[derive(Debug, Default)]
pub(super) struct Loads {
    gateways: HashMap<Arc<str>, (Instant, BTreeMap<u32, Used>)>,
}

/// Usage of all gateways together, by endpoint.
#[derive(Debug, Default)]
pub struct Totals(BTreeMap<u32, Used>);

impl Loads {
    pub(super) fn used(&mut self, gateway: Arc<str>, usage: &proto::Usage, now: Instant) {
        let endpoints = usage.endpoints.iter().map(|usage| {
            let used = Used {
                in_flight: usage.in_flight.into(),
                queued_prefill_tokens: usage.queued_prefill_tokens.into(),
            };
            (usage.endpoint, used)
        });
        self.gateways.insert(gateway, (now, endpoints.collect()));
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.gateways
            .retain(|_, (at, _)| now.duration_since(*at) < SILENCE);
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (_, endpoints) in self.gateways.values() {
            for (&endpoint, used) in endpoints {
                let total = totals.0.entry(endpoint).or_default();
                total.in_flight += used.in_flight;
                total.queued_prefill_tokens += used.queued_prefill_tokens;
            }
        }
        totals
    }

    /// Load of all endpoints as `gateway` should see it.
    pub(super) fn for_others_than(
        &self,
        gateway: &str,
        totals: &Totals,
        scraped: &[Scraped],
        now: Instant,
    ) -> Vec<proto::EndpointLoad> {
        let own = self.gateways.get(gateway).map(|(_, endpoints)| endpoints);
        scraped
            .iter()
            .map(|scraped| {
                let own = own
                    .and_then(|endpoints| endpoints.get(&scraped.endpoint))
                    .copied()
                    .unwrap_or_default();
                let (in_flight, queued_prefill_tokens) = totals.without(scraped.endpoint, own);
                let figures = scraped.figures.map(|(figures, _)| figures);
                let age = scraped
                    .figures
                    .map_or(Duration::ZERO, |(_, at)| now.duration_since(at));
                proto::EndpointLoad {
                    endpoint: scraped.endpoint,
                    in_flight,
                    queued_prefill_tokens,
                    kv_usage_ratio: figures.map(|figures| figures.kv_usage_ratio),
                    running: figures.map(|figures| figures.running),
                    waiting: figures.map(|figures| figures.waiting),
                    age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
                    others: figures.map(|_| scraped.others),
                }
            })
            .collect()
    }
}

impl Totals {
    /// In-flight requests and queued prefill tokens on an endpoint.
    pub fn on(&self, endpoint: u32) -> (u32, u64) {
        self.without(endpoint, Used::default())
    }

    fn without(&self, endpoint: u32, own: Used) -> (u32, u64) {
        let total = self.0.get(&endpoint).copied().unwrap_or_default();
        let in_flight = total.in_flight.saturating_sub(own.in_flight);
        let queued = total
            .queued_prefill_tokens
            .saturating_sub(own.queued_prefill_tokens);
        (
            u32::try_from(in_flight).unwrap_or(u32::MAX),
            u64::try_from(queued).unwrap_or(u64::MAX),
        )
    }
}

/// Whether two loads say the same of the same endpoints, whatever their ages.
pub(super) fn same_but_age(a: &[proto::EndpointLoad], b: &[proto::EndpointLoad]) -> bool {
    let ageless = |load: &proto::EndpointLoad| proto::EndpointLoad { age_ms: 0, ..*load };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| ageless(a) == ageless(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_sees_the_others_and_a_silent_one_is_forgotten() {
        let start = Instant::now();
        let mut loads = Loads::default();
        let usage = |in_flight| proto::Usage {
            endpoints: vec![proto::EndpointUsage {
                endpoint: 1,
                in_flight,
                queued_prefill_tokens: u64::MAX,
            }],
        };
        loads.used("a".into(), &usage(1), start);
        loads.used("b".into(), &usage(2), start);
        loads.used("c".into(), &usage(4), start + SILENCE / 2);
        let figures = Figures {
            running: 9,
            ..Figures::default()
        };
        let scraped = [
            Scraped {
                endpoint: 1,
                figures: Some((figures, start)),
                others: 3,
            },
            Scraped {
                endpoint: 2,
                figures: None,
                others: 0,
            },
        ];
        let at = start + Duration::from_millis(40);
        let seen = loads.for_others_than("a", &loads.totals(), &scraped, at);
        assert_eq!(
            (seen[0].in_flight, seen[0].running, seen[0].age_ms),
            (6, Some(9), 40)
        );
        assert_eq!(seen[0].queued_prefill_tokens, u64::MAX);
        assert_eq!(seen[0].others, Some(3));
        assert_eq!(
            (seen[1].in_flight, seen[1].running, seen[1].others),
            (0, None, None)
        );
        loads.used("a".into(), &usage(8), at);
        assert_eq!(loads.totals().on(1).0, 14);
        loads.expire(start + SILENCE);
        assert_eq!(loads.totals().on(1).0, 12);
    }
}
