//! The view over one shared data: two VMs, one indexer shard.

use std::collections::VecDeque;

mod models;
mod reported;
mod tiers;
mod untold;

use super::*;
use crate::{
    endpoint::HolderId,
    hash::ChunkHash,
    index::{Changes, RungChange},
    load::Usage,
    proto::{down::Kind, up},
    schedule::{Phase, Registry},
    shared::tests::world::Memory,
    snapshot::{Publisher, PublisherConfig, Rung},
};

const SEED: Seed = Seed(7);

fn down(kind: Kind) -> proto::Down {
    proto::Down { kind: Some(kind) }
}

fn endpoint(id: u32) -> proto::Endpoint {
    proto::Endpoint {
        id,
        address: format!("10.0.0.{id}:8000"),
        pool: "default".into(),
        model: "tiny".into(),
        healthy: true,
        prefill_tokens_per_s: 8_000.0,
        block_size: 16,
        holders: vec![proto::Holder {
            id,
            tier: "gpu".into(),
        }],
        ..proto::Endpoint::default()
    }
}

fn named((number, id): (u32, u32)) -> proto::Endpoint {
    proto::Endpoint {
        id,
        ..endpoint(number)
    }
}

fn policy() -> proto::Policy {
    let profile = proto::ModelProfile {
        id: "tiny".into(),
        names: vec!["tiny".into(), "alias".into()],
        adapters: vec!["lora".into()],
        pool: "default".into(),
        ..proto::ModelProfile::default()
    };
    proto::Policy {
        models: vec![profile],
        beta: 2.0,
        max_age_ms: 5_000,
        default_model: "tiny".into(),
        ..proto::Policy::default()
    }
}

fn config(epoch: u64) -> PublisherConfig {
    PublisherConfig {
        epoch,
        seed: SEED,
        shard: "s".into(),
        ring_deltas: 8,
        max_bytes: 1 << 24,
        thinning: crate::snapshot::Thinning::NONE,
    }
}

struct Proxy {
    memory: Memory,
    vms: Vec<RoutingView>,
    streams: Vec<Option<VecDeque<proto::Down>>>,
    publisher: Publisher,
    sent: Vec<proto::Up>,
    /// What the indexer calls `endpoint(1)`, `endpoint(2)`, `endpoint(3)`.
    ids: [u32; 3],
    now_ms: u64,
}

impl Proxy {
    fn new(vms: u64) -> Self {
        let view = |nonce| {
            RoutingView::new(&ViewConfig {
                indexers: vec!["indexer".into()],
                pools: vec!["default".into()],
                gateway: "g".into(),
                nonce,
                max_bytes: 1 << 24,
                registry: Registry::default(),
            })
        };
        Self {
            memory: Memory::default(),
            vms: (1..=vms).map(view).collect(),
            streams: (0..vms).map(|_| None).collect(),
            publisher: Publisher::try_new(config(1)).unwrap(),
            sent: Vec::new(),
            ids: [1, 2, 3],
            now_ms: 1_000,
        }
    }

    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now_ms += 10;
            for vm in 0..self.vms.len() {
                while let Some(message) = self.streams[vm].as_mut().and_then(VecDeque::pop_front) {
                    self.vms[vm].on_message(0, message, self.now_ms).unwrap();
                }
                for (_, action) in self.vms[vm].tick(self.now_ms, &self.memory).actions {
                    match action {
                        Action::Open(_) => {
                            let start = self.publisher.start(0, 0);
                            let endpoints = proto::Endpoints {
                                revision: 1,
                                endpoints: (1..).zip(self.ids).map(named).collect(),
                            };
                            let first = [
                                start.hello,
                                down(Kind::Policy(Box::new(policy()))),
                                down(Kind::Endpoints(endpoints)),
                            ];
                            self.streams[vm] = Some(first.into_iter().chain(start.body).collect());
                        }
                        Action::Send(up) => match up.kind {
                            Some(up::Kind::Together(together)) => self.sent.extend(together.ups),
                            _ => self.sent.push(up),
                        },
                        Action::Close => self.streams[vm] = None,
                    }
                }
            }
        }
    }

    fn broadcast(&mut self, message: &proto::Down) {
        for stream in self.streams.iter_mut().flatten() {
            stream.push_back(message.clone());
        }
    }

    fn publish(&mut self, prompt: &PromptHashes, holders: &[u32]) {
        let change = |rung: &Rung| RungChange {
            hash: rung.hash,
            token_depth: rung.chunks * 16,
            holders: holders.iter().copied().map(HolderId).collect(),
        };
        let changes = Changes {
            upserts: prompt.rungs.iter().map(change).collect(),
            removes: vec![],
        };
        for delta in self.publisher.apply(&changes).unwrap() {
            self.broadcast(&down(Kind::Delta(delta)));
        }
        self.run(4);
    }

    fn idle_load(&mut self) {
        let idle = |endpoint| proto::EndpointLoad {
            endpoint,
            ..proto::EndpointLoad::default()
        };
        self.broadcast(&down(Kind::Load(proto::Load {
            endpoints: (1..=3).map(idle).collect(),
        })));
        self.run(3);
    }

    fn decide(&self, vm: usize, prompt: Option<&PromptHashes>, seed: u64) -> Decision {
        self.vms[vm].decide(&ask(prompt), self.now_ms, seed)
    }

    fn commit(&mut self, vm: usize, request: u64, decision: &Decision, prompt: &PromptHashes) {
        self.vms[vm]
            .commit(
                RequestId(request),
                decision,
                core::slice::from_ref(prompt),
                self.now_ms,
                &self.memory,
            )
            .unwrap();
    }
}

