//! From an admitted request to a decision.

use super::{Ask, Decision, RoutingView};
use crate::{
    admission::{LoadOnly, Route},
    hash::Seed,
    prompters::{Hashed, Hashing, Prompters},
    schedule::Phase,
    snapshot::PromptHashes,
    text::{LocalTime, Unscorable},
};

/// Prompt bytes that are hashed when the policy says nothing.
pub const DEFAULT_MAX_PROMPT_BYTES: usize = 4 << 20;

/// Where a request should go, and what that was decided by.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Endpoints, reason and estimates.
    pub decision: Decision,
    /// Hashes of the prompts; empty where there is no text.
    pub prompts: Vec<PromptHashes>,
    /// Why there is none.
    pub no_text: Option<NoText>,
}

/// Why load decides alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// Nothing of the body can be read.
    Unread(LoadOnly),
    /// The text of its prompt can't be derived.
    Unscorable(Unscorable),
}

impl NoText {
    /// The reason as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unread(why) => why.as_str(),
            Self::Unscorable(why) => why.reason(),
        }
    }
}

impl RoutingView {
    /// Decides where a request with a body of so many bytes should go; [`RoutingView::commit`] books it. `None` while the deployment's
    /// seed is not known. `now_ns` also decides between equals.
    pub fn choose(
        &self,
        prompters: &Prompters,
        route: &Route<'_>,
        body_bytes: u64,
        now_ns: u64,
    ) -> Option<Chosen> {
        let (profile, adapter) = (route.served.profile, route.served.adapter);
        let seed = self.seed()?;
        let (hashed, no_text) = match self.hashes(prompters, route, seed, now_ns) {
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
            bytes: request.map_or(body_bytes, |request| request.prefill_bytes),
            load_units: route.load_units(),
            bytes_per_token: profile.bytes_per_token,
        };
        Some(Chosen {
            decision: self.decide(&ask, now_ns / 1_000_000, now_ns),
            prompts: hashed.prompts,
            no_text,
        })
    }

    /// Hashes of a request's prompts.
    fn hashes(
        &self,
        prompters: &Prompters,
        route: &Route<'_>,
        seed: Seed,
        now_ns: u64,
    ) -> Result<Hashed, NoText> {
        let request = route.request.as_ref().map_err(|why| NoText::Unread(*why))?;
        let policy = self.policies().next();
        let offset_s = policy.map_or(0, |policy| policy.utc_offset_s);
        let offset_s = route.served.profile.utc_offset_s.unwrap_or(offset_s);
        let seconds = i64::try_from(now_ns / 1_000_000_000).unwrap_or(i64::MAX);
        let hashing = Hashing {
            seed,
            max_bytes: match policy.map_or(0, |policy| policy.max_prompt_bytes) {
                0 => DEFAULT_MAX_PROMPT_BYTES,
                bytes => bytes as usize,
            },
            local_time: LocalTime::from_unix(seconds, offset_s),
        };
        prompters
            .hashes(route.served, request, hashing)
            .map_err(NoText::Unscorable)
    }
}
