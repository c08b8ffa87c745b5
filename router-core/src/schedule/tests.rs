//! Invariants of the ranking.

mod adapters;
mod plugins;
mod ranking;

use proptest::prelude::*;

use super::*;
use crate::{
    admission::Limits,
    load::{EndpointLoad, Figures, Usage},
    proto,
    snapshot::{Credit, Endpoints},
};

fn endpoint(name: &str) -> proto::Endpoint {
    proto::Endpoint {
        address: name.into(),
        healthy: true,
        pool: "p".into(),
        model: "m".into(),
        prefill_tokens_per_s: 1_000.0,
        ..proto::Endpoint::default()
    }
}

fn endpoints(list: Vec<proto::Endpoint>) -> Endpoints {
    Endpoints::from_message(&proto::Endpoints {
        revision: 1,
        endpoints: list,
    })
}

fn need() -> Need<'static> {
    Need {
        model: "m",
        adapter: None,
        pool: "p",
        phase: Phase::Decode,
        prompt_tokens: 1_000,
        ..Need::default()
    }
}

/// The default profile with other constants.
fn costing(cost: Cost) -> Profile {
    Profile {
        judge: Judge::Cost(cost),
        ..Profile::default()
    }
}

fn load(queued_prefill_tokens: u64, in_flight: u32) -> EndpointLoad {
    EndpointLoad {
        usage: Usage {
            in_flight,
            queued_prefill_tokens,
        },
        has_others: true,
        engine: Some(Figures::default()),
        reported: None,
    }
}

#[test]
fn a_distrusted_endpoint_is_tried_now_and_then() {
    let distrusted = proto::Endpoint {
        prefix_trust: Some(0.0),
        ..endpoint("a:1")
    };
    let endpoints = endpoints(vec![distrusted, endpoint("b:1")]);
    let of = [(800, load(0, 0)), (0, load(0, 0))];
    let candidates = candidates(&endpoints, &of);
    let tried = (0..32_000u64).filter(|&seed| {
        let ranking = rank(&candidates, &need(), seed);
        assert!(ranking.iter().any(|of| of.indexed_tokens == 800));
        let tried = ranking[0].credit.tokens() == 800;
        assert!(tried || ranking.iter().all(|of| of.credit.tokens() == 0));
        tried
    });
    let tried = tried.count();
    assert!((900..1_100).contains(&tried), "{tried}");
}

fn candidates<'a>(endpoints: &'a Endpoints, of: &[(u32, EndpointLoad)]) -> Vec<Candidate<'a>> {
    endpoints
        .list()
        .iter()
        .zip(of)
        .map(|(endpoint, &(tokens, load))| Candidate {
            endpoint,
            shard: 0,
            credit: Credit {
                by_tier: [tokens, 0, 0],
                speculative: 0,
            },
            load,
        })
        .collect()
}

