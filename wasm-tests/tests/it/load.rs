//! Requests in flight: up once, down once, and seen by everybody.

use std::collections::HashMap;
use std::time::Duration;

use prefixway_wasm_tests::rig::{CONFIG, DESTINATION, ENGINES, chat, destination};
use prefixway_wasm_tests::{Ending, Indexer, Outcome, Rig};

/// Requests in flight by the indexer's and the gauge's account.
fn in_flight(rig: &mut Rig) -> (u32, i64) {
    rig.run(Duration::from_millis(1_500));
    let usage = &rig.indexer.heard.usage;
    let reported = usage.endpoints.iter().map(|e| e.in_flight).sum();
    (reported, rig.host.metric("prefixway_in_flight_requests"))
}

/// Ends an exchange in some way.
type End = fn(&mut Rig, &Outcome);

#[test]
fn in_flight_returns_to_zero_under_every_ending() {
    let endings: [(&str, End); 8] = [
        ("whole answer", |rig, outcome| rig.answer(1, outcome, 0)),
        ("client leaves while it waits", |rig, outcome| {
            rig.host.vm(1).end(outcome.id, Ending::ClientAbort);
        }),
        ("client leaves in the middle", |rig, outcome| {
            let response = rig.host.vm(1).response(outcome.id).chunk("data: 1\n\n");
            response.break_off(Ending::ClientAbort);
        }),
        ("engine breaks off", |rig, outcome| {
            let response = rig.host.vm(1).response(outcome.id).chunk("data: 1\n\n");
            response.break_off(Ending::UpstreamReset);
        }),
        ("error without body", |rig, outcome| {
            rig.host.vm(1).response(outcome.id).status(503).end();
        }),
        ("error with body", |rig, outcome| {
            rig.host
                .vm(1)
                .response(outcome.id)
                .status(500)
                .chunk("no")
                .end();
        }),
        ("another endpoint serves", |rig, outcome| {
            let first = destination(outcome).unwrap().to_owned();
            let other = ENGINES.iter().find(|engine| **engine != first).unwrap();
            rig.host
                .vm(1)
                .response(outcome.id)
                .upstream(other)
                .chunk("{}")
                .end();
        }),
        ("an unknown endpoint serves", |rig, outcome| {
            let response = rig.host.vm(1).response(outcome.id);
            response.upstream("9.9.9.9:1").chunk("{}").end();
        }),
    ];
    let mut rig = Rig::new();
    for (name, end) in endings {
        let outcome = rig.chat(1, &chat(name, 300));
        assert!(outcome.forwarded, "{name}");
        assert_eq!(in_flight(&mut rig), (1, 1), "{name}");
        end(&mut rig, &outcome);
        assert_eq!(in_flight(&mut rig), (0, 0), "{name}");
    }
    rig.assert_healthy();
}

#[test]
fn a_request_whose_client_leaves_while_it_is_held_never_counts() {
    let mut rig = Rig::new();
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let held = rig.host.vm(1).request(&headers).chunk("{\"mo").hang();
    assert!(held.paused && !held.forwarded);
    rig.host.vm(1).end(held.id, Ending::ClientAbort);
    assert_eq!(in_flight(&mut rig), (0, 0));
    assert!(rig.indexer.heard.outcomes.is_empty());
    rig.assert_healthy();
}

#[test]
fn outcomes_report_the_endpoint_that_served_and_what_it_had_cached() {
    let mut rig = Rig::new();
    let body = chat("outcome", 500);
    rig.indexer.store(&[2], &body);
    rig.settle();
    let outcome = rig.chat(1, &body);
    rig.run(Duration::from_millis(100));
    let routed = rig.indexer.heard.routed.last().unwrap().clone();
    assert_eq!(routed.endpoint, 2);
    assert!(routed.predicted_cached_tokens >= 480 && !routed.rungs.is_empty());
    rig.answer(1, &outcome, 496);
    rig.run(Duration::from_millis(100));
    let heard = rig.indexer.heard.outcomes.last().unwrap();
    assert_eq!((heard.request, heard.endpoint), (routed.request, 2));
    assert_eq!(
        (heard.cached_tokens, heard.prompt_tokens),
        (Some(496), Some(500))
    );
    assert!(!heard.failed);
    assert_eq!(rig.host.metric("prefixway_cached_tokens_total"), 496);
    rig.assert_healthy();
}

