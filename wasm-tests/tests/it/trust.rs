//! Endpoints about which the index has proved wrong.

use prefixway_wasm_tests::rig::{ENGINES, chat, destination};
use prefixway_wasm_tests::{Outcome, Rig};

/// Whole answer from `upstream`; the explanation that came with it.
fn explained(rig: &mut Rig, vm: usize, outcome: &Outcome, upstream: &str) -> String {
    let response = rig.host.vm(vm).response(outcome.id).upstream(upstream);
    let usage = r#"{"usage":{"prompt_tokens":300,"prompt_tokens_details":{"cached_tokens":16}}}"#;
    let (headers, _) = response.chunk(usage).end();
    headers.get("x-prefixway-decision").unwrap().to_owned()
}

#[test]
fn every_vm_passes_over_what_a_distrusted_endpoint_is_said_to_hold() {
    let mut rig = Rig::new();
    for (share, engine) in [(None, 1), (Some(0.0), 2), (Some(0.25), 2), (Some(0.875), 1)] {
        rig.indexer.endpoints.endpoints[1].prefix_trust = share;
        rig.indexer.announce(&mut rig.host);
        for vm in 1..rig.host.vm_count() {
            let mut went = 0;
            for number in 0..10 {
                // One of its own each time, since a decision is expected to be right from then on.
                let name = format!("{share:?} {vm} {number}");
                let (long, short) = (chat(&name, 300), chat(&name, 150));
                rig.indexer.store(&[1], &long);
                rig.indexer.store(&[2, 1], &short);
                rig.settle();
                let outcome = rig.chat(vm, &long);
                let place = destination(&outcome).unwrap().to_owned();
                let explanation = explained(&mut rig, vm, &outcome, &place);
                let shows = explanation.contains(" indexed=") == share.is_some();
                went += usize::from(place == ENGINES[engine] && shows);
            }
            // A few decisions try out whether it is right again.
            assert!(went >= 8, "{share:?} in VM {vm}: {went}");
        }
    }
    rig.assert_healthy();
}

#[test]
fn an_outcome_tells_what_the_index_claimed_of_the_endpoint_that_served() {
    let mut rig = Rig::new();
    let body = chat("claimed", 300);
    rig.indexer.store(&[1], &body);
    rig.indexer.endpoints.endpoints[1].prefix_trust = Some(0.0);
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    for (upstream, claimed) in [
        (ENGINES[0], Some(0)),
        (ENGINES[1], Some(288)),
        ("192.0.2.9:1", None),
    ] {
        let outcome = rig.chat(1, &body);
        rig.host
            .vm(1)
            .response(outcome.id)
            .upstream(upstream)
            .chunk(r#"{"usage":{"prompt_tokens":300}}"#)
            .end();
        rig.settle();
        let heard = rig.indexer.heard.outcomes.pop().unwrap();
        let claim = heard.indexed_cached_tokens;
        // Whole blocks of what the rungs tell.
        let is_chat = heard.counts_cached && !heard.unsteered;
        let is_it = claim.map(|tokens| tokens / 288 * 288) == claimed && is_chat;
        assert!(is_it, "{upstream}: {heard:?}");
        assert_eq!(
            (heard.prompt_tokens, heard.cached_tokens),
            (Some(300), None)
        );
    }
    rig.assert_healthy();
}

#[test]
fn in_shadow_mode_the_claim_is_that_of_whoever_served() {
    let mut rig = Rig::new();
    let body = chat("shadow", 300);
    rig.indexer.policy.mode = "shadow".to_owned();
    rig.indexer.store(&[2], &body);
    rig.indexer.announce(&mut rig.host);
    rig.settle();
    let outcome = rig.chat(1, &body);
    assert_eq!(destination(&outcome), None);
    rig.host
        .vm(1)
        .response(outcome.id)
        .upstream(ENGINES[2])
        .chunk(r#"{"usage":{"prompt_tokens":300}}"#)
        .end();
    rig.settle();
    let heard = rig.indexer.heard.outcomes.pop().unwrap();
    assert!(heard.unsteered && heard.indexed_cached_tokens >= Some(256));
    rig.assert_healthy();
}
