//! Deciding: credits of all shards, load of all endpoints, one ranking.

use super::{MAX_CONSIDERED, RoutingView};
use crate::{
    admission::{Limits, Target, WhenMissed},
    hash::Seed,
    schedule::{Candidate, Explanation, Holding, Need, Phase, Ranking, choices},
    shared::Member,
    snapshot::{EndpointKey, Match, PromptHashes, Rung, Snapshot, probe::matched_in},
};

/// Bytes per token when nothing is known.
pub const DEFAULT_BYTES_PER_TOKEN: f64 = 4.0;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Profile id of the model; empty = any.
    pub model: &'a str,
    /// Adapter, when not the base model.
    pub adapter: Option<&'a str>,
    /// Pool; empty = any.
    pub pool: &'a str,
    /// Phase the endpoint is wanted for.
    pub phase: Phase,
    /// Hashes of the prompts, of a batch as many as are scored; empty when no text can be derived: then load decides alone.
    pub prompts: &'a [PromptHashes],
    /// By shard, the same prompts as it hashes them, where that is otherwise: its engines spell the model's prompts in another way.
    pub of_shards: &'a [Option<Vec<PromptHashes>>],
    /// Tokens of the prompt, when they are known.
    pub prompt_tokens: Option<u32>,
    /// Bytes of the body that can become prompt text, to estimate tokens from where there is no prompt.
    pub bytes: u64,
    /// Sequences that the engine will run: prompts times `n`, at least one.
    pub load_units: u32,
    /// Learned bytes per token of the model; 0 = unknown.
    pub bytes_per_token: f64,
    /// What the client wants besides an answer.
    pub wishes: Wishes<'a>,
}

/// What a request says about how it is to be served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes<'a> {
    /// Tokens that may be generated.
    pub output_tokens: Option<u32>,
    /// What names the session, as a hash.
    pub session: Option<u64>,
    /// Time to the first token, in ms.
    pub ttft_ms: Option<f64>,
    /// Time for each token after it, in ms.
    pub tpot_ms: Option<f64>,
    /// What becomes of the request when no endpoint is expected to meet the first.
    pub when_missed: WhenMissed,
    /// Request headers that a profile asks for, names in lower case.
    pub headers: &'a [(String, String)],
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The chosen endpoint holds part of the prompt.
    Prefix,
    /// Part of the prompt is held somewhere, but waiting there costs more.
    LoadOverPrefix,
    /// Nobody holds any of it.
    NoPrefix,
    /// The text of the prompt is not known.
    NoText,
    /// What is known of prefixes is too old, or not there yet.
    Stale,
    /// No endpoint may serve the request.
    NoEndpoint,
}

impl Reason {
    /// Name in headers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::LoadOverPrefix => "load_over_prefix",
            Self::NoPrefix => "no_prefix",
            Self::NoText => "no_text",
            Self::Stale => "stale",
            Self::NoEndpoint => "no_endpoint",
        }
    }
}

/// An endpoint to send the request to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Identity.
    pub key: EndpointKey,
    /// Number of its shard.
    pub shard: usize,
    /// `ip:port`, IPv6 in brackets.
    pub address: String,
    /// Data-parallel rank to be sent by header.
    pub rank: Option<u32>,
}

/// Where a request should go, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Best first, at most three; those after the first only of its rank. Empty when there is no endpoint.
    pub choices: Vec<Choice>,
    /// The best of the eligible endpoints, best first: [`MAX_CONSIDERED`], and those of the rest that a retry may go to.
    pub ranking: Vec<Explanation>,
    /// All eligible endpoints.
    pub eligible: usize,
    /// Eligible endpoints besides those of the ranking that hold some of the prompt.
    pub others: Vec<Holding>,
    /// What decided.
    pub reason: Reason,
    /// Tokens of the prompt, known or estimated.
    pub prompt_tokens: u32,
    /// Bytes per token the estimate used.
    pub bytes_per_token: f64,
    /// Bytes of the prompts up to the deepest rung anybody holds of each.
    pub matched_bytes: u64,
    /// Sequences that the engine will run.
    pub load_units: u32,
    /// Age in ms of the oldest shard's knowledge; `None` when a shard never had any.
    pub age_ms: Option<u64>,
    /// The request's target for the time to the first token, if it has one.
    pub target: Option<Target>,
}

impl Decision {
    /// Tokens expected to be in the first choice's cache.
    pub fn predicted_cached_tokens(&self) -> u32 {
        self.ranking.first().map_or(0, |best| best.credit.tokens())
    }

