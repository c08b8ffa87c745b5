//! Filters, scorers and pickers as policies name them.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use serde_json::{Value, json};

use super::*;

fn plugin(name: &str, parameters: &Value, weight: Option<f64>) -> proto::Plugin {
    proto::Plugin {
        r#type: name.to_owned(),
        parameters: if parameters.is_null() {
            String::new()
        } else {
            parameters.to_string()
        },
        weight,
        required: false,
    }
}

fn policy(profile: proto::SchedulingProfile) -> proto::Policy {
    proto::Policy {
        profiles: vec![profile],
        ..proto::Policy::default()
    }
}

fn compiled(profile: proto::SchedulingProfile) -> Profiles {
    Registry::default().profiles(&policy(profile)).unwrap()
}

/// A profile of scorers with weights.
fn scoring(scorers: &[(&str, Value, f64)]) -> Profiles {
    compiled(proto::SchedulingProfile {
        scorers: scorers
            .iter()
            .map(|(name, parameters, weight)| plugin(name, parameters, Some(*weight)))
            .collect(),
        ..proto::SchedulingProfile::default()
    })
}

fn filtering(name: &str, parameters: &Value, required: bool) -> Profiles {
    compiled(proto::SchedulingProfile {
        filters: vec![proto::Plugin {
            required,
            ..plugin(name, parameters, None)
        }],
        ..proto::SchedulingProfile::default()
    })
}