fn order(candidates: &[Candidate<'_>], need: &Need<'_>, seed: u64) -> Vec<String> {
    addresses(rank(candidates, need, seed))
}

fn addresses(ranking: Vec<Explanation>) -> Vec<String> {
    let addresses = ranking.into_iter().map(|candidate| candidate.address);
    addresses.collect()
}

#[test]
fn the_cost_is_queue_plus_beta_uncached_over_rate() {
    let endpoints = endpoints(vec![
        endpoint("cached"),
        endpoint("idle"),
        proto::Endpoint {
            prefill_tokens_per_s: 4_000.0,
            ..endpoint("fast")
        },
    ]);
    let all = candidates(
        &endpoints,
        &[(800, load(1_500, 3)), (0, load(0, 0)), (0, load(1_000, 1))],
    );
    let ranking = rank(&all, &need(), 1);
    // Requests wait 1.5, 0 and 0.25 s: beta is 2.292, and others wait (beta - 1) / 2,000 s for each token.
    let costs: Vec<_> = ranking
        .iter()
        .map(|candidate| {
            (
                candidate.address.as_str(),
                whole(candidate.cost_ms),
                whole(candidate.ttft_ms),
            )
        })
        .collect();
    assert_eq!(
        costs,
        [
            ("fast", 1_146, 500),
            ("idle", 1_646, 1_000),
            ("cached", 1_829, 1_700)
        ]
    );
    assert_eq!(ranking[2].uncached_tokens, 200);
}

#[test]
fn only_eligible_endpoints_are_ranked() {
    let with = |name: &str, change: fn(&mut proto::Endpoint)| {
        let mut endpoint = endpoint(name);
        change(&mut endpoint);
        endpoint
    };
    let endpoints = endpoints(vec![
        endpoint("good"),
        with("sick", |e| e.healthy = false),
        with("other pool", |e| e.pool = "q".into()),
        with("other model", |e| e.model = "n".into()),
        with("prefill", |e| e.role = "prefill".into()),
        with("adapter b", |e| e.adapters = vec!["b".into()]),
        with("adapter a", |e| e.adapters = vec!["a".into()]),
        with("no adapter", |e| e.lists_adapters = true),
    ]);
    let idle = [(0, load(0, 0)); 8];
    let all = candidates(&endpoints, &idle);
    let sorted = |need: &Need<'_>| {
        let mut names = order(&all, need, 3);
        names.sort();
        names
    };
    assert_eq!(
        sorted(&need()),
        ["adapter a", "adapter b", "good", "no adapter"]
    );
    assert_eq!(
        sorted(&Need {
            adapter: Some("a"),
            ..need()
        }),
        ["adapter a", "good"]
    );
    assert_eq!(
        sorted(&Need {
            phase: Phase::Prefill,
            adapter: Some("a"),
            ..need()
        }),
        ["adapter a", "good", "prefill"]
    );
    assert_eq!(
        sorted(&Need {
            pool: "none",
            ..need()
        }),
        [""; 0]
    );
}

#[test]
fn a_hit_in_a_slower_tier_wins_over_computing_and_loses_to_a_faster_one() {
    let endpoints = endpoints(vec![
        endpoint("gpu"),
        endpoint("cpu"),
        endpoint("disk"),
        endpoint("none"),
    ]);
    let held = [[800, 0, 0], [0, 800, 0], [0, 0, 800], [0, 0, 0]];
    let all: Vec<_> = endpoints
        .list()
        .iter()
        .zip(held)
        .map(|(endpoint, by_tier)| Candidate {
            endpoint,
            shard: 0,
            credit: Credit {
                by_tier,
                speculative: 0,
            },
            load: load(0, 0),
        })
        .collect();
    let with = |cpu, disk| {
        let profile = costing(Cost {
            fetch: FetchCosts::new(cpu, disk),
            ..Cost::default()
        });
        addresses(profile.rank(&all, &need(), 1))
    };
    assert_eq!(order(&all, &need(), 1), ["gpu", "cpu", "disk", "none"]);
    // 1,000 tokens take 2 s to compute with `beta`, 200 of them 0.4 s; 800 fetched ones must take longer than 1.6 s to be worth less.
    let slow = with(Some(2_010.0), None);
    assert_eq!(slow, ["gpu", "disk", "none", "cpu"]);
    let bearable = with(Some(1_990.0), Some(0.0));
    assert_eq!(bearable[2..], ["cpu", "none"]);
    let cpu = rank(&all, &need(), 1).remove(1);
    assert_eq!(
        (whole(cpu.fetch_ms), whole(cpu.cost_ms), whole(cpu.ttft_ms)),
        (8, 408, 208)
    );
    // The queue before an endpoint counts as before.
    let mut all = all;
    all[0].load = load(100, 0);
    assert_eq!(order(&all, &need(), 1)[..2], ["cpu", "disk"]);
}

/// Load as the engine tells it, of requests that no gateway has sent.
fn strangers(running: u32, waiting: u32) -> EndpointLoad {
    EndpointLoad {
        engine: Some(Figures {
            running,
            waiting,
            others: running + waiting,
            ..Figures::default()
        }),
        ..load(0, 0)
    }
}