    /// Tokens that the index says an endpoint holds, trusted or not and expectations aside; `None` when it was no candidate, or neither one
    /// of the best nor one that holds any.
    pub fn indexed_tokens_of(&self, endpoint: EndpointKey) -> Option<u32> {
        Some(self.holding_of(endpoint)?.indexed_tokens)
    }

    /// Tokens expected to be in an endpoint's cache.
    pub fn cached_tokens_of(&self, endpoint: EndpointKey) -> u32 {
        self.holding_of(endpoint).map_or(0, |of| of.tokens)
    }

    fn holding_of(&self, endpoint: EndpointKey) -> Option<Holding> {
        let ranked = self.ranking.iter().map(|candidate| Holding {
            key: candidate.key,
            tokens: candidate.credit.tokens(),
            indexed_tokens: candidate.indexed_tokens,
        });
        let mut all = ranked.chain(self.others.iter().copied());
        all.find(|of| of.key == endpoint)
    }
}

impl RoutingView {
    /// Decides where a request should go. Changes nothing: [`RoutingView::commit`] does, once the request is sent.
    ///
    /// `seed` decides between equals; use another one for each request.
    pub fn decide(&self, ask: &Ask<'_>, now_ms: u64, seed: u64) -> Decision {
        let none = Snapshot::empty();
        let seed_of_all = self.seed();
        let usable: Vec<bool> = self
            .members()
            .iter()
            .map(|member| is_usable(member, seed_of_all, now_ms))
            .collect();
        let is_current = usable.contains(&true);
        let matches: Vec<Match> = self
            .members()
            .iter()
            .zip(&usable)
            .zip(0..)
            .map(|((member, &is_usable), shard)| {
                let snapshot = if is_usable { member.snapshot() } else { &none };
                self.matched(snapshot, member, ask.prompts_in(shard))
            })
            .collect();

        let deepest = matches.iter().max_by_key(|found| found.tokens);
        let known = |ratio: f64| (ratio.is_finite() && ratio > 0.0).then_some(ratio);
        let bytes_per_token = deepest
            .and_then(Match::bytes_per_token)
            .or(known(ask.bytes_per_token))
            .unwrap_or(DEFAULT_BYTES_PER_TOKEN);
        let has_text = !ask.prompts.is_empty();
        let bytes = if has_text {
            ask.prompts.iter().map(|prompt| prompt.bytes).sum()
        } else {
            ask.bytes
        };
        let prompt_tokens = ask
            .prompt_tokens
            .unwrap_or_else(|| tokens(bytes, bytes_per_token));
        let need = Need {
            model: ask.model,
            adapter: ask.adapter,
            pool: ask.pool,
            phase: ask.phase,
            prompt_tokens,
            output_tokens: ask.wishes.output_tokens,
            limits: self.limits(),
            session: ask.wishes.session,
            ttft_ms: ask.wishes.ttft_ms,
            tpot_ms: ask.wishes.tpot_ms,
            headers: ask.wishes.headers,
            last_cold: Some(&self.last_cold),
        };

        let profile = self.profiles.of_pool(ask.pool);
        let candidates = self.candidates(&matches, &usable, now_ms);
        // Who has room, or meets a target, may be any of them.
        let most = if ask.wishes.ttft_ms.is_some() || self.flow_control().is_some() {
            candidates.len()
        } else {
            MAX_CONSIDERED
        };
        let best = |need: &Need<'_>| profile.best(&candidates, need, seed, most);
        let mut ranking = best(&need);
        if ranking.eligible == 0 && need.adapter.is_some() {
            // Nobody has the adapter: an engine of its base may load it, and one that can't says so.
            let base = Need {
                adapter: None,
                ..need
            };
            ranking = best(&base);
        }
        let target = ask.wishes.ttft_ms.map(|ttft_ms| {
            let class_of = |key| {
                let mut all = candidates.iter();
                let of = all.find(|candidate| candidate.endpoint.key == key);
                of.map_or("", |candidate| candidate.endpoint.accelerator.as_str())
            };
            Target::apply(ttft_ms, ask.wishes.when_missed, &mut ranking.best, class_of)
        });
        let mut ages = self.members().iter().map(|member| member.age_ms(now_ms));
        Decision {
            choices: to_choices(&ranking.best),
            reason: reason(&ranking, has_text, is_current),
            prompt_tokens,
            bytes_per_token,
            matched_bytes: matches.iter().map(|found| found.bytes).max().unwrap_or(0),
            age_ms: ages.try_fold(0, |oldest, age| Some(age?.max(oldest))),
            load_units: ask.load_units.max(1),
            target,
            eligible: ranking.eligible,
            ranking: ranking.best,
            others: ranking.others,
        }
    }

