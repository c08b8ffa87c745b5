//! What the index claims, held against what replies say.

use std::net::SocketAddr;

use prefixway_core::proto::{self, up};
use serde_json::Value;

use crate::support::indexer::{Chain, Gateway, get, get_json, ready, settings, start};
use crate::support::publisher::Publisher;

/// A gateway that sends prompts of a chain to the first endpoint.
struct Loop {
    gateway: Gateway,
    http: SocketAddr,
    requests: u64,
}

impl Loop {
    /// Tells of a prompt and its reply, and waits until that is taken.
    async fn reply(&mut self, chain: &Chain, outcome: proto::Outcome) {
        self.requests += 1;
        let rungs = self.gateway.rungs(&chain.text);
        let claim = self.gateway.credits(&chain.text)[0];
        if !outcome.unsteered {
            let routed = proto::Routed {
                request: self.requests,
                rungs: rungs.into(),
                prompt_bytes: chain.text.len() as u64,
                predicted_cached_tokens: claim,
                estimated_prompt_tokens: 320,
                ..proto::Routed::default()
            };
            self.gateway.send(up::Kind::Routed(routed)).await;
        }
        let outcome = proto::Outcome {
            request: self.requests,
            predicted_cached_tokens: claim,
            indexed_cached_tokens: Some(claim),
            ..outcome
        };
        let seq = self.gateway.send(up::Kind::Outcome(outcome)).await;
        let taken = |gateway: &Gateway| (gateway.acked >= seq).then_some(());
        self.gateway.until("the outcome taken", taken).await;
    }

    async fn trust(&self) -> Value {
        let page = get_json(self.http, "/api/v1/endpoints").await;
        page["endpoints"][0]["trust"].clone()
    }

    fn told(&self) -> Option<f64> {
        self.gateway.endpoints.endpoints[0].prefix_trust
    }
}

fn cached(tokens: u32) -> proto::Outcome {
    proto::Outcome {
        cached_tokens: Some(tokens),
        prompt_tokens: Some(320),
        counts_cached: true,
        ..proto::Outcome::default()
    }
}

fn without_details() -> proto::Outcome {
    proto::Outcome {
        cached_tokens: None,
        ..cached(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_whose_index_proves_wrong_is_distrusted_until_it_proves_right() {
    let mut publisher = Publisher::bind_anywhere();
    let chain = Chain::new(1, 20);
    publisher.lose(&chain.stored(0, 20));
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway.holds(&chain, &[20]).await;
    let held = gateway.credits(&chain.text)[0];
    let mut closed_loop = Loop {
        gateway,
        http: running.http(),
        requests: 0,
    };

    // Replies that say nothing are no evidence, whatever they leave out.
    for _ in 0..20 {
        closed_loop.reply(&chain, proto::Outcome::default()).await;
    }
    let trust = closed_loop.trust().await;
    assert_eq!(
        (&trust["state"], &trust["evidence"]),
        (&"unproven".into(), &0.into())
    );
    let missing = trust["missing"].as_str().unwrap();
    assert!(missing.contains("include_usage"), "{missing}");
    for _ in 0..20 {
        closed_loop.reply(&chain, without_details()).await;
    }
    let trust = closed_loop.trust().await;
    assert_eq!(trust["state"], "unproven");
    let missing = trust["missing"].as_str().unwrap();
    assert!(
        missing.contains("--enable-prompt-tokens-details"),
        "{missing}"
    );

    // Right, then one outlier.
    for _ in 0..8 {
        closed_loop.reply(&chain, cached(held)).await;
    }
    closed_loop.reply(&chain, cached(0)).await;
    let trust = closed_loop.trust().await;
    assert_eq!(
        (&trust["state"], &trust["missing"]),
        (&"trusted".into(), &Value::Null)
    );
    assert_eq!(closed_loop.told(), None);

    // An engine that tells what was cached leaves it out where nothing was.
    for _ in 0..16 {
        closed_loop.reply(&chain, without_details()).await;
    }
    let told = |gateway: &Gateway| {
        gateway.endpoints.endpoints[0]
            .prefix_trust
            .filter(|share| *share < 0.01)
            .map(drop)
    };
    closed_loop.gateway.until("distrust told", told).await;
    let trust = closed_loop.trust().await;
    assert_eq!(
        (&trust["state"], &trust["share"]),
        (&"distrusted".into(), &0.0.into())
    );
    let page = get(running.http(), "/metrics").await.1;
    for line in [
        "prefixway_endpoint_trust{endpoint=\"127.0.0.1:8000\",state=\"distrusted\"} 1",
        "prefixway_replies_total{endpoint=\"127.0.0.1:8000\",kind=\"none_cached\"} 16",
        "prefixway_prefix_precision_ratio{endpoint=\"127.0.0.1:8000\"} ",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }

    // The index still knows; gateways that don't steer tell as well as those that do.
    for number in 0..8 {
        let outcome = proto::Outcome {
            unsteered: number % 2 == 0,
            ..cached(held)
        };
        closed_loop.reply(&chain, outcome).await;
    }
    let told = |gateway: &Gateway| {
        let endpoint = &gateway.endpoints.endpoints[0];
        endpoint.prefix_trust.is_none().then_some(())
    };
    closed_loop.gateway.until("trust told", told).await;
    let trust = closed_loop.trust().await;
    assert_eq!(
        (&trust["state"], &trust["share"]),
        (&"trusted".into(), &1.0.into())
    );
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_only_expected_is_no_claim_and_another_endpoint_no_evidence() {
    let publisher = Publisher::bind_anywhere();
    let other = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher, &other])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    let mut closed_loop = Loop {
        gateway,
        http: running.http(),
        requests: 0,
    };
    let chain = Chain::new(1, 20);
    // The first decision makes the table expect the prompt there; the engine computes it again all the same.
    for number in 0..20 {
        closed_loop
            .reply(&chain, cached(if number == 0 { 16 } else { 0 }))
            .await;
        if number == 0 {
            let expected = |gateway: &Gateway| {
                let credits = gateway.credits(&chain.text);
                (credits.first() > Some(&200)).then_some(())
            };
            closed_loop.gateway.until("the expectation", expected).await;
        }
    }
    for _ in 0..20 {
        let elsewhere = proto::Outcome {
            endpoint: 1,
            ..cached(0)
        };
        closed_loop.reply(&chain, elsewhere).await;
    }
    let trust = closed_loop.trust().await;
    assert_eq!(
        (&trust["state"], &trust["evidence"]),
        (&"unproven".into(), &0.into())
    );
    assert_eq!(trust["with_cached_tokens"], 20);
    running.shut_down().await.unwrap();
}
