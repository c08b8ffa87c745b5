//! A request's life as others see it: whose failure it is, where it counts, and what a plugin leaves behind.

use std::time::Duration;

use prefixway_core::proto::{Admission, EndpointLoad};
use prefixway_wasm_tests::indexer::idle;
use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};
use prefixway_wasm_tests::{Ending, Host, Indexer, Outcome, Rig};
use serde_json::Value;

fn failed(rig: &Rig) -> i64 {
    rig.host.metric("prefixway_failed_requests_total")
}

fn error(outcome: &Outcome) -> (u32, Value) {
    let reply = outcome.reply.as_ref().unwrap();
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

#[test]
fn a_clients_error_is_no_failure_of_an_endpoint() {
    let mut rig = Rig::new();
    for (status, failures) in [(400, 0), (404, 0), (429, 0), (200, 0), (500, 1), (503, 2)] {
        let outcome = rig.chat(1, &chat("whose fault", 300));
        let upstream = destination(&outcome).unwrap().to_owned();
        let response = rig.host.vm(1).response(outcome.id).status(status);
        response.upstream(&upstream).chunk("{}").end();
        rig.run(Duration::from_millis(100));
        assert_eq!(failed(&rig), failures, "{status}");
        let heard = rig.indexer.heard.outcomes.last().unwrap();
        // Whatever went wrong, the prompt is not in the cache now.
        assert_eq!(
            (heard.status, heard.failed),
            (u32::from(status), status != 200)
        );
    }
    rig.assert_healthy();
}

#[test]
fn a_client_that_leaves_after_the_last_event_has_missed_nothing() {
    let mut rig = Rig::new();
    for (pieces, failures) in [
        (&["data: {\"say\":\"data: [DONE]\"}\n\n"][..], 1),
        (&["data: {}\n\n", "data: [DONE]\n\n"][..], 1),
    ] {
        let outcome = rig.chat(1, &chat("early", 300));
        let mut response = rig.host.vm(1).response(outcome.id);
        response = response.header("content-type", "text/event-stream");
        for piece in pieces {
            response = response.chunk(piece);
        }
        response.break_off(Ending::ClientAbort);
        assert_eq!(failed(&rig), failures, "{pieces:?}");
    }
}

#[test]
fn what_was_expected_of_the_first_choice_is_expected_of_the_second_in_every_vm() {
    let mut rig = Rig::new();
    let body = chat("moved", 2_000);
    let outcome = rig.chat(1, &body);
    let list = outcome.header("x-gateway-destination-endpoint").unwrap();
    let choices: Vec<String> = list.split(',').map(str::to_owned).collect();
    rig.run(Duration::from_millis(50));
    // Both workers expect it at the first choice.
    let held = rig.chat(2, &body);
    assert_eq!(destination(&held), Some(choices[0].as_str()));
    rig.host.vm(2).end(held.id, Ending::ClientAbort);
    rig.host
        .vm(1)
        .response(outcome.id)
        .upstream(&choices[1])
        .chunk("data: {}\n\n")
        .hang();
    rig.run(Duration::from_millis(50));
    for vm in [1, 2] {
        let next = rig.chat(vm, &body);
        assert_eq!(destination(&next), Some(choices[1].as_str()), "VM {vm}");
        rig.host.vm(vm).end(next.id, Ending::ClientAbort);
        rig.run(Duration::from_millis(50));
    }
    let moved = &rig.indexer.heard.moved;
    assert_eq!(moved.len(), 1);
    let place = ENGINES.iter().position(|engine| *engine == choices[1]);
    assert_eq!(moved[0].endpoint as usize, place.unwrap());
    assert_eq!(moved[0].request, rig.indexer.heard.routed[0].request);
    assert_eq!(moved[0].rungs, rig.indexer.heard.routed[0].rungs);
    rig.assert_healthy();
}

#[test]
fn a_decision_that_waited_for_a_stream_tells_its_age() {
    let mut rig = Rig::new();
    let leader = rig.leader().unwrap();
    let token = rig.host.vm(leader).streams()[0];
    rig.host.process_mut().refuse_streams = true;
    rig.host.vm(leader).close_stream(token, 14, "gone");
    rig.chat(1, &chat("late", 500));
    rig.host.advance(Duration::from_secs(4));
    rig.host.process_mut().refuse_streams = false;
    rig.run(Duration::from_secs(6));
    let routed = rig.indexer.heard.routed.last().unwrap();
    assert!(
        (4_000..10_000).contains(&routed.age_ms),
        "{}",
        routed.age_ms
    );
    let outcome = rig.chat(1, &chat("soon", 500));
    rig.run(Duration::from_millis(100));
    assert!(outcome.forwarded);
    let routed = rig.indexer.heard.routed.last().unwrap();
    assert!(routed.age_ms < 50, "{}", routed.age_ms);
}

#[test]
fn a_leader_that_is_taken_away_hands_over_at_once() {
    let mut rig = Rig::new();
    let body = chat("before", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    let ready = rig.host.metric("prefixway_ready_vms");
    let leader = rig.leader().unwrap();
    // A configuration update: new VMs come, then the old ones go.
    let fresh = rig.host.add_vm().unwrap();
    rig.settle();
    assert_eq!(rig.host.metric("prefixway_ready_vms"), ready + 1);
    rig.host.vm(leader).finish();
    assert!(
        rig.host.vm(leader).streams().is_empty(),
        "its stream is closed"
    );
    rig.run(Duration::from_millis(50));
    assert_eq!(rig.host.metric("prefixway_ready_vms"), ready);
    assert!(rig.leader().is_some_and(|next| next != leader));
    let after = chat("after", 500);
    rig.indexer.store(&[2], &after);
    rig.settle();
    assert_eq!(destination(&rig.chat(fresh, &body)), Some(ENGINES[1]));
    assert_eq!(destination(&rig.chat(fresh, &after)), Some(ENGINES[2]));
    // It was no resync: the next leader goes on from its copy.
    let subscribe = rig.indexer.heard.subscriptions.last().unwrap();
    assert_ne!(subscribe.have_version, 0);
    rig.assert_healthy();
}

#[test]
fn a_pool_without_endpoints_is_answered_and_a_stale_list_is_not_believed() {
    let mut rig = Rig::new();
    rig.indexer.policy.reject_bad_requests = Some(false);
    for endpoint in &mut rig.indexer.endpoints.endpoints {
        endpoint.healthy = false;
    }
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    for vm in [1, 2] {
        let (status, body) = error(&rig.chat(vm, &chat("nobody", 300)));
        assert_eq!(
            (status, &body["error"]["code"]),
            (503, &"no_endpoint".into())
        );
    }
    let counted = |rig: &Rig, name: &str| rig.host.metric(name);
    assert_eq!(
        counted(&rig, "prefixway_decisions_total.reason=no_endpoint"),
        2
    );
    assert_eq!(
        counted(&rig, "prefixway_rejected_requests_total.status=503"),
        2
    );
    // The indexer has been silent for longer than its word counts.
    rig.host.advance(Duration::from_secs(8));
    let outcome = rig.chat(1, &chat("nobody", 300));
    assert!(outcome.forwarded && outcome.reply.is_none());
    rig.assert_healthy();
}

#[test]
fn a_full_pool_is_answered_with_the_time_to_try_again() {
    let mut rig = Rig::new();
    rig.indexer.policy.admission = Some(Admission {
        max_waiting: Some(5),
        retry_after_s: 7,
        ..Admission::default()
    });
    let busy = |id| EndpointLoad {
        waiting: Some(5),
        ..idle(id)
    };
    rig.indexer.loads.extend((0..3).map(|id| (id, busy(id))));
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = rig.chat(2, &chat("full", 300));
    let reply = outcome.reply.as_ref().unwrap();
    assert_eq!(
        (reply.status, reply.headers.get("retry-after")),
        (429, Some("7"))
    );
    assert_eq!(error(&outcome).1["error"]["code"], "pool_full");
    let messages = rig.post(1, "/v1/messages", &chat("full", 300));
    assert_eq!(error(&messages).1["error"]["type"], "rate_limit_error");
    // One that has room takes all.
    rig.indexer.loads.remove(&1);
    rig.settle();
    assert_eq!(
        destination(&rig.chat(1, &chat("full", 300))),
        Some(ENGINES[1])
    );
    rig.assert_healthy();
}

#[test]
fn a_gateway_that_knows_nothing_is_open_or_closed_as_it_is_told() {
    let config = |mode: &str| {
        format!(
            r#"{{"indexers":["prefixway_indexer"],"pools":["default"],"failure_mode":"{mode}"}}"#
        )
    };
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    for (mode, answered) in [("open", None), ("closed", Some(503))] {
        let mut host = Host::new(&config(mode)).unwrap();
        host.process_mut().refuse_streams = true;
        host.advance(Duration::from_millis(500));
        let outcome = host.vm(1).request(&headers).chunk(chat("x", 100)).end();
        let status = outcome.reply.as_ref().map(|reply| reply.status);
        assert_eq!(status, answered, "{mode}");
        let counted = host.metric("prefixway_decisions_total.reason=no_snapshot");
        assert_eq!(counted, 1, "{mode}");
        let get = [(":method", "GET"), (":path", "/v1/models")];
        assert!(host.vm(1).request(&get).end().forwarded, "{mode}");
    }
    // A route knows better, where it says something that has a meaning.
    let path = "xds.route_metadata.filter_metadata.prefixway.failure_mode";
    for (mode, route, answered) in [
        ("open", "closed", Some(503)),
        ("closed", "open", None),
        ("closed", "ajar", Some(503)),
    ] {
        let mut host = Host::new(&config(mode)).unwrap();
        host.process_mut().refuse_streams = true;
        host.advance(Duration::from_millis(500));
        let request = host.vm(1).request(&headers).property(path, route);
        let outcome = request.chunk(chat("x", 100)).end();
        let status = outcome.reply.as_ref().map(|reply| reply.status);
        assert_eq!(status, answered, "{mode}, route {route}");
    }
    // In shadow nothing is answered.
    let shadow = CONFIG.replace('{', r#"{"mode":"shadow","failure_mode":"closed","#);
    let mut host = Host::new(&shadow).unwrap();
    let outcome = host.vm(1).request(&headers).chunk(chat("x", 100)).end();
    assert!(outcome.forwarded);
    let mut rig = Rig::with(&config("closed"), Indexer::new(&ENGINES));
    let outcome = rig.chat(1, &chat("known", 100));
    assert!(destination(&outcome).is_some());
    rig.assert_healthy();
}
