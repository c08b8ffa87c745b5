//! Prefill rates as replies show them.
//!
//! ```text
//!   dispatch          first tokens of others          first token
//!   ───┬────────────────────┬────────┬────────────────────┬──► time
//!      │ queued tokens Q    │   F    │  Q - F + uncached  │        sample = (Q - F + uncached) / time since the last first token
//! ```
//!
//! An engine that prefills one prompt after the other shows its rate between two first tokens, whatever waits before them. `F` are the tokens that were
//! seen to be computed since the dispatch, so that other gateways' requests, whose replies are not seen, count as what is left of `Q`.
//!
//! Every request has fixed costs besides, so the rate is a slope: tokens over time between two samples. The newest [`WINDOW`] samples are ordered by
//! tokens, and each of the lower half is paired with one of the upper half; the estimate is the median slope, weighted by tokens, so that neither a wrong
//! prediction nor a stalled reply moves it. Where prompts are too much alike for a slope it is the median of tokens over time. It is
//! blended (in logarithms) with what is believed without it: an endpoint's with its class's, a class's with the configured rate. Evidence
//! halves each [`HALF_LIFE_MS`], so without replies the rate goes back to the configured one; it never leaves [`MOST_FACTOR`] times that, either way.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::snapshot::EndpointKey;

/// Samples that count, the newest ones.
pub const WINDOW: usize = 64;

/// Time in which evidence loses half its weight.
pub const HALF_LIFE_MS: u64 = 600_000;

/// How far from the configured rate a learned one may be.
pub const MOST_FACTOR: f64 = 16.0;

/// Work below which fixed costs of a request hide the rate.
pub const MIN_TOKENS: u64 = 256;

/// Tokens from which on a sample has full weight.
const FULL_TOKENS: f64 = 2_048.0;

/// Full samples that the belief without evidence is worth.
const PRIOR: f64 = 1.0;

/// First tokens remembered of an endpoint.
const MAX_FIRSTS: usize = 256;

/// A reply's first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When it came.
    pub now_ms: u64,
    /// Time since the request was sent.
    pub ttft_ms: u64,
    /// Tokens that the endpoint had to compute for it, by the decision.
    pub uncached_tokens: u32,
    /// Tokens that waited there when it was sent, by the decision.
    pub queued_tokens: u64,
}

/// Spread of tokens, as a share of all of them, from which on a slope is taken.
const MIN_SPREAD: f64 = 0.25;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    tokens: f64,
    ms: f64,
}

/// What is known of one endpoint or class.
#[derive(Clone, Debug, Default)]
struct Evidence {
    samples: VecDeque<Sample>,
    /// The estimate, and the weight behind it at `at_ms`.
    tokens_per_s: f64,
    weight: f64,
    at_ms: u64,
}

impl Evidence {
    fn add(&mut self, sample: Sample) {
        if self.samples.len() == WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.at_ms = self.at_ms.max(sample.at_ms);
        let weight = |of: &Sample| (of.tokens / FULL_TOKENS).min(1.0) * left(self.at_ms, of.at_ms);
        self.weight = self.samples.iter().map(weight).sum();
        let mut sorted: Vec<Sample> = self.samples.iter().copied().collect();
        sorted.sort_by(|one, other| one.tokens.total_cmp(&other.tokens));
        let (lower, upper) = sorted.split_at(sorted.len() / 2);
        let pairs = lower.iter().zip(upper);
        let slopes: Vec<(f64, f64)> = pairs
            .map(|(short, long)| {
                let tokens = long.tokens - short.tokens;
                let ms = long.ms - short.ms;
                // More tokens in no more time: faster than can be told.
                let rate = if ms > 0.0 { tokens / ms } else { f64::INFINITY };
                (rate, tokens * left(self.at_ms, short.at_ms.min(long.at_ms)))
            })
            .collect();
        let spread: f64 = slopes.iter().map(|(_, tokens)| tokens).sum();
        let all: f64 = sorted
            .iter()
            .map(|of| of.tokens * left(self.at_ms, of.at_ms))
            .sum();
        let slope = (spread >= MIN_SPREAD * all).then(|| median(slopes));
        let per_ms = slope
            .filter(|slope| slope.is_finite() && *slope > 0.0)
            .unwrap_or_else(|| {
                let rates = sorted
                    .iter()
                    .map(|of| (of.tokens / of.ms, of.tokens * left(self.at_ms, of.at_ms)));
                median(rates.collect())
            });
        self.tokens_per_s = 1_000.0 * per_ms;
    }