#[test]
fn requests_that_no_gateway_sent_count_too() {
    let endpoints = endpoints(vec![endpoint("busy"), endpoint("lively"), endpoint("idle")]);
    let all = candidates(
        &endpoints,
        &[
            (0, strangers(40, 12)),
            (0, strangers(9, 0)),
            (0, load(0, 1)),
        ],
    );
    let ranking = rank(&all, &need(), 1);
    let seen: Vec<_> = ranking
        .iter()
        .map(|of| (of.address.as_str(), of.in_flight, of.queued_prefill_tokens))
        .collect();
    assert_eq!(
        seen,
        [("idle", 1, 0), ("lively", 9, 0), ("busy", 52, 12_000)]
    );
}

#[test]
fn what_an_endpoint_holds_does_not_make_it_much_busier_than_others() {
    let endpoints = endpoints(vec![endpoint("hot"), endpoint("cold"), endpoint("cool")]);
    let first = |hot: u32, others: u32, max_imbalance: u32| {
        let all = candidates(
            &endpoints,
            &[
                (900, load(0, hot)),
                (0, load(0, others)),
                (0, load(0, others)),
            ],
        );
        let profile = Profile {
            max_imbalance,
            ..Profile::default()
        };
        let ranking = profile.rank(&all, &need(), 1);
        (
            ranking[0].address == "hot",
            ranking.iter().any(|of| of.is_overfull),
        )
    };
    assert_eq!(first(22, 0, 24), (true, false));
    assert_eq!(first(23, 0, 24), (false, true));
    assert_eq!(first(3, 0, 4), (false, true));
    // Among busy endpoints so many are not much.
    assert_eq!(first(131, 100, 24), (true, false));
    assert_eq!(first(149, 100, 24), (false, true));
}

#[test]
fn full_endpoints_come_only_where_all_are_full() {
    let endpoints = endpoints(vec![endpoint("holder"), endpoint("other")]);
    let need = Need {
        limits: Limits {
            max_waiting: Some(8),
            max_in_flight: Some(50),
            ..Limits::default()
        },
        ..need()
    };
    let full = (900, strangers(10, 8));
    let all = candidates(&endpoints, &[full, (0, load(0, 49))]);
    let ranking = rank(&all, &need, 1);
    assert_eq!(ranking.len(), 1);
    assert_eq!(
        (ranking[0].address.as_str(), ranking[0].is_full),
        ("other", false)
    );
    let all = candidates(&endpoints, &[full, (0, load(0, 50))]);
    let ranking = rank(&all, &need, 1);
    assert_eq!(ranking.len(), 2);
    assert!(ranking.iter().all(|of| of.is_full));
    // What is not known is not full.
    let unknown = EndpointLoad {
        engine: None,
        ..load(0, 0)
    };
    let all = candidates(&endpoints, &[full, (0, unknown)]);
    assert_eq!(order(&all, &need, 1), ["other"]);
}

#[test]
fn unknown_load_is_not_idle() {
    let endpoints = endpoints(vec![
        endpoint("unknown"),
        endpoint("light"),
        endpoint("heavy"),
    ]);
    let unknown = EndpointLoad {
        engine: None,
        ..load(0, 0)
    };
    let all = candidates(
        &endpoints,
        &[(0, unknown), (0, load(100, 1)), (0, load(900, 5))],
    );
    let ranking = rank(&all, &need(), 1);
    assert_eq!(
        ranking
            .iter()
            .map(|candidate| candidate.address.as_str())
            .collect::<Vec<_>>(),
        ["light", "unknown", "heavy"]
    );
    assert_eq!(
        (ranking[1].queued_prefill_tokens, ranking[1].in_flight),
        (500, 3)
    );
    // A known own queue counts when it is longer than the mean.
    let all = candidates(
        &endpoints,
        &[
            (
                0,
                EndpointLoad {
                    engine: None,
                    ..load(5_000, 9)
                },
            ),
            (0, load(100, 1)),
            (0, load(900, 5)),
        ],
    );
    assert_eq!(order(&all, &need(), 1), ["light", "heavy", "unknown"]);
}

