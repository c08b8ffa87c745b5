//! Decisions that gateways told in full: the newest ones, in a ring.
//!
//! Nothing of a prompt is in them. What comes from gateways is cut to what a gateway of this version sends, so the ring takes at most some
//! megabytes.

use std::collections::VecDeque;

use prefixway_core::proto;
use prefixway_core::view::MAX_CONSIDERED;
use serde::Serialize;

use super::unix_ms;

/// Decisions that are kept.
pub const MAX_DECISIONS: usize = 1_024;
/// Bytes of a name that are kept.
const MAX_NAME_BYTES: usize = 512;

/// One decision, and how it went.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// Name of the gateway.
    pub gateway: String,
    /// Number within the gateway.
    pub request: u64,
    /// When it was taken, by the gateway's clock.
    pub unix_ms: u64,
    /// Time since then, by this clock.
    pub age_ms: u64,
    /// Profile id.
    pub model: String,
    /// Name of the route; `None`: not known.
    pub route: Option<String>,
    /// on, split or shadow.
    pub mode: String,
    /// steered or control, in mode split.
    pub arm: Option<String>,
    /// What decided.
    pub reason: String,
    /// Why there was no prompt text.
    pub no_text: Option<String>,
    /// Age of the prefix knowledge; `None`: there was none.
    pub index_age_ms: Option<u64>,
    /// Tokens of the prompt, estimated.
    pub estimated_prompt_tokens: u32,
    /// Endpoints that could have served.
    pub eligible: u32,
    /// The best of them, best first.
    pub candidates: Vec<Candidate>,
    /// Endpoint that served.
    pub served_by: String,
    /// Whether it went as it should.
    pub failed: bool,
    /// Time to the first byte of a streamed reply.
    pub ttft_ms: Option<u32>,
    /// Tokens expected to be in the first candidate's cache.
    pub predicted_cached_tokens: u32,
    /// Tokens that were cached, by the reply.
    pub cached_tokens: Option<u32>,
    /// Tokens of the prompt, by the reply.
    pub prompt_tokens: Option<u32>,
}

/// An endpoint as a decision saw it.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// `ip:port`.
    pub address: String,
    /// Data-parallel rank.
    pub rank: Option<u32>,
    /// Tokens that counted as cached.
    pub cached_tokens: u32,
    /// Tier that they are in; `None`: none are, or they are only expected.
    pub tier: Option<String>,
    /// Tokens that the index says it holds, trusted or not.
    pub indexed_tokens: u32,
    /// Tokens before the prompt.
    pub queued_prefill_tokens: u64,
    /// Sequences in flight.
    pub in_flight: u32,
    /// Whether its load was known.
    pub load_is_known: bool,
    /// Estimated time to the first token.
    pub ttft_ms: f64,
    /// Cost.
    pub cost_ms: f64,
}

/// Which decisions are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// At most so many.
    pub limit: usize,
    /// Only of this model.
    pub model: Option<String>,
    /// Only those that this endpoint served.
    pub endpoint: Option<String>,
}

/// Some decisions.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionsPage {
    /// Decisions told since the start.
    pub told: u64,
    /// Decisions that are kept.
    pub kept: usize,
    /// Newest first.
    pub decisions: Vec<Decision>,
}

/// The ring.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    newest_last: VecDeque<Decision>,
    told: u64,
}

impl Decisions {
    pub(super) fn keep(&mut self, gateway: &str, served_by: String, sampled: proto::Sampled) {
        self.told += 1;
        if self.newest_last.len() >= MAX_DECISIONS {
            self.newest_last.pop_front();
        }
        self.newest_last
            .push_back(Decision::new(gateway, served_by, sampled));
    }

