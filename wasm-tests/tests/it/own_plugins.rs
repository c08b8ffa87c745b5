//! A filter with plugins of one's own: the example's module, and the usual one where a policy names what it lacks.

use prefixway_core::proto::{Cost, EndpointLoad, Plugin, Scheduling, SchedulingProfile};
use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};
use prefixway_wasm_tests::{Host, Indexer, LogLevel, Rig, example_module, indexer};

/// Sets the only profile: the default cost with these filters and scorers.
fn set_profile(rig: &mut Rig, filters: Vec<Plugin>, scorers: Vec<Plugin>) {
    rig.indexer.policy.scheduling = Some(Box::new(Scheduling {
        profiles: vec![SchedulingProfile {
            name: "own".to_owned(),
            filters,
            scorers,
            cost: Some(Cost::default()),
            ..SchedulingProfile::default()
        }],
        pools: Vec::new(),
    }));
    rig.indexer.policy.revision += 1;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
}

fn fewest_tokens() -> Plugin {
    Plugin {
        r#type: "fewest-tokens".to_owned(),
        parameters: r#"{"half":10}"#.to_owned(),
        weight: Some(10_000.0),
        required: false,
    }
}

fn even_ranks() -> Plugin {
    Plugin {
        r#type: "even-ranks".to_owned(),
        ..Plugin::default()
    }
}

/// The second engine holds the prompt, and has a little to do.
fn rig(host: Host) -> (Rig, String) {
    let mut rig = Rig::on(host, Indexer::new(&ENGINES));
    let body = chat("own", 300);
    rig.indexer.store(&[1], &body);
    let busy = EndpointLoad {
        queued_prefill_tokens: 100,
        ..indexer::idle(1)
    };
    rig.indexer.loads.insert(1, busy);
    rig.settle();
    (rig, body)
}

fn goes_to(rig: &mut Rig, body: &str) -> String {
    let outcome = rig.chat(1, body);
    let first = destination(&outcome).unwrap().to_owned();
    rig.answer(1, &outcome, 0);
    rig.settle();
    first
}

#[test]
fn a_scorer_and_a_filter_of_ones_own_change_decisions() {
    let module = example_module("prefixway-own-scorer").unwrap();
    let start = || {
        let host = Host::builder(CONFIG).module(module.clone());
        rig(host.start().unwrap())
    };
    let (mut plain, body) = start();
    assert_eq!(goes_to(&mut plain, &body), ENGINES[1], "by the cost alone");
    plain.assert_healthy();

    let (mut scored, body) = start();
    set_profile(&mut scored, Vec::new(), vec![fewest_tokens()]);
    let to = goes_to(&mut scored, &body);
    assert_ne!(to, ENGINES[1], "something waits there");
    scored.assert_healthy();

    let (mut filtered, body) = start();
    for (rank, endpoint) in (0..).zip(&mut filtered.indexer.endpoints.endpoints) {
        endpoint.rank = Some(rank);
    }
    set_profile(&mut filtered, vec![even_ranks()], Vec::new());
    assert_ne!(goes_to(&mut filtered, &body), ENGINES[1], "its rank is odd");
    filtered.assert_healthy();
}

#[test]
fn a_filter_that_lacks_a_plugin_says_so_and_goes_on_with_the_last_profiles() {
    let (mut rig, body) = rig(Host::new(CONFIG).unwrap());
    set_profile(&mut rig, Vec::new(), vec![fewest_tokens()]);
    assert_eq!(goes_to(&mut rig, &body), ENGINES[1], "by the cost alone");
    let said = |line: &&prefixway_wasm_tests::LogLine| {
        line.level == LogLevel::Warn
            && line.text.contains("profiles[0].scorers[0].type")
            && line.text.contains("\"fewest-tokens\"")
            && line.text.contains("the last good ones go on")
    };
    let logs = rig.host.logs();
    assert!(logs.iter().any(|line| said(&line)), "{logs:?}");
    rig.assert_healthy();
}