    /// The belief `prior`, as far as evidence does not say otherwise.
    fn blend(&self, prior: f64, now_ms: u64) -> f64 {
        let weight = self.weight * left(now_ms, self.at_ms);
        if weight <= 0.0 || self.tokens_per_s <= 0.0 {
            return prior;
        }
        ((PRIOR * prior.ln() + weight * self.tokens_per_s.ln()) / (PRIOR + weight)).exp()
    }
}

/// First tokens of an endpoint, oldest first.
#[derive(Clone, Debug, Default)]
struct Firsts {
    newest: VecDeque<(u64, u32)>,
    /// Time of the newest one that is forgotten.
    forgotten_ms: Option<u64>,
}

impl Firsts {
    /// Work and time from the last first token before this one, or from its dispatch where there is none in between.
    fn stretch(&self, seen: &Observation) -> Option<(u64, u64)> {
        let sent_ms = seen.now_ms.saturating_sub(seen.ttft_ms);
        if self.forgotten_ms.is_some_and(|at_ms| at_ms >= sent_ms) {
            return None;
        }
        let since = self
            .newest
            .iter()
            .rev()
            .take_while(|(at_ms, _)| *at_ms > sent_ms);
        let (done, last_ms) = since.fold((0, sent_ms), |(done, last_ms), &(at_ms, tokens)| {
            (done + u64::from(tokens), last_ms.max(at_ms))
        });
        let work = seen.queued_tokens.saturating_sub(done) + u64::from(seen.uncached_tokens);
        Some((work, seen.now_ms.saturating_sub(last_ms)))
    }

    fn add(&mut self, seen: &Observation) {
        if self.newest.len() == MAX_FIRSTS {
            self.forgotten_ms = self.newest.pop_front().map(|(at_ms, _)| at_ms);
        }
        self.newest.push_back((seen.now_ms, seen.uncached_tokens));
    }
}

/// Rates of endpoints and classes.
#[derive(Clone, Debug, Default)]
pub struct Learner {
    endpoints: HashMap<EndpointKey, (Firsts, Evidence)>,
    classes: HashMap<String, Evidence>,
}

impl Learner {
    /// Takes a reply of an endpoint of a class. Calls are in the order of time.
    pub fn observe(&mut self, endpoint: EndpointKey, class: &str, seen: &Observation) {
        let (firsts, evidence) = self.endpoints.entry(endpoint).or_default();
        let stretch = firsts.stretch(seen);
        firsts.add(seen);
        let Some((tokens, ms @ 1..)) = stretch else {
            return;
        };
        if tokens < MIN_TOKENS {
            return;
        }
        let sample = Sample {
            at_ms: seen.now_ms,
            tokens: tokens as f64,
            ms: ms as f64,
        };
        evidence.add(sample);
        match self.classes.get_mut(class) {
            Some(evidence) => evidence.add(sample),
            None => self
                .classes
                .entry(class.to_owned())
                .or_default()
                .add(sample),
        }
    }

    /// Prompt tokens per second of an endpoint whose configured rate is `configured` (above 0).
    pub fn rate(&self, endpoint: EndpointKey, class: &str, configured: f64, now_ms: u64) -> f64 {
        let of_class = self.classes.get(class);
        let prior = of_class.map_or(configured, |evidence| evidence.blend(configured, now_ms));
        let own = self.endpoints.get(&endpoint);
        let rate = own.map_or(prior, |(_, evidence)| evidence.blend(prior, now_ms));
        rate.clamp(configured / MOST_FACTOR, configured * MOST_FACTOR)
    }

    /// Forgets an endpoint: it is gone, or another engine.
    pub fn forget(&mut self, endpoint: EndpointKey) {
        self.endpoints.remove(&endpoint);
    }
}

/// The value below which half of the weight lies; 0 of none.
fn median(mut weighted: Vec<(f64, f64)>) -> f64 {
    weighted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    let at_half = weighted.iter().find(|(_, weight)| {
        below += weight;
        2.0 * below >= all
    });
    at_half.map_or(0.0, |(value, _)| *value)
}

