//! Requests that wait while every endpoint is full.

use std::collections::BTreeMap;
use std::time::Duration;

use prefixway_core::proto::{Admission, FlowControl, Objective};
use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};
use prefixway_wasm_tests::{Ending, Indexer, Outcome, Rig};

const OBJECTIVE: &str = "x-llm-d-inference-objective";
const TENANT: &str = "x-llm-d-inference-fairness-id";
const STEP: Duration = Duration::from_millis(10);

fn objective(name: &str, priority: i32, when_missed: &str) -> Objective {
    Objective {
        name: name.to_owned(),
        priority,
        ttft_ms: (!when_missed.is_empty()).then_some(50.0),
        tpot_ms: None,
        when_missed: when_missed.to_owned(),
    }
}

/// So many endpoints that take one request each.
fn rig_with(engines: usize, change: impl FnOnce(&mut Indexer)) -> Rig {
    let mut indexer = Indexer::new(ENGINES.get(..engines).unwrap());
    indexer.policy.admission = Some(Admission {
        max_in_flight: Some(1),
        retry_after_s: 3,
        ..Admission::default()
    });
    indexer.policy.flow_control = Some(FlowControl {
        max_waiting: 100,
        max_waiting_bytes: 1 << 20,
        max_wait_ms: 2_000,
        lowest_share_percent: Some(10),
    });
    indexer.policy.objectives = vec![
        objective("high", 10, ""),
        objective("low", -10, ""),
        objective("strict", 0, "refuse"),
        objective("lax", 0, "best_effort"),
        objective("patient", 0, "queue"),
    ];
    change(&mut indexer);
    Rig::with(CONFIG, indexer)
}

fn rig(engines: usize) -> Rig {
    rig_with(engines, |_| {})
}

fn send(rig: &mut Rig, vm: usize, name: &str, headers: &[(&str, &str)]) -> Outcome {
    let mut all = vec![(":method", "POST"), (":path", "/v1/chat/completions")];
    all.extend_from_slice(headers);
    let body = chat(name, 100);
    rig.host.vm(vm).request(&all).chunk(&body).end()
}

fn waits(outcome: &Outcome) -> bool {
    outcome.paused && !outcome.forwarded && outcome.reply.is_none()
}

/// What has become of a request by now; `None` while it waits.
fn now(rig: &mut Rig, vm: usize, of: &Outcome) -> Option<Outcome> {
    let outcome = rig.host.vm(vm).outcome(of.id).unwrap();
    (!waits(&outcome)).then_some(outcome)
}

fn dropped(rig: &Rig, reason: &str) -> i64 {
    let name = format!("prefixway_dropped_requests_total.reason={reason}");
    rig.host.metric(&name)
}

/// Status, error code and why it was dropped.
fn refusal(outcome: &Outcome) -> (u32, String, Option<String>) {
    let reply = outcome.reply.as_ref().unwrap();
    assert_eq!(reply.headers.get("retry-after"), Some("3"));
    let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let code = json.pointer("/error/code").unwrap().as_str().unwrap();
    let reason = reply.headers.get("x-llm-d-request-dropped-reason");
    (reply.status, code.to_owned(), reason.map(str::to_owned))
}

/// Waiting requests by VM and name; lets them go on one by one, and gives the order. At no time are more in flight than there are endpoints.
fn serve_all(rig: &mut Rig, engines: usize, waiting: Vec<(usize, String, Outcome)>) -> Vec<String> {
    let (mut left, mut order, mut in_flight) = (waiting, Vec::new(), Vec::new());
    for _ in 0..4_000 {
        let mut still = Vec::new();
        for (vm, name, outcome) in left {
            match now(rig, vm, &outcome) {
                Some(outcome) => {
                    assert!(destination(&outcome).is_some(), "{name}: {outcome:?}");
                    order.push(name);
                    in_flight.push((vm, outcome));
                }
                None => still.push((vm, name, outcome)),
            }
        }
        left = still;
        assert!(in_flight.len() <= engines, "a slot was given away twice");
        let mut used: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, outcome) in &in_flight {
            *used.entry(destination(outcome).unwrap()).or_default() += 1;
        }
        assert!(used.values().all(|count| *count == 1), "{used:?}");
        if left.is_empty() {
            break;
        }
        if in_flight.len() == engines {
            let (vm, outcome) = in_flight.remove(0);
            rig.answer(vm, &outcome, 0);
        }
        rig.run(STEP);
    }
    assert!(left.is_empty(), "{} wait for ever", left.len());
    for (vm, outcome) in in_flight {
        rig.answer(vm, &outcome, 0);
    }
    order
}

