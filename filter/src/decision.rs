//! From a request body to the endpoints to try: parse, prompt text, chunk hashes, probe, ranking.

use core::fmt::Write;

use prefixway_core::hash::{Scope, Seed};
use prefixway_core::load::{Ledger, LoadView, RequestId, Speculation};
use prefixway_core::schedule::{self, Candidate, Explanation, Need, Phase};
use prefixway_core::snapshot::{Credit, EndpointKey, Endpoints, Match, PromptHashes, Snapshot, matched};
use prefixway_core::text::{self, Api, LocalTime, Prompt, Request, Unscorable};

use crate::metrics::Reason;
use crate::models::{Model, Models};

/// Candidates that the explanation names.
const EXPLAINED: usize = 4;

/// One shard as this VM sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSight<'a> {
    /// Table and sets.
    pub(crate) snapshot: &'a Snapshot,
    /// Endpoints.
    pub(crate) endpoints: &'a Endpoints,
    /// Whether the table may be used: there is one, and it is not too old.
    pub(crate) is_fresh: bool,
}

/// All that a decision depends on.
#[derive(Clone, Debug)]
pub(crate) struct Sight<'a> {
    /// Models of the policy.
    pub(crate) models: &'a Models,
    /// Shards.
    pub(crate) shards: Vec<ShardSight<'a>>,
    /// The deployment's seed.
    pub(crate) seed: Seed,
    /// This VM's requests.
    pub(crate) ledger: &'a Ledger,
    /// Others' load.
    pub(crate) load: &'a LoadView,
    /// What is expected to be held soon.
    pub(crate) speculation: &'a Speculation,
    /// Weight of uncached tokens.
    pub(crate) beta: f64,
    /// Prompt bytes that are hashed.
    pub(crate) max_prompt_bytes: usize,
    /// Engines' time zone, seconds ahead of UTC.
    pub(crate) utc_offset_s: i32,
    /// Unix time.
    pub(crate) now_ms: u64,
    /// The request's number.
    pub(crate) request: RequestId,
    /// Whether to write an explanation.
    pub(crate) explain: bool,
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The request's number.
    pub(crate) request: RequestId,
    /// Best endpoint.
    pub(crate) endpoint: EndpointKey,
    /// Its rank, for the header.
    pub(crate) rank: Option<u32>,
    /// Addresses to try, best first, separated by commas.
    pub(crate) destinations: String,
    /// Why.
    pub(crate) reason: Reason,
    /// Why the prompt has no text, if it has none.
    pub(crate) unscorable: Option<Unscorable>,
    /// Tokens that the best endpoint is predicted to hold.
    pub(crate) predicted_tokens: u32,
    /// Estimate of the prompt's tokens.
    pub(crate) prompt_tokens: u32,
    /// Tokens that the best endpoint has to prefill.
    pub(crate) prefill_tokens: u32,
    /// Tokens queued there before.
    pub(crate) queued_tokens: u64,
    /// Its prefill rate.
    pub(crate) prefill_tokens_per_s: f64,
    /// The prompt's rungs and bytes; no rungs without text.
    pub(crate) prompt: PromptHashes,
    /// Bytes per token of this prompt.
    pub(crate) bytes_per_token: f64,
    /// Whether the answer is streamed: only then its first byte tells when prefill ended.
    pub(crate) streamed: bool,
    /// For the response header; empty unless asked for.
    pub(crate) explanation: String,
}

/// Decides one request.
///
/// # Errors
/// The reason why it is not steered at all.
pub(crate) fn decide(sight: &Sight<'_>, api: Api, body: &[u8]) -> Result<Choice, Reason> {
    let request = text::parse(api, body).map_err(|_| Reason::BadBody)?;
    let (model, adapter) = sight
        .models
        .find(request.model.as_deref())
        .ok_or(Reason::UnknownModel)?;
    let (prompt, unscorable) = match hashes(sight, model, adapter, &request) {
        Ok(prompt) => (prompt, None),
        Err(reason) => (
            PromptHashes {
                rungs: Vec::new(),
                bytes: body.len() as u64,
            },
            Some(reason),
        ),
    };
    let matches: Vec<Match> = sight
        .shards
        .iter()
        .map(|shard| probe(sight, *shard, &prompt))
        .collect();
    let bytes_per_token = matches
        .iter()
        .filter_map(Match::bytes_per_token)
        .next()
        .unwrap_or(model.bytes_per_token);
    let prompt_tokens = whole_tokens(prompt.bytes, bytes_per_token);
    let need = Need {
        model: &model.id,
        adapter: Some(adapter).filter(|adapter| !adapter.is_empty()),
        pool: &model.pool,
        phase: Phase::Decode,
        prompt_tokens,
        beta: sight.beta,
    };
    let ranking = schedule::rank(
        &candidates(sight, &matches),
        &need,
        sight.now_ms ^ sight.request.0.rotate_left(32),
    );
    let best = ranking.first().ok_or(Reason::NoEndpoint)?;
    let predicted_tokens = best.credit.tokens().min(prompt_tokens);
    let reason = reason(sight, unscorable, predicted_tokens);
    let destinations: Vec<&str> = schedule::choices(&ranking)
        .map(|choice| choice.address.as_str())
        .collect();
    Ok(Choice {
        request: sight.request,
        endpoint: best.key,
        rank: best.rank,
        destinations: destinations.join(","),
        reason,
        unscorable,
        predicted_tokens,
        prompt_tokens,
        prefill_tokens: best.uncached_tokens,
        queued_tokens: best.queued_prefill_tokens,
        prefill_tokens_per_s: best.prefill_tokens_per_s,
        explanation: if sight.explain {
            explain(reason, unscorable, prompt_tokens, &ranking)
        } else {
            String::new()
        },
        prompt,
        bytes_per_token,
        streamed: request.stream,
    })
}

