//! Prefill rates as replies show them, in place of what is configured: see [`prefixway_core::schedule::rates`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prefixway_core::proto;
use prefixway_core::schedule::rates::{Learner, Observation};
use prefixway_core::snapshot::EndpointKey;

use super::Ingest;
use super::endpoints::Endpoint;
use super::speculation::Sent;
use crate::config::Switch;

/// Time between two looks at what evidence there is.
const REFRESH: Duration = Duration::from_secs(1);

/// Replies are told when they end, and a rate follows from the order in which they began: so long is waited for those that began before.
const HOLD_MS: u64 = 30_000;

/// Most replies that are waited with; past it the earliest are taken as they are.
const MAX_HELD: usize = 65_536;

/// Share by which a rate changes before gateways are told.
const WORTH_TELLING: f64 = 0.05;

/// Rates of all endpoints.
#[derive(Debug)]
pub(super) struct Rates {
    learner: Learner,
    /// Endpoint and observation, by the time of the first token and a number.
    held: BTreeMap<(u64, u64), (u32, Observation)>,
    next: u64,
    due: Instant,
}

impl Rates {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            learner: Learner::default(),
            held: BTreeMap::new(),
            next: 0,
            due: now + REFRESH,
        }
    }
}

fn key(endpoint: &Endpoint) -> EndpointKey {
    EndpointKey::new(
        &endpoint.settings.address.to_string(),
        endpoint.settings.rank,
    )
}

impl Ingest {
    /// Learns from the first token of a reply. Only of streamed replies it is known when it came.
    pub(super) fn learn_rate(&mut self, sent: &Sent, outcome: &proto::Outcome, now: Instant) {
        let is_told = outcome.ttft_ms > 0 && !outcome.failed && outcome.endpoint == sent.endpoint;
        if !is_told || self.config.policy.learn_rates == Switch::Off {
            return;
        }
        let now_ms = self.now_ms(now);
        let prompt_tokens = outcome.prompt_tokens.unwrap_or(sent.prompt_tokens);
        let cached = outcome
            .cached_tokens
            .unwrap_or(outcome.predicted_cached_tokens);
        // The reply is over now; its first token came when it was sent and `ttft_ms` later.
        let first_ms = (sent.at_ms + u64::from(outcome.ttft_ms)).min(now_ms);
        let seen = Observation {
            now_ms: first_ms,
            ttft_ms: u64::from(outcome.ttft_ms),
            uncached_tokens: prompt_tokens.saturating_sub(cached),
            queued_tokens: sent.queued_tokens,
        };
        let rates = &mut self.rates;
        rates.next += 1;
        let at = (first_ms, rates.next);
        rates.held.insert(at, (outcome.endpoint, seen));
    }

    /// Takes what has been held long enough; evidence fades.
    pub(super) fn refresh_rates(&mut self, now: Instant) {
        if now < self.rates.due {
            return;
        }
        self.rates.due = now + REFRESH;
        let now_ms = self.now_ms(now);
        while let Some(((first_ms, _), _)) = self.rates.held.first_key_value()
            && (first_ms + HOLD_MS <= now_ms || self.rates.held.len() > MAX_HELD)
        {
            let Some((_, (number, seen))) = self.rates.held.pop_first() else {
                break;
            };
            if let Some(endpoint) = self.endpoints.by_id(number) {
                let class = &endpoint.settings.accelerator;
                self.rates.learner.observe(key(endpoint), class, &seen);
            }
        }
        for number in (0u32..).take(self.endpoints.list.len()) {
            self.refresh_rate(number, now_ms);
        }
    }

    fn refresh_rate(&mut self, number: u32, now_ms: u64) {
        let is_on = self.config.policy.learn_rates == Switch::On;
        let Some(endpoint) = self.endpoints.by_id_mut(number) else {
            return;
        };
        let configured = endpoint.settings.prefill_tokens_per_s;
        let rate = if is_on {
            let class = &endpoint.settings.accelerator;
            let learner = &self.rates.learner;
            learner.rate(key(endpoint), class, configured, now_ms)
        } else {
            configured
        };
        if (rate / endpoint.prefill_tokens_per_s - 1.0).abs() < WORTH_TELLING {
            return;
        }
        endpoint.prefill_tokens_per_s = rate;
        self.metrics
            .prefill_rate
            .get_or_create_owned(&endpoint.label)
            .set(rate);
        self.endpoints.set_changed();
    }
}
