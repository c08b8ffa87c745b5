//! What is passed on: between VMs, from the table to expectations, and up to the indexer.

use hashbrown::HashMap;

use super::{RoutingView, untold::bytes_per_token};
use crate::{
    hash::Space,
    load::{
        RequestId, Usage, orca,
        speculation::{DEFAULT_TTL_MS, Origin, ttl_ms},
    },
    proto,
    rung::rungs,
    schedule::DEFAULT_PREFILL_TOKENS_PER_S,
    shared::{
        Member,
        reader::Changed,
        record::{Body, Message},
    },
    snapshot::{EndpointKey, Rung, entry, sets},
};

impl RoutingView {
    /// Takes over what a shard's member took in.
    pub(super) fn take(&mut self, shard: usize, changed: &Changed) {
        if changed.has_policy {
            self.compile_profiles();
        }
        let Some(member) = self.members.get(shard) else {
            return;
        };
        let info = member.info();
        if let (Some((at_ms, load)), Some(taken)) = (&info.load, self.load_ms.get_mut(shard))
            && *taken != Some(*at_ms)
        {
            self.load.set_gateways(&info.endpoints, load, *at_ms);
            *taken = Some(*at_ms);
        }
        if self.speculation.is_empty() || info.endpoints_epoch != member.snapshot().epoch {
            return;
        }
        let sets = &member.snapshot().sets;
        for entry in changed
            .deltas
            .iter()
            .flat_map(|delta| entry::entries(&delta.upserts))
        {
            self.speculation.confirm(entry.hash, |key| {
                sets::holders(sets.get(entry.set).unwrap_or_default()).any(|holder| {
                    let place = info.endpoints.holder(holder).map(|(place, _)| place);
                    place
                        .and_then(|place| info.endpoints.list().get(place))
                        .is_some_and(|endpoint| endpoint.key == key)
                })
            });
        }
    }

    /// Takes a message of another VM.
    pub(super) fn receive(&mut self, vm: u32, message: Message) {
        let origin = |request: u64| Origin {
            vm,
            request: RequestId(request),
        };
        match &message.body {
            Body::Routed(routed) => {
                self.note_cold(routed, message.endpoint, message.said_ms);
                let load = self
                    .load
                    .of(message.endpoint, &self.ledger, message.said_ms);
                let queued_tokens = load.usage.queued_prefill_tokens;
                self.speculate(origin(routed.request), &message, queued_tokens);
            }
            Body::Moved(moved) => {
                self.speculation
                    .move_to(origin(moved.request), message.endpoint);
            }
            Body::Outcome(outcome) if outcome.failed => {
                self.speculation.cancel(origin(outcome.request));
            }
            Body::Outcome(outcome) => {
                let report = orca::Report {
                    waiting: outcome.waiting,
                    running: None,
                    kv_usage_ratio: outcome.kv_usage_ratio,
                };
                if report != orca::Report::default() {
                    self.reported(message.endpoint, report, message.said_ms);
                }
            }
            Body::Sampled(_) => {}
        }
        self.forward(message);
    }

    /// Expects of the message's endpoint what it was sent, from the time at which that was said; `queued_tokens` were queued there then.
    pub(super) fn speculate(&mut self, origin: Origin, message: &Message, queued_tokens: u64) {
        let Body::Routed(routed) = &message.body else {
            return;
        };
        let Some(info) = self.members.get(message.shard as usize).map(Member::info) else {
            return;
        };
        let endpoint = info
            .endpoints
            .place_of(message.endpoint)
            .and_then(|place| info.endpoints.list().get(place));
        let rate = endpoint
            .and_then(|endpoint| endpoint.prefill_tokens_per_s)
            .unwrap_or(DEFAULT_PREFILL_TOKENS_PER_S);
        let base_ms = info
            .policy
            .as_ref()
            .map_or(0, |policy| u64::from(policy.speculative_ttl_ms));
        let base_ms = if base_ms == 0 {
            DEFAULT_TTL_MS
        } else {
            base_ms
        };
        let uncached = routed
            .estimated_prompt_tokens
            .saturating_sub(routed.predicted_cached_tokens);
        let expiry_ms = message.said_ms + ttl_ms(base_ms, queued_tokens, uncached, rate);
        let space = if routed.token_ids {
            Space::Token
        } else {
            Space::Text
        };
        let depths = rungs(space, u32::MAX).zip(entry::hashes(&routed.rungs));
        let rungs: Vec<Rung> = depths.map(|(chunks, hash)| Rung { chunks, hash }).collect();
        let bytes_per_token = bytes_per_token(routed);
        self.speculation
            .add(origin, message.endpoint, &rungs, bytes_per_token, expiry_ms);
    }

    /// Passes a message on to the indexer, when this VM leads its shard.
    pub(super) fn forward(&mut self, message: Message) {
        let Some(member) = self
            .members
            .get_mut(message.shard as usize)
            .filter(|member| member.is_leader())
        else {
            return;
        };
        member.upstream().push(message);
    }

    /// Tells the indexer of each shard this VM leads what the proxy has in flight.
    pub(super) fn report_usage(&mut self, now_ms: u64) {
        let mut sums: HashMap<EndpointKey, Usage> = self.ledger.usages().collect();
        for (key, usage) in self.vms.usages(now_ms) {
            let sum = sums.entry(key).or_default();
            *sum = sum.plus(usage);
        }
        for member in self.members.iter_mut().filter(|member| member.is_leader()) {
            let of = |endpoint: &crate::snapshot::EndpointInfo| {
                sums.get(&endpoint.key).map(|usage| proto::EndpointUsage {
                    endpoint: endpoint.id.0,
                    in_flight: usage.in_flight,
                    queued_prefill_tokens: usage.queued_prefill_tokens,
                })
            };
            let endpoints = member
                .info()
                .endpoints
                .list()
                .iter()
                .filter_map(of)
                .collect();
            member.upstream().set_usage(proto::Usage { endpoints });
        }
    }
}
