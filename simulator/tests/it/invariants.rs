//! What holds for every policy.

use prefixway_simulator::engine::{EndpointClass, FIRST_TOKEN_US};
use prefixway_simulator::knowledge::Sharing;
use prefixway_simulator::policy::{DEFAULT_POLICY, Policy};
use prefixway_simulator::simulation::{Setup, SetupError, run};
use prefixway_simulator::summary::Figures;
use prefixway_simulator::trace::Trace;
use prefixway_simulator::workload::{Workload, shared_blocks};
use proptest::prelude::*;

fn policies() -> Vec<Policy> {
    let mut all: Vec<Policy> = Policy::NAMES
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    all.push("prefixway:rates=learned".parse().unwrap());
    all
}

#[test]
fn every_request_finishes_once_and_nothing_is_faster_than_without_queue_and_with_an_endless_cache()
{
    let mut trace = Trace::agentic(30, 7);
    trace.truncate(300);
    let setups = [
        Setup::default(),
        // Too little of everything: prompts longer than a cache, two slots, routers that know little of one another.
        Setup {
            classes: vec![EndpointClass {
                count: 3,
                slots: 2,
                cache_tokens: 12_000,
                ..EndpointClass::default()
            }],
            replicas: 3,
            freshness: prefixway_simulator::knowledge::Freshness {
                sharing: Sharing::Every(1_000_000),
                event_delay_us: 2_000_000,
                ..prefixway_simulator::knowledge::Freshness::default()
            },
        },
    ];
    let work = Workload::new(&trace, 64, 1);
    let class = EndpointClass::default();
    let bounds: Vec<u64> = (0..work.arrivals.len() as u32)
        .map(|request| {
            let chain = work.chain(request);
            let seen = (0..request).map(|other| shared_blocks(chain, work.chain(other)));
            let prompt = work.arrivals[request as usize].prompt_tokens;
            let most = (prompt - 1) / 64;
            let cached = (seen.max().unwrap_or(0) as u32).min(most) * 64;
            class.prefill_us(prompt - cached) + FIRST_TOKEN_US
        })
        .collect();
    for setup in &setups {
        for policy in policies() {
            let run = run(&work, setup, policy, 3.0);
            for (served, bound) in run.served.iter().zip(&bounds) {
                assert_eq!(served.finished, 1, "{policy}");
                assert!(served.ttft_us >= *bound, "{policy}: {served:?}, {bound}");
            }
            let computed: u64 = run
                .served
                .iter()
                .zip(&work.arrivals)
                .map(|(served, of)| u64::from(of.prompt_tokens - served.cached_tokens))
                .sum();
            assert_eq!(
                computed,
                run.prefilled_tokens.iter().sum::<u64>(),
                "{policy}"
            );
        }
    }
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let mut trace = Trace::agentic(20, 7);
    trace.truncate(200);
    let setup = Setup {
        replicas: 2,
        ..Setup::default()
    };
    for policy in policies() {
        let of = |seed| run(&Workload::new(&trace, 64, seed), &setup, policy, 4.0).served;
        assert_eq!(of(1), of(1), "{policy}");
        assert_ne!(of(1), of(2), "{policy}");
    }
}

#[test]
fn shared_load_is_the_same_for_one_router_and_for_many() {
    let trace = Trace::agentic(40, 7);
    let mean = |replicas, sharing| {
        let mut setup = Setup {
            replicas,
            ..Setup::default()
        };
        setup.freshness.sharing = sharing;
        let means = (1..=3).map(|seed| {
            let work = Workload::new(&trace, 64, seed);
            Figures::of(&run(&work, &setup, DEFAULT_POLICY, 6.0), &work).mean_ttft_s
        });
        means.sum::<f64>() / 3.0
    };
    let alone = mean(1, Sharing::Never);
    let shared = mean(16, Sharing::Every(0));
    let apart = mean(16, Sharing::Never);
    assert!((shared / alone - 1.0).abs() < 0.15, "{shared} {alone}");
    assert!(apart > 1.2 * shared, "{apart} {shared}");
}

#[test]
fn what_can_not_be_simulated_is_said() {
    let of = |change: fn(&mut Setup)| {
        let mut setup = Setup::default();
        change(&mut setup);
        setup.check()
    };
    assert_eq!(of(|_| {}), Ok(()));
    assert_eq!(
        of(|setup| setup.classes[0].count = 65),
        Err(SetupError::Endpoints(65))
    );
    assert_eq!(
        of(|setup| setup.classes.clear()),
        Err(SetupError::Endpoints(0))
    );
    assert_eq!(of(|setup| setup.replicas = 0), Err(SetupError::Replicas(0)));
    assert_eq!(
        of(|setup| setup.classes[0].joins_us = 1),
        Err(SetupError::NobodyThere)
    );
    assert!(of(|setup| setup.classes[0].prefill_tokens_per_s = f64::NAN).is_err());
    assert!(of(|setup| setup.classes[0].slots = 0).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn small_random_traces_are_served_by_every_policy(
        lines in prop::collection::vec((0u64..20_000, 1u32..9_000, 1u32..80, 0u64..4), 1..40),
        slots in 1u32..4,
        cache_tokens in 64u32..20_000,
        policy in prop::sample::select(policies()),
        load in 0.1f64..8.0,
        seed in 0u64..1_000,
    ) {
        let text: Vec<String> = lines
            .iter()
            .map(|(at, input, output, kind)| {
                let ids: Vec<u64> = (0..u64::from(input.div_ceil(512))).map(|depth| kind * 100 + depth).collect();
                format!(r#"{{"timestamp": {at}, "input_length": {input}, "output_length": {output}, "hash_ids": {ids:?}}}"#)
            })
            .collect();
        let trace = Trace::from_text("t", &text.join("\n")).unwrap();
        let setup = Setup {
            classes: vec![EndpointClass { count: 3, slots, cache_tokens, ..EndpointClass::default() }],
            ..Setup::default()
        };
        let work = Workload::new(&trace, 64, seed);
        let run = run(&work, &setup, policy, load);
        for (served, of) in run.served.iter().zip(&work.arrivals) {
            prop_assert_eq!(served.finished, 1);
            prop_assert!(served.cached_tokens < of.prompt_tokens);
        }
    }
}
