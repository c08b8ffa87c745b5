//! Several indexers, several plugins.

use std::time::Duration;

use prefixway_core::text::Api;
use prefixway_wasm_tests::rig::{chat, destination};
use prefixway_wasm_tests::{Host, Indexer, StreamToken};

const TWO: &str = r#"{"indexers":["east","west"]}"#;

/// Lets time pass while each indexer serves the streams to its cluster.
fn run(host: &mut Host, shards: &mut [(&str, Indexer)], time: Duration) {
    let steps = time.as_millis() / 10;
    for _ in 0..steps {
        for (cluster, indexer) in &mut *shards {
            let mine = |host: &mut Host, vm: usize, token: StreamToken| {
                host.vm(vm)
                    .stream(token)
                    .is_some_and(|s| s.cluster == *cluster)
            };
            indexer.serve_where(host, mine);
        }
        host.advance(Duration::from_millis(10));
    }
}

#[test]
fn each_shard_is_probed_and_all_endpoints_are_ranked_together() {
    let mut host = Host::new(TWO).unwrap();
    let mut shards = [
        ("east", Indexer::new(&["10.0.0.1:8000", "10.0.0.2:8000"])),
        ("west", Indexer::new(&["10.1.0.1:8000", "10.1.0.2:8000"])),
    ];
    let (east, west) = (chat("east", 500), chat("west", 500));
    shards[0].1.store_as(Api::Chat, &[1], &east);
    shards[1].1.store_as(Api::Chat, &[0], &west);
    run(&mut host, &mut shards, Duration::from_millis(500));
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    for vm in [1, 2] {
        for (body, engine) in [(&east, "10.0.0.2:8000"), (&west, "10.1.0.1:8000")] {
            let outcome = host.vm(vm).request(&headers).chunk(body).end();
            assert_eq!(destination(&outcome), Some(engine));
        }
    }
    run(&mut host, &mut shards, Duration::from_millis(200));
    for (_, indexer) in &shards {
        assert_eq!(
            indexer.heard.routed.len(),
            2,
            "decisions go to the endpoint's own shard"
        );
    }
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn one_shard_that_is_down_costs_only_its_own_endpoints() {
    let mut host = Host::new(TWO).unwrap();
    let mut shards = [("west", Indexer::new(&["10.1.0.1:8000", "10.1.0.2:8000"]))];
    let body = chat("west", 500);
    shards[0].1.store_as(Api::Chat, &[1], &body);
    run(&mut host, &mut shards, Duration::from_millis(500));
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let outcome = host.vm(2).request(&headers).chunk(&body).end();
    assert_eq!(destination(&outcome), Some("10.1.0.2:8000"));
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn scopes_share_nothing() {
    for (scope, prefix) in [("default", "pw/1/"), ("blue", "blue/pw/1/")] {
        let config = format!(r#"{{"indexers":["i"],"scope":"{scope}"}}"#);
        let mut host = Host::new(&config).unwrap();
        host.advance(Duration::from_millis(100));
        let process = host.process();
        let keys = process.shared_keys();
        assert!(
            !keys.is_empty() && keys.iter().all(|key| key.starts_with(prefix)),
            "{keys:?}"
        );
    }
}
