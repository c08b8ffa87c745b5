//! Requests that are no inference requests, or whose text can't be derived: never a trap, never held for ever.

use std::time::Duration;

use prefixway_wasm_tests::Rig;
use prefixway_wasm_tests::rig::{DESTINATION, chat};

#[test]
fn other_requests_pass_untouched_and_unbuffered() {
    let mut rig = Rig::new();
    for (method, path, body) in [
        ("GET", "/v1/models", None),
        ("GET", "/v1/chat/completions", None),
        ("POST", "/v1/chat/completions", None),
        ("POST", "/v1/embeddings", Some("{}")),
        ("PUT", "/v1/chat/completions", Some("{}")),
    ] {
        let headers = [
            (":method", method),
            (":path", path),
            (DESTINATION, "6.6.6.6:1"),
        ];
        let request = rig.host.vm(1).request(&headers);
        let outcome = match body {
            Some(body) => request.chunk(body).end(),
            None => request.end(),
        };
        assert!(!outcome.paused && outcome.forwarded, "{method} {path}");
        assert_eq!(outcome.header(DESTINATION), None, "{method} {path}");
    }
    rig.assert_healthy();
}

#[test]
fn malformed_bodies_pass_untouched() {
    let mut rig = Rig::new();
    let deep = format!("{{\"model\":\"tiny\",\"messages\":{}", "[".repeat(200_000));
    let bodies: [&[u8]; 8] = [
        b"",
        b"not json",
        b"{\"model\":\"tiny\",\"messages\":[{\"role\"",
        b"[]",
        b"\xff\xfe{}",
        b"{\"model\":7}",
        b"{\"model\":\"tiny\"} x",
        deep.as_bytes(),
    ];
    for body in bodies {
        let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
        let request = rig.host.vm(1).request(&headers);
        let outcome = request.chunk(body).chunk("").end();
        assert!(outcome.forwarded && outcome.reply.is_none());
        assert_eq!(outcome.header(DESTINATION), None);
        assert_eq!(outcome.body, body);
    }
    assert_eq!(
        rig.host.metric("prefixway_decisions_total.reason=bad_body"),
        8
    );
    rig.assert_healthy();
}

#[test]
fn what_has_no_text_is_routed_by_load() {
    let mut rig = Rig::new();
    for (path, body, why) in [
        (
            "/v1/chat/completions",
            r#"{"model":"tiny","messages":[{"role":"user","content":"x"}],"chat_template":"{{ 1 }}"}"#,
            "request_template",
        ),
        (
            "/v1/completions",
            r#"{"model":"tiny","prompt":["a","b"]}"#,
            "batch",
        ),
        ("/v1/messages", r#"{"model":"tiny","messages":[]}"#, "api"),
    ] {
        let outcome = rig.post(1, path, body);
        assert!(outcome.header(DESTINATION).is_some(), "{path} {body}");
        let counter = format!("prefixway_unscorable_total.reason={why}");
        assert_eq!(rig.host.metric(&counter), 1, "{why}");
    }
    assert_eq!(
        rig.host.metric("prefixway_decisions_total.reason=no_text"),
        3
    );
    rig.assert_healthy();
}

#[test]
fn completions_are_steered_by_their_prompt() {
    let mut rig = Rig::new();
    let prompt = "a tale of two cities ".repeat(60);
    let body = serde_json::json!({"model": "tiny", "prompt": prompt}).to_string();
    let first = rig.post(1, "/v1/completions", &body);
    rig.run(Duration::from_millis(50));
    let second = rig.post(2, "/v1/completions?x=y", &body);
    assert_eq!(
        first.header(DESTINATION).map(first_of),
        second.header(DESTINATION).map(first_of)
    );
    assert_eq!(
        rig.host.metric("prefixway_decisions_total.reason=prefix"),
        1
    );
    rig.assert_healthy();
}

fn first_of(list: &str) -> &str {
    list.split(',').next().unwrap_or_default()
}

#[test]
fn unknown_models_pass_and_are_counted() {
    let mut rig = Rig::new();
    let outcome = rig.chat(
        1,
        r#"{"model":"huge","messages":[{"role":"user","content":"x"}]}"#,
    );
    assert!(outcome.forwarded);
    assert_eq!(outcome.header(DESTINATION), None);
    let counter = "prefixway_decisions_total.reason=unknown_model";
    assert_eq!(rig.host.metric(counter), 1);
    rig.assert_healthy();
}

#[test]
fn bodies_may_come_in_pieces_and_up_to_the_limit() {
    let config = r#"{"indexers":["prefixway_indexer"],"limits":{"max_body_bytes":4096}}"#;
    let mut rig = Rig::with(
        config,
        prefixway_wasm_tests::Indexer::new(&prefixway_wasm_tests::rig::ENGINES),
    );
    let body = chat("pieces", 900);
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let mut request = rig.host.vm(1).request(&headers);
    for piece in body.as_bytes().chunks(100) {
        request = request.chunk(piece);
    }
    let outcome = request.chunk("").end();
    assert!(outcome.header(DESTINATION).is_some());
    assert_eq!(outcome.body, body.as_bytes());
    let long = chat("long", 2_000);
    let mut request = rig.host.vm(1).request(&headers);
    for piece in long.as_bytes().chunks(3_000) {
        request = request.chunk(piece);
    }
    let outcome = request.end();
    assert!(outcome.forwarded);
    assert_eq!(outcome.header(DESTINATION), None);
    assert_eq!(outcome.body, long.as_bytes());
    assert_eq!(
        rig.host
            .metric("prefixway_decisions_total.reason=too_large"),
        1
    );
    rig.assert_healthy();
}

#[test]
fn a_compressed_body_is_not_held() {
    let mut rig = Rig::new();
    let headers = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("content-encoding", "gzip"),
    ];
    let outcome = rig.host.vm(1).request(&headers).chunk("\u{1f}").end();
    assert!(!outcome.paused && outcome.forwarded);
    rig.assert_healthy();
}

#[test]
fn memory_that_runs_out_passes_the_request() {
    let mut rig = Rig::new();
    let used = rig.host.vm(1).memory_bytes();
    rig.host.vm(1).limit_memory(used + (1 << 16));
    let long = chat("memory", 4_000_000);
    let outcome = rig.chat(1, &long);
    assert!(outcome.forwarded, "{:?}", outcome.trap);
    assert_eq!(outcome.header(DESTINATION), None);
    assert!(rig.host.metric("prefixway_host_errors_total") > 0);
}