fn first(profiles: &Profiles, candidates: &[Candidate<'_>], need: &Need<'_>, seed: u64) -> String {
    let ranking = profiles.of_pool("p").rank(candidates, need, seed);
    ranking[0].address.clone()
}

fn names(profiles: &Profiles, candidates: &[Candidate<'_>], need: &Need<'_>) -> Vec<String> {
    let ranking = profiles.of_pool("p").rank(candidates, need, 1);
    let mut names = addresses(ranking);
    names.sort();
    names
}

/// Load with an engine's own figures.
fn engine(waiting: u32, running: u32, kv_usage_ratio: f64) -> EndpointLoad {
    EndpointLoad {
        engine: Some(Figures {
            waiting,
            running,
            kv_usage_ratio,
            ..Figures::default()
        }),
        ..load(0, 0)
    }
}

const LLM_D: [&str; 3] = [
    "prefix-cache-scorer",
    "queue-scorer",
    "kv-cache-utilization-scorer",
];

fn llm_d() -> Profiles {
    let [prefix, queue, kv] = LLM_D;
    scoring(&[
        (prefix, Value::Null, 3.0),
        (queue, Value::Null, 2.0),
        (kv, Value::Null, 2.0),
    ])
}

#[test]
fn a_block_that_everybody_begins_with_does_not_draw_everybody() {
    let endpoints = endpoints(vec![endpoint("holder"), endpoint("idle"), endpoint("too")]);
    let need = Need {
        prompt_tokens: 8_400,
        ..need()
    };
    let all = |tokens, waiting| {
        let of = [
            (tokens, engine(waiting, 8, 0.1)),
            (0, engine(0, 8, 0.1)),
            (0, engine(0, 8, 0.1)),
        ];
        first(&llm_d(), &candidates(&endpoints, &of), &need, 1)
    };
    assert_ne!(
        all(16, 1),
        "holder",
        "one block of 525, and one waits there"
    );
    assert_eq!(all(16, 0), "holder");
    assert_eq!(all(8_192, 1), "holder", "nearly all of the prompt");
}

#[test]
fn cold_requests_go_round() {
    let profiles = scoring(&[("no-hit-lru", Value::Null, 1.0)]);
    let endpoints = endpoints((0..5).map(|at| endpoint(&format!("e{at}"))).collect());
    let cold = candidates(&endpoints, &[(0, load(0, 0)); 5]);
    let mut last_cold = HashMap::new();
    let mut rounds = Vec::new();
    for time in 0..25u64 {
        let need = Need {
            last_cold: Some(&last_cold),
            ..need()
        };
        let ranking = profiles.of_pool("p").rank(&cold, &need, time);
        let key = ranking[0].key;
        rounds.push(key);
        last_cold.insert(key, time);
    }
    for round in rounds.chunks(5) {
        let distinct: BTreeSet<_> = round.iter().collect();
        assert_eq!(distinct.len(), 5, "each once before any twice");
    }
    assert_eq!(
        rounds[5..10],
        rounds[10..15],
        "then always in the same order"
    );
    // A warm request is nobody's turn.
    let warm = candidates(
        &endpoints,
        &[
            (160, load(0, 0)),
            (0, load(0, 0)),
            (0, load(0, 0)),
            (0, load(0, 0)),
            (0, load(0, 0)),
        ],
    );
    let need = Need {
        last_cold: Some(&last_cold),
        ..need()
    };
    let ranking = profiles.of_pool("p").rank(&warm, &need, 1);
    assert!(ranking.iter().all(|of| of.scores == [0.5]));
}

#[test]
fn fewer_active_requests_are_better() {
    let endpoints = endpoints(vec![endpoint("busy"), endpoint("less"), endpoint("idle")]);
    let of = [(0, load(0, 8)), (0, load(0, 2)), (0, load(0, 0))];
    let all = candidates(&endpoints, &of);
    let scores = |parameters: Value| {
        let profiles = scoring(&[("active-request", parameters, 1.0)]);
        let ranking = profiles.of_pool("p").rank(&all, &need(), 1);
        let scores = ranking.into_iter().map(|of| (of.address, of.scores[0]));
        scores.collect::<BTreeMap<_, _>>()
    };
    let by_default = scores(Value::Null);
    assert_eq!(
        (by_default["busy"], by_default["less"], by_default["idle"]),
        (0.0, 0.75, 1.0)
    );
    let tolerant = scores(json!({"idleThreshold": 2, "maxBusyScore": 0.5}));
    assert_eq!(
        (tolerant["busy"], tolerant["less"], tolerant["idle"]),
        (0.0, 1.0, 1.0)
    );
}

#[test]
fn a_session_stays_where_it_is_unless_the_cache_knows_better() {
    let list: Vec<_> = (0..8).map(|at| endpoint(&format!("e{at}"))).collect();
    let all_endpoints = endpoints(list.clone());
    let idle = [(0, load(0, 0)); 8];
    let all = candidates(&all_endpoints, &idle);
    let profiles = compiled(proto::SchedulingProfile {
        cost: Some(proto::Cost::default()),
        scorers: vec![plugin("session-affinity", &Value::Null, Some(300.0))],
        ..proto::SchedulingProfile::default()
    });
    let of = |candidates: &[Candidate<'_>], session, seed| {
        let need = Need {
            session: Some(session),
            ..need()
        };
        first(&profiles, candidates, &need, seed)
    };
    let homes: Vec<String> = (0..400)
        .map(|session| of(&all, session, session * 7 + 1))
        .collect();
    for (session, home) in (0..400).zip(&homes) {
        assert_eq!(&of(&all, session, 99), home, "whatever the seed");
    }
    let mut counts = BTreeMap::new();
    for home in &homes {
        *counts.entry(home.clone()).or_insert(0u32) += 1;
    }
    assert_eq!(counts.len(), 8);
    assert!(
        counts.values().all(|count| (25..80).contains(count)),
        "{counts:?}"
    );
    // One less: only its own sessions move.
    let fewer_endpoints = endpoints(list[1..].to_vec());
    let fewer = candidates(&fewer_endpoints, &idle[1..]);
    for (session, home) in (0..400).zip(&homes).filter(|(_, home)| *home != "e0") {
        assert_eq!(&of(&fewer, session, 5), home);
    }
    // 320 cached tokens are worth 640 ms, the session 300.
    let session = homes.iter().position(|home| home == "e1").unwrap() as u64;
    let mut held = idle;
    held[4].0 = 320;
    assert_eq!(of(&candidates(&all_endpoints, &held), session, 1), "e4");
    held[4].0 = 96;
    assert_eq!(of(&candidates(&all_endpoints, &held), session, 1), "e1");
}

#[test]
fn a_filter_that_leaves_nothing_counts_only_where_it_must() {
    let with = |name: &str, zone: &str| proto::Endpoint {
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        ..endpoint(name)
    };
    let endpoints = endpoints(vec![with("a", "1"), with("b", "2"), endpoint("c")]);
    let all = candidates(&endpoints, &[(0, load(0, 0)); 3]);
    let selected = |parameters: &Value, required| {
        names(
            &filtering("label-selector", parameters, required),
            &all,
            &need(),
        )
    };
    let zone = |zone: &str| json!({"matchLabels": {"zone": zone}});
    assert_eq!(selected(&zone("2"), true), ["b"]);
    assert_eq!(selected(&zone("3"), true), [""; 0]);
    assert_eq!(selected(&zone("3"), false), ["a", "b", "c"]);
    let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
    assert_eq!(selected(&expression("In", &["1", "3"]), true), ["a"]);
    assert_eq!(selected(&expression("NotIn", &["1"]), true), ["b", "c"]);
    assert_eq!(selected(&expression("Exists", &[]), true), ["a", "b"]);
    assert_eq!(selected(&expression("DoesNotExist", &[]), true), ["c"]);
    let by_label = json!({"label": "zone", "validValues": ["1"], "allowsNoLabel": true});
    assert_eq!(
        names(&filtering("by-label", &by_label, true), &all, &need()),
        ["a", "c"]
    );
}

#[test]
fn bounds_leave_out_what_is_beyond_or_not_known() {
    let endpoints = endpoints(vec![
        endpoint("full"),
        endpoint("room"),
        endpoint("unknown"),
    ]);
    let unknown = EndpointLoad {
        engine: None,
        ..load(0, 0)
    };
    let of = [
        (0, engine(0, 1, 0.95)),
        (0, engine(0, 1, 0.5)),
        (0, unknown),
    ];
    let all = candidates(&endpoints, &of);
    let bound = |keep: bool| json!({"conditions": [{"metric": "kv-cache-utilization", "maxValue": 0.9}], "keepUnknown": keep});
    let of = |keep| {
        names(
            &filtering("utilization-filter", &bound(keep), true),
            &all,
            &need(),
        )
    };
    assert_eq!(of(false), ["room"]);
    assert_eq!(of(true), ["room", "unknown"]);
    assert_eq!(
        names(&filtering("staleness", &Value::Null, true), &all, &need()),
        ["full", "room"]
    );
}

#[test]
fn holders_are_kept_until_waiting_for_them_costs_too_much() {
    let endpoints = endpoints(vec![endpoint("holder"), endpoint("idle")]);
    let kept = |queued| {
        let all = candidates(&endpoints, &[(900, load(queued, 1)), (0, load(0, 0))]);
        let parameters = json!({"maxTTFTPenaltyMs": 2_000});
        names(
            &filtering("prefix-cache-affinity-filter", &parameters, true),
            &all,
            &need(),
        )
    };
    assert_eq!(kept(2_000), ["holder"]);
    assert_eq!(kept(2_001), ["holder", "idle"]);
}

#[test]
fn targets_are_met_by_the_tightest_that_meets_them() {
    let rate = |name: &str, prefill_tokens_per_s| proto::Endpoint {
        prefill_tokens_per_s,
        ..endpoint(name)
    };
    let endpoints = endpoints(vec![
        rate("fast", 10_000.0),
        rate("middle", 2_000.0),
        rate("slow", 100.0),
    ]);
    let all = candidates(&endpoints, &[(0, load(0, 0)); 3]);
    let wanting = |ttft_ms| Need { ttft_ms, ..need() };
    let least = scoring(&[("latency-scorer", Value::Null, 1.0)]);
    let most = scoring(&[("latency", json!({"headroomSelectionStrategy": "most"}), 1.0)]);
    assert_eq!(first(&least, &all, &wanting(Some(600.0)), 1), "middle");
    assert_eq!(first(&most, &all, &wanting(Some(600.0)), 1), "fast");
    assert_eq!(
        first(&least, &all, &wanting(Some(10.0)), 1),
        "fast",
        "nobody meets it"
    );
    assert_eq!(first(&least, &all, &wanting(None), 1), "fast");
    let tier = filtering(
        "slo-headroom-tier-filter",
        &json!({"epsilonExploreNeg": 0}),
        true,
    );
    assert_eq!(
        names(&tier, &all, &wanting(Some(600.0))),
        ["fast", "middle"]
    );
    assert_eq!(
        names(&tier, &all, &wanting(Some(10.0))),
        ["fast", "middle", "slow"]
    );
}

#[test]
fn labels_adapters_and_places_are_scored() {
    let labelled = |name: &str, label: &str, value: &str| proto::Endpoint {
        labels: [(label.to_owned(), value.to_owned())].into(),
        ..endpoint(name)
    };
    let range = "llm-d.ai/context-length-range";
    let by_range = endpoints(vec![
        labelled("short", range, "0-2000"),
        labelled("long", range, "2001-100000"),
        endpoint("any"),
    ]);
    let all = candidates(&by_range, &[(0, load(0, 0)); 3]);
    let context = scoring(&[("context-length-aware", Value::Null, 1.0)]);
    let of = |prompt_tokens| {
        first(
            &context,
            &all,
            &Need {
                prompt_tokens,
                ..need()
            },
            1,
        )
    };
    assert_eq!(
        (of(1_000), of(50_000)),
        ("short".to_owned(), "long".to_owned())
    );
    let only = filtering("context-length-aware", &Value::Null, true);
    assert_eq!(names(&only, &all, &need()), ["any", "short"]);

    let adapters = |name: &str, running: &[&str], waiting: &[&str], max_adapters| proto::Endpoint {
        running_adapters: running.iter().map(|&name| name.to_owned()).collect(),
        waiting_adapters: waiting.iter().map(|&name| name.to_owned()).collect(),
        max_adapters,
        ..endpoint(name)
    };
    let loaded = endpoints(vec![
        adapters("other", &["x", "y"], &[], 2),
        adapters("waits", &["x"], &["a"], 2),
        adapters("room", &["x"], &[], 2),
        adapters("has", &["a", "x"], &[], 2),
    ]);
    let all = candidates(&loaded, &[(0, load(0, 0)); 4]);
    let lora = scoring(&[("lora-affinity-scorer", Value::Null, 1.0)]);
    let need_a = Need {
        adapter: Some("a"),
        ..need()
    };
    assert_eq!(
        addresses(lora.of_pool("p").rank(&all, &need_a, 1)),
        ["has", "room", "waits", "other"]
    );

    let zone = "topology.kubernetes.io/zone";
    let placed = endpoints(vec![
        labelled("near", zone, "z1"),
        labelled("far", zone, "z2"),
    ]);
    let all = candidates(&placed, &[(0, load(0, 0)); 2]);
    let topology = scoring(&[("topology-affinity-scorer", json!({"zone": "z1"}), 1.0)]);
    assert_eq!(first(&topology, &all, &need(), 1), "near");
    let header = scoring(&[(
        "header-label-affinity",
        json!({"headerName": "x-zone", "labelKey": zone}),
        1.0,
    )]);
    let headers = [("x-zone".to_owned(), "z2".to_owned())];
    assert_eq!(
        first(
            &header,
            &all,
            &Need {
                headers: &headers,
                ..need()
            },
            1
        ),
        "far"
    );
}

#[test]
fn pickers_differ_in_how_far_they_trust_the_order() {
    let endpoints = endpoints((0..8).map(|at| endpoint(&format!("e{at}"))).collect());
    let of: Vec<_> = (0..8u32)
        .map(|at| (0, load(u64::from(at) * 1_000, at)))
        .collect();
    let all = candidates(&endpoints, &of);
    let shares = |picker: &str| {
        let profiles = compiled(proto::SchedulingProfile {
            picker: picker.to_owned(),
            ..proto::SchedulingProfile::default()
        });
        let mut counts = vec![0u32; 8];
        for seed in 0..8_000 {
            let ranking = profiles.of_pool("p").rank(&all, &need(), seed);
            assert_eq!(ranking.len(), 8);
            let place: usize = ranking[0].address[1..].parse().unwrap();
            counts[place] += 1;
            // The others stay in order.
            let costs: Vec<u64> = ranking[1..].iter().map(|of| whole(of.cost_ms)).collect();
            assert!(costs.is_sorted());
        }
        counts
    };
    assert_eq!(shares("max-score")[0], 8_000);
    // Of two of eight the better one: 7/28, 6/28, ... 0.
    let two = shares("power-of-two");
    assert!(
        (1_850..2_150).contains(&two[0]) && (1_570..1_860).contains(&two[1]),
        "{two:?}"
    );
    assert_eq!(two[7], 0);
    // Costs are 2, 3, ... 9 s: chances as 1/2, 1/3, ... 1/9.
    let weighted = shares("weighted-random-picker");
    let expected = 8_000.0 * 0.5 / (2..10).map(|of| 1.0 / f64::from(of)).sum::<f64>();
    assert!(
        (f64::from(weighted[0]) / expected - 1.0).abs() < 0.08,
        "{weighted:?}"
    );
    let random = shares("random");
    assert!(
        random.iter().all(|count| (880..1_120).contains(count)),
        "{random:?}"
    );
}

#[test]
fn waits_for_slots_and_memory_cost() {
    let kv = |name: &str| proto::Endpoint {
        kv_tokens: 100_000,
        ..endpoint(name)
    };
    let endpoints = endpoints(vec![kv("slots"), kv("memory"), kv("free")]);
    let loads = [(0, load(0, 64)), (0, engine(0, 1, 0.999)), (0, load(0, 0))];
    let all = candidates(&endpoints, &loads);
    let cost = Cost {
        max_sequences: Some(64),
        ..Cost::default()
    };
    let ranking = costing(cost).rank(&all, &need(), 1);
    let of = |name: &str| {
        ranking
            .iter()
            .find(|of| of.address == name)
            .unwrap()
            .decode_ms
    };
    // 256 tokens at 30 ms: of 64 sequences one ends every 120 ms.
    assert!((of("slots") - 120.0).abs() < 1e-6);
    // 1 % of the memory is wanted and 0.1 % is free.
    assert!((of("memory") - 7_680.0 * 0.009 / 0.999).abs() < 1e-6);
    assert!(of("free").abs() < 1e-9);
}

#[test]
fn what_cannot_be_used_is_named_by_its_path() {
    let error = |profile| {
        Registry::default()
            .profiles(&policy(profile))
            .unwrap_err()
            .to_string()
    };
    let with = |scorer| proto::SchedulingProfile {
        scorers: vec![scorer],
        ..proto::SchedulingProfile::default()
    };
    let unknown = error(with(plugin("prefix", &Value::Null, None)));
    assert!(
        unknown.starts_with(
            "profiles[0].scorers[0].type: no scorer \"prefix\"; there are: active-request,"
        ),
        "{unknown}"
    );
    let misspelt = error(with(plugin(
        "token-load",
        &json!({"queueThreshold": 1}),
        None,
    )));
    assert!(
        misspelt.starts_with("profiles[0].scorers[0].parameters: unknown field"),
        "{misspelt}"
    );
    let negative = error(with(plugin("queue", &Value::Null, Some(-1.0))));
    assert_eq!(
        negative,
        "profiles[0].scorers[0].weight: -1 is no weight: it is 0 or more"
    );
    let empty = error(proto::SchedulingProfile {
        filters: vec![plugin("label-selector", &Value::Null, None)],
        ..proto::SchedulingProfile::default()
    });
    assert_eq!(
        empty,
        "profiles[0].filters[0].parameters: the selector names no label"
    );
    let picker = error(proto::SchedulingProfile {
        picker: "best".into(),
        ..proto::SchedulingProfile::default()
    });
    assert!(
        picker.starts_with("profiles[0].picker: no picker \"best\""),
        "{picker}"
    );
    let mut pools = policy(proto::SchedulingProfile::default());
    pools.pool_profiles = vec![proto::PoolProfile {
        pool: "chat".into(),
        profile: "x".into(),
    }];
    let error = Registry::default()
        .profiles(&pools)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "pools.chat.profile: no profile \"x\"");
}

#[test]
fn every_plugin_ranks_whatever_comes() {
    let needs_parameters = |name: &str| match name {
        "label-selector" | "label-selector-filter" | "by-label-selector" => {
            json!({"matchLabels": {"a": "b"}})
        }
        "by-label" => json!({"label": "a"}),
        "accelerator" => json!({"classes": ["x"]}),
        "expression" => json!({"expression": "", "tree": {"Number": 0.5}}),
        "utilization" | "utilization-filter" => json!({"conditions": []}),
        "header-label-affinity" | "header-label-affinity-scorer" => {
            json!({"headerName": "h", "labelKey": "l"})
        }
        _ => Value::Null,
    };
    let endpoints = endpoints(vec![endpoint("a"), endpoint("b")]);
    let registry = Registry::default();
    let filters: Vec<_> = registry.filter_names().collect();
    for name in filters {
        let parameters = match name {
            "endpoint-attribute" | "endpoint-attribute-filter" => json!({"conditions": []}),
            "expression" => json!({"expression": "", "tree": {"Bool": true}}),
            name => needs_parameters(name),
        };
        let profiles = filtering(name, &parameters, false);
        for all in [
            vec![],
            candidates(&endpoints, &[(5, load(1, 1)), (0, load(0, 0))]),
        ] {
            let ranking = profiles.of_pool("p").rank(&all, &need(), 1);
            assert_eq!(ranking.is_empty(), all.is_empty(), "{name}");
        }
    }
    let scorers: Vec<_> = registry.scorer_names().collect();
    for name in scorers {
        let parameters = match name {
            "endpoint-attribute" | "endpoint-attribute-scorer" => {
                json!({"attribute": "queued-tokens"})
            }
            name => needs_parameters(name),
        };
        let profiles = scoring(&[(name, parameters, 1.0)]);
        let odd = Need {
            prompt_tokens: 0,
            ttft_ms: Some(0.0),
            session: Some(0),
            ..need()
        };
        for need in [need(), odd] {
            for all in [
                vec![],
                candidates(
                    &endpoints,
                    &[(5, load(u64::MAX, u32::MAX)), (0, load(0, 0))],
                ),
            ] {
                let ranking = profiles.of_pool("p").rank(&all, &need, 1);
                assert_eq!(ranking.len(), all.len(), "{name}");
                assert!(
                    ranking.iter().all(|of| (0.0..=1.0).contains(&of.scores[0])),
                    "{name}"
                );
            }
        }
    }
}