/// Takes the only endpoint, so that all others wait.
fn occupy(rig: &mut Rig) -> Outcome {
    let first = send(rig, 1, "first", &[]);
    assert!(destination(&first).is_some());
    first
}

#[test]
fn a_request_waits_for_a_slot_and_goes_on_when_one_is_free() {
    let mut rig = rig(1);
    let first = occupy(&mut rig);
    let second = send(&mut rig, 2, "second", &[]);
    assert!(waits(&second));
    rig.run(Duration::from_millis(600));
    assert!(now(&mut rig, 2, &second).is_none());
    assert_eq!(rig.host.metric("prefixway_waiting_requests"), 1);
    rig.answer(1, &first, 0);
    rig.run(3 * STEP);
    let second = now(&mut rig, 2, &second).unwrap();
    assert_eq!(destination(&second), Some(ENGINES[0]));
    rig.answer(2, &second, 0);
    rig.run(Duration::from_secs(1));
    assert_eq!(rig.host.metric("prefixway_waiting_requests"), 0);
    assert_eq!(rig.host.metric("prefixway_in_flight_requests"), 0);
    assert_eq!(rig.host.metric("prefixway_wait_ms"), 1);
    let decided = rig
        .host
        .metric("prefixway_decisions_total.reason=no_prefix");
    assert_eq!(decided, 2);
    let routed = rig.indexer.heard.routed.len();
    assert_eq!(routed, 2, "the indexer is told of both");
    rig.assert_healthy();
}

#[test]
fn no_slot_is_given_away_twice_by_three_vms_and_within_a_tenant_the_first_goes_first() {
    let mut rig = rig(2);
    let first = send(&mut rig, 0, "a", &[]);
    let second = send(&mut rig, 1, "b", &[]);
    let mut waiting = Vec::new();
    for number in 0..24usize {
        let vm = number % 3;
        let name = format!("{vm}-{number:02}");
        let outcome = send(&mut rig, vm, &name, &[(TENANT, "t")]);
        assert!(waits(&outcome), "{name}");
        waiting.push((vm, name, outcome));
    }
    rig.answer(0, &first, 0);
    rig.answer(1, &second, 0);
    let order = serve_all(&mut rig, 2, waiting);
    for vm in ["0-", "1-", "2-"] {
        let of_vm: Vec<&String> = order.iter().filter(|name| name.starts_with(vm)).collect();
        assert!(of_vm.is_sorted(), "{of_vm:?}");
        assert_eq!(of_vm.len(), 8);
    }
    rig.run(Duration::from_secs(1));
    assert_eq!(rig.host.metric("prefixway_in_flight_requests"), 0);
    rig.assert_healthy();
}

#[test]
fn requests_that_come_together_in_several_vms_share_the_slots_that_there_are() {
    let mut rig = rig(3);
    for round in 0..20 {
        let mut sent = Vec::new();
        for number in 0..9usize {
            let vm = number % 3;
            sent.push((vm, send(&mut rig, vm, &format!("{round} {number}"), &[])));
        }
        let gone = sent.iter().filter(|(_, outcome)| !waits(outcome));
        assert_eq!(gone.count(), 3, "round {round}");
        let mut in_flight: Vec<(usize, Outcome)> = Vec::new();
        let waiting = sent.into_iter().filter_map(|(vm, outcome)| {
            if waits(&outcome) {
                return Some((vm, String::new(), outcome));
            }
            in_flight.push((vm, outcome));
            None
        });
        let waiting = waiting.collect();
        for (vm, outcome) in in_flight {
            rig.answer(vm, &outcome, 0);
        }
        serve_all(&mut rig, 3, waiting);
        rig.run(2 * STEP);
    }
    rig.assert_healthy();
}

