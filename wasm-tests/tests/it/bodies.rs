//! Requests that are no inference requests, or whose text can't be derived: never a trap, never held for ever.

use std::time::Duration;

use prefixway_core::text::Api;
use prefixway_wasm_tests::rig::{DESTINATION, ENGINES, chat};
use prefixway_wasm_tests::{Ending, Rig};

#[test]
fn other_requests_pass_untouched_and_unbuffered() {
    let mut rig = Rig::new();
    for (method, path, body) in [
        ("GET", "/v1/models", None),
        ("GET", "/v1/chat/completions", None),
        ("POST", "/v1/audio/transcriptions", None),
        ("POST", "/v1/chat/completions/", Some("{}")),
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
            r#"{"model":"tiny","prompt":"a","prompt_logprobs":1}"#,
            "no_cache_read",
        ),
        (
            "/v1/rerank",
            r#"{"model":"tiny","query":"a","documents":["b"]}"#,
            "api",
        ),
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
fn bodies_may_come_in_pieces_some_of_them_empty() {
    let mut rig = Rig::new();
    let body = chat("pieces", 900);
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let mut request = rig.host.vm(1).request(&headers).chunk("");
    for piece in body.as_bytes().chunks(100) {
        request = request.chunk(piece).chunk("");
    }
    let outcome = request.chunk("").end();
    assert!(outcome.header(DESTINATION).is_some());
    assert_eq!(outcome.body, body.as_bytes());
    rig.assert_healthy();
}

#[test]
fn a_body_that_ends_with_trailers_is_decided_there() {
    let mut rig = Rig::new();
    let body = chat("trailers", 300);
    rig.indexer.store(&[1], &body);
    rig.settle();
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let outcome = rig
        .host
        .vm(1)
        .request(&headers)
        .chunk(&body)
        .end_with_trailers();
    assert!(outcome.forwarded);
    assert_eq!(outcome.header(DESTINATION).map(first_of), Some(ENGINES[1]));
    assert_eq!(outcome.body, body.as_bytes());
    rig.assert_healthy();
}

#[test]
fn a_body_in_an_unknown_coding_is_routed_by_load() {
    let mut rig = Rig::new();
    let headers = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("content-encoding", "br"),
    ];
    let outcome = rig.host.vm(1).request(&headers).chunk("\u{1f}").end();
    assert!(outcome.forwarded && outcome.header(DESTINATION).is_some());
    assert_eq!(outcome.header("content-encoding"), Some("br"));
    assert_eq!(outcome.body, b"\x1f");
    let counter = "prefixway_decisions_total.reason=unsupported_encoding";
    assert_eq!(rig.host.metric(counter), 1);
    rig.answer(1, &outcome, 0);
    rig.assert_healthy();
}

