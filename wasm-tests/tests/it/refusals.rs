//! Requests that the filter answers itself, and when it leaves them to the engines.

use std::time::Duration;

use prefixway_wasm_tests::rig::{CONFIG, DESTINATION, ENGINES, chat};
use prefixway_wasm_tests::{Ending, Host, Indexer, Outcome, Rig};

const HEAD: [(&str, &str); 2] = [(":method", "POST"), (":path", "/v1/chat/completions")];

/// Sends a body in pieces of 3,000 bytes.
fn send(rig: &mut Rig, headers: &[(&str, &str)], body: &[u8]) -> Outcome {
    let vm = rig.host.vm(1);
    let mut request = vm.request(&HEAD);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    for piece in body.chunks(3_000) {
        request = request.chunk(piece);
    }
    request.chunk("").end()
}

/// Status and error code of the filter's own answer.
fn refusal(outcome: &Outcome) -> (u32, String) {
    let reply = outcome.reply.as_ref().unwrap();
    assert!(!outcome.forwarded && outcome.body.is_empty());
    assert_eq!(reply.headers.get("content-type"), Some("application/json"));
    let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let code = json.pointer("/error/code").and_then(|code| code.as_str());
    let code = code.unwrap();
    (reply.status, code.to_owned())
}

fn decisions(rig: &Rig, reason: &str) -> i64 {
    rig.host
        .metric(&format!("prefixway_decisions_total.reason={reason}"))
}

fn rejected(rig: &Rig, status: u16) -> i64 {
    rig.host.metric(&format!(
        "prefixway_rejected_requests_total.status={status}"
    ))
}

/// Bodies that are no inference request.
fn malformed() -> Vec<Vec<u8>> {
    let deep = format!("{{\"model\":\"tiny\",\"messages\":{}", "[".repeat(200_000));
    let bodies: [&[u8]; 7] = [
        b"",
        b"not json",
        b"{\"model\":\"tiny\",\"messages\":[{\"role\"",
        b"[]",
        b"{\"model\":\"\xff\"}",
        b"{\"model\":7}",
        b"{\"model\":\"tiny\"} x",
    ];
    let bodies = bodies.iter().map(|body| body.to_vec());
    bodies.chain([deep.into_bytes()]).collect()
}

#[test]
fn malformed_bodies_are_answered_and_the_next_request_is_served() {
    let mut rig = Rig::new();
    for body in malformed() {
        let outcome = send(&mut rig, &[], &body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(50)]).into_owned();
        assert_eq!(refusal(&outcome).0, 400, "{shown}");
        rig.host.vm(1).end(outcome.id, Ending::Complete);
        let next = rig.chat(1, &chat("next", 100));
        assert!(next.header(DESTINATION).is_some(), "{shown}");
        rig.answer(1, &next, 0);
    }
    assert_eq!((decisions(&rig, "bad_body"), rejected(&rig, 400)), (8, 8));
    rig.run(Duration::from_secs(1));
    assert_eq!(rig.host.metric("prefixway_in_flight_requests"), 0);
    rig.assert_healthy();
}

#[test]
fn a_json_api_needs_a_body() {
    let mut rig = Rig::new();
    let outcome = rig.host.vm(1).request(&HEAD).end();
    assert_eq!(refusal(&outcome), (400, "body_required".to_owned()));
    let outcome = rig.host.vm(1).request(&HEAD).end_with_trailers();
    assert_eq!(refusal(&outcome), (400, "body_required".to_owned()));
    rig.assert_healthy();
}

#[test]
fn models_that_nobody_serves_do_not_exist() {
    let mut rig = Rig::new();
    let body = br#"{"model":"huge","messages":[{"role":"user","content":"x"}]}"#;
    let outcome = send(&mut rig, &[], body);
    assert_eq!(refusal(&outcome), (404, "model_not_found".to_owned()));
    assert_eq!(
        (decisions(&rig, "unknown_model"), rejected(&rig, 404)),
        (1, 1)
    );
    rig.assert_healthy();
}

#[test]
fn without_model_the_only_one_is_meant() {
    let mut rig = Rig::new();
    let body = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    assert!(send(&mut rig, &[], body).header(DESTINATION).is_some());
    let mut other = rig.indexer.policy.models[0].clone();
    other.id = "other".to_owned();
    other.names = vec!["other".to_owned()];
    other.adapters = Vec::new();
    rig.indexer.policy.models.push(other);
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = send(&mut rig, &[], body);
    assert_eq!(refusal(&outcome), (400, "model_required".to_owned()));
    rig.indexer.policy.default_model = "tiny".to_owned();
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    assert!(send(&mut rig, &[], body).header(DESTINATION).is_some());
    assert_eq!(decisions(&rig, "no_model"), 1);
    rig.assert_healthy();
}

