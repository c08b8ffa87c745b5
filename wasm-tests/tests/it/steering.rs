//! Where requests go.

use std::time::Duration;

use prefixway_core::text::Api;

use prefixway_wasm_tests::Rig;
use prefixway_wasm_tests::indexer::{ADAPTER, BLOCK, Indexer, MODEL};
use prefixway_wasm_tests::rig::{CONFIG, DESTINATION, ENGINES, chat, destination};

#[test]
fn requests_go_to_the_endpoint_that_holds_their_prefix() {
    let mut rig = Rig::new();
    for (place, engine) in (0u32..).zip(ENGINES) {
        let body = chat(engine, 500);
        rig.indexer.store(&[place], &body);
        rig.settle();
        for vm in [1, 2] {
            let outcome = rig.chat(vm, &body);
            assert!(outcome.paused && outcome.forwarded);
            assert_eq!(destination(&outcome), Some(engine), "vm {vm}");
            assert_eq!(outcome.body, body.as_bytes());
            rig.answer(vm, &outcome, 480);
        }
    }
    assert_eq!(
        rig.host.metric("prefixway_decisions_total.reason=prefix"),
        6
    );
    rig.assert_healthy();
}

#[test]
fn a_longer_prompt_with_a_held_prefix_goes_to_its_holder() {
    let mut rig = Rig::new();
    let mut body: serde_json::Value = serde_json::from_str(&chat("turn", 400)).unwrap();
    rig.indexer.store(&[1], &body.to_string());
    rig.settle();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(serde_json::json!({"role": "assistant", "content": "yes"}));
    messages.push(serde_json::json!({"role": "user", "content": "and now?"}));
    let outcome = rig.chat(1, &body.to_string());
    assert_eq!(destination(&outcome), Some(ENGINES[1]));
    rig.assert_healthy();
}

#[test]
fn the_list_names_three_endpoints_and_the_explanation_says_why() {
    let mut rig = Rig::new();
    let body = chat("list", 500);
    rig.indexer.store(&[2], &body);
    rig.settle();
    let outcome = rig.chat(1, &body);
    let list: Vec<&str> = outcome.header(DESTINATION).unwrap().split(',').collect();
    assert_eq!(list.first(), Some(&ENGINES[2]));
    assert_eq!(list.len(), 3);
    let (headers, _) = rig.host.vm(1).response(outcome.id).chunk("x").end();
    let why = headers.get("x-prefixway-decision").unwrap();
    assert!(
        why.starts_with("reason=prefix; prompt=") && why.contains("candidates=3"),
        "{why}"
    );
    assert!(why.contains(&format!("; {} cached=", ENGINES[2])), "{why}");
}

#[test]
fn one_vm_holds_the_stream_and_all_of_them_see_the_index() {
    let mut rig = Rig::new();
    let streams: usize = (0..3).map(|vm| rig.host.vm(vm).streams().len()).sum();
    assert_eq!(streams, 1);
    assert_eq!(rig.host.metric("prefixway_ready_vms"), 3);
    let leader = rig.leader().unwrap();
    let token = rig.host.vm(leader).streams()[0];
    let stream = rig.host.vm(leader).stream(token).unwrap();
    assert_eq!(stream.cluster, "prefixway_indexer");
    assert_eq!(stream.authority, "prefixway-indexer");
    assert_eq!(stream.path, "/prefixway.v1.Snapshot/Watch");
    rig.assert_healthy();
}

#[test]
fn adapters_and_salts_share_no_prefix_with_the_base_model_and_aliases_do() {
    let mut rig = Rig::new();
    let base = chat("scope", 500);
    let with = |key: &str, value: &str| {
        let mut body: serde_json::Value = serde_json::from_str(&base).unwrap();
        body[key] = value.into();
        body.to_string()
    };
    let hashes = |rig: &Rig, body: &str| rig.indexer.hashes(Api::Chat, body).rungs;
    assert_ne!(hashes(&rig, &base), hashes(&rig, &with("model", ADAPTER)));
    rig.indexer.store(&[1], &base);
    rig.indexer.store(&[2], &with("cache_salt", "s"));
    rig.settle();
    let reason = |rig: &mut Rig, body: &str| {
        let outcome = rig.chat(1, body);
        let (headers, _) = rig.host.vm(1).response(outcome.id).chunk("x").end();
        let why = headers.get("x-prefixway-decision").unwrap();
        (
            why.split("; ").next().unwrap().to_owned(),
            destination(&outcome).map(str::to_owned),
        )
    };
    let prefix = |engine: &str| ("reason=prefix".to_owned(), Some(engine.to_owned()));
    assert_eq!(
        reason(&mut rig, &with("model", "tiny-alias")),
        prefix(ENGINES[1])
    );
    assert_eq!(
        reason(&mut rig, &with("cache_salt", "s")),
        prefix(ENGINES[2])
    );
    assert_eq!(
        reason(&mut rig, &with("model", ADAPTER)).0,
        "reason=no_prefix"
    );
    assert_eq!(
        reason(&mut rig, &with("cache_salt", "t")).0,
        "reason=no_prefix"
    );
    rig.assert_healthy();
}

