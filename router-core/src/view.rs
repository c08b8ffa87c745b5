//! Everything a VM needs to route, in one place and a few calls.
//!
//! ```text
//!   tick, on_message ──► Member per shard ─┐
//!   (every few ms)       VmRegistry ───────┼─► RoutingView ─ decide ─► Decision ─ commit ─► Ledger, Speculation, record of the VM
//!                                          ┘         ▲                                          │
//!                                                    └──── first_byte, finish ◄── the request ◄─┘
//! ```

pub mod choose;
mod copies;
pub mod decide;
pub mod flow;
mod lookup;
mod profiles;
mod relay;
mod untold;
pub mod wishes;

use hashbrown::HashMap;

pub use choose::{Chosen, NoText, Prepared};
pub use decide::{Ask, Choice, Decision, Reason, Wishes};

pub use flow::{Gate, Handed, Parked};
pub use wishes::{Said, Wanted};

use copies::Copies;
use flow::Desk;
use untold::{Untold, routed, told};

use crate::{
    hash::Seed,
    load::{Ledger, LoadView, RequestId, Speculation, orca, speculation::Origin},
    proto,
    schedule::{Profiles, Registry, ScheduleError},
    shared::{
        Action, Keys, Member, MemberConfig, SharedData, SharedError, VmRegistry, record::Body,
    },
    snapshot::{EndpointKey, PromptHashes, ReplicaError},
};

/// Most endpoints that the indexer is told of a decision in full, best first.
pub const MAX_CONSIDERED: usize = 8;

/// Settings of a view.
#[derive(Clone, Debug)]
pub struct ViewConfig {
    /// Indexer clusters, one per shard.
    pub indexers: Vec<String>,
    /// Pools that are routed for; empty = all.
    pub pools: Vec<String>,
    /// Name of the gateway, the same in all VMs of the proxy.
    pub gateway: String,
    /// Random number of this VM.
    pub nonce: u64,
    /// Budget of all tables together; while a copy is replaced by another, both are held.
    pub max_bytes: usize,
    /// Filters and scorers that policies may name.
    pub registry: Registry,
}

/// What a tick came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ticked {
    /// What the host has to do on the stream of a shard (by number), in order.
    pub actions: Vec<(usize, Action)>,
    /// Whether a policy changed, so that profiles have to be compiled.
    pub has_policy: bool,
    /// First error of the host; the next tick goes on from there.
    pub error: Option<SharedError>,
}

/// How a request went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ending {
    /// It failed before or while it was served: nothing is expected to be cached.
    pub is_failed: bool,
    /// Tokens of the prompt that came from cache, by the reply's usage.
    pub cached_tokens: Option<u32>,
    /// Tokens of the prompt, by the reply's usage.
    pub prompt_tokens: Option<u32>,
    /// Tokens generated, by the reply's usage.
    pub completion_tokens: Option<u32>,
    /// HTTP status of the reply; `None` when there was none.
    pub status: Option<u16>,
    /// Tokens that the index credited the endpoint that served with ([`Decision::indexed_tokens_of`]); `None`: not known.
    pub indexed_cached_tokens: Option<u32>,
    /// The request was not sent where the decision said.
    pub is_unsteered: bool,
    /// Its API leaves cached tokens out of its usage only where there were none, or where the engine never tells them.
    pub counts_cached: bool,
    /// What the engine said of its load with the reply.
    pub report: Option<orca::Report>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// As it was told to others: the VM may get another number later.
    origin: Origin,
    shard: u32,
    started_ms: u64,
    first_byte_ms: Option<u64>,
    predicted_cached_tokens: u32,
    /// Whether others were told what prompt it is.
    is_told: bool,
}

/// A VM's view of all shards, with its own requests.
#[derive(Debug)]
pub struct RoutingView {
    members: Vec<Member>,
    vms: VmRegistry,
    ledger: Ledger,
    load: LoadView,
    speculation: Speculation,
    sent: HashMap<RequestId, Sent>,
    untold: Vec<Untold>,
    /// Time of the load that was taken last, by shard.
    load_ms: Vec<Option<u64>>,
    registry: Registry,
    profiles: Profiles,
    profile_error: Option<ScheduleError>,
    /// When each endpoint was last given a request of which nobody held anything, in ms.
    last_cold: HashMap<EndpointKey, u64>,
    desk: Desk,
    copies: Copies,
}

