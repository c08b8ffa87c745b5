//! From an admitted request to a decision.

use super::{Ask, Decision, RoutingView, Wishes};
use crate::{
    admission::{LoadOnly, Route, Served},
    hash::Seed,
    prompters::{Hashed, Hashing, Prompters},
    proto::ModelProfile,
    schedule::Phase,
    shared::Member,
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
        wishes: Wishes<'_>,
        now_ns: u64,
    ) -> Option<Chosen> {
        let (profile, adapter) = (route.served.profile, route.served.adapter);
        let seed = self.seed()?;
        let (hashed, no_text) = match self.hashes(prompters, route.served, route, seed, now_ns) {
            Ok(hashed) => (hashed, None),
            Err(why) => (Hashed::default(), Some(why)),
        };
        let of_shards = match no_text {
            None => self.other_spellings(prompters, route, seed, now_ns),
            Some(_) => Vec::new(),
        };
        let request = route.request.as_ref();
        let ask = Ask {
            model: &profile.id,
            adapter,
            pool: &profile.pool,
            phase: Phase::Decode,
            prompts: &hashed.prompts,
            of_shards: &of_shards,
            prompt_tokens: hashed.tokens,
            bytes: request.map_or(body_bytes, |request| request.prefill_bytes),
            load_units: route.load_units(),
            bytes_per_token: profile.bytes_per_token,
            wishes: Wishes {
                output_tokens: request
                    .ok()
                    .and_then(|request| request.max_tokens)
                    .map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)),
                ..wishes
            },
        };
        let decision = self.decide(&ask, now_ns / 1_000_000, now_ns);
        let shard = decision.choices.first().map(|choice| choice.shard);
        let own = shard.and_then(|shard| of_shards.into_iter().nth(shard)?);
        Some(Chosen {
            decision,
            prompts: own.unwrap_or(hashed.prompts),
            no_text,
        })
    }

    /// By shard, hashes of the prompts where it has another revision of the model's profile than the first shard: each calibrates with its
    /// own engines. Empty where all agree.
    fn other_spellings(
        &self,
        prompters: &Prompters,
        route: &Route<'_>,
        seed: Seed,
        now_ns: u64,
    ) -> Vec<Option<Vec<PromptHashes>>> {
        let Served { profile, adapter } = route.served;
        if self
            .members()
            .iter()
            .all(|member| other_revision(member, profile).is_none())
        {
            return Vec::new();
        }
        // Shards that agree with one another are spelled for once.
        let mut known: Vec<(&ModelProfile, Vec<PromptHashes>)> = Vec::new();
        let spelled = self.members().iter().map(|member| {
            let profile = other_revision(member, profile)?;
            let mut earlier = known.iter();
            if let Some((_, prompts)) = earlier.find(|(of, _)| of.revision == profile.revision) {
                return Some(prompts.clone());
            }
            // Without a text there, nothing of it is found; that of the first shard would be another prompt's.
            let served = Served { profile, adapter };
            let hashed = self.hashes(prompters, served, route, seed, now_ns);
            let prompts = hashed.unwrap_or_default().prompts;
            known.push((profile, prompts.clone()));
            Some(prompts)
        });
        spelled.collect()
    }

    /// Hashes of a request's prompts by a profile.
    fn hashes(
        &self,
        prompters: &Prompters,
        served: Served<'_>,
        route: &Route<'_>,
        seed: Seed,
        now_ns: u64,
    ) -> Result<Hashed, NoText> {
        let request = route.request.as_ref().map_err(|why| NoText::Unread(*why))?;
        let policy = self.policies().next();
        let offset_s = policy.map_or(0, |policy| policy.utc_offset_s);
        let offset_s = served.profile.utc_offset_s.unwrap_or(offset_s);
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
            .hashes(served, request, hashing)
            .map_err(NoText::Unscorable)
    }
}

/// The model's profile as a shard has it, where that is another revision.
fn other_revision<'m>(member: &'m Member, profile: &ModelProfile) -> Option<&'m ModelProfile> {
    let policy = member.info().policy.as_ref()?;
    let mut models = policy.models.iter();
    models.find(|of| of.id == profile.id && of.revision != profile.revision)
}