    /// When endpoints are full, by the policy.
    pub fn limits(&self) -> Limits {
        self.policies().next().map(Limits::of).unwrap_or_default()
    }

    /// Every endpoint once. Two shards name the same one while endpoints move from one to the other: then the one that is current and
    /// knows more of it counts.
    fn candidates(&self, matches: &[Match], usable: &[bool], now_ms: u64) -> Vec<Candidate<'_>> {
        let is_usable = |shard: usize| usable.get(shard).copied().unwrap_or(false);
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for ((member, found), shard) in self.members().iter().zip(matches).zip(0..) {
            let earlier = self.members().get(..shard).unwrap_or_default();
            for (endpoint, &credit) in member.info().endpoints.list().iter().zip(&found.credits) {
                let candidate = Candidate {
                    endpoint,
                    shard,
                    credit,
                    load: self.load.of(endpoint.key, self.ledger(), now_ms),
                };
                let names_it = |member: &Member| {
                    let endpoints = &member.info().endpoints;
                    endpoints.place_of(endpoint.key).is_some()
                };
                if !earlier.iter().any(names_it) {
                    candidates.push(candidate);
                    continue;
                }
                let worth = |of: &Candidate<'_>| (is_usable(of.shard), of.credit.tokens());
                let mut known = candidates.iter_mut();
                if let Some(other) = known.find(|other| other.endpoint.key == endpoint.key)
                    && worth(&candidate) > worth(other)
                {
                    *other = candidate;
                }
            }
        }
        candidates
    }

    /// What each endpoint of a shard holds of the prompts together.
    fn matched(&self, snapshot: &Snapshot, member: &Member, prompts: &[PromptHashes]) -> Match {
        let endpoints = &member.info().endpoints;
        let of = |rungs: &[Rung]| matched_in(snapshot, endpoints, &self.expected(rungs), rungs);
        match prompts.split_first() {
            None => of(&[]),
            Some((first, rest)) => rest
                .iter()
                .fold(of(&first.rungs), |sum, prompt| sum.plus(&of(&prompt.rungs))),
        }
    }
}

impl Ask<'_> {
    /// The prompts as a shard hashes them.
    fn prompts_in(&self, shard: usize) -> &[PromptHashes] {
        match self.of_shards.get(shard) {
            Some(Some(prompts)) => prompts,
            _ => self.prompts,
        }
    }
}

/// The endpoints to try of a ranking.
pub(super) fn to_choices(ranking: &[Explanation]) -> Vec<Choice> {
    let chosen = choices(ranking).map(|choice| Choice {
        key: choice.key,
        shard: choice.shard,
        address: choice.address.clone(),
        rank: choice.rank,
    });
    chosen.collect()
}

/// Whether a shard's prefix knowledge may be used: there is some, of the same epoch as the endpoints and of the deployment's seed, and it is
/// not too old.
pub(super) fn is_usable(member: &Member, seed: Option<Seed>, now_ms: u64) -> bool {
    let info = member.info();
    let max_age_ms = info
        .policy
        .as_ref()
        .map_or(0, |policy| u64::from(policy.max_age_ms));
    let is_fresh = max_age_ms == 0
        || member
            .age_ms(now_ms)
            .is_some_and(|age_ms| age_ms <= max_age_ms);
    let epoch = member.snapshot().epoch;
    epoch != 0
        && epoch == info.endpoints_epoch
        && info.seed.is_some()
        && info.seed == seed
        && is_fresh
}

fn reason(ranking: &Ranking, has_text: bool, is_current: bool) -> Reason {
    let Some(best) = ranking.best.first() else {
        return Reason::NoEndpoint;
    };
    if best.credit.tokens() > 0 {
        Reason::Prefix
    } else if !has_text {
        Reason::NoText
    } else if ranking.best.iter().any(|of| of.credit.tokens() > 0)
        || ranking.others.iter().any(|of| of.tokens > 0)
    {
        Reason::LoadOverPrefix
    } else if is_current {
        Reason::NoPrefix
    } else {
        Reason::Stale
    }
}

pub(super) fn tokens(bytes: u64, bytes_per_token: f64) -> u32 {
    let tokens = (bytes as f64 / bytes_per_token).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    let tokens = tokens as u32;
    tokens
}