fn ask(prompt: Option<&PromptHashes>) -> Ask<'_> {
    Ask {
        model: "tiny",
        adapter: None,
        pool: "default",
        phase: Phase::Decode,
        prompts: prompt.map_or(&[], core::slice::from_ref),
        of_shards: &[],
        prompt_tokens: None,
        bytes: 4_000,
        load_units: 1,
        bytes_per_token: 0.0,
        wishes: Wishes::default(),
    }
}

fn prompt(salt: u8) -> PromptHashes {
    PromptHashes::new(ChunkHash(1), &[salt; 6_400], SEED, usize::MAX)
}

#[test]
fn a_held_prefix_is_found_by_every_vm() {
    let mut proxy = Proxy::new(3);
    proxy.run(20);
    proxy.publish(&prompt(1), &[2]);
    proxy.idle_load();
    for vm in 0..3 {
        let decision = proxy.decide(vm, Some(&prompt(1)), vm as u64);
        assert_eq!(decision.reason, Reason::Prefix);
        assert_eq!(decision.choices[0].address, "10.0.0.2:8000");
        assert_eq!(decision.choices.len(), 3);
        assert_eq!(
            (decision.matched_bytes, decision.predicted_cached_tokens()),
            (6_400, 1_600)
        );
        assert_eq!(
            (decision.prompt_tokens, decision.bytes_per_token),
            (1_600, 4.0)
        );
        let other = proxy.decide(vm, Some(&prompt(2)), 1);
        assert_eq!((other.reason, other.matched_bytes), (Reason::NoPrefix, 0));
        assert_eq!(proxy.decide(vm, None, 1).reason, Reason::NoText);
        assert_eq!(proxy.decide(vm, None, 1).prompt_tokens, 1_000);
    }
    assert_eq!(proxy.vms[1].seed(), Some(SEED));
}

#[test]
fn a_burst_of_one_new_prefix_stays_together_across_vms_and_spreads_when_it_is_long() {
    let mut proxy = Proxy::new(2);
    proxy.run(20);
    proxy.idle_load();
    let first = proxy.decide(0, Some(&prompt(3)), 1);
    assert_eq!(first.reason, Reason::NoPrefix);
    proxy.commit(0, 1, &first, &prompt(3));
    proxy.run(1);
    let address = first.choices[0].address.clone();
    for seed in 0..10 {
        let next = proxy.decide(1, Some(&prompt(3)), seed);
        assert_eq!(
            (next.reason, &next.choices[0].address),
            (Reason::Prefix, &address),
            "the other VM knows within a tick"
        );
        assert!(
            next.ranking[0].credit.speculative > 0 && next.ranking[0].queued_prefill_tokens > 0
        );
    }
    // Waiting costs more than computing anew at last.
    for request in 2..6 {
        let other = proxy.decide(0, Some(&prompt(10 + u8::try_from(request).unwrap())), 9);
        let forced = Decision {
            choices: first.choices.clone(),
            ranking: other
                .ranking
                .iter()
                .filter(|e| e.address == address)
                .cloned()
                .collect(),
            ..other
        };
        proxy.commit(
            0,
            request,
            &forced,
            &prompt(10 + u8::try_from(request).unwrap()),
        );
    }
    proxy.run(1);
    assert_eq!(
        proxy.decide(1, Some(&prompt(3)), 1).reason,
        Reason::LoadOverPrefix
    );
}