    pub(super) fn page(&self, wanted: &Wanted) -> DecisionsPage {
        let now_ms = unix_ms();
        let is_of =
            |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|name| name == is);
        let decisions = self.newest_last.iter().rev().filter(|decision| {
            is_of(&wanted.model, &decision.model) && is_of(&wanted.endpoint, &decision.served_by)
        });
        let aged = |decision: &Decision| Decision {
            age_ms: now_ms.saturating_sub(decision.unix_ms),
            ..decision.clone()
        };
        DecisionsPage {
            told: self.told,
            kept: self.newest_last.len(),
            decisions: decisions.take(wanted.limit).map(aged).collect(),
        }
    }
}

impl Decision {
    fn new(gateway: &str, served_by: String, sampled: proto::Sampled) -> Self {
        let outcome = sampled.outcome.unwrap_or_default();
        let considered = sampled.considered.into_iter().take(MAX_CONSIDERED);
        Self {
            gateway: gateway.to_owned(),
            request: sampled.request,
            unix_ms: sampled.unix_ms,
            age_ms: 0,
            model: cut(sampled.model),
            route: named(sampled.route),
            mode: cut(sampled.mode),
            arm: named(sampled.arm),
            reason: cut(sampled.reason),
            no_text: named(sampled.no_text),
            index_age_ms: sampled.index_age_ms,
            estimated_prompt_tokens: sampled.estimated_prompt_tokens,
            eligible: sampled.eligible,
            candidates: considered.map(Candidate::new).collect(),
            served_by,
            failed: outcome.failed,
            ttft_ms: Some(outcome.ttft_ms).filter(|ms| *ms > 0),
            predicted_cached_tokens: outcome.predicted_cached_tokens,
            cached_tokens: outcome.cached_tokens,
            prompt_tokens: outcome.prompt_tokens,
        }
    }
}

impl Candidate {
    fn new(considered: proto::Considered) -> Self {
        Self {
            address: cut(considered.address),
            rank: considered.rank,
            cached_tokens: considered.cached_tokens,
            tier: named(considered.tier),
            indexed_tokens: considered.indexed_tokens,
            queued_prefill_tokens: considered.queued_prefill_tokens,
            in_flight: considered.in_flight,
            load_is_known: considered.load_is_known,
            ttft_ms: considered.ttft_ms,
            cost_ms: considered.cost_ms,
        }
    }
}

fn named(name: String) -> Option<String> {
    (!name.is_empty()).then(|| cut(name))
}

fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_bounded_in_number_and_size() {
        let mut decisions = Decisions::default();
        let all = 3 * MAX_DECISIONS as u64;
        for request in 0..all {
            let considered = proto::Considered {
                address: "a".repeat(10_000),
                ..proto::Considered::default()
            };
            let sampled = proto::Sampled {
                request,
                model: if request % 2 == 0 { "even" } else { "odd" }.to_owned(),
                reason: "\u{fc}".repeat(10_000),
                considered: vec![considered; 50],
                unix_ms: 1,
                ..proto::Sampled::default()
            };
            decisions.keep("g", format!("10.0.0.{}:1", request % 4), sampled);
        }
        let page = decisions.page(&Wanted {
            limit: usize::MAX,
            ..Wanted::default()
        });
        assert_eq!((page.told, page.kept), (all, MAX_DECISIONS));
        let newest = &page.decisions[0];
        assert_eq!(
            (newest.request, newest.candidates.len()),
            (all - 1, MAX_CONSIDERED)
        );
        assert_eq!(newest.reason.len(), MAX_NAME_BYTES);
        assert_eq!(newest.candidates[0].address.len(), MAX_NAME_BYTES);
        assert!(newest.age_ms > 0 && newest.ttft_ms.is_none());
        let page = decisions.page(&Wanted {
            limit: 3,
            model: Some("even".to_owned()),
            endpoint: Some("10.0.0.2:1".to_owned()),
        });
        let numbers: Vec<u64> = page.decisions.iter().map(|of| of.request % 4).collect();
        assert_eq!(numbers, [2, 2, 2]);
    }
}