/// Share of evidence that is left.
fn left(now_ms: u64, at_ms: u64) -> f64 {
    (-(now_ms.saturating_sub(at_ms) as f64) / HALF_LIFE_MS as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointKey = EndpointKey(1);
    const B: EndpointKey = EndpointKey(2);

    /// Replies of an engine that computes `rate` tokens per second: requests of 3,000 tokens in pairs, one right after the other.
    fn feed(
        learner: &mut Learner,
        endpoint: EndpointKey,
        rate: u64,
        pairs: u64,
        from_ms: u64,
    ) -> u64 {
        let service_ms = 3_000_000 / rate;
        let mut now_ms = from_ms;
        for _ in 0..pairs {
            let one = Observation {
                now_ms: now_ms + service_ms,
                ttft_ms: service_ms,
                uncached_tokens: 3_000,
                queued_tokens: 0,
            };
            let other = Observation {
                now_ms: now_ms + 2 * service_ms,
                ttft_ms: 2 * service_ms - 1,
                queued_tokens: 3_000,
                ..one
            };
            learner.observe(endpoint, "class", &one);
            learner.observe(endpoint, "class", &other);
            now_ms += 3 * service_ms;
        }
        now_ms
    }

    fn near(got: f64, wanted: f64) {
        assert!((got / wanted - 1.0).abs() < 0.05, "{got} for {wanted}");
    }

    #[test]
    fn the_rate_is_found_and_a_class_speaks_for_endpoints_that_nothing_is_known_of() {
        let mut learner = Learner::default();
        near(learner.rate(A, "class", 8_000.0, 0), 8_000.0);
        let now_ms = feed(&mut learner, A, 2_000, 100, 0);
        near(learner.rate(A, "class", 8_000.0, now_ms), 2_000.0);
        near(learner.rate(B, "class", 8_000.0, now_ms), 2_000.0);
        near(learner.rate(B, "other", 8_000.0, now_ms), 8_000.0);
        learner.forget(A);
        near(learner.rate(A, "class", 8_000.0, now_ms), 2_000.0);
    }

    #[test]
    fn fixed_costs_of_requests_are_not_taken_for_work() {
        let mut learner = Learner::default();
        let mut now_ms = 0;
        for round in 0..100u32 {
            let uncached_tokens = 300 + round * 37 % 1_500;
            let ttft_ms = 40 + u64::from(uncached_tokens) / 8;
            now_ms += 1_000;
            let seen = Observation {
                now_ms,
                ttft_ms,
                uncached_tokens,
                queued_tokens: 0,
            };
            learner.observe(A, "class", &seen);
        }
        near(learner.rate(A, "class", 2_000.0, now_ms), 8_000.0);
    }

    #[test]
    fn one_wrong_reply_of_three_changes_little() {
        let mut learner = Learner::default();
        let mut now_ms = 0;
        for round in 0..60 {
            now_ms = feed(&mut learner, A, 4_000, 1, now_ms);
            // Predicted to be cached and not, or a stalled reply: too slow by far; or cached and not predicted.
            let (uncached_tokens, ttft_ms) = if round % 2 == 0 {
                (2_048, 20_000)
            } else {
                (9_000, 10)
            };
            now_ms += ttft_ms;
            let seen = Observation {
                now_ms,
                ttft_ms,
                uncached_tokens,
                queued_tokens: 0,
            };
            learner.observe(A, "class", &seen);
        }
        near(learner.rate(A, "class", 8_000.0, now_ms), 4_000.0);
    }

    #[test]
    fn it_stays_within_bounds_and_goes_back_to_what_is_configured() {
        let mut learner = Learner::default();
        let now_ms = feed(&mut learner, A, 10, 100, 0);
        near(learner.rate(A, "class", 8_000.0, now_ms), 500.0);
        let mut learner = Learner::default();
        let now_ms = feed(&mut learner, A, 4_000, 100, 0);
        let after =
            |half_lives: u64| learner.rate(A, "class", 8_000.0, now_ms + half_lives * HALF_LIFE_MS);
        assert!(after(0) < after(5) && after(5) < after(8));
        near(after(14), 8_000.0);
    }

    #[test]
    fn requests_of_other_gateways_count_as_what_waits() {
        // 9,000 tokens wait, 1,000 of them are seen to be done: the other 8,000 are done unseen, before its own 2,000.
        let mut learner = Learner::default();
        let seen = |now_ms, ttft_ms, uncached_tokens, queued_tokens| Observation {
            now_ms,
            ttft_ms,
            uncached_tokens,
            queued_tokens,
        };
        for round in 0..50u64 {
            let at_ms = round * 10_000;
            learner.observe(A, "class", &seen(at_ms + 500, 500, 1_000, 0));
            learner.observe(A, "class", &seen(at_ms + 5_500, 5_400, 2_000, 9_000));
        }
        near(learner.rate(A, "class", 8_000.0, 500_000), 2_000.0);
    }

    #[test]
    fn small_replies_and_odd_ones_say_nothing() {
        let mut learner = Learner::default();
        for (ttft_ms, uncached_tokens) in [(0, 5_000), (1, 0), (5, 100)] {
            let seen = Observation {
                now_ms: 10,
                ttft_ms,
                uncached_tokens,
                queued_tokens: 0,
            };
            learner.observe(A, "class", &seen);
        }
        near(learner.rate(A, "class", 8_000.0, 10), 8_000.0);
    }
}