#[test]
fn load_goes_up_once_and_down_once_and_the_indexer_hears_of_it() {
    let mut proxy = Proxy::new(2);
    proxy.run(20);
    let decision = proxy.decide(1, Some(&prompt(4)), 1);
    proxy.commit(1, 7, &decision, &prompt(4));
    proxy.commit(1, 7, &decision, &prompt(4));
    proxy.run(10);
    let key = decision.choices[0].key;
    let seen = |proxy: &Proxy, vm: usize| {
        proxy.vms[vm]
            .load
            .of(key, &proxy.vms[vm].ledger, proxy.now_ms)
            .usage
    };
    let usage = Usage {
        in_flight: 1,
        queued_prefill_tokens: 1_600,
    };
    assert_eq!([seen(&proxy, 0), seen(&proxy, 1)], [usage; 2]);
    proxy.vms[1].first_byte(RequestId(7), proxy.now_ms);
    proxy.run(2);
    assert_eq!(
        seen(&proxy, 0),
        Usage {
            in_flight: 1,
            queued_prefill_tokens: 0
        }
    );
    let ending = Ending {
        cached_tokens: Some(0),
        prompt_tokens: Some(1_500),
        ..Ending::default()
    };
    assert!(proxy.vms[1].finish(RequestId(7), ending, proxy.now_ms));
    assert!(!proxy.vms[1].finish(RequestId(7), ending, proxy.now_ms));
    proxy.run(10);
    assert!(seen(&proxy, 0).is_zero() && seen(&proxy, 1).is_zero());

    let kinds: Vec<_> = proxy.sent.iter().filter_map(|up| up.kind.clone()).collect();
    let routed: Vec<_> = kinds
        .iter()
        .filter_map(|kind| {
            if let up::Kind::Routed(routed) = kind {
                Some(routed)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(routed.len(), 1);
    assert_eq!(routed[0].rungs.len(), prompt(4).rungs.len() * 8);
    let outcome = kinds
        .iter()
        .find_map(|kind| {
            if let up::Kind::Outcome(outcome) = kind {
                Some(outcome)
            } else {
                None
            }
        })
        .unwrap();
    assert_eq!(
        (outcome.request, outcome.endpoint, outcome.prompt_tokens),
        (routed[0].request, routed[0].endpoint, Some(1_500))
    );
    assert_eq!(outcome.ttft_ms, 100);
    let usages: Vec<u64> = kinds
        .iter()
        .filter_map(|kind| {
            if let up::Kind::Usage(usage) = kind {
                Some(
                    usage
                        .endpoints
                        .iter()
                        .map(|of| of.queued_prefill_tokens)
                        .sum(),
                )
            } else {
                None
            }
        })
        .collect();
    assert!(
        usages.contains(&1_600) && usages.last() == Some(&0),
        "{usages:?}"
    );
}

#[test]
fn a_failed_request_takes_its_expectation_back_everywhere() {
    let mut proxy = Proxy::new(2);
    proxy.run(20);
    let decision = proxy.decide(0, Some(&prompt(5)), 1);
    proxy.commit(0, 1, &decision, &prompt(5));
    proxy.run(1);
    assert_eq!(proxy.decide(1, Some(&prompt(5)), 1).reason, Reason::Prefix);
    proxy.vms[0].finish(
        RequestId(1),
        Ending {
            is_failed: true,
            ..Ending::default()
        },
        proxy.now_ms,
    );
    proxy.run(2);
    for vm in 0..2 {
        assert_eq!(
            proxy.decide(vm, Some(&prompt(5)), 1).reason,
            Reason::NoPrefix
        );
    }
}

#[test]
fn what_waited_for_a_new_indexer_names_endpoints_as_it_does() {
    let mut proxy = Proxy::new(1);
    proxy.run(20);
    let decision = proxy.decide(0, Some(&prompt(5)), 1);
    let chosen = decision.choices[0].key;
    proxy.streams[0] = None;
    proxy.vms[0].on_closed(0, proxy.now_ms);
    proxy.commit(0, 1, &decision, &prompt(5));
    proxy.sent.clear();
    proxy.ids = [2, 3, 1];
    proxy.publisher = Publisher::try_new(config(2)).unwrap();
    proxy.run(40);

    let name = (1..)
        .zip(proxy.ids)
        .find(|&of| EndpointKey::new(&named(of).address, None) == chosen)
        .map(|(_, id)| id)
        .unwrap();
    let mut kinds = proxy.sent.iter().filter_map(|up| up.kind.as_ref());
    assert!(
        kinds.any(|kind| matches!(kind, up::Kind::Routed(routed) if routed.endpoint == name)),
        "{:?}",
        proxy.sent
    );
    let usages = proxy.sent.iter().filter_map(|up| match &up.kind {
        Some(up::Kind::Usage(usage)) => Some(usage),
        _ => None,
    });
    for usage in usages {
        assert!(usage.endpoints.iter().all(|of| of.endpoint == name));
    }
}

#[test]
fn old_knowledge_is_not_used_and_load_only_routing_goes_on() {
    let mut proxy = Proxy::new(1);
    assert_eq!(
        proxy.decide(0, Some(&prompt(1)), 1).reason,
        Reason::NoEndpoint
    );
    assert_eq!(proxy.decide(0, Some(&prompt(1)), 1).age_ms, None);
    proxy.run(20);
    proxy.publish(&prompt(1), &[2]);
    assert_eq!(proxy.decide(0, Some(&prompt(1)), 1).reason, Reason::Prefix);
    proxy.now_ms += 5_100;
    let decision = proxy.decide(0, Some(&prompt(1)), 1);
    assert_eq!(
        (decision.reason, decision.choices.len()),
        (Reason::Stale, 3)
    );
    assert!(decision.age_ms.unwrap() > 5_000);
}

#[test]
fn a_batch_goes_where_most_of_it_is_held_and_books_all_of_it() {
    let mut proxy = Proxy::new(1);
    proxy.run(20);
    // Endpoint 1 holds one prompt, endpoint 2 the two others.
    proxy.publish(&prompt(1), &[1]);
    proxy.publish(&prompt(2), &[2]);
    proxy.publish(&prompt(3), &[2]);
    proxy.idle_load();
    let prompts = [prompt(1), prompt(2), prompt(3)];
    let decision = proxy.vms[0].decide(
        &Ask {
            prompts: &prompts,
            load_units: 6,
            ..ask(None)
        },
        proxy.now_ms,
        1,
    );
    assert_eq!(decision.reason, Reason::Prefix);
    assert_eq!(decision.choices[0].address, "10.0.0.2:8000");
    assert_eq!(
        (decision.prompt_tokens, decision.predicted_cached_tokens()),
        (4_800, 3_200)
    );
    assert_eq!(decision.matched_bytes, 3 * 6_400);
    let commit = |proxy: &mut Proxy| {
        let (view, memory) = (&mut proxy.vms[0], &proxy.memory);
        view.commit(RequestId(1), &decision, &prompts, 2_000, memory)
            .unwrap();
    };
    commit(&mut proxy);
    assert_eq!(proxy.vms[0].in_flight(proxy.now_ms), 6);
    commit(&mut proxy);
    assert_eq!(proxy.vms[0].in_flight(proxy.now_ms), 6);
    proxy.vms[0].finish(RequestId(1), Ending::default(), proxy.now_ms);
    assert_eq!(proxy.vms[0].in_flight(proxy.now_ms), 0);
    assert!(proxy.vms[0].ledger().is_empty());
}