#[test]
fn token_ids_go_to_the_endpoint_that_holds_them_whatever_path_they_come_by() {
    let mut rig = Rig::new();
    let ids: Vec<u32> = (0..512).map(|i| 300 + i * 7 % 1_000).collect();
    let completion = serde_json::json!({"model": MODEL, "prompt": ids}).to_string();
    let list = serde_json::json!({"model": MODEL, "prompt": [ids]}).to_string();
    let generate = serde_json::json!({"model": MODEL, "token_ids": ids}).to_string();
    rig.indexer.store_as(Api::Completions, &[2], &completion);
    rig.settle();
    for (path, body) in [
        ("/v1/completions", &completion),
        ("/v1/completions", &list),
        ("/inference/v1/generate", &generate),
    ] {
        let outcome = rig.post(1, path, body);
        assert_eq!(destination(&outcome), Some(ENGINES[2]), "{path}");
        let (headers, _) = rig.host.vm(1).response(outcome.id).chunk("x").end();
        let why = headers.get("x-prefixway-decision").unwrap();
        // A hit never covers the last token, so an engine computes its block.
        let best = format!("; {} cached=496 ", ENGINES[2]);
        assert!(
            why.starts_with("reason=prefix; prompt=512; ") && why.contains(&best),
            "{why}"
        );
    }
    // The same ids as text are another prompt.
    let text = serde_json::json!({"model": MODEL, "prompt": "abc ".repeat(500)}).to_string();
    let outcome = rig.post(1, "/v1/completions", &text);
    assert!(outcome.header(DESTINATION).is_some());
    assert_eq!(
        rig.host
            .metric("prefixway_decisions_total.reason=no_prefix"),
        1
    );
    rig.assert_healthy();
}

#[test]
fn unhealthy_endpoints_get_nothing_however_much_they_hold() {
    let mut rig = Rig::new();
    let body = chat("sick", 500);
    rig.indexer.store(&[0], &body);
    rig.indexer.endpoints.endpoints[0].healthy = false;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = rig.chat(1, &body);
    let list = outcome.header(DESTINATION).unwrap();
    assert!(!list.contains(ENGINES[0]), "{list}");
    rig.assert_healthy();
}

#[test]
fn ranks_go_into_their_header_and_retries_keep_to_the_rank() {
    let mut indexer = Indexer::new(&[
        "10.0.0.1:8000",
        "10.0.0.1:8000",
        "10.0.0.2:8000",
        "10.0.0.2:8000",
    ]);
    for (endpoint, rank) in indexer.endpoints.endpoints.iter_mut().zip([0, 1, 0, 1]) {
        endpoint.rank = Some(rank);
    }
    let mut rig = Rig::with(CONFIG, indexer);
    let body = chat("rank", 500);
    rig.indexer.store(&[3], &body);
    rig.settle();
    let outcome = rig.chat(1, &body);
    assert_eq!(outcome.header("x-data-parallel-rank"), Some("1"));
    assert_eq!(
        outcome.header(DESTINATION),
        Some("10.0.0.2:8000,10.0.0.1:8000")
    );
    rig.answer(1, &outcome, 480);
    assert_eq!(rig.host.metric("prefixway_failed_requests_total"), 0);
    rig.assert_healthy();
}

#[test]
fn shadow_mode_decides_and_records_but_steers_nothing() {
    let mut rig = Rig::new();
    let body = chat("shadow", 500);
    rig.indexer.store(&[1], &body);
    rig.indexer.policy.mode = "shadow".to_owned();
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = rig.chat(1, &body);
    assert!(outcome.forwarded);
    assert_eq!(outcome.header(DESTINATION), None);
    assert_eq!(
        rig.host.metric("prefixway_decisions_total.reason=prefix"),
        1
    );
    rig.indexer.policy.mode = "off".to_owned();
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = rig.chat(1, &body);
    assert!(!outcome.paused && outcome.forwarded);
    rig.assert_healthy();
}

#[test]
fn a_burst_of_one_new_prefix_stays_together_over_all_workers() {
    let mut rig = Rig::new();
    let body = chat("burst", 2_000);
    let first = rig.chat(1, &body);
    let chosen = destination(&first).map(str::to_owned);
    // Ticks carry the decision to the other worker.
    rig.run(Duration::from_millis(30));
    let second = rig.chat(2, &body);
    assert_eq!(destination(&second).map(str::to_owned), chosen);
    assert!(chosen.is_some());
    rig.assert_healthy();
}

#[test]
fn predicted_tokens_come_in_whole_blocks() {
    let mut rig = Rig::new();
    let body = chat("blocks", 500);
    rig.indexer.store(&[0], &body);
    rig.settle();
    rig.chat(1, &body);
    rig.settle();
    let process = rig.host.process();
    let matched = &process.metrics["prefixway_matched_tokens"].observations;
    assert!(
        matched[0] > 400 && matched[0].is_multiple_of(u64::from(BLOCK)),
        "{matched:?}"
    );
}