impl RoutingView {
    /// A view that knows nothing yet: decisions go by the load of no endpoints, that is, there are none.
    pub fn new(config: &ViewConfig) -> Self {
        let keys = Keys::new(&config.indexers, &config.pools);
        let shards = config.indexers.len();
        let member = |number| {
            Member::new(MemberConfig {
                keys: keys.shard(number),
                nonce: config.nonce,
                gateway: config.gateway.clone(),
                pools: config.pools.clone(),
                max_bytes: config.max_bytes / shards.max(1),
            })
        };
        Self {
            members: (0..shards).map(member).collect(),
            vms: VmRegistry::new(keys.clone(), config.nonce),
            ledger: Ledger::default(),
            load: LoadView::default(),
            speculation: Speculation::default(),
            sent: HashMap::new(),
            untold: Vec::new(),
            load_ms: vec![None; shards],
            registry: config.registry.clone(),
            profiles: Profiles::default(),
            profile_error: None,
            last_cold: HashMap::new(),
            desk: Desk::new(&keys, config.nonce),
            copies: Copies::new(keys, config.nonce),
        }
    }

    /// Whether the copies are to be counted anew for whoever holds them against the indexer's table.
    pub fn set_audit(&mut self, audits: bool) {
        self.copies.audits = audits;
    }

    /// Shards, in order of the indexers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// This VM's own requests.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What is expected soon.
    pub fn speculation(&self) -> &Speculation {
        &self.speculation
    }

    /// Seed of the chunk hash, once it is known: that of most shards, where as many have another the one of the first. What shards with
    /// another seed know of prefixes is not used.
    pub fn seed(&self) -> Option<Seed> {
        let seeds = || self.members.iter().filter_map(|member| member.info().seed);
        // The last of the greatest is given, so they are gone through from the end.
        seeds()
            .rev()
            .max_by_key(|seed| seeds().filter(|other| other == seed).count())
    }

