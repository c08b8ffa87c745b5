//! The indexer may fail at any time: requests never do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prefixway::demo::process::wait_for;
use prefixway_e2e::rig::{LIMIT, chat_body, post};
use prefixway_e2e::{Pool, Rig};
use tokio::task::JoinSet;

use crate::system_prompt;

const CHAT: &str = "/v1/chat/completions";
/// Requests of the load, at least, in the middle of which the indexer is killed.
const LOAD: usize = 1_000;
/// Clients of that load.
const CLIENTS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn an_indexer_that_never_started_leaves_the_fallback() {
    let rig = Rig::without_indexer(Pool::Binding(3), "on").await.unwrap();
    let mut used = BTreeSet::new();
    for number in 0..40 {
        used.insert(
            rig.chat(&system_prompt(number), "hello")
                .await
                .unwrap()
                .engine,
        );
    }
    assert_eq!(used.len(), 3, "least request spreads over {used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexer_that_starts_late_is_taken_up() {
    let mut rig = Rig::without_indexer(Pool::Binding(3), "on").await.unwrap();
    rig.straight(2, CHAT, &chat_body(&system_prompt(0), "hello"))
        .await
        .unwrap();
    rig.start_indexer().await.unwrap();
    rig.settle().await.unwrap();
    for turn in 0..10 {
        let answer = rig
            .chat(&system_prompt(0), &format!("turn {turn}"))
            .await
            .unwrap();
        assert_eq!(
            answer.engine, "engine-2",
            "replay told what was stored before"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_indexer_costs_no_request_and_its_restart_brings_cached_routing_back() {
    let mut rig = Rig::start(Pool::Binding(4), "on").await.unwrap();
    let gateway = rig.envoy.http();
    let answered = Arc::new(AtomicUsize::new(0));
    // Clients go on until this many answers have come; the kill sets it to what is left.
    let goal = Arc::new(AtomicUsize::new(usize::MAX));
    let mut load = JoinSet::new();
    for client in 0..CLIENTS {
        let (answered, goal) = (Arc::clone(&answered), Arc::clone(&goal));
        load.spawn(async move {
            let http = reqwest::Client::new();
            let mut failures = Vec::new();
            let mut turn = 0;
            while answered.load(Ordering::SeqCst) < goal.load(Ordering::SeqCst) {
                let body = chat_body(&system_prompt(client), &format!("turn {turn}"));
                let answer = post(&http, gateway, CHAT, &body, &[]).await;
                if let Err(error) = answer.and_then(prefixway_e2e::rig::Answer::success) {
                    failures.push(format!("{error:#}"));
                }
                answered.fetch_add(1, Ordering::SeqCst);
                turn += 1;
            }
            failures
        });
    }
    let done = || answered.load(Ordering::SeqCst);
    wait_for("half of the load", LIMIT, async || {
        (done() >= LOAD / 2).then_some(())
    })
    .await
    .unwrap();
    rig.kill_indexer().await;
    goal.store(done() + LOAD / 2, Ordering::SeqCst);
    let failures: Vec<String> = load.join_all().await.into_iter().flatten().collect();
    assert_eq!(failures, Vec::<String>::new());

    rig.start_indexer().await.unwrap();
    // Prefixes that no gateway has seen: only a live indexer can tell where they are.
    for group in 100..112 {
        let body = chat_body(&system_prompt(group), "hello");
        rig.straight(group % 4, CHAT, &body).await.unwrap();
    }
    rig.settle().await.unwrap();
    for group in 100..112 {
        let answer = rig.chat(&system_prompt(group), "and then?").await.unwrap();
        assert_eq!(
            answer.engine,
            format!("engine-{}", group % 4),
            "group {group}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_engine_is_retried_on_the_next() {
    let mut rig = Rig::start(Pool::Binding(3), "on").await.unwrap();
    rig.straight(0, CHAT, &chat_body(&system_prompt(0), "hello"))
        .await
        .unwrap();
    rig.settle().await.unwrap();
    rig.engines.remove(0).shutdown().await;
    for turn in 0..20 {
        let answer = rig
            .chat(&system_prompt(0), &format!("turn {turn}"))
            .await
            .unwrap();
        assert_ne!(answer.engine, "engine-0");
    }
}
