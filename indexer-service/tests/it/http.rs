//! Pages, readiness and scraping.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get as route;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prefixway_core::proto::{self, up};

use crate::support::eventually;
use crate::support::indexer::{Chain, Gateway, get, get_json, ready, settings, start};
use crate::support::publisher::{Publisher, ReplayForm};

/// An engine's `/health` and `/metrics`.
async fn engine(is_healthy: Arc<AtomicBool>) -> SocketAddr {
    let page = "vllm:num_requests_running{engine=\"0\"} 3.0\nvllm:num_requests_waiting{engine=\"0\"} 1.0\n\
                vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:cache_config_info{block_size=\"16\",engine=\"0\"} 1.0\n";
    let health = move || async move {
        if is_healthy.load(Ordering::SeqCst) {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let router = Router::new()
        .route("/health", route(health))
        .route("/metrics", route(move || async move { page }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_and_health_of_an_engine_reach_the_gateways() {
    let is_healthy = Arc::new(AtomicBool::new(true));
    let address = engine(Arc::clone(&is_healthy)).await;
    let publisher = Publisher::bind_anywhere();
    let settings = settings(&[&publisher])
        .replace("127.0.0.1:8000", &address.to_string())
        .replace("scrape: false", "scrape: true")
        + "\nscrape: {interval: 300ms, idle_interval: 300ms}";
    let running = start(&settings).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    let load = gateway
        .until("scraped load", |gateway| {
            gateway
                .load
                .first()
                .filter(|load| load.running.is_some())
                .copied()
        })
        .await;
    assert_eq!(
        (load.running, load.waiting, load.kv_usage_ratio),
        (Some(3), Some(1), Some(0.5))
    );
    gateway
        .until("block size", |gateway| {
            gateway
                .endpoints
                .endpoints
                .first()
                .filter(|e| e.block_size == 16)
                .map(drop)
        })
        .await;
    assert!(gateway.endpoints.endpoints[0].healthy);
    // Between two scrapes a reply may say more.
    let outcome = proto::Outcome {
        request: 1,
        waiting: Some(77),
        kv_usage_ratio: Some(f64::NAN),
        ..proto::Outcome::default()
    };
    gateway.send(up::Kind::Outcome(outcome)).await;
    let load = gateway.until("the reply's figures", |gateway| {
        let mut load = gateway.load.iter().copied();
        load.find(|load| load.waiting == Some(77))
    });
    let load = load.await;
    assert_eq!((load.running, load.kv_usage_ratio), (Some(3), Some(0.5)));
    is_healthy.store(false, Ordering::SeqCst);
    gateway
        .until("bad health", |gateway| {
            (!gateway.endpoints.endpoints[0].healthy).then_some(())
        })
        .await;
    is_healthy.store(true, Ordering::SeqCst);
    gateway
        .until("good health", |gateway| {
            gateway.endpoints.endpoints[0].healthy.then_some(())
        })
        .await;
    let page = get_json(running.http(), "/api/v1/endpoints").await;
    assert_eq!(page["endpoints"][0]["running"], 3);
    // An engine without /tokenize leaves the model as its files say.
    let page = get_json(running.http(), "/api/v1/models").await;
    assert_eq!(page["models"][0]["state"], "precise");
    assert_eq!(page["models"][0]["calibration"], "unavailable");
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_ready_when_its_sources_have_caught_up_or_the_grace_is_over() {
    let publisher = Publisher::bind_anywhere();
    let (events, replay) = (publisher.events.clone(), publisher.replay.clone());
    let settings = settings(&[&publisher]);
    drop(publisher);
    let running = start(&settings).await;
    let (status, text) = get(running.http(), "/readyz").await;
    assert_eq!(status, 503);
    assert!(
        text.contains("\"waiting_for\":[\"127.0.0.1:8000\"]"),
        "{text}"
    );
    assert_eq!(get(running.http(), "/healthz").await.0, 200);
    let _publisher = Publisher::bind(&events, &replay, ReplayForm::WithTopic);
    ready(&running).await;
    running.shut_down().await.unwrap();

    let running = start(
        &settings
            .replace("ready_grace: 1h", "ready_grace: 0s")
            .replace(&events, "tcp://127.0.0.1:1"),
    )
    .await;
    assert_eq!(get(running.http(), "/readyz").await.0, 200);
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_models_index_and_the_always_exported_metrics() {
    let publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let models = get_json(running.http(), "/api/v1/models").await;
    assert_eq!(models["models"][0]["state"], "precise");
    assert_eq!(models["models"][0]["names"][0], "tiny");
    // Nobody may be asked, since the endpoint is not to be scraped.
    assert_eq!(models["models"][0]["calibration"], "unavailable");
    let index = get_json(running.http(), "/api/v1/index").await;
    assert_eq!(
        (&index["rungs"], &index["gateways"]),
        (&0.into(), &0.into())
    );
    let (_, page) = get(running.http(), "/metrics").await;
    for name in [
        "prefixway_decisions_total",
        "prefixway_matched_blocks_count",
        "prefixway_index_age_seconds",
        "prefixway_event_gaps_total",
        "prefixway_resyncs_total",
        "prefixway_endpoint_knowledge{endpoint=\"127.0.0.1:8000\",state=\"precise\"} 1",
        "prefixway_model_knowledge{model=\"tiny\",state=\"precise\"} 1",
        "prefixway_source_state{endpoint=\"127.0.0.1:8000\",state=\"live\"} 1",
    ] {
        assert!(
            page.lines().any(|line| line.starts_with(name)),
            "no {name} in {page}"
        );
    }
    assert_eq!(get(running.http(), "/nothing").await.0, 404);
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gateways_have_of_the_table_is_held_against_what_was_published() {
    let mut publisher = Publisher::bind_anywhere();
    let chain = Chain::new(7, 20);
    publisher.lose(&chain.stored(0, 20));
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway.holds(&chain, &[20]).await;
    let snapshot = gateway.replica.snapshot();
    let copy = proto::VmCopy {
        vm: 1,
        epoch: snapshot.epoch,
        version: snapshot.version,
        checksum: snapshot.checksum(),
        rungs: snapshot.table.len() as u64,
        age_ms: 0,
    };
    let vms = vec![
        copy,
        proto::VmCopy {
            vm: 2,
            checksum: copy.checksum ^ 1,
            ..copy
        },
        proto::VmCopy {
            vm: 3,
            ..proto::VmCopy::default()
        },
    ];
    gateway.send(up::Kind::Copies(proto::Copies { vms })).await;
    let page = eventually("the copies", async || {
        let page = get_json(running.http(), "/api/v1/gateways").await;
        page.pointer("/gateways/0/vms/2").is_some().then_some(page)
    })
    .await;
    assert_eq!(page["gateways"][0]["gateway"], "a");
    let vms = page["gateways"][0]["vms"].as_array().unwrap();
    let states: Vec<_> = vms.iter().map(|vm| &vm["state"]).collect();
    assert_eq!(states, ["same", "different", "behind"]);
    for key in ["epoch", "version", "checksum", "rungs"] {
        assert_eq!(vms[0][key], page["table"][key], "{key}");
    }
    let (_, metrics) = get(running.http(), "/metrics").await;
    for state in ["same", "different", "behind"] {
        let line = format!("prefixway_gateway_vms{{state=\"{state}\"}} 1");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    running.shut_down().await.unwrap();
}