#[test]
fn bodies_over_the_cap_are_answered_as_soon_as_they_are_known_to_be() {
    let config = r#"{"indexers":["prefixway_indexer"],"limits":{"max_body_bytes":4096}}"#;
    let mut rig = Rig::with(config, Indexer::new(&ENGINES));
    let long = chat("long", 2_000);
    let size = long.len().to_string();
    let too_large = (413, "body_too_large".to_owned());
    // Known at the headers: nothing of the body is waited for.
    let told = rig
        .host
        .vm(1)
        .request(&HEAD)
        .header("content-length", &size);
    let told = told.hang();
    assert_eq!(refusal(&told), too_large);
    // Known once it is.
    let untold = send(&mut rig, &[], long.as_bytes());
    assert_eq!(refusal(&untold), too_large);
    // A length that is not true.
    let wrong = send(&mut rig, &[("content-length", "5")], long.as_bytes());
    assert_eq!(refusal(&wrong), too_large);
    assert_eq!((decisions(&rig, "too_large"), rejected(&rig, 413)), (3, 3));
    let fits = send(&mut rig, &[], chat("fits", 900).as_bytes());
    assert!(fits.header(DESTINATION).is_some());
    rig.assert_healthy();
}

#[test]
fn the_policy_lowers_the_cap() {
    let mut rig = Rig::new();
    rig.indexer.policy.max_body_bytes = 2_000;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = send(&mut rig, &[], chat("long", 2_000).as_bytes());
    assert_eq!(refusal(&outcome).0, 413);
    rig.assert_healthy();
}

/// What has to pass untouched where nothing may be refused, with the reason that counts it.
fn amiss() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (b"not json".to_vec(), "bad_body"),
        (Vec::new(), "bad_body"),
        (br#"{"model":"huge"}"#.to_vec(), "unknown_model"),
        (chat("long", 2_000).into_bytes(), "too_large"),
    ]
}

fn assert_all_pass(rig: &mut Rig) {
    for (body, reason) in amiss() {
        let before = decisions(rig, reason);
        let outcome = send(rig, &[], &body);
        assert!(outcome.forwarded && outcome.reply.is_none(), "{reason}");
        assert_eq!(outcome.header(DESTINATION), None, "{reason}");
        assert_eq!(outcome.body, body, "{reason}");
        assert_eq!(decisions(rig, reason), before + 1, "{reason}");
        rig.host.vm(1).response(outcome.id).status(400).end();
    }
    assert_eq!([400, 404, 413].map(|status| rejected(rig, status)), [0; 3]);
    rig.assert_healthy();
}

#[test]
fn in_shadow_mode_nothing_is_answered() {
    let config =
        r#"{"indexers":["prefixway_indexer"],"mode":"shadow","limits":{"max_body_bytes":4096}}"#;
    let mut rig = Rig::with(config, Indexer::new(&ENGINES));
    assert_all_pass(&mut rig);
}

#[test]
fn the_policy_can_leave_answers_to_the_engines() {
    let mut rig = Rig::new();
    rig.indexer.policy.reject_bad_requests = Some(false);
    rig.indexer.policy.max_body_bytes = 4_096;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    assert_all_pass(&mut rig);
}

#[test]
fn in_mode_off_nothing_is_held_or_counted() {
    let mut rig = Rig::new();
    rig.indexer.policy.mode = "off".to_owned();
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    for (body, reason) in amiss() {
        let outcome = send(&mut rig, &[(DESTINATION, "6.6.6.6:1")], &body);
        assert!(outcome.forwarded && !outcome.paused, "{reason}");
        assert_eq!(outcome.header(DESTINATION), None);
        assert_eq!(decisions(&rig, reason), 0);
    }
    rig.assert_healthy();
}

#[test]
fn before_the_policy_nothing_is_answered() {
    let mut host = Host::new(CONFIG).unwrap();
    host.process_mut().refuse_streams = true;
    host.advance(Duration::from_secs(2));
    for (body, _) in amiss() {
        let outcome = host.vm(1).request(&HEAD).chunk(&body).end();
        assert!(outcome.forwarded && outcome.reply.is_none());
        assert_eq!(outcome.body, body);
    }
    let unknown = "prefixway_decisions_total.reason=unknown_model";
    assert_eq!(host.metric(unknown), 0, "nothing is known of models");
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn a_model_is_not_unknown_while_the_indexer_is_silent() {
    let mut rig = Rig::new();
    let body = br#"{"model":"huge","messages":[]}"#;
    rig.host.advance(Duration::from_secs(8));
    let outcome = send(&mut rig, &[], body);
    assert!(outcome.forwarded && outcome.header(DESTINATION).is_none());
    rig.settle();
    assert_eq!(refusal(&send(&mut rig, &[], body)).0, 404);
}

#[test]
fn an_answer_works_where_requests_are_held_at_their_body() {
    let config =
        r#"{"indexers":["prefixway_indexer"],"hold_at":"body","limits":{"max_body_bytes":4096}}"#;
    let mut rig = Rig::with(config, Indexer::new(&ENGINES));
    for (body, _) in amiss() {
        let outcome = send(&mut rig, &[], &body);
        let reply = outcome.reply.unwrap();
        assert!([400, 404, 413].contains(&reply.status));
        assert!(outcome.body.is_empty());
    }
    rig.assert_healthy();
}

#[test]
fn a_host_that_refuses_the_answer_gets_the_request() {
    use prefixway_wasm_tests::{Fault, Status};
    let mut rig = Rig::new();
    let fault = Fault::on("proxy_send_local_response", Status::InternalFailure);
    rig.host.inject(fault);
    let outcome = send(&mut rig, &[], b"not json");
    assert!(outcome.forwarded);
    assert_eq!(outcome.body, b"not json");
    rig.assert_healthy();
}
