//! Endpoints that change between events and decisions.

use prefixway::serve::Running;
use prefixway_core::proto::{self, up};

use crate::support::eventually;
use crate::support::indexer::{Chain, Gateway, get, get_json, settings, start};
use crate::support::publisher::{Publisher, ReplayForm};

async fn known(running: &Running, knowledge: &str) {
    eventually(knowledge, async || {
        let page = get_json(running.http(), "/api/v1/endpoints").await;
        let models = get_json(running.http(), "/api/v1/models").await;
        let endpoint = &page["endpoints"][0]["knowledge"];
        (endpoint == knowledge && models["models"][0]["knowledge"] == knowledge).then_some(())
    })
    .await;
    let (_, page) = get(running.http(), "/metrics").await;
    let line = format!(
        "prefixway_endpoint_knowledge{{endpoint=\"127.0.0.1:8000\",state=\"{knowledge}\"}} 1"
    );
    assert!(page.lines().any(|found| found == line), "no {line}");
}

/// Reports that the text of a chain was sent to the endpoint.
async fn route(gateway: &mut Gateway, chain: &Chain, request: u64) {
    let rungs = gateway.rungs(&chain.text);
    gateway
        .send(up::Kind::Routed(proto::Routed {
            request,
            endpoint: 0,
            rungs: rungs.into(),
            prompt_bytes: chain.text.len() as u64,
            estimated_prompt_tokens: u32::try_from(chain.tokens.len()).unwrap(),
            ..proto::Routed::default()
        }))
        .await;
}

async fn credited(gateway: &mut Gateway, chain: &Chain, is_it: bool) {
    let what = if is_it { "credit" } else { "no credit" };
    gateway
        .until(what, |gateway| {
            let credits = gateway.credits(&chain.text);
            (credits.first().is_some_and(|&tokens| tokens > 0) == is_it).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_count_until_events_come_and_again_when_they_stop() {
    let publisher = Publisher::bind_anywhere();
    let (events, replay) = (publisher.events.clone(), publisher.replay.clone());
    let settings = settings(&[&publisher]) + "\nindex: {approximate_tokens: 400}";
    drop(publisher);
    let running = start(&settings).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    let [decided, told, other] = [1, 2, 3].map(|seed| Chain::new(seed, 10));
    known(&running, "approximate").await;
    route(&mut gateway, &decided, 1).await;
    credited(&mut gateway, &decided, true).await;

    // Events arrive: the engine holds what they say, and nothing else.
    let mut publisher = Publisher::bind(&events, &replay, ReplayForm::WithTopic);
    publisher.lose(&told.stored(0, 10));
    known(&running, "precise").await;
    gateway.holds(&told, &[10]).await;
    credited(&mut gateway, &decided, false).await;
    let page = get_json(running.http(), "/api/v1/endpoints").await;
    assert!(page["endpoints"][0]["decisions"].is_null());

    // They stop: what was known last stays beside the decisions since.
    drop(publisher);
    known(&running, "approximate").await;
    route(&mut gateway, &decided, 2).await;
    credited(&mut gateway, &decided, true).await;
    gateway.holds(&told, &[10]).await;

    // Until these alone fill the cache: then the engine has dropped what it held before.
    route(&mut gateway, &other, 3).await;
    let [third, fourth] = [4, 5].map(|seed| Chain::new(seed, 10));
    route(&mut gateway, &third, 4).await;
    route(&mut gateway, &fourth, 5).await;
    credited(&mut gateway, &fourth, true).await;
    credited(&mut gateway, &decided, false).await;
    credited(&mut gateway, &told, false).await;

    // Back again, it is asked for everything.
    let mut publisher = Publisher::bind(&events, &replay, ReplayForm::WithTopic);
    publisher.lose(&told.stored(0, 10));
    gateway.holds(&told, &[10]).await;
    known(&running, "precise").await;
    credited(&mut gateway, &fourth, false).await;
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_events_and_without_a_size_nothing_is_known() {
    let publisher = Publisher::bind_anywhere();
    let events = publisher.events.clone();
    let settings = settings(&[&publisher]) + "\nindex: {approximate_tokens: 0}";
    let settings = settings.replace(&events, "tcp://127.0.0.1:1");
    let running = start(&settings).await;
    known(&running, "blind").await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    let chain = Chain::new(1, 10);
    route(&mut gateway, &chain, 1).await;
    eventually("the decision is counted", async || {
        let (_, page) = get(running.http(), "/metrics").await;
        page.contains("prefixway_decisions_total{endpoint=\"127.0.0.1:8000\"} 1")
            .then_some(())
    })
    .await;
    let index = get_json(running.http(), "/api/v1/index").await;
    assert_eq!(
        (&index["rungs"], &index["speculations"]),
        (&0.into(), &0.into())
    );
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_went_elsewhere_or_failed_leaves_no_credit() {
    let publishers = [Publisher::bind_anywhere(), Publisher::bind_anywhere()];
    let mut settings = settings(&[&publishers[0], &publishers[1]]);
    for publisher in &publishers {
        settings = settings.replace(&publisher.events, "tcp://127.0.0.1:1");
    }
    let settings = settings.replacen("127.0.0.1:1'", "127.0.0.1:2'", 1);
    let running = start(&settings).await;
    known(&running, "approximate").await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    let chain = Chain::new(1, 10);
    for (request, endpoint, failed, stays) in [
        (1, 1, false, false),
        (2, 0, true, false),
        (3, 0, false, true),
        // It was there before.
        (4, 0, true, true),
    ] {
        route(&mut gateway, &chain, request).await;
        credited(&mut gateway, &chain, true).await;
        let outcome = proto::Outcome {
            request,
            endpoint,
            failed,
            ..proto::Outcome::default()
        };
        let seq = gateway.send(up::Kind::Outcome(outcome)).await;
        let taken = |gateway: &Gateway| (gateway.acked >= seq).then_some(());
        gateway.until("the outcome taken", taken).await;
        let page = get_json(running.http(), "/api/v1/endpoints").await;
        let rungs = page["endpoints"][0]["decisions"]["rungs"].as_u64().unwrap();
        assert_eq!(rungs > 0, stays, "request {request}");
        credited(&mut gateway, &chain, stays).await;
    }
    running.shut_down().await.unwrap();
}