#[test]
fn streamed_answers_report_time_to_first_byte_and_usage_from_their_end() {
    let mut rig = Rig::new();
    let mut body: serde_json::Value = serde_json::from_str(&chat("stream", 300)).unwrap();
    body["stream"] = true.into();
    let outcome = rig.chat(1, &body.to_string());
    rig.run(Duration::from_millis(120));
    let upstream = destination(&outcome).unwrap().to_owned();
    let response = rig.host.vm(1).response(outcome.id).upstream(&upstream);
    let (_, seen) = response
        .chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
        .chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":300,\"prompt_tok")
        .chunk("ens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n")
        .end();
    assert!(seen.ends_with(b"data: [DONE]\n\n"));
    rig.run(Duration::from_millis(100));
    let heard = rig.indexer.heard.outcomes.last().unwrap();
    assert!((115..=140).contains(&heard.ttft_ms), "{}", heard.ttft_ms);
    assert_eq!(heard.cached_tokens, Some(64));
    rig.assert_healthy();
}

#[test]
fn workers_see_each_others_load_within_a_tick() {
    let mut rig = Rig::new();
    let long = |name: &str| chat(name, 4_000);
    let mut engines: Vec<String> = Vec::new();
    for (vm, name) in [(1, "a"), (2, "b"), (1, "c")] {
        let outcome = rig.chat(vm, &long(name));
        engines.push(destination(&outcome).unwrap().to_owned());
        rig.run(Duration::from_millis(20));
    }
    engines.sort();
    let mut all = ENGINES.map(str::to_owned);
    all.sort();
    assert_eq!(
        engines, all,
        "three prompts with nothing in common go to three engines"
    );
    rig.assert_healthy();
}

#[test]
fn load_of_a_dead_worker_vanishes() {
    let mut rig = Rig::new();
    rig.chat(1, &chat("dead", 4_000));
    assert_eq!(in_flight(&mut rig), (1, 1));
    rig.host.vm(1).kill();
    rig.run(Duration::from_millis(2_500));
    assert_eq!(in_flight(&mut rig), (0, 0));
}

#[test]
fn the_destination_is_set_once_and_only_ours() {
    let mut rig = Rig::new();
    let body = chat("headers", 300);
    rig.indexer.store(&[1], &body);
    rig.settle();
    for sent in [DESTINATION, "X-Gateway-Destination-Endpoint"] {
        let headers = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            (sent, "6.6.6.6:1"),
            ("x-data-parallel-rank", "3"),
            ("x-prefiller-host-port", "6.6.6.6:2"),
            ("x-prefiller-url", "http://6.6.6.6:5/"),
            ("x-data-parallel-host-port", "6.6.6.6:3"),
            ("x-envoy-original-dst-host", "6.6.6.6:4"),
        ];
        let outcome = rig.host.vm(1).request(&headers).chunk(&body).end();
        assert_eq!(destination(&outcome), Some(ENGINES[1]));
        assert_eq!(outcome.headers.all(DESTINATION).len(), 1);
        for (name, value) in outcome.headers.iter() {
            assert!(!value.contains("6.6.6.6"), "{name}: {value}");
        }
        assert_eq!(outcome.header("x-data-parallel-rank"), None);
    }
    rig.assert_healthy();
}

#[test]
fn a_burst_on_a_prefix_that_all_hold_is_spread() {
    let engines: Vec<String> = (1..=8).map(|n| format!("10.0.0.{n}:8000")).collect();
    let addresses: Vec<&str> = engines.iter().map(String::as_str).collect();
    for (workers, most, least) in [(1, 12, 4), (4, 16, 1)] {
        let mut rig = Rig::with(CONFIG, Indexer::new(&addresses));
        for _ in 2..workers {
            rig.host.add_vm().unwrap();
        }
        let body = chat("hot", 2_048);
        rig.indexer.store(&[0, 1, 2, 3, 4, 5, 6, 7], &body);
        rig.settle();
        let mut sent: HashMap<String, u32> = HashMap::new();
        for request in 0..64 {
            // 64 requests within 50 ms, and none finishes.
            let outcome = rig.chat(1 + request % workers, &body);
            *sent
                .entry(destination(&outcome).unwrap().to_owned())
                .or_default() += 1;
            rig.host.advance(Duration::from_micros(780));
        }
        assert_eq!(sent.len(), 8, "{workers} workers: {sent:?}");
        let fits = |count: &u32| (least..=most).contains(count);
        assert!(sent.values().all(fits), "{workers} workers: {sent:?}");
        rig.assert_healthy();
    }
}
