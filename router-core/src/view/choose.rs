//! From an admitted request to a decision.

use super::{
    Ask, Decision, RoutingView, Said, Wishes,
    decide::{DEFAULT_BYTES_PER_TOKEN, tokens},
};
use crate::{
    admission::{LoadOnly, Route, Served},
    flow::Arrival,
    hash::Seed,
    mode::session_of,
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

/// A request's prompt.
#[derive(Clone, Debug, Default)]
struct Spelled {
    hashed: Hashed,
    /// By shard, where it spells it otherwise.
    of_shards: Vec<Option<Vec<PromptHashes>>>,
    no_text: Option<NoText>,
}

/// A request that is ready to be decided of, now and again.
#[derive(Clone, Debug)]
pub struct Prepared {
    spelled: Spelled,
    model: String,
    adapter: Option<String>,
    pool: String,
    bytes: u64,
    load_units: u32,
    bytes_per_token: f64,
    output_tokens: Option<u32>,
    said: Said,
}

impl Prepared {
    /// Profile id of its model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// What its headers say.
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Hashes of its prompts.
    pub fn prompts(&self) -> &[PromptHashes] {
        &self.spelled.hashed.prompts
    }

    /// What its place depends on where requests wait.
    pub fn arrival(&self, body_bytes: u64, now_ms: u64) -> Arrival {
        Arrival {
            lane: session_of(&self.model),
            priority: self.said.priority,
            tenant: self.said.tenant,
            tokens: self.tokens(),
            units: self.load_units,
            bytes: body_bytes,
            at_ms: now_ms,
        }
    }

    /// Tokens of its prompt, known or estimated.
    fn tokens(&self) -> u32 {
        let bytes = match self.prompts() {
            [] => self.bytes,
            prompts => prompts.iter().map(|prompt| prompt.bytes).sum(),
        };
        let is_known = self.bytes_per_token.is_finite() && self.bytes_per_token > 0.0;
        let ratio = if is_known {
            self.bytes_per_token
        } else {
            DEFAULT_BYTES_PER_TOKEN
        };
        let known = self.spelled.hashed.tokens;
        known.unwrap_or_else(|| tokens(bytes, ratio))
    }

    /// With where it goes.
    pub fn chosen(self, decision: Decision) -> Chosen {
        let Spelled {
            hashed,
            of_shards,
            no_text,
        } = self.spelled;
        Chosen {
            prompts: prompts_of(&decision, hashed.prompts, of_shards),
            decision,
            no_text,
        }
    }
}

/// Tokens that may be generated, as far as the request says.
fn output_tokens(route: &Route<'_>) -> Option<u32> {
    let request = route.request.as_ref().ok()?;
    let tokens = request.max_tokens?;
    Some(u32::try_from(tokens).unwrap_or(u32::MAX))
}

/// The prompts as the chosen endpoint's shard spells them.
fn prompts_of(
    decision: &Decision,
    prompts: Vec<PromptHashes>,
    of_shards: Vec<Option<Vec<PromptHashes>>>,
) -> Vec<PromptHashes> {
    let shard = decision.choices.first().map(|choice| choice.shard);
    let own = shard.and_then(|shard| of_shards.into_iter().nth(shard)?);
    own.unwrap_or(prompts)
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
        let Spelled {
            hashed,
            of_shards,
            no_text,
        } = self.spelled(prompters, route, now_ns)?;
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
                output_tokens: output_tokens(route),
                ..wishes
            },
        };
        let decision = self.decide(&ask, now_ns / 1_000_000, now_ns);
        Some(Chosen {
            prompts: prompts_of(&decision, hashed.prompts, of_shards),
            decision,
            no_text,
        })
    }

    /// Prepares a request that may have to wait: its prompt is hashed now, and decided of as often as it takes. `None` as in [`Self::choose`].
    pub fn prepare(
        &self,
        prompters: &Prompters,
        route: &Route<'_>,
        body_bytes: u64,
        said: Said,
        now_ns: u64,
    ) -> Option<Prepared> {
        let Served { profile, adapter } = route.served;
        let request = route.request.as_ref();
        Some(Prepared {
            spelled: self.spelled(prompters, route, now_ns)?,
            model: profile.id.clone(),
            adapter: adapter.map(str::to_owned),
            pool: profile.pool.clone(),
            bytes: request.map_or(body_bytes, |request| request.prefill_bytes),
            load_units: route.load_units(),
            bytes_per_token: profile.bytes_per_token,
            output_tokens: output_tokens(route),
            said,
        })
    }

    /// Decides where a prepared request should go as things are now.
    pub fn decide_prepared(&self, of: &Prepared, now_ns: u64) -> Decision {
        let ask = Ask {
            model: &of.model,
            adapter: of.adapter.as_deref(),
            pool: &of.pool,
            phase: Phase::Decode,
            prompts: &of.spelled.hashed.prompts,
            of_shards: &of.spelled.of_shards,
            prompt_tokens: of.spelled.hashed.tokens,
            bytes: of.bytes,
            load_units: of.load_units,
            bytes_per_token: of.bytes_per_token,
            wishes: Wishes {
                output_tokens: of.output_tokens,
                ..of.said.wishes()
            },
        };
        self.decide(&ask, now_ns / 1_000_000, now_ns)
    }

    /// The request's prompt as every shard spells it.
    fn spelled(&self, prompters: &Prompters, route: &Route<'_>, now_ns: u64) -> Option<Spelled> {
        let seed = self.seed()?;
        Some(
            match self.hashes(prompters, route.served, route, seed, now_ns) {
                Ok(hashed) => Spelled {
                    hashed,
                    of_shards: self.other_spellings(prompters, route, seed, now_ns),
                    no_text: None,
                },
                Err(why) => Spelled {
                    no_text: Some(why),
                    ..Spelled::default()
                },
            },
        )
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
