//! What engines say of their load with replies.

use super::*;
use crate::load::{EndpointLoad, MAX_LOAD_AGE_MS, orca::Report};

fn seen(proxy: &Proxy, vm: usize, key: EndpointKey) -> EndpointLoad {
    let view = &proxy.vms[vm];
    view.load.of(key, &view.ledger, proxy.now_ms)
}

const BUSY: Report = Report {
    waiting: Some(7),
    running: None,
    kv_usage_ratio: Some(0.75),
};

#[test]
fn a_reply_tells_every_vm_and_the_indexer_how_busy_its_engine_is() {
    let mut proxy = Proxy::new(2);
    proxy.run(20);
    let decision = proxy.decide(0, Some(&prompt(1)), 1);
    proxy.commit(0, 1, &decision, &prompt(1));
    let key = decision.choices[0].key;
    proxy.vms[0].reported(key, BUSY, proxy.now_ms);
    let ending = Ending {
        report: Some(BUSY),
        ..Ending::default()
    };
    proxy.vms[0].finish(RequestId(1), ending, proxy.now_ms);
    assert_eq!(seen(&proxy, 0, key).waiting(), Some(7));
    proxy.run(2);
    for vm in 0..2 {
        let load = seen(&proxy, vm, key);
        assert_eq!(
            (load.waiting(), load.kv_usage_ratio()),
            (Some(7), Some(0.75))
        );
        assert!(!load.is_known(), "what is on its way is not in it");
    }
    let told = proxy.sent.iter().any(|up| match &up.kind {
        Some(up::Kind::Outcome(outcome)) => outcome.waiting == Some(7),
        _ => false,
    });
    assert!(told);
    // What is old is not known any more, and is not idle.
    proxy.now_ms += MAX_LOAD_AGE_MS + 20;
    assert_eq!(seen(&proxy, 0, key).waiting(), None);
}

#[test]
fn an_endpoint_with_a_rank_is_not_spoken_for_and_the_newer_word_counts() {
    let mut proxy = Proxy::new(1);
    proxy.run(20);
    proxy.broadcast(&down(Kind::Endpoints(proto::Endpoints {
        revision: 2,
        endpoints: vec![
            proto::Endpoint {
                rank: Some(1),
                ..endpoint(1)
            },
            endpoint(2),
        ],
    })));
    proxy.run(2);
    let ranked = EndpointKey::new("10.0.0.1:8000", Some(1));
    let stranger = EndpointKey::new("10.0.0.9:8000", None);
    let whole = EndpointKey::new("10.0.0.2:8000", None);
    for key in [ranked, stranger, whole] {
        proxy.vms[0].reported(key, BUSY, proxy.now_ms);
    }
    let waiting = |proxy: &Proxy, key| seen(proxy, 0, key).waiting();
    assert_eq!(
        [ranked, stranger].map(|key| waiting(&proxy, key)),
        [None; 2]
    );
    assert_eq!(waiting(&proxy, whole), Some(7));
    proxy.run(1);
    let scraped = proto::EndpointLoad {
        endpoint: 2,
        waiting: Some(1),
        ..proto::EndpointLoad::default()
    };
    proxy.broadcast(&down(Kind::Load(proto::Load {
        endpoints: vec![scraped],
    })));
    proxy.run(2);
    assert_eq!(waiting(&proxy, whole), Some(1), "scraped later");
    let half = Report {
        waiting: None,
        ..BUSY
    };
    proxy.vms[0].reported(whole, half, proxy.now_ms);
    let load = seen(&proxy, 0, whole);
    assert_eq!(
        (load.waiting(), load.kv_usage_ratio()),
        (Some(1), Some(0.75))
    );
}
