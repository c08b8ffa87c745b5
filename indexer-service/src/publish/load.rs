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
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    in_flight: u32,
    queued_prefill_tokens: u64,
}

impl Used {
    fn add(&mut self, other: Self) {
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.queued_prefill_tokens = self
            .queued_prefill_tokens
            .saturating_add(other.queued_prefill_tokens);
    }
}

/// Newest usage of each gateway, by name: a gateway that reconnects does not count twice.
#[derive(Debug, Default)]
pub(super) struct Loads {
    gateways: HashMap<Arc<str>, (Instant, BTreeMap<u32, Used>)>,
}

impl Loads {
    pub(super) fn used(&mut self, gateway: Arc<str>, usage: &proto::Usage, now: Instant) {
        let endpoints = usage.endpoints.iter().map(|usage| {
            let used = Used {
                in_flight: usage.in_flight,
                queued_prefill_tokens: usage.queued_prefill_tokens,
            };
            (usage.endpoint, used)
        });
        self.gateways.insert(gateway, (now, endpoints.collect()));
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.gateways
            .retain(|_, (at, _)| now.duration_since(*at) < SILENCE);
    }

    pub(super) fn total(&self, endpoint: u32) -> (u32, u64) {
        let used = self.sum(endpoint, |_| true);
        (used.in_flight, used.queued_prefill_tokens)
    }

    /// Load of all endpoints as `gateway` should see it.
    pub(super) fn for_others_than(
        &self,
        gateway: &str,
        scraped: &[Scraped],
        now: Instant,
    ) -> Vec<proto::EndpointLoad> {
        scraped
            .iter()
            .map(|scraped| {
                let used = self.sum(scraped.endpoint, |name| name != gateway);
                let figures = scraped.figures.map(|(figures, _)| figures);
                let age = scraped
                    .figures
                    .map_or(Duration::ZERO, |(_, at)| now.duration_since(at));
                proto::EndpointLoad {
                    endpoint: scraped.endpoint,
                    in_flight: used.in_flight,
                    queued_prefill_tokens: used.queued_prefill_tokens,
                    kv_usage_ratio: figures.map(|figures| figures.kv_usage_ratio),
                    running: figures.map(|figures| figures.running),
                    waiting: figures.map(|figures| figures.waiting),
                    age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
                }
            })
            .collect()
    }

    fn sum(&self, endpoint: u32, counts: impl Fn(&str) -> bool) -> Used {
        let mut total = Used::default();
        for (name, (_, endpoints)) in &self.gateways {
            if counts(name)
                && let Some(used) = endpoints.get(&endpoint)
            {
                total.add(*used);
            }
        }
        total
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
            },
            Scraped {
                endpoint: 2,
                figures: None,
            },
        ];
        let at = start + Duration::from_millis(40);
        let seen = loads.for_others_than("a", &scraped, at);
        assert_eq!(
            (seen[0].in_flight, seen[0].running, seen[0].age_ms),
            (6, Some(9), 40)
        );
        assert_eq!(seen[0].queued_prefill_tokens, u64::MAX);
        assert_eq!((seen[1].in_flight, seen[1].running), (0, None));
        loads.used("a".into(), &usage(8), at);
        assert_eq!(loads.total(1).0, 14);
        loads.expire(start + SILENCE);
        assert_eq!(loads.total(1).0, 12);
    }
}