#[test]
fn a_coded_body_goes_where_its_plain_form_goes_and_stays_as_it_is() {
    // What `gzip` makes of {"model":"tiny","prompt":"aaa...a"} with 600 letters.
    let coded: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xabV\xca\xcdOI\xcdQ\xb2R*\xc9\xcc\xabT\xd2Q*(\xca\xcf-(\x01\xf2\x13G\xc1(\xa0\x01P\xaa\x05\0\xd9\xcf\xc2\xfbt\x02\0\0";
    let plain = serde_json::json!({"model": "tiny", "prompt": "a".repeat(600)}).to_string();
    let mut rig = Rig::new();
    rig.indexer.store_as(Api::Completions, &[1], &plain);
    rig.settle();
    let headers = [
        (":method", "POST"),
        (":path", "/v1/completions"),
        ("content-encoding", "gzip"),
    ];
    let outcome = rig.host.vm(1).request(&headers).chunk(coded).end();
    assert_eq!(outcome.header(DESTINATION).map(first_of), Some(ENGINES[1]));
    assert_eq!(outcome.header("content-encoding"), Some("gzip"));
    assert_eq!(outcome.body, coded);
    rig.answer(1, &outcome, 0);
    rig.assert_healthy();
}

#[test]
fn a_body_that_says_it_is_not_compressed_is_held() {
    let mut rig = Rig::new();
    for coding in ["identity", "Identity", ""] {
        let headers = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("content-encoding", coding),
        ];
        let outcome = rig.host.vm(1).request(&headers).chunk(chat("a", 1)).end();
        assert!(outcome.paused && outcome.forwarded, "{coding:?}");
    }
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

#[test]
fn a_long_image_takes_little_more_memory_than_its_body() {
    let mut rig = Rig::new();
    let image = format!("data:image/png;base64,{}", "QUJD".repeat(1_572_864));
    let parts = serde_json::json!([
        {"type": "image_url", "image_url": {"url": image}},
        {"type": "text", "text": "Which berth is free?"}
    ]);
    let body = serde_json::json!({"model": "tiny", "messages": [
        {"role": "system", "content": "You file reports."}, {"role": "user", "content": parts}]})
    .to_string();
    let before = rig.host.vm(1).memory_bytes();
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let mut request = rig.host.vm(1).request(&headers);
    for piece in body.as_bytes().chunks(1 << 20) {
        request = request.chunk(piece);
    }
    let outcome = request.end();
    assert!(outcome.header(DESTINATION).is_some());
    let grown = rig.host.vm(1).memory_bytes() - before;
    println!("{} bytes of body, memory grew by {grown}", body.len());
    assert!(grown < body.len() + (1 << 20), "{grown}");
    rig.assert_healthy();
}

/// A generator that gives the same numbers on every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }
}

#[test]
fn damaged_bodies_never_trap_and_go_on_as_they_are_or_are_answered() {
    let whole = serde_json::json!({
        "model": "tiny", "stream": true, "n": 2, "cache_salt": "s", "max_tokens": 5,
        "chat_template_kwargs": {"enable_thinking": false},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "messages": [
            {"role": "system", "content": "a\u{301}\n\"b\""},
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "\u{1f600}"}
        ]
    })
    .to_string()
    .into_bytes();
    let alphabet = b"\"\\{}[]:,0-9.eE \xffnulltruefalse\x00u{d83d}";
    let mut rig = Rig::new();
    let mut random = Random(7);
    for round in 0..3_000 {
        let mut body = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(body.len());
            match random.below(4) {
                0 => body.truncate(at.max(1)),
                1 => body[at] = alphabet[random.below(alphabet.len())],
                2 => body.insert(at, alphabet[random.below(alphabet.len())]),
                _ => {
                    let end = at + random.below(body.len() - at);
                    body.drain(at..end);
                }
            }
        }
        let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
        let vm = rig.host.vm(1);
        let outcome = vm.request(&headers).chunk(&body).end();
        let shown = String::from_utf8_lossy(&body);
        if let Some(reply) = &outcome.reply {
            assert!(
                [400, 404].contains(&reply.status),
                "round {round}: {reply:?} {shown}"
            );
        } else {
            let trap = &outcome.trap;
            assert!(outcome.forwarded, "round {round}: {trap:?} {shown}");
            assert_eq!(outcome.body, body, "round {round}");
        }
        vm.end(outcome.id, Ending::ClientAbort);
    }
    rig.assert_healthy();
}

#[test]
fn memory_stays_flat_under_load() {
    let mut rig = Rig::new();
    let mut random = Random(3);
    // Five seconds fill every queue and let expectations expire; five more find room.
    let mut five_seconds = |rig: &mut Rig| {
        for _ in 0..50 {
            for _ in 0..20 {
                let body = chat(&random.below(50).to_string(), 300);
                let outcome = rig.chat(1, &body);
                rig.answer(1, &outcome, 0);
            }
            rig.run(Duration::from_millis(100));
        }
        rig.host.vm(1).memory_bytes()
    };
    let before = five_seconds(&mut rig);
    let after = five_seconds(&mut rig);
    assert!(after <= before + (128 << 10), "{before} -> {after}");
    rig.assert_healthy();
}
