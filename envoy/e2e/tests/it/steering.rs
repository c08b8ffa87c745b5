//! Requests go to the endpoint that holds their prefix.

use std::collections::{BTreeMap, BTreeSet};

use prefixway_e2e::rig::chat_body;
use prefixway_e2e::{Pool, Rig};

use crate::system_prompt;

const CHAT: &str = "/v1/chat/completions";
/// Prompt groups of a test.
const GROUPS: usize = 24;

#[tokio::test(flavor = "multi_thread")]
async fn the_second_request_of_a_prefix_goes_to_the_first_ones_engine() {
    let rig = Rig::start(Pool::Binding(4), "on").await.unwrap();
    let mut first = BTreeMap::new();
    for group in 0..GROUPS {
        let answer = rig.chat(&system_prompt(group), "hello").await.unwrap();
        assert_eq!(
            answer.cached_tokens(),
            0,
            "group {group} shares nothing yet"
        );
        first.insert(group, answer.engine);
    }
    rig.settle().await.unwrap();
    for round in ["and then?", "what else?"] {
        for (group, engine) in &first {
            let answer = rig.chat(&system_prompt(*group), round).await.unwrap();
            assert_eq!(&answer.engine, engine, "group {group}");
            assert!(
                answer.cached_tokens() > 300,
                "group {group} had {} tokens cached",
                answer.cached_tokens()
            );
        }
    }
    let used: BTreeSet<&String> = first.values().collect();
    assert!(
        used.len() > 1,
        "new prefixes are spread, but all went to {used:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_alone_tell_the_holder() {
    let rig = Rig::start(Pool::Binding(3), "on").await.unwrap();
    events_tell(&rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_may_connect_as_vllm_does_by_default() {
    let rig = Rig::start(Pool::Connecting(3), "on").await.unwrap();
    events_tell(&rig).await;
}

/// Fills each engine past the gateway, then asks through it.
async fn events_tell(rig: &Rig) {
    let engines = rig.engines.len();
    for group in 0..GROUPS {
        let body = chat_body(&system_prompt(group), "hello");
        rig.straight(group % engines, CHAT, &body).await.unwrap();
    }
    rig.settle().await.unwrap();
    for group in 0..GROUPS {
        let answer = rig.chat(&system_prompt(group), "and then?").await.unwrap();
        assert_eq!(
            answer.engine,
            format!("engine-{}", group % engines),
            "group {group}"
        );
        assert!(
            answer.cached_tokens() > 300,
            "group {group} had {} tokens cached",
            answer.cached_tokens()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_workers_serve_and_agree() {
    let rig = Rig::start(Pool::Binding(3), "on").await.unwrap();
    rig.straight(1, CHAT, &chat_body(&system_prompt(1), "hello"))
        .await
        .unwrap();
    rig.settle().await.unwrap();
    for turn in 0..40 {
        let answer = rig
            .chat(&system_prompt(1), &format!("turn {turn}"))
            .await
            .unwrap();
        assert_eq!(answer.engine, "engine-1");
    }
    let connections = rig.envoy.stats("downstream_cx_total").await;
    for worker in ["worker_0", "worker_1"] {
        let served = connections
            .iter()
            .find(|(name, _)| name.contains(worker) && !name.contains("admin"));
        assert!(
            served.is_some_and(|(_, total)| *total > 0),
            "{worker} served nothing: {connections:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_paths_pass_untouched_and_bad_bodies_are_answered() {
    let rig = Rig::start(Pool::Binding(2), "on").await.unwrap();
    let models = reqwest::get(format!("http://{}/v1/models", rig.envoy.http()))
        .await
        .unwrap();
    assert_eq!(models.status(), 200);
    let answer = rig
        .post("/v1/nothing", &chat_body("a", "b"), &[])
        .await
        .unwrap();
    assert_eq!(answer.status, 404, "the engine's own answer");
    let broken = reqwest::Client::new().post(format!("http://{}{CHAT}", rig.envoy.http()));
    let broken = broken
        .header("content-type", "application/json")
        .body("{\"model\": ")
        .send()
        .await
        .unwrap();
    assert_eq!(broken.status(), 400);
    assert_eq!(broken.headers().get("x-engine"), None, "no engine saw it");
    let answer: serde_json::Value = serde_json::from_slice(&broken.bytes().await.unwrap()).unwrap();
    assert_eq!(answer["error"]["code"], "body_invalid", "{answer}");
}