#[test]
fn equal_costs_go_to_the_fewest_in_flight_and_then_by_seed() {
    let endpoints = endpoints(vec![endpoint("a"), endpoint("b"), endpoint("c")]);
    let all = candidates(
        &endpoints,
        &[(0, load(0, 4)), (0, load(0, 2)), (0, load(0, 2))],
    );
    let firsts: std::collections::BTreeSet<_> = (0..20)
        .map(|seed| order(&all, &need(), seed)[0].clone())
        .collect();
    assert_eq!(firsts.into_iter().collect::<Vec<_>>(), ["b", "c"]);
    let idle = candidates(&endpoints, &[(0, load(0, 0)); 3]);
    let mut wins = std::collections::BTreeMap::new();
    for seed in 0..3_000 {
        *wins
            .entry(order(&idle, &need(), seed)[0].clone())
            .or_insert(0u32) += 1;
    }
    assert!(
        wins.values().all(|&count| (850..1_150).contains(&count)),
        "{wins:?}"
    );
}

#[test]
fn later_choices_share_the_rank_of_the_first() {
    let ranked = |name: &str, rank| proto::Endpoint {
        rank,
        ..endpoint(name)
    };
    let endpoints = endpoints(vec![
        ranked("a", Some(1)),
        ranked("b", Some(0)),
        ranked("c", None),
        ranked("d", Some(1)),
        ranked("e", Some(1)),
        ranked("f", Some(1)),
    ]);
    let all = candidates(
        &endpoints,
        &[0, 10, 20, 30, 40, 50].map(|queued| (0, load(queued, 0))),
    );
    let ranking = rank(&all, &need(), 1);
    assert_eq!(
        choices(&ranking)
            .map(|choice| choice.address.as_str())
            .collect::<Vec<_>>(),
        ["a", "d", "e"]
    );
    assert_eq!(
        choices(&ranking[2..]).count(),
        1,
        "without rank only others without rank"
    );
    assert_eq!(choices(&[]).count(), 0);
}

proptest! {
    #[test]
    fn order_of_arguments_does_not_matter_and_more_work_never_helps(
        states in prop::collection::vec((0u32..1_500, 0u64..3_000, 0u32..5, any::<bool>(), 0usize..3), 1..8),
        seed in any::<u64>(),
        more in 1u64..5_000,
    ) {
        let rates = [0.0, 500.0, 4_000.0];
        let list = states.iter().enumerate().map(|(at, state)| proto::Endpoint {
            prefill_tokens_per_s: rates[state.4],
            ..endpoint(&format!("e{at}"))
        });
        let endpoints = endpoints(list.collect());
        let of: Vec<_> = states.iter().map(|&(tokens, queued, in_flight, is_known, _)| {
            let engine = is_known.then(Figures::default);
            (tokens, EndpointLoad { engine, ..load(queued, in_flight) })
        }).collect();
        let mut all = candidates(&endpoints, &of);
        let ranking = rank(&all, &need(), seed);
        prop_assert_eq!(ranking.len(), states.len());
        for pair in ranking.windows(2) {
            prop_assert!(whole(pair[0].cost_ms) <= whole(pair[1].cost_ms));
        }
        all.reverse();
        prop_assert_eq!(&rank(&all, &need(), seed), &ranking);
        // A longer queue on one endpoint that is known never moves it up.
        let place = |ranking: &[Explanation], key| ranking.iter().position(|candidate| candidate.key == key);
        let index = all.iter().position(|candidate| candidate.load.is_known());
        if let Some(candidate) = index.and_then(|index| all.get_mut(index)) {
            candidate.load.usage.queued_prefill_tokens += more;
            let key = candidate.endpoint.key;
            let all_known = all.iter().all(|candidate| candidate.load.is_known());
            if all_known {
                prop_assert!(place(&rank(&all, &need(), seed), key) >= place(&ranking, key));
            }
        }
    }
}