fn reason(sight: &Sight<'_>, unscorable: Option<Unscorable>, predicted_tokens: u32) -> Reason {
    if unscorable.is_some() {
        Reason::Unscorable
    } else if predicted_tokens > 0 {
        Reason::Cache
    } else if sight.shards.iter().any(|shard| shard.is_fresh) {
        Reason::Miss
    } else {
        Reason::Stale
    }
}

/// The rungs of the request's prompt.
fn hashes(
    sight: &Sight<'_>,
    model: &Model,
    adapter: &str,
    request: &Request<'_>,
) -> Result<PromptHashes, Unscorable> {
    let prompter = model.prompter.as_ref().ok_or(Unscorable::NoTemplate)?;
    let seconds = i64::try_from(sight.now_ms / 1000).unwrap_or(i64::MAX);
    let local_time = LocalTime::from_unix(seconds, sight.utc_offset_s);
    let Prompt { space, text, .. } = prompter.prompt(request, local_time)?;
    let scope = Scope {
        space,
        profile: &model.id,
        revision: model.revision,
        adapter,
        salt: request.cache_salt.as_deref().unwrap_or_default(),
    };
    Ok(PromptHashes::new(
        scope.hash(sight.seed),
        &text,
        sight.seed,
        sight.max_prompt_bytes,
    ))
}

/// What each endpoint of a shard holds; nothing when the table may not be used.
fn probe(sight: &Sight<'_>, shard: ShardSight<'_>, prompt: &PromptHashes) -> Match {
    if shard.is_fresh {
        matched(
            &shard.snapshot.table,
            &shard.snapshot.sets,
            shard.endpoints,
            sight.speculation,
            &prompt.rungs,
        )
    } else {
        Match {
            credits: vec![Credit::default(); shard.endpoints.list().len()],
            ..Match::default()
        }
    }
}

fn candidates<'a>(sight: &Sight<'a>, matches: &[Match]) -> Vec<Candidate<'a>> {
    sight
        .shards
        .iter()
        .zip(matches)
        .enumerate()
        .flat_map(|(number, (shard, found))| {
            shard
                .endpoints
                .list()
                .iter()
                .zip(&found.credits)
                .map(move |(endpoint, credit)| Candidate {
                    endpoint,
                    shard: number,
                    credit: *credit,
                    load: sight.load.of(endpoint.key, sight.ledger, sight.now_ms),
                })
        })
        .collect()
}

/// Tokens of so many bytes, rounded up.
fn whole_tokens(bytes: u64, bytes_per_token: f64) -> u32 {
    let tokens = bytes as f64 / bytes_per_token.max(0.25);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    let whole = tokens.ceil() as u32;
    whole
}

/// `reason=cache; prompt=1200; 10.0.0.1:8000 cached=1184 queued=0 in_flight=1 ttft_ms=2 cost_ms=4; ...`, best first.
fn explain(
    reason: Reason,
    unscorable: Option<Unscorable>,
    prompt_tokens: u32,
    ranking: &[Explanation],
) -> String {
    let mut text = format!("reason={}", reason.as_str());
    if let Some(why) = unscorable {
        let _ = write!(text, "/{}", why.reason());
    }
    let _ = write!(text, "; prompt={prompt_tokens}; candidates={}", ranking.len());
    for candidate in ranking.iter().take(EXPLAINED) {
        let _ = write!(text, "; {}", candidate.address);
        if let Some(rank) = candidate.rank {
            let _ = write!(text, " rank={rank}");
        }
        let _ = write!(
            text,
            " cached={} tier={} queued={} in_flight={} ttft_ms={:.0} cost_ms={:.0}",
            candidate.credit.tokens(),
            candidate.credit.tier().map_or("none", |tier| tier.as_str()),
            candidate.queued_prefill_tokens,
            candidate.in_flight,
            candidate.ttft_ms,
            candidate.cost_ms,
        );
    }
    text
}
