//! What a request's headers say of how it is to be served.

use std::collections::BTreeSet;

use prefixway_core::proto::{Cost, Plugin, Scheduling, SchedulingProfile};
use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};
use prefixway_wasm_tests::{Indexer, Outcome, Rig};
use serde_json::{Value, json};

fn plugin(name: &str, parameters: &Value, weight: f64) -> Plugin {
    Plugin {
        r#type: name.to_owned(),
        parameters: parameters.to_string(),
        weight: Some(weight),
        required: false,
    }
}

/// A rig whose endpoints are in zones a, b and c, with these scorers beside the cost.
fn rig(scorers: Vec<Plugin>, change: impl FnOnce(&mut Indexer)) -> Rig {
    let mut indexer = Indexer::new(&ENGINES);
    for (endpoint, zone) in indexer.endpoints.endpoints.iter_mut().zip(["a", "b", "c"]) {
        endpoint.labels.insert("zone".to_owned(), zone.to_owned());
    }
    let profile = SchedulingProfile {
        name: "default".to_owned(),
        cost: Some(Cost::default()),
        scorers,
        ..SchedulingProfile::default()
    };
    indexer.policy.scheduling = Some(Box::new(Scheduling {
        profiles: vec![profile],
        pools: Vec::new(),
    }));
    change(&mut indexer);
    Rig::with(CONFIG, indexer)
}

fn send(rig: &mut Rig, vm: usize, body: &str, headers: &[(&str, &str)]) -> Outcome {
    let mut all = vec![(":method", "POST"), (":path", "/v1/chat/completions")];
    all.extend_from_slice(headers);
    let outcome = rig.host.vm(vm).request(&all).chunk(body).end();
    rig.answer(vm, &outcome, 0);
    outcome
}

#[test]
fn a_header_decides_by_a_label() {
    let parameters = json!({"headerName": "X-Zone", "labelKey": "zone"});
    let scorer = plugin("header-label-affinity", &parameters, 1e6);
    let mut rig = rig(vec![scorer], |_| {});
    for (number, (zone, engine)) in ["c", "a", "b"].into_iter().zip([2, 0, 1]).enumerate() {
        let body = chat(&format!("zone {number}"), 100);
        let outcome = send(&mut rig, 1, &body, &[("x-zone", zone)]);
        assert_eq!(destination(&outcome), Some(ENGINES[engine]), "{zone}");
    }
    rig.assert_healthy();
}

#[test]
fn headers_and_targets_decide_by_an_expression() {
    // request.headers['x-zone'] == endpoint.labels['zone'] && request.ttft_ms == 250.0
    let of_zone = json!({"Binary": ["Equal", {"Header": "x-zone"}, {"Label": "zone"}]});
    let of_target =
        json!({"Binary": ["Equal", {"Variable": "request.ttft_ms"}, {"Number": 250.0}]});
    let both = json!({"Binary": ["And", of_zone, of_target]});
    let tree = json!({"If": [both, {"Number": 1.0}, {"Number": 0.0}]});
    let parameters = json!({"expression": "", "tree": tree});
    let mut rig = rig(vec![plugin("expression", &parameters, 1e6)], |_| {});
    for target in ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"] {
        for (zone, engine) in [("b", 1), ("c", 2)] {
            let headers = [("x-zone", zone), (target, "250")];
            let outcome = send(
                &mut rig,
                2,
                &chat(&format!("{target} {zone}"), 100),
                &headers,
            );
            assert_eq!(destination(&outcome), Some(ENGINES[engine]), "{zone}");
        }
    }
    rig.assert_healthy();
}

#[test]
fn sessions_stay_at_their_endpoint_in_every_vm_by_header_or_cookie() {
    let scorer = plugin("session-affinity", &json!({}), 1e6);
    let mut rig = rig(vec![scorer], |indexer| {
        indexer.policy.session_header = "x-session".to_owned();
        indexer.policy.session_cookie = "sid".to_owned();
    });
    let mut used = BTreeSet::new();
    for number in 0..20 {
        let (name, cookie) = (format!("s{number}"), format!("theme=dark; sid=s{number}"));
        let mut goes = |vm: usize, turn: &str, header: (&str, &str)| {
            let outcome = send(
                &mut rig,
                vm,
                &chat(&format!("{turn} {number}"), 100),
                &[header],
            );
            destination(&outcome).unwrap().to_owned()
        };
        let first = goes(1, "first", ("x-session", &name));
        assert_eq!(goes(2, "second", ("x-session", &name)), first);
        assert_eq!(goes(2, "third", ("cookie", &cookie)), first);
        used.insert(first);
    }
    assert_eq!(used.len(), ENGINES.len());
    rig.assert_healthy();
}
