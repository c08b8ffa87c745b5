//! Nothing that a client sends can name an endpoint.

use prefixway::demo::indexer::{self, Indexer};
use prefixway_e2e::Recorder;
use prefixway_e2e::rig::{LIMIT, MODEL, WORKERS, binary, chat_body, post, start_envoy};

/// Headers that name an endpoint, in lower case.
const ROUTING: [&str; 6] = [
    "x-gateway-destination-endpoint",
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-data-parallel-host-port",
    "x-data-parallel-rank",
    "x-envoy-original-dst-host",
];

/// Sends every routing header, once each and all at once, with a pool member's and a stranger's address.
async fn no_client_header_counts_in(mode: &str) {
    let folder = tempfile::tempdir().unwrap();
    let model_dir = folder.path().join("model");
    prefixway::demo::engines::model(&model_dir).unwrap();
    let pool = [
        Recorder::start("a").await.unwrap(),
        Recorder::start("b").await.unwrap(),
    ];
    let stranger = Recorder::start("stranger").await.unwrap();
    let addresses: Vec<_> = pool.iter().map(Recorder::address).collect();

    let sources = addresses.iter().map(|address| indexer::Source {
        address: *address,
        events: None,
        replay: None,
        prefill_tokens_per_s: 8_000.0,
    });
    let mut settings =
        indexer::Settings::on_free_ports(MODEL, &model_dir, sources.collect()).unwrap();
    settings.mode = mode.to_owned();
    let indexer = Indexer::start(&binary(), folder.path(), &settings)
        .await
        .unwrap();
    let envoy = start_envoy(&addresses, mode, &settings, folder.path())
        .await
        .unwrap();
    if mode != "off" {
        prefixway::demo::process::wait_for("the snapshot", LIMIT, async || {
            let ready = envoy.stats("prefixway_ready_vms").await;
            ready
                .iter()
                .any(|(_, vms)| *vms > u64::from(WORKERS))
                .then_some(())
        })
        .await
        .unwrap();
    }

    let http = reqwest::Client::new();
    let targets = [addresses[1], stranger.address()].map(|address| address.to_string());
    let mut served_by_a = 0;
    for (number, target) in targets.iter().cycle().take(28).enumerate() {
        let sent: Vec<(&str, &str)> = match ROUTING.get(number % (ROUTING.len() + 1)) {
            Some(one) => vec![(one, target.as_str())],
            None => ROUTING
                .iter()
                .map(|header| (*header, target.as_str()))
                .collect(),
        };
        let body = chat_body(&format!("system {number}"), "hello");
        let answer = post(&http, envoy.http(), "/v1/chat/completions", &body, &sent)
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{mode}: {answer:?}");
        assert_ne!(answer.engine, "stranger", "{mode}: {sent:?} left the pool");
        served_by_a += usize::from(answer.engine == "a");
        for header in ROUTING {
            let seen = answer
                .body
                .pointer(&format!("/headers/{header}"))
                .and_then(|value| value.as_str());
            let own = mode == "on" && header == "x-gateway-destination-endpoint";
            match seen {
                None => assert!(!own, "the filter names an endpoint"),
                Some(list) => {
                    assert!(
                        own,
                        "{mode}: the engine saw {header}: {list} after {sent:?}"
                    );
                    let first = list.split(',').next().unwrap_or_default();
                    let named = pool
                        .iter()
                        .position(|member| member.address().to_string() == first)
                        .unwrap();
                    assert_eq!(
                        answer.engine,
                        ["a", "b"][named],
                        "the filter's choice serves"
                    );
                }
            }
        }
    }
    // Every request named b or a stranger: had one of them counted, a would have served fewer.
    assert!(served_by_a > 2, "{mode}: a served {served_by_a} of 28");
    indexer.kill().await;
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_header_counts_in_mode_on() {
    no_client_header_counts_in("on").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_header_counts_in_mode_shadow() {
    no_client_header_counts_in("shadow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_header_counts_in_mode_off() {
    no_client_header_counts_in("off").await;
}