#[test]
fn a_client_that_leaves_leaves_the_queue_and_frees_everything() {
    let mut rig = rig(1);
    let first = occupy(&mut rig);
    let gone = send(&mut rig, 2, "gone", &[]);
    let next = send(&mut rig, 2, "next", &[]);
    rig.run(2 * STEP);
    rig.host.vm(2).end(gone.id, Ending::ClientAbort);
    rig.answer(1, &first, 0);
    rig.run(3 * STEP);
    let next = now(&mut rig, 2, &next).unwrap();
    assert!(destination(&next).is_some());
    // One that was given its slot, and leaves.
    rig.host.vm(2).end(next.id, Ending::ClientAbort);
    rig.run(2 * STEP);
    let last = send(&mut rig, 0, "last", &[]);
    rig.run(3 * STEP);
    assert!(now(&mut rig, 0, &last).is_some());
    rig.answer(0, &last, 0);
    rig.run(Duration::from_secs(1));
    assert_eq!(dropped(&rig, "client_gone"), 1);
    assert_eq!(rig.host.metric("prefixway_waiting_requests"), 0);
    assert_eq!(rig.host.metric("prefixway_in_flight_requests"), 0);
    rig.assert_healthy();
}

#[test]
fn who_has_waited_too_long_and_who_finds_the_queue_full_is_told_when_to_try_again() {
    let mut rig = rig_with(1, |indexer| {
        indexer.policy.flow_control = Some(FlowControl {
            max_waiting: 2,
            max_wait_ms: 300,
            ..FlowControl::default()
        });
    });
    let first = occupy(&mut rig);
    let waiting = [0, 1].map(|number| send(&mut rig, 1, &format!("w{number}"), &[]));
    assert!(waiting.iter().all(waits));
    let full = send(&mut rig, 1, "full", &[]);
    let saturated = Some("rejected-saturated".to_owned());
    assert_eq!(refusal(&full), (429, "pool_full".to_owned(), saturated));
    rig.run(Duration::from_millis(290));
    assert!(now(&mut rig, 1, &waiting[0]).is_none());
    rig.run(Duration::from_millis(30));
    let expired = Some("rejected-ttl-expired".to_owned());
    for outcome in &waiting {
        let outcome = now(&mut rig, 1, outcome).unwrap();
        let expected = (429, "queue_timeout".to_owned(), expired.clone());
        assert_eq!(refusal(&outcome), expected);
        rig.host.vm(1).end(outcome.id, Ending::Complete);
    }
    assert_eq!(
        (dropped(&rig, "queue_timeout"), dropped(&rig, "full")),
        (2, 1)
    );
    let decided = rig
        .host
        .metric("prefixway_decisions_total.reason=queue_timeout");
    assert_eq!(decided, 2);
    rig.answer(1, &first, 0);
    rig.run(STEP);
    let after = send(&mut rig, 1, "after", &[]);
    assert!(destination(&after).is_some());
    rig.assert_healthy();
}

#[test]
fn greater_priorities_go_first_and_lower_ones_get_their_share() {
    let mut rig = rig(1);
    let first = occupy(&mut rig);
    let mut waiting = Vec::new();
    for number in 0..4 {
        let name = format!("low {number}");
        let outcome = send(&mut rig, 1, &name, &[(OBJECTIVE, "low")]);
        waiting.push((1, name, outcome));
    }
    for number in 0..30usize {
        // In the other VM as well, each a little later.
        rig.host.advance(Duration::from_millis(1));
        let (vm, name) = (1 + number % 2, format!("high {number}"));
        let outcome = send(&mut rig, vm, &name, &[(OBJECTIVE, "high")]);
        waiting.push((vm, name, outcome));
    }
    rig.run(2 * STEP);
    rig.answer(1, &first, 0);
    let order = serve_all(&mut rig, 1, waiting);
    let low: Vec<usize> = (0..order.len())
        .filter(|place| order[*place].starts_with("low"))
        .collect();
    assert_eq!(low[..3], [9, 19, 29], "{order:?}");
    rig.assert_healthy();
}

#[test]
fn tenants_are_served_by_turns_however_many_requests_they_have() {
    let mut rig = rig(1);
    let first = occupy(&mut rig);
    let mut waiting = Vec::new();
    for number in 0..20 {
        let name = format!("many {number}");
        waiting.push((
            1,
            name.clone(),
            send(&mut rig, 1, &name, &[(TENANT, "many")]),
        ));
    }
    for number in 0..5 {
        let name = format!("few {number}");
        waiting.push((
            2,
            name.clone(),
            send(&mut rig, 2, &name, &[(TENANT, "few")]),
        ));
    }
    rig.run(2 * STEP);
    rig.answer(1, &first, 0);
    let order = serve_all(&mut rig, 1, waiting);
    let few = order[..11].iter().filter(|name| name.starts_with("few"));
    assert_eq!(few.count(), 5, "{order:?}");
    rig.assert_healthy();
}

