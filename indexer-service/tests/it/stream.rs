//! From a publisher on real libzmq to a gateway's table.

use prefixway_core::proto::{self, up};

use crate::support::eventually;
use crate::support::indexer::{Chain, Gateway, get, get_json, ready, settings, start, watch};
use crate::support::publisher::{Publisher, ReplayForm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_brings_what_was_there_and_deltas_what_comes_after() {
    let mut publisher = Publisher::bind_anywhere();
    let chain = Chain::new(1, 40);
    // Before the indexer: it must be asked for.
    publisher.lose(&chain.stored(0, 20));
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway.holds(&chain, &[20]).await;
    assert_eq!((gateway.bases, gateway.resumes), (1, 0));
    assert_eq!(gateway.endpoints.endpoints[0].state, "live");
    assert_eq!(gateway.policy.models[0].names, ["tiny"]);

    // After it: a delta, also where the subscription has not reached the publisher yet, since the hole is asked for.
    publisher.publish(&chain.stored(20, 30));
    publisher.publish(&chain.stored(30, 40));
    gateway.holds(&chain, &[40]).await;
    publisher.publish(&chain.removed(39));
    gateway.holds(&chain, &[39]).await;
    assert_eq!(gateway.bases, 1);

    // A second gateway gets the same by a base.
    let mut second = Gateway::connect(running.grpc(), "b").await;
    second.holds(&chain, &[39]).await;
    assert_eq!(
        second.replica.snapshot().checksum(),
        gateway.replica.snapshot().checksum()
    );
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefixes_are_known_by_token_ids_too_unless_that_is_switched_off() {
    let mut publisher = Publisher::bind_anywhere();
    let chain = Chain::new(1, 40);
    publisher.lose(&chain.stored(0, 20));
    let mut rungs = Vec::new();
    for (more, tokens) in [("", 20 * 16), ("\nindex: {token_space: off}", 0)] {
        let running = start(&(settings(&[&publisher]) + more)).await;
        ready(&running).await;
        let mut gateway = Gateway::connect(running.grpc(), "a").await;
        gateway.holds(&chain, &[20]).await;
        assert_eq!(gateway.credits_of_ids(&chain.tokens), [tokens], "{more}");
        let page = get_json(running.http(), "/api/v1/index").await;
        rungs.push(page["rungs"].as_u64().unwrap());
        running.shut_down().await.unwrap();
    }
    // One rung for each block of 16 tokens on top of those of the text.
    assert_eq!(rungs[0], rungs[1] + 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_filled_by_a_replay() {
    let mut publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let asked = publisher.replays();
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    let chain = Chain::new(2, 12);
    publisher.lose(&chain.stored(0, 4));
    publisher.lose(&chain.stored(4, 8));
    // Until the subscription has arrived, a batch may be lost too: then this one is asked for with the next.
    let mut block = 8;
    eventually("the gap is seen", async || {
        if block < 12 {
            publisher.publish(&chain.stored(block, block + 1));
            block += 1;
        }
        let page = get(running.http(), "/metrics").await.1;
        page.contains("prefixway_event_gaps_total{endpoint=\"127.0.0.1:8000\"} 1")
            .then_some(())
    })
    .await;
    for block in block..12 {
        publisher.publish(&chain.stored(block, block + 1));
    }
    gateway.holds(&chain, &[12]).await;
    assert!(publisher.replays() > asked);
    let page = get_json(running.http(), "/api/v1/endpoints").await;
    assert_eq!(page["endpoints"][0]["state"], "live");
    assert_eq!(page["endpoints"][0]["resets"], 0);
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_publisher_starts_over_although_it_is_idle() {
    let mut publisher = Publisher::bind_anywhere();
    let mut other = Publisher::bind_anywhere();
    let (old, new) = (Chain::new(3, 8), Chain::new(4, 8));
    publisher.lose(&old.stored(0, 8));
    other.lose(&old.stored(0, 4));
    let running = start(&settings(&[&publisher, &other])).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway.holds(&old, &[8, 4]).await;
    let before = gateway.endpoints.endpoints[0].holders[0].id;

    let (events, replay) = (publisher.events.clone(), publisher.replay.clone());
    drop(publisher);
    let mut publisher = Publisher::bind(&events, &replay, ReplayForm::WithTopic);
    gateway.holds(&old, &[0, 4]).await;
    let after = gateway.endpoints.endpoints[0].holders[0].id;
    assert_ne!(before, after, "another incarnation");
    publisher.publish(&new.stored(0, 4));
    publisher.publish(&new.stored(4, 8));
    // The first batches may be lost on the way; the hole is asked for.
    publisher.publish(&old.stored(0, 1));
    eventually("it is live again", async || {
        let page = get_json(running.http(), "/api/v1/endpoints").await;
        (page["endpoints"][0]["next_seq"] == 3).then_some(())
    })
    .await;
    gateway.holds(&new, &[8, 0]).await;
    gateway.holds(&old, &[1, 4]).await;
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_reconnects_resumes_from_its_version() {
    let mut publisher = Publisher::bind_anywhere();
    let chain = Chain::new(5, 20);
    publisher.lose(&chain.stored(0, 10));
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway.holds(&chain, &[10]).await;
    publisher.publish(&chain.stored(10, 15));
    let mut gateway = gateway.reconnect(running.grpc()).await;
    publisher.publish(&chain.stored(15, 20));
    gateway.holds(&chain, &[20]).await;
    assert_eq!((gateway.bases, gateway.resumes), (0, 1));
    let page = get(running.http(), "/metrics").await.1;
    assert!(
        page.contains("prefixway_resyncs_total{reason=\"new\"} 1"),
        "{page}"
    );

    // Another process has another epoch: the copy is replaced.
    let (old_epoch, grpc) = (gateway.replica.snapshot().epoch, running.grpc());
    running.shut_down().await.unwrap();
    let with_same_port =
        settings(&[&publisher]).replace("grpc: '127.0.0.1:0'", &format!("grpc: '{grpc}'"));
    let running = start(&with_same_port).await;
    ready(&running).await;
    let mut gateway = gateway.reconnect(running.grpc()).await;
    gateway
        .until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    gateway.holds(&chain, &[20]).await;
    assert_eq!(gateway.resumes, 0);
    assert_ne!(gateway.replica.snapshot().epoch, old_epoch);
    let page = get(running.http(), "/metrics").await.1;
    assert!(
        page.contains("prefixway_resyncs_total{reason=\"epoch\"} 1"),
        "{page}"
    );
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_sees_the_load_of_the_others_and_is_acknowledged() {
    let publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    let mut one = Gateway::connect(running.grpc(), "one").await;
    let mut two = Gateway::connect(running.grpc(), "two").await;
    let usage = |in_flight, queued_prefill_tokens| {
        up::Kind::Usage(proto::Usage {
            endpoints: vec![proto::EndpointUsage {
                endpoint: 0,
                in_flight,
                queued_prefill_tokens,
            }],
        })
    };
    one.send(usage(5, 500)).await;
    let seq = two.send(usage(2, 70)).await;
    let seen = |gateway: &Gateway| {
        gateway
            .load
            .first()
            .map(|load| (load.in_flight, load.queued_prefill_tokens))
    };
    one.until("the load of the other", |gateway| {
        (seen(gateway) == Some((2, 70))).then_some(())
    })
    .await;
    two.until("an acknowledgement", |gateway| {
        (gateway.acked == seq).then_some(())
    })
    .await;
    two.until("the load of the first", |gateway| {
        (seen(gateway) == Some((5, 500))).then_some(())
    })
    .await;
    // A gateway that says nothing more is forgotten.
    drop(two);
    one.until("the silent gateway forgotten", |gateway| {
        (seen(gateway) == Some((0, 0))).then_some(())
    })
    .await;
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_credited_at_once_and_taken_back_when_it_fails() {
    let publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let mut one = Gateway::connect(running.grpc(), "one").await;
    let mut two = Gateway::connect(running.grpc(), "two").await;
    let chain = Chain::new(6, 16);
    two.until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    one.until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    let rungs = one.rungs(&chain.text);
    one.send(up::Kind::Routed(proto::Routed {
        request: 1,
        endpoint: 0,
        rungs: rungs.into(),
        prompt_bytes: chain.text.len() as u64,
        predicted_cached_tokens: 0,
        estimated_prompt_tokens: 256,
        token_ids: false,
        ..proto::Routed::default()
    }))
    .await;
    let tokens = two
        .until("the other gateway's decision", |gateway| {
            gateway
                .credits(&chain.text)
                .first()
                .copied()
                .filter(|&t| t > 0)
        })
        .await;
    assert!((208..=256).contains(&tokens), "{tokens}");
    one.send(up::Kind::Outcome(proto::Outcome {
        request: 1,
        failed: true,
        ..proto::Outcome::default()
    }))
    .await;
    two.holds(&chain, &[0]).await;
    let page = get(running.http(), "/metrics").await.1;
    assert!(
        page.contains("prefixway_decisions_total{endpoint=\"127.0.0.1:8000\"} 1"),
        "{page}"
    );
    assert!(
        page.contains("prefixway_outcomes_total{result=\"failed\"} 1"),
        "{page}"
    );
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_moved_takes_its_credit_along_and_an_old_decision_has_none_left() {
    let publishers = [Publisher::bind_anywhere(), Publisher::bind_anywhere()];
    let running = start(&settings(&[&publishers[0], &publishers[1]])).await;
    ready(&running).await;
    let mut one = Gateway::connect(running.grpc(), "one").await;
    one.until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    let chain = Chain::new(6, 16);
    let rungs = one.rungs(&chain.text);
    let routed = |request, endpoint, age_ms| proto::Routed {
        request,
        endpoint,
        rungs: rungs.clone().into(),
        prompt_bytes: chain.text.len() as u64,
        estimated_prompt_tokens: 256,
        age_ms,
        ..proto::Routed::default()
    };
    let held = |gateway: &Gateway, wanted: [bool; 2]| {
        let credits = gateway.credits(&chain.text);
        let held: Vec<bool> = credits.iter().map(|&tokens| tokens > 0).collect();
        (held == wanted).then_some(())
    };
    one.send(up::Kind::Routed(routed(1, 0, 3_600_000))).await;
    one.send(up::Kind::Routed(routed(2, 1, 0))).await;
    one.until("the young one", |gateway| held(gateway, [false, true]))
        .await;
    one.send(up::Kind::Moved(routed(2, 0, 0))).await;
    one.until("the move", |gateway| held(gateway, [true, false]))
        .await;
    one.send(up::Kind::Outcome(proto::Outcome {
        request: 2,
        failed: true,
        status: 404,
        ..proto::Outcome::default()
    }))
    .await;
    one.until("its end", |gateway| held(gateway, [false, false]))
        .await;
    let page = get(running.http(), "/metrics").await.1;
    assert!(
        page.contains("prefixway_outcomes_total{result=\"refused\"} 1"),
        "{page}"
    );
    // Moving is no second decision.
    let second = "prefixway_decisions_total{endpoint=\"127.0.0.1:8001\"} 1";
    assert!(page.contains(second), "{page}");
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_the_rules_is_ended_with_a_reason() {
    let publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    let (ups, mut downs) = watch(running.grpc(), proto::Subscribe::default()).await;
    let again = up::Kind::Subscribe(proto::Subscribe::default());
    ups.send(proto::Up {
        seq: 1,
        kind: Some(again),
    })
    .await
    .unwrap();
    let status = loop {
        if let Err(status) = downs.message().await {
            break status;
        }
    };
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    eventually("the stream is gone", async || {
        (get_json(running.http(), "/api/v1/index").await["gateways"] == 0).then_some(())
    })
    .await;
    // At shutdown, streams end with a reason too.
    let (_ups, mut downs) = watch(running.grpc(), proto::Subscribe::default()).await;
    running.shut_down().await.unwrap();
    let status = loop {
        match downs.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
}
