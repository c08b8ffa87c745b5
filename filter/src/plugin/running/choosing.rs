//! From a whole body to a choice of endpoints.

use prefixway_core::admission::{Held, LoadOnly, Refusal, Route, Verdict};
use prefixway_core::hash::Seed;
use prefixway_core::load::RequestId;
use prefixway_core::schedule::Phase;
use prefixway_core::snapshot::{EndpointKey, PromptHashes};
use prefixway_core::text::{LocalTime, Unscorable};
use prefixway_core::view::{Ask, Decision};

use super::Running;
use crate::explain::explain;
use crate::metrics::Reason;
use crate::prompters::{Hashed, Hashing};

/// Prompt bytes that are hashed when the policy says nothing.
const DEFAULT_MAX_PROMPT_BYTES: usize = 4 << 20;

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The request's number in this VM.
    pub(crate) request: RequestId,
    /// Endpoints, reason and estimates; there is at least one choice.
    pub(crate) decision: Decision,
    /// Best endpoint.
    pub(crate) endpoint: EndpointKey,
    /// Its rank, for the header.
    pub(crate) rank: Option<u32>,
    /// Addresses to try, best first, separated by commas.
    pub(crate) destinations: String,
    /// Hashes of the prompts, where they have text.
    pub(crate) prompts: Vec<PromptHashes>,
    /// Why load decided alone, if it did.
    pub(crate) no_text: Option<NoText>,
    /// Whether the answer is streamed: only then its first byte tells when prefill ended.
    pub(crate) is_streamed: bool,
    /// For the response header, when that is allowed.
    pub(crate) explanation: Option<String>,
}

/// Why load decides alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoText {
    /// Nothing of the body can be read.
    Unread(LoadOnly),
    /// The text of its prompt can't be derived.
    Unscorable(Unscorable),
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It goes to the chosen endpoint.
    Go(Box<Choice>),
    /// It passes, to whatever the proxy falls back on.
    Pass(Reason),
    /// It is refused, unless it has to pass.
    Refuse(Refusal),
}

impl Running {
    /// Judges a request by its whole body, and chooses an endpoint for it.
    pub(crate) fn decide(
        &mut self,
        held: &Held,
        body: &[u8],
        now_ns: u64,
        explained: bool,
    ) -> Fate {
        let opened = held.open(body);
        let opened = opened.as_ref().map(AsRef::as_ref).map_err(|why| *why);
        let now_ms = now_ns / 1_000_000;
        match held.judge(opened, |model| self.view.lookup(model, now_ms)) {
            Verdict::Route(route) => match self.choose(&route, body.len(), now_ns, explained) {
                Ok(mut choice) => {
                    choice.request = RequestId(self.next_request);
                    self.next_request += 1;
                    Fate::Go(Box::new(choice))
                }
                Err(reason) => Fate::Pass(reason),
            },
            Verdict::Pass(cause) => Fate::Pass(Reason::Amiss(cause)),
            Verdict::Refuse(refusal) => Fate::Refuse(refusal),
        }
    }

    /// Chooses an endpoint; the choice has no number yet.
    fn choose(
        &self,
        route: &Route<'_>,
        body_bytes: usize,
        now_ns: u64,
        explained: bool,
    ) -> Result<Choice, Reason> {
        let (profile, adapter) = (route.served.profile, route.served.adapter);
        let seed = self.view.seed().ok_or(Reason::NoSnapshot)?;
        let (hashed, no_text) = match self.hashes(route, seed, now_ns) {
            Ok(hashed) => (hashed, None),
            Err(why) => (Hashed::default(), Some(why)),
        };
        let request = route.request.as_ref();
        let ask = Ask {
            model: &profile.id,
            adapter,
            pool: &profile.pool,
            phase: Phase::Decode,
            prompts: &hashed.prompts,
            prompt_tokens: hashed.tokens,
            bytes: request.map_or(body_bytes as u64, |request| request.prefill_bytes),
            load_units: route.load_units(),
            bytes_per_token: profile.bytes_per_token,
        };
        let decision = self.view.decide(&ask, now_ns / 1_000_000, now_ns);
        let best = decision
            .choices
            .first()
            .ok_or(Reason::View(decision.reason))?;
        let addresses: Vec<&str> = decision
            .choices
            .iter()
            .map(|choice| choice.address.as_str())
            .collect();
        Ok(Choice {
            request: RequestId(0),
            endpoint: best.key,
            rank: best.rank,
            destinations: addresses.join(","),
            explanation: explained.then(|| explain(&decision, no_text)),
            prompts: hashed.prompts,
            no_text,
            is_streamed: route.is_streamed(),
            decision,
        })
    }

    /// Hashes of a request's prompts.
    fn hashes(&self, route: &Route<'_>, seed: Seed, now_ns: u64) -> Result<Hashed, NoText> {
        let request = route.request.as_ref().map_err(|why| NoText::Unread(*why))?;
        let served = route.served;
        let policy = self.policy();
        let offset_s = policy.map_or(0, |policy| policy.utc_offset_s);
        let seconds = i64::try_from(now_ns / 1_000_000_000).unwrap_or(i64::MAX);
        let hashing = Hashing {
            seed,
            max_bytes: match policy.map_or(0, |policy| policy.max_prompt_bytes) {
                0 => DEFAULT_MAX_PROMPT_BYTES,
                bytes => bytes as usize,
            },
            local_time: LocalTime::from_unix(seconds, offset_s),
        };
        self.prompters
            .hashes(served.profile, served.adapter, request, hashing)
            .map_err(NoText::Unscorable)
    }
}
