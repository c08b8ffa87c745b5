//! The engine's load, asked for with a request.

use prefixway_wasm_tests::rig::{ENGINES, chat};
use prefixway_wasm_tests::{Outcome, Rig};

const FORMAT: &str = "endpoint-load-metrics-format";
const LOAD: &str = "endpoint-load-metrics";
const TWO_AND_A_HALF: &str =
    r#"JSON {"named_metrics": {"num_requests_waiting": 2.0, "kv_cache_usage_perc": 0.5}}"#;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.indexer.policy.orca = true;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    rig
}

/// Answers as an engine that says this of its load; what of it the client gets.
fn answer(rig: &mut Rig, outcome: &Outcome, load: &str) -> Option<String> {
    let response = rig.host.vm(1).response(outcome.id).upstream(ENGINES[0]);
    let (headers, _) = response.header(LOAD, load).chunk("{}").end();
    headers.get(LOAD).map(str::to_owned)
}

#[test]
fn engines_are_asked_only_where_the_policy_says_so() {
    let mut rig = Rig::new();
    let outcome = rig.chat(1, &chat("plain", 100));
    assert_eq!(outcome.header(FORMAT), None);
    let told = answer(&mut rig, &outcome, TWO_AND_A_HALF);
    assert_eq!(
        told.as_deref(),
        Some(TWO_AND_A_HALF),
        "nobody asked, so it is none of our business"
    );
    rig.settle();
    assert_eq!(rig.indexer.heard.outcomes[0].waiting, None);
    let models = [(":method", "GET"), (":path", "/v1/models")];
    let mut rig = self::rig();
    assert_eq!(rig.host.vm(1).request(&models).end().header(FORMAT), None);
    rig.assert_healthy();
}

#[test]
fn the_answer_is_taken_and_does_not_reach_the_client() {
    let mut rig = rig();
    for load in [
        TWO_AND_A_HALF,
        "TEXT named_metrics.num_requests_waiting=2.0, named_metrics.kv_cache_usage_perc=0.5",
    ] {
        let outcome = rig.chat(1, &chat("asked", 100));
        assert_eq!(outcome.header(FORMAT), Some("JSON"));
        assert_eq!(answer(&mut rig, &outcome, load), None);
        rig.settle();
        let heard = rig.indexer.heard.outcomes.pop().unwrap();
        assert_eq!(
            (heard.waiting, heard.kv_usage_ratio),
            (Some(2), Some(0.5)),
            "{load}"
        );
    }
    rig.assert_healthy();
}

#[test]
fn a_client_that_asks_itself_gets_what_it_asked_for() {
    let mut rig = rig();
    let headers = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (FORMAT, "TEXT"),
    ];
    let body = chat("client", 100);
    let outcome = rig.host.vm(1).request(&headers).chunk(&body).end();
    assert_eq!(outcome.header(FORMAT), Some("TEXT"));
    let load = "TEXT named_metrics.num_requests_waiting=7";
    assert_eq!(answer(&mut rig, &outcome, load).as_deref(), Some(load));
    rig.settle();
    assert_eq!(rig.indexer.heard.outcomes[0].waiting, Some(7));
    rig.assert_healthy();
}

#[test]
fn hostile_answers_say_nothing_and_harm_nothing() {
    let mut rig = rig();
    let long = format!("JSON {}", "[".repeat(100_000));
    for load in [
        "",
        "JSON",
        "JSON {\"named_metrics\": {\"num_requests_waiting\": -1}}",
        "JSON {\"named_metrics\": 5}",
        "TEXT named_metrics.num_requests_waiting=1e400",
        "BIN AAAA",
        long.as_str(),
    ] {
        let outcome = rig.chat(1, &chat("hostile", 100));
        assert_eq!(answer(&mut rig, &outcome, load), None);
        rig.settle();
        let heard = rig.indexer.heard.outcomes.pop().unwrap();
        assert_eq!(
            (heard.waiting, heard.kv_usage_ratio),
            (None, None),
            "{load:.40}"
        );
    }
    rig.assert_healthy();
}
