//! What is told of decisions: to the indexer in full, and to access logs.

use std::time::Duration;

use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};
use prefixway_wasm_tests::{Indexer, Rig};

#[test]
fn some_decisions_are_told_in_full_and_none_of_their_prompts() {
    let mut rig = Rig::new();
    rig.indexer.policy.sampled_decisions_per_s = 10;
    rig.indexer.announce(&mut rig.host);
    let body = chat("confidential", 300);
    rig.indexer.store(&[1], &body);
    rig.settle();
    for _ in 0..50 {
        let outcome = rig.chat(1, &body);
        rig.answer(1, &outcome, 96);
        rig.run(Duration::from_millis(20));
    }
    rig.settle();
    let sampled = &rig.indexer.heard.sampled;
    assert!((9..=11).contains(&sampled.len()), "{}", sampled.len());
    assert_eq!(rig.indexer.heard.outcomes.len(), 50);
    let first = &sampled[0];
    let routed = &rig.indexer.heard.routed[0];
    let outcome = first.outcome.unwrap();
    assert_eq!(
        (first.request, first.endpoint),
        (routed.request, routed.endpoint)
    );
    assert_eq!(
        (first.reason.as_str(), first.mode.as_str()),
        ("prefix", "on")
    );
    assert_eq!((first.eligible, first.considered.len()), (3, 3));
    assert_eq!(outcome.cached_tokens, Some(96));
    let best = &first.considered[0];
    assert_eq!(
        (best.address.as_str(), best.tier.as_str()),
        (ENGINES[1], "gpu")
    );
    assert!(best.cached_tokens >= 256 && best.cost_ms < first.considered[1].cost_ms);
    assert!(first.unix_ms > 0 && first.index_age_ms.is_some());
    let text = format!("{first:?}");
    assert!(!text.contains("confidential"), "{text}");

    rig.indexer.policy.sampled_decisions_per_s = 0;
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    rig.indexer.heard.sampled.clear();
    let outcome = rig.chat(1, &body);
    rig.answer(1, &outcome, 96);
    rig.settle();
    assert!(rig.indexer.heard.sampled.is_empty());
    rig.assert_healthy();
}

#[test]
fn access_logs_can_show_decision_and_outcome() {
    let told = CONFIG.replace("\"explain\"", "\"access_log\":true,\"explain\"");
    let mut rig = Rig::with(&told, Indexer::new(&ENGINES));
    let body = chat("logged", 300);
    rig.indexer.store(&[1], &body);
    rig.settle();
    let outcome = rig.chat(1, &body);
    let usage = r#"{"usage":{"prompt_tokens":300,"prompt_tokens_details":{"cached_tokens":288}}}"#;
    rig.host
        .vm(1)
        .response(outcome.id)
        .upstream(ENGINES[1])
        .chunk(usage)
        .hang();
    let field = |rig: &mut Rig, name: &str| {
        let vm = rig.host.vm(1);
        vm.property(outcome.id, &format!("wasm.prefixway_{name}"))
    };
    let fields = [
        ("reason", Some("prefix")),
        ("mode", Some("on")),
        ("endpoint", Some(ENGINES[1])),
        // Known once the answer has ended.
        ("prompt_tokens", None),
        ("cached_tokens", None),
    ];
    for (name, value) in fields {
        assert_eq!(field(&mut rig, name).as_deref(), value, "{name}");
    }
    let predicted = field(&mut rig, "predicted_tokens").unwrap();
    assert!(predicted.parse::<u32>().unwrap() >= 256, "{predicted}");

    let refused = rig.chat(1, "{\"model\": \"nobody\"}");
    assert_eq!(refused.reply.as_ref().map(|reply| reply.status), Some(404));
    let reason = rig.host.vm(1).property(refused.id, "wasm.prefixway_reason");
    assert_eq!(reason.as_deref(), Some("unknown_model"));
    rig.assert_healthy();
}

#[test]
fn access_logs_are_told_nothing_unless_the_configuration_says_so() {
    let mut rig = Rig::new();
    let outcome = rig.chat(1, &chat("quiet", 100));
    assert!(destination(&outcome).is_some());
    let reason = rig.host.vm(1).property(outcome.id, "wasm.prefixway_reason");
    assert_eq!(reason, None);
}
