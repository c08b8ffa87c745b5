//! Bursts, unknown load and hot prefixes: S01, S02 and S03 of the scenario cases, with their numbers and bounds. What they say of no prompt (its length,
//! what comes after the prefix) is chosen here.

use prefixway_core::load::Figures;
use prefixway_simulator::engine::EndpointClass;
use prefixway_simulator::policy::Policy;
use prefixway_simulator::simulation::{Run, Setup, Start, run_from};
use prefixway_simulator::trace::Trace;
use prefixway_simulator::workload::Workload;

const OURS: [&str; 2] = ["prefixway", "weighted"];

/// Requests that never finish: when they come, tokens of their prompts, how many of them all have in common, and what kind they are beyond.
fn endless(lines: impl Iterator<Item = (u64, u32, u32, u64)>) -> Trace {
    let text: Vec<String> = lines
        .map(|(at_ms, tokens, common, kind)| {
            let id = |block: u32| u64::from(block) + if block * 16 < common { 0 } else { 10_000 * (1 + kind) };
            let ids: Vec<u64> = (0..tokens.div_ceil(16)).map(id).collect();
            format!(r#"{{"timestamp": {at_ms}, "input_length": {tokens}, "output_length": 2, "hash_ids": {ids:?}}}"#)
        })
        .collect();
    Trace::from_text("burst", &text.join("\n")).unwrap()
}

fn pods(count: u32) -> EndpointClass {
    EndpointClass {
        count,
        // Two tokens take a day, and nobody waits for a slot.
        decode_ms_per_token: 86_400_000.0,
        slots: 10_000,
        ..EndpointClass::default()
    }
}

fn figures(running: u32, waiting: u32, kv_usage_ratio: f64, age_ms: u64) -> Figures {
    Figures {
        running,
        waiting,
        kv_usage_ratio,
        others: running + waiting,
        age_ms,
    }
}

fn counts(run: &Run, pods: usize) -> Vec<usize> {
    let of = |pod: usize| {
        run.served
            .iter()
            .filter(|of| of.endpoint as usize == pod)
            .count()
    };
    (0..pods).map(of).collect()
}

fn play(trace: &Trace, setup: &Setup, policy: &str, start: &Start, seed: u64) -> Run {
    let work = Workload::new(trace, 16, seed);
    let policy: Policy = policy.parse().unwrap();
    run_from(&work, setup, policy, 1.0, start)
}

#[test]
fn s01_a_burst_on_equal_pods_is_spread() {
    let same = endless((0..64).map(|request| (request * 50 / 64, 2_048, 2_048, 0)));
    let other_ends = endless((0..64).map(|request| (request * 50 / 64, 2_400, 2_048, request)));
    let start = Start {
        held_blocks: vec![2_048 / 16; 8],
        frozen_figures: vec![Some(figures(0, 0, 0.1, 200)); 8],
    };
    for (replicas, range) in [(1, 4..=12), (4, 1..=16)] {
        let setup = Setup {
            classes: vec![pods(8)],
            replicas,
            ..Setup::default()
        };
        for policy in OURS {
            for (trace, seed) in [&same, &other_ends]
                .into_iter()
                .flat_map(|trace| (1..=5).map(move |seed| (trace, seed)))
            {
                let run = play(trace, &setup, policy, &start, seed);
                let counts = counts(&run, 8);
                assert!(
                    counts.iter().all(|count| range.contains(count)),
                    "{policy}, {replicas}: {counts:?}"
                );
            }
        }
    }
}

#[test]
fn s02_unknown_load_is_not_idle() {
    let trace = endless((0..30).map(|request| (request / 3, 512, 0, request)));
    let setup = Setup {
        classes: vec![pods(3)],
        ..Setup::default()
    };
    let ghost = Start {
        held_blocks: Vec::new(),
        frozen_figures: vec![
            None,
            Some(figures(1, 0, 0.1, 200)),
            Some(figures(40, 12, 0.8, 200)),
        ],
    };
    let stale = Start {
        held_blocks: Vec::new(),
        frozen_figures: vec![
            Some(figures(0, 0, 0.0, 60_000)),
            Some(figures(5, 0, 0.4, 200)),
            Some(figures(5, 0, 0.4, 200)),
        ],
    };
    for policy in OURS {
        for seed in 1..=5 {
            let run = play(&trace, &setup, policy, &ghost, seed);
            assert_eq!(run.served[0].endpoint, 1, "{policy}");
            let of = counts(&run, 3);
            assert!(of[0] <= 15, "{policy}: {of:?}");
            let of = counts(&play(&trace, &setup, policy, &stale, seed), 3);
            assert!(of[0] <= 12, "{policy}: {of:?}");
        }
    }
}

/// Requests 200 to 399 come once a fifth pod has joined.
fn hot(policy: &str, seed: u64) -> Run {
    let trace = endless((0..400).map(|request| (request * 25, 8_400, 8_192, 0)));
    let setup = Setup {
        classes: vec![
            pods(4),
            EndpointClass {
                joins_us: 5_000_000,
                ..pods(1)
            },
        ],
        ..Setup::default()
    };
    let start = Start {
        held_blocks: vec![8_192 / 16, 0, 0, 0, 0],
        frozen_figures: Vec::new(),
    };
    play(&trace, &setup, policy, &start, seed)
}

#[test]
fn s03_a_hot_prefix_spills_and_a_fresh_pod_is_used() {
    for policy in OURS {
        for seed in 1..=5 {
            let run = hot(policy, seed);
            let picks: Vec<u32> = run.served.iter().map(|of| of.endpoint).collect();
            let (first, then) = picks.split_at(200);
            assert_eq!(first[0], 0, "{policy}");
            let elsewhere = first.iter().position(|&pod| pod != 0).unwrap() + 1;
            assert!(elsewhere < 33, "{policy}: {elsewhere}");
            for pod in 0..4 {
                let share = first.iter().filter(|&&of| of == pod).count();
                assert!(share <= 120, "{policy}: {share} of 200 at pod {pod}");
            }
            let fresh = then[100..].iter().filter(|&&pod| pod == 4).count();
            assert!(fresh >= 10, "{policy}: {fresh} of 100");
        }
    }
}

#[test]
fn as_published_the_weights_keep_a_hot_prefix_on_one_pod() {
    // The share of the prompt that is held outweighs queue and KV use together: why `weighted` has the rule for hot prefixes.
    let picks = hot("llm_d_ratio", 1).served;
    assert!(picks[..200].iter().all(|of| of.endpoint == 0));
}