#[test]
fn a_target_that_can_not_be_met_is_refused_waits_or_is_missed_as_its_objective_says() {
    // 100 tokens at 1,000 tokens/s take 100 ms, the target is 50.
    let mut rig = rig_with(2, |indexer| {
        for endpoint in &mut indexer.endpoints.endpoints {
            endpoint.prefill_tokens_per_s = 1_000.0;
        }
    });
    let strict = send(&mut rig, 1, "strict", &[(OBJECTIVE, "strict")]);
    let saturated = Some("rejected-saturated".to_owned());
    let expected = (429, "target_unmet".to_owned(), saturated);
    assert_eq!(refusal(&strict), expected);
    assert_eq!(dropped(&rig, "target_unmet"), 1);
    let lax = send(&mut rig, 1, "lax", &[(OBJECTIVE, "lax")]);
    assert!(destination(&lax).is_some());
    let patient = send(&mut rig, 1, "patient", &[(OBJECTIVE, "patient")]);
    assert!(waits(&patient));
    rig.run(Duration::from_millis(40));
    assert!(now(&mut rig, 1, &patient).is_none());
    rig.run(3 * STEP);
    assert!(destination(&now(&mut rig, 1, &patient).unwrap()).is_some());
    // The request's own target wins over the objective's.
    rig.answer(1, &lax, 0);
    rig.run(2 * STEP);
    let headers = [(OBJECTIVE, "strict"), ("x-llm-d-slo-ttft-ms", "5000")];
    let own = send(&mut rig, 1, "own", &headers);
    assert!(destination(&own).is_some(), "{own:?}");
    rig.assert_healthy();
}

#[test]
fn who_is_not_steered_does_not_wait_and_nobody_does_once_the_policy_says_so() {
    let mut rig = rig(1);
    let first = occupy(&mut rig);
    let waiting = send(&mut rig, 1, "waiting", &[]);
    assert!(waits(&waiting));
    rig.indexer.policy.flow_control = None;
    rig.indexer.announce(&mut rig.host);
    rig.run(3 * STEP);
    let outcome = now(&mut rig, 1, &waiting).unwrap();
    assert_eq!(refusal(&outcome).1, "pool_full");
    rig.host.vm(1).end(outcome.id, Ending::Complete);
    rig.indexer.policy.flow_control = Some(FlowControl::default());
    rig.indexer.policy.mode = "shadow".to_owned();
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let shadow = send(&mut rig, 1, "shadow", &[]);
    assert!(shadow.forwarded && destination(&shadow).is_none());
    rig.answer(1, &shadow, 0);
    rig.answer(1, &first, 0);
    rig.run(Duration::from_secs(1));
    assert_eq!(rig.host.metric("prefixway_in_flight_requests"), 0);
    rig.assert_healthy();
}

#[test]
fn where_the_pool_is_empty_nobody_waits() {
    let mut rig = rig(1);
    rig.indexer.endpoints.endpoints[0].healthy = false;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = send(&mut rig, 1, "nobody", &[]);
    assert_eq!(outcome.reply.unwrap().status, 503);
    rig.assert_healthy();
}

#[test]
fn a_vm_that_dies_with_requests_waiting_takes_nobody_with_it() {
    let mut rig = rig(1);
    let first = occupy(&mut rig);
    let lost = send(&mut rig, 2, "lost", &[(OBJECTIVE, "high")]);
    let other = send(&mut rig, 1, "other", &[(OBJECTIVE, "low")]);
    assert!(waits(&lost) && waits(&other));
    rig.run(2 * STEP);
    rig.host.vm(2).kill();
    rig.answer(1, &first, 0);
    rig.run(Duration::from_millis(300));
    let other = now(&mut rig, 1, &other).unwrap();
    assert!(destination(&other).is_some());
    assert!(rig.host.vm(1).trap().is_none());
}