    /// Shards that hash with another seed than the deployment's, by number.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        let seed = self.seed();
        let is_refused =
            move |member: &Member| member.info().seed.is_some_and(|of| Some(of) != seed);
        let numbered = self.members.iter().enumerate();
        numbered.filter_map(move |(shard, member)| is_refused(member).then_some(shard))
    }

    /// Shards whose knowledge of prefixes is used.
    pub fn usable(&self, now_ms: u64) -> usize {
        let seed = self.seed();
        let members = self.members.iter();
        members
            .filter(|member| decide::is_usable(member, seed, now_ms))
            .count()
    }

    /// Policies of the shards that have one.
    pub fn policies(&self) -> impl Iterator<Item = &proto::Policy> {
        self.members
            .iter()
            .filter_map(|member| member.info().policy.as_ref())
    }

    /// Brings everything up to date; to be called every few ms.
    pub fn tick(&mut self, now_ms: u64, shared: &impl SharedData) -> Ticked {
        let mut ticked = Ticked::default();
        self.tell();
        for shard in 0..self.members.len() {
            let Some(member) = self.members.get_mut(shard) else {
                continue;
            };
            match member.tick(now_ms, shared) {
                Ok((changed, actions)) => {
                    ticked
                        .actions
                        .extend(actions.into_iter().map(|action| (shard, action)));
                    ticked.has_policy |= changed.has_policy;
                    self.take(shard, &changed);
                }
                Err(error) => ticked.error = ticked.error.or(Some(error)),
            }
        }
        match self.vms.tick(now_ms, shared) {
            Ok(received) => {
                for (vm, message) in received {
                    self.receive(vm, message);
                }
            }
            Err(error) => ticked.error = ticked.error.or(Some(error)),
        }
        self.load.set_vms(self.vms.usages(now_ms));
        let policy = self.policies().next();
        let max_load_age_ms = policy.map_or(0, |policy| policy.max_load_age_ms);
        self.load.set_max_figures_age(u64::from(max_load_age_ms));
        self.speculation.expire(now_ms);
        self.report_usage(now_ms);
        let written = self.vms.write(&self.ledger, now_ms, shared);
        let told = self.tell_copies(now_ms, shared);
        ticked.error = ticked.error.or(written.err()).or(told.err());
        ticked
    }

    /// Takes a message of a shard's stream; gives whether a policy came.
    ///
    /// # Errors
    /// The host has to close the stream; another one is opened by a later tick.
    pub fn on_message(
        &mut self,
        shard: usize,
        message: proto::Down,
        now_ms: u64,
    ) -> Result<bool, ReplicaError> {
        // What a table confirms has to be expected by then.
        self.tell();
        let Some(member) = self.members.get_mut(shard) else {
            return Ok(false);
        };
        let changed = member.on_message(message, now_ms)?;
        self.take(shard, &changed);
        Ok(changed.has_policy)
    }

    /// A shard's stream is closed.
    pub fn on_closed(&mut self, shard: usize, now_ms: u64) {
        if let Some(member) = self.members.get_mut(shard) {
            member.on_closed(now_ms);
        }
    }

    /// The request is being sent to the first choice of the decision: counts it at once, and has everybody told within a tick.
    ///
    /// # Errors
    /// When the host fails to store the VM's record; the request is counted all the same.
    pub fn commit(
        &mut self,
        request: RequestId,
        decision: &Decision,
        prompts: &[PromptHashes],
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        let (Some(choice), Some(best)) = (decision.choices.first(), decision.ranking.first())
        else {
            return Ok(());
        };
        let (queued_tokens, units) = (best.uncached_tokens, decision.load_units);
        if !self.desk.take(request) && !self.ledger.start(request, choice.key, queued_tokens, units)
        {
            return Ok(());
        }
        let shard = u32::try_from(choice.shard).unwrap_or(u32::MAX);
        let predicted_cached_tokens = decision.predicted_cached_tokens();
        let origin = self.origin(request);
        self.sent.insert(
            request,
            Sent {
                origin,
                shard,
                started_ms: now_ms,
                first_byte_ms: None,
                predicted_cached_tokens,
                is_told: !told(prompts).is_empty(),
            },
        );
        let load = self.load.of(choice.key, &self.ledger, now_ms);
        let routed = routed(origin, decision, prompts, predicted_cached_tokens);
        self.note_cold(&routed, choice.key, now_ms);
        self.tell_later(Untold {
            shard,
            endpoint: choice.key,
            said_ms: now_ms,
            body: Body::Routed(routed),
            decided: Some((origin, load.usage.queued_prefill_tokens)),
        });
        if !self.vms.may_write(now_ms) {
            return Ok(());
        }
        self.tell();
        self.vms.write(&self.ledger, now_ms, shared)
    }

    /// The first byte of the reply's body came.
    pub fn first_byte(&mut self, request: RequestId, now_ms: u64) {
        if let Some(sent) = self
            .sent
            .get_mut(&request)
            .filter(|sent| sent.first_byte_ms.is_none())
        {
            sent.first_byte_ms = Some(now_ms);
            self.ledger.prefilled(request);
            self.vms.touch();
        }
    }

    /// Nothing is queued for the request any more, by estimate: the first byte of a reply that is not streamed tells nothing of prefill.
    pub fn prefilled(&mut self, request: RequestId) {
        self.ledger.prefilled(request);
        self.vms.touch();
    }

    /// Sequences in flight in all VMs of this proxy.
    pub fn in_flight(&self, now_ms: u64) -> u32 {
        let own = self.ledger.usages();
        own.chain(self.vms.usages(now_ms))
            .fold(0, |sum, (_, usage)| sum.saturating_add(usage.in_flight))
    }

    /// Another endpoint than the first choice of the decision serves the request: all that counted on that one counts on this one now, in every
    /// VM and at the indexer. `prompts` as for [`Self::commit`].
    pub fn served_by(
        &mut self,
        request: RequestId,
        endpoint: EndpointKey,
        decision: &Decision,
        prompts: &[PromptHashes],
        now_ms: u64,
    ) {
        let predicted = decision.cached_tokens_of(endpoint);
        let uncached = decision.prompt_tokens.saturating_sub(predicted);
        self.tell();
        self.ledger.served_by(request, endpoint, uncached);
        self.vms.touch();
        let Some(sent) = self.sent.get_mut(&request) else {
            return;
        };
        sent.predicted_cached_tokens = predicted;
        let (origin, shard) = (sent.origin, sent.shard);
        self.speculation.move_to(origin, endpoint);
        let prompts = if sent.is_told { prompts } else { &[] };
        let moved = routed(origin, decision, prompts, predicted);
        let message = self.vms.send(shard, endpoint, Body::Moved(moved), now_ms);
        self.forward(message);
    }

    /// Gives up what this VM holds among the others, since it ends: the lead of shards, its streams and its load. Gives what the host has to
    /// do, as a tick does.
    pub fn resign(&mut self, now_ms: u64, shared: &impl SharedData) -> Ticked {
        let mut ticked = Ticked::default();
        for (shard, member) in self.members.iter_mut().enumerate() {
            let (actions, error) = member.resign(now_ms, shared);
            ticked
                .actions
                .extend(actions.into_iter().map(|action| (shard, action)));
            ticked.error = ticked.error.or(error);
        }
        if let Err(error) = self.vms.leave(shared) {
            ticked.error = ticked.error.or(Some(error));
        }
        ticked
    }

    /// The request is over, however it ended; gives `false` when it was not counted (any more).
    pub fn finish(&mut self, request: RequestId, ending: Ending, now_ms: u64) -> bool {
        self.finish_sampled(request, ending, None, now_ms)
    }

    /// The same, and tells the indexer the decision in full; number and outcome are put into `sample` here.
    pub fn finish_sampled(
        &mut self,
        request: RequestId,
        ending: Ending,
        sample: Option<proto::Sampled>,
        now_ms: u64,
    ) -> bool {
        let (Some(endpoint), Some(sent)) =
            (self.ledger.finish(request), self.sent.remove(&request))
        else {
            return false;
        };
        if ending.is_failed {
            self.tell();
            self.speculation.cancel(sent.origin);
        }
        let ttft_ms = sent
            .first_byte_ms
            .map_or(0, |at| at.saturating_sub(sent.started_ms));
        let outcome = proto::Outcome {
            request: sent.origin.request.0,
            endpoint: 0,
            ttft_ms: u32::try_from(ttft_ms).unwrap_or(u32::MAX),
            predicted_cached_tokens: sent.predicted_cached_tokens,
            cached_tokens: ending.cached_tokens,
            prompt_tokens: ending.prompt_tokens,
            failed: ending.is_failed,
            status: ending.status.map_or(0, u32::from),
            completion_tokens: ending.completion_tokens,
            indexed_cached_tokens: ending.indexed_cached_tokens,
            unsteered: ending.is_unsteered,
            counts_cached: ending.counts_cached,
            waiting: ending.report.and_then(|report| report.waiting),
            kv_usage_ratio: ending.report.and_then(|report| report.kv_usage_ratio),
        };
        let mut tell = |body| {
            self.tell_later(Untold {
                shard: sent.shard,
                endpoint,
                said_ms: now_ms,
                body,
                decided: None,
            });
        };
        tell(Body::Outcome(outcome));
        if let Some(sample) = sample {
            let sampled = proto::Sampled {
                request: outcome.request,
                outcome: Some(outcome),
                ..sample
            };
            tell(Body::Sampled(Box::new(sampled)));
        }
        true
    }

    /// An engine said how busy it is. Of one that has ranks it is only the first rank that speaks, so that nothing is taken from it.
    pub fn reported(&mut self, endpoint: EndpointKey, report: orca::Report, now_ms: u64) {
        let is_whole = self.members.iter().any(|member| {
            let endpoints = &member.info().endpoints;
            let place = endpoints.place_of(endpoint);
            let info = place.and_then(|place| endpoints.list().get(place));
            info.is_some_and(|info| info.rank.is_none())
        });
        if is_whole {
            self.load.set_reported(endpoint, report, now_ms);
        }
    }

    /// The request with a number that is unique within the gateway: VM number in the top 16 bits.
    fn origin(&self, request: RequestId) -> Origin {
        const REQUEST_BITS: u32 = 48;
        let vm = self.vms.id().unwrap_or(0);
        let number = (u64::from(vm) << REQUEST_BITS) | (request.0 & ((1 << REQUEST_BITS) - 1));
        Origin {
            vm,
            request: RequestId(number),
        }
    }
}

#[cfg(test)]
mod tests;
