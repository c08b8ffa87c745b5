//! The closed loop: what the index claims of an endpoint's cache is held against what the engine says of each reply.
//!
//! ```text
//!  Routed: what events say ──┐
//!  Outcome: what the table   ├─► claim ─┐
//!           credited ────────┘          ├─► Trust ─► prefix_trust of the endpoint ─► all gateways
//!  Outcome: usage of the reply ─► cached┘
//! ```
//!
//! A reply without `usage` is no evidence, and neither is one whose `usage` never has `prompt_tokens_details`. vLLM (0.32, captured) leaves the
//! details out of a reply whose prompt had nothing cached, too, so an engine that has given them before means 0 by leaving them out. That
//! is so of chats and completions; other APIs spell usage otherwise, and nothing follows from what they leave out.

use prefixway_core::proto;
use prefixway_core::trust::{Evidence, Standing, Trust};
use serde::Serialize;

use super::Ingest;
use super::speculation::Sent;
use crate::metrics::{EndpointEvidence, EvidenceKind};

/// What replies say about what is known of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Proof {
    trust: Trust,
    replies: u64,
    with_usage: u64,
    with_details: u64,
    /// Whether a chat or a completion has told how much was cached.
    tells_cached: bool,
}

/// The closed loop of one endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct TrustReport {
    /// unproven, trusted or distrusted.
    pub state: &'static str,
    /// Share of its prefix credit that counts in scheduling, 0 to 1.
    pub share: f64,
    /// Mean share of claimed tokens that were cached, over the newest pieces of evidence; `None` without evidence.
    pub precision: Option<f64>,
    /// Pieces of evidence that this is the mean of.
    pub evidence: usize,
    /// Replies seen to their end, since the engine started or its events did, as far as that is known.
    pub replies: u64,
    /// Of them, those with token counts.
    pub with_usage: u64,
    /// Of them, those that tell how much of the prompt was cached.
    pub with_cached_tokens: u64,
    /// Why there is no evidence, and what to do about it; `None` where nothing is missing.
    pub missing: Option<&'static str>,
}

/// Engines whose token counts lack the cached ones.
const NO_DETAILS: &str =
    "usage has no prompt_tokens_details: start the engine with --enable-prompt-tokens-details";
/// Replies without token counts.
const NO_USAGE: &str = "replies have no usage: streams have it where clients send stream_options.include_usage or the engine runs with \
     --enable-force-include-usage; replies with a content-encoding are not read";

impl Proof {
    /// Takes what a whole reply says of token counts; gives how many tokens were cached, where it says.
    fn replied(&mut self, outcome: &proto::Outcome) -> (EvidenceKind, Option<u32>) {
        self.replies += 1;
        if outcome.prompt_tokens.is_none() && outcome.cached_tokens.is_none() {
            return (EvidenceKind::NoUsage, None);
        }
        self.with_usage += 1;
        match outcome.cached_tokens {
            Some(cached) => {
                self.with_details += 1;
                self.tells_cached |= outcome.counts_cached;
                (EvidenceKind::CachedTokens, Some(cached))
            }
            None if self.tells_cached && outcome.counts_cached => {
                (EvidenceKind::NoneCached, Some(0))
            }
            None => (EvidenceKind::NoDetails, None),
        }
    }

    /// The engine, or what is known of it, is another one: nothing that was said before counts.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn standing(&self) -> Standing {
        self.trust.standing()
    }

    /// Share of the endpoint's prefix credit that counts, for gateways; `None`: all of it.
    pub(super) fn share(&self) -> Option<f64> {
        (self.standing() == Standing::Distrusted).then(|| self.trust.share())
    }

    pub(super) fn report(&self) -> TrustReport {
        let missing = match (self.replies, self.with_usage, self.with_details) {
            (0, ..) | (.., 1..) => None,
            (_, 0, _) => Some(NO_USAGE),
            (_, _, 0) => Some(NO_DETAILS),
        };
        TrustReport {
            state: self.standing().as_str(),
            share: self.trust.share(),
            precision: self.trust.precision(),
            evidence: self.trust.evidence(),
            replies: self.replies,
            with_usage: self.with_usage,
            with_cached_tokens: self.with_details,
            missing,
        }
    }
}

