//! What a VM has not told yet counts for itself already, and is told in order.

use super::*;
use crate::{shared::registry::MIN_WRITE_MS, view::untold::MAX_UNTOLD};

/// The record has just been written: what follows waits.
fn settled() -> Proxy {
    let mut proxy = Proxy::new(2);
    proxy.run(20);
    proxy.idle_load();
    proxy.now_ms += MIN_WRITE_MS;
    let decision = proxy.decide(0, Some(&prompt(9)), 1);
    proxy.commit(0, 1, &decision, &prompt(9));
    assert!(proxy.vms[0].untold.is_empty());
    proxy
}

#[test]
fn the_next_decision_reckons_with_one_that_is_not_told_and_as_if_it_were() {
    let mut proxy = settled();
    let first = proxy.decide(0, Some(&prompt(3)), 1);
    assert_eq!(first.reason, Reason::NoPrefix);
    proxy.commit(0, 2, &first, &prompt(3));
    let told = proxy.vms[0].speculation().len();
    let half = PromptHashes::new(ChunkHash(1), &[3; 3_200], SEED, usize::MAX);
    let mut parting = vec![3; 3_200];
    parting.extend([4; 3_200]);
    let parting = PromptHashes::new(ChunkHash(1), &parting, SEED, usize::MAX);
    let chosen = first.choices[0].key;
    let seen = |proxy: &Proxy| -> Vec<_> {
        let prompts = [&prompt(3), &half, &parting, &prompt(5)];
        let decisions = prompts.map(|prompt| proxy.decide(0, Some(prompt), 7));
        let of = |decision: &Decision| {
            let mut ranking = decision.ranking.iter();
            let sent = ranking.find(|candidate| candidate.key == chosen).unwrap();
            (decision.choices.clone(), sent.credit, sent.in_flight)
        };
        decisions.iter().map(of).collect()
    };
    assert_eq!(proxy.vms[0].untold.len(), 1, "it waits");
    let before = seen(&proxy);
    proxy.vms[0].tell();
    assert_eq!(proxy.vms[0].speculation().len(), told + 1);
    assert_eq!(seen(&proxy), before);
    let expected: Vec<u32> = before
        .iter()
        .map(|(_, credit, _)| credit.tokens())
        .collect();
    assert_eq!(expected, [1_600, 800, 800, 0]);
}

#[test]
fn endings_follow_their_decisions_and_failures_take_back_what_was_expected() {
    let mut proxy = settled();
    for (request, salt) in [(2, 3), (3, 4)] {
        let decision = proxy.decide(0, Some(&prompt(salt)), 1);
        proxy.commit(0, request, &decision, &prompt(salt));
    }
    let now_ms = proxy.now_ms;
    proxy.vms[0].finish(RequestId(2), Ending::default(), now_ms);
    assert!(!proxy.vms[0].untold.is_empty());
    let failed = Ending {
        is_failed: true,
        ..Ending::default()
    };
    proxy.vms[0].finish(RequestId(3), failed, now_ms);
    let reason = |proxy: &Proxy, vm, salt| proxy.decide(vm, Some(&prompt(salt)), 1).reason;
    assert_eq!(reason(&proxy, 0, 3), Reason::Prefix);
    assert_eq!(reason(&proxy, 0, 4), Reason::NoPrefix);
    proxy.run(1);
    assert_eq!(reason(&proxy, 1, 3), Reason::Prefix);
    assert_eq!(reason(&proxy, 1, 4), Reason::NoPrefix);
    assert_eq!(proxy.vms[0].ledger().len(), 1, "that of the beginning");
    proxy.run(10);
    let mut numbers: Vec<(u64, bool)> = Vec::new();
    for up in &proxy.sent {
        match &up.kind {
            Some(up::Kind::Routed(routed)) => numbers.push((routed.request & 0xff, false)),
            Some(up::Kind::Outcome(outcome)) => numbers.push((outcome.request & 0xff, true)),
            _ => {}
        }
    }
    for request in [2, 3] {
        let of: Vec<bool> = numbers
            .iter()
            .filter(|n| n.0 == request)
            .map(|n| n.1)
            .collect();
        assert_eq!(of, [false, true], "{numbers:?}");
    }
}

#[test]
fn no_more_waits_than_has_room() {
    let mut proxy = settled();
    for request in 2..2 + MAX_UNTOLD as u64 + 10 {
        let decision = proxy.decide(0, Some(&prompt(3)), request);
        proxy.commit(0, request, &decision, &prompt(3));
        assert!(proxy.vms[0].untold.len() <= MAX_UNTOLD);
    }
    assert!(proxy.vms[0].speculation().len() > MAX_UNTOLD);
}