impl Ingest {
    /// Holds what was claimed of the endpoint that served a request against its reply.
    pub(super) fn prove(&mut self, outcome: &proto::Outcome, sent: Option<&Sent>) {
        if outcome.failed {
            return;
        }
        let Some(endpoint) = self.endpoints.by_id_mut(outcome.endpoint) else {
            return;
        };
        let (kind, cached) = endpoint.proof.replied(outcome);
        let label = EndpointEvidence {
            endpoint: endpoint.label.endpoint.clone(),
            kind,
        };
        self.metrics.replies.get_or_create_owned(&label).inc();
        // A retry went to an endpoint of which the decision said less, and expectations of other gateways may be in what the table said.
        let limit = match sent {
            Some(sent) if sent.endpoint == outcome.endpoint => Some(sent.claim),
            None if outcome.unsteered => Some(u32::MAX),
            Some(_) | None => None,
        };
        let claim = limit.zip(outcome.indexed_cached_tokens);
        let (Some((limit, indexed)), Some(cached)) = (claim, cached) else {
            return;
        };
        let claimed = indexed.min(limit);
        self.metrics
            .claimed_tokens
            .get_or_create_owned(&endpoint.label)
            .inc_by(claimed.into());
        self.metrics
            .confirmed_tokens
            .get_or_create_owned(&endpoint.label)
            .inc_by(cached.min(claimed).into());
        let before = endpoint.proof.standing();
        if endpoint.proof.trust.observe(Evidence { claimed, cached }) {
            log(&endpoint.label.endpoint, before, &endpoint.proof.trust);
            self.endpoints.set_changed();
        }
    }
}

fn log(endpoint: &str, before: Standing, trust: &Trust) {
    let precision = trust.precision().unwrap_or(1.0);
    let share = trust.share();
    match (before, trust.standing()) {
        (before, Standing::Distrusted) if before != Standing::Distrusted => tracing::warn!(
            endpoint,
            precision,
            share,
            "the index proves wrong: only a share of the endpoint's prefixes counts"
        ),
        (Standing::Distrusted, Standing::Trusted) => tracing::info!(
            endpoint,
            precision,
            "the index proves right again: the endpoint's prefixes count"
        ),
        (_, standing) => {
            tracing::debug!(
                endpoint,
                precision,
                share,
                state = standing.as_str(),
                "closed loop"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(prompt_tokens: Option<u32>, cached_tokens: Option<u32>) -> proto::Outcome {
        proto::Outcome {
            prompt_tokens,
            cached_tokens,
            counts_cached: true,
            ..proto::Outcome::default()
        }
    }

    #[test]
    fn nothing_follows_from_what_other_apis_leave_out() {
        let of_other = |cached_tokens| proto::Outcome {
            counts_cached: false,
            ..reply(Some(100), cached_tokens)
        };
        let mut proof = Proof::default();
        // Responses always has the details, whatever the engine's settings.
        assert_eq!(proof.replied(&of_other(Some(0))).1, Some(0));
        assert_eq!(proof.replied(&reply(Some(100), None)).1, None);
        assert_eq!(proof.replied(&reply(Some(100), Some(16))).1, Some(16));
        assert_eq!(proof.replied(&of_other(None)).1, None);
        assert_eq!(proof.replied(&reply(Some(100), None)).1, Some(0));
    }

    #[test]
    fn what_an_engine_leaves_out_means_nothing_until_it_has_told_it_once() {
        let mut proof = Proof::default();
        assert_eq!(proof.report().missing, None, "nothing was asked yet");
        assert_eq!(proof.replied(&reply(None, None)).1, None);
        assert_eq!(proof.report().missing, Some(NO_USAGE));
        assert_eq!(proof.replied(&reply(Some(100), None)).1, None);
        assert_eq!(proof.report().missing, Some(NO_DETAILS));
        assert_eq!(proof.replied(&reply(Some(100), Some(64))).1, Some(64));
        assert_eq!(proof.report().missing, None);
        assert_eq!(proof.replied(&reply(Some(100), None)).1, Some(0));
        assert_eq!(proof.replied(&reply(None, None)).1, None);
        proof.forget();
        assert_eq!(proof.replied(&reply(Some(100), None)).1, None);
        // Another engine, which may have been started otherwise.
        let report = proof.report();
        assert_eq!(
            (report.replies, report.with_usage, report.with_cached_tokens),
            (1, 1, 0)
        );
        assert_eq!(report.missing, Some(NO_DETAILS));
    }
}
