//! The engines are split over two indexers.

use std::collections::BTreeSet;

use prefixway::demo::process::wait_for;
use prefixway_e2e::Sharded;
use prefixway_e2e::rig::{LIMIT, chat_body};

use crate::system_prompt;

const CHAT: &str = "/v1/chat/completions";

/// Fills each engine with a prompt of its own, past the gateway.
async fn fill(sharded: &Sharded, first_group: usize) {
    for engine in 0..sharded.engines.len() {
        let body = chat_body(&system_prompt(first_group + engine), "hello");
        sharded.straight(engine, CHAT, &body).await.unwrap();
    }
    sharded.settle().await.unwrap();
}

/// Asks for an engine's prompt through the gateway; whether the engine was asked, and had it.
async fn hits(sharded: &Sharded, group: usize, engine: usize) -> bool {
    let body = chat_body(&system_prompt(group), "and then?");
    let answer = sharded.post(CHAT, &body).await.unwrap();
    answer.engine == format!("engine-{engine}") && answer.cached_tokens() > 300
}

/// Engines that new prompts go to.
async fn spread(sharded: &Sharded, first_group: usize) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for group in first_group..first_group + 40 {
        let body = chat_body(&system_prompt(group), "hello");
        used.insert(sharded.post(CHAT, &body).await.unwrap().engine);
    }
    used
}

/// Prompts of the first indexer's engines are found, and the second's engines are used all the same.
async fn assert_known_by_the_first_only(sharded: &Sharded) {
    for engine in sharded.engines_of(0) {
        assert!(hits(sharded, engine, engine).await, "engine {engine}");
    }
    let used = spread(sharded, 100).await;
    let own = sharded.engines_of(1);
    assert!(
        own.iter()
            .any(|engine| used.contains(&format!("engine-{engine}"))),
        "none of {own:?} in {used:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_of_both_indexers_are_found_and_each_hears_of_its_own() {
    let sharded = Sharded::start(None).await.unwrap();
    sharded.gauge("prefixway_usable_shards", 2).await.unwrap();
    fill(&sharded, 0).await;
    for engine in 0..sharded.engines.len() {
        assert!(hits(&sharded, engine, engine).await, "engine {engine}");
    }
    for number in 0..2 {
        let engines = sharded.engines_of(number).len() as f64;
        wait_for("the indexer to hear of its decisions", LIMIT, async || {
            let heard = sharded.decisions(number).await?;
            assert!(heard <= engines, "{heard} decisions, {engines} engines");
            (heard >= engines).then_some(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexer_that_is_down_costs_only_the_prefixes_of_its_own_engines() {
    let mut sharded = Sharded::start(None).await.unwrap();
    fill(&sharded, 0).await;
    sharded.kill_indexer(1).await;
    sharded.gauge("prefixway_usable_shards", 1).await.unwrap();
    assert_known_by_the_first_only(&sharded).await;

    sharded.start_indexer(1).await.unwrap();
    sharded.gauge("prefixway_usable_shards", 2).await.unwrap();
    // Prompts that no gateway has seen: only the indexer can tell.
    fill(&sharded, 200).await;
    for engine in 0..sharded.engines.len() {
        assert!(
            hits(&sharded, 200 + engine, engine).await,
            "engine {engine}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexer_with_another_seed_is_refused_and_its_engines_are_used_by_load() {
    let sharded = Sharded::start(Some("0xbad")).await.unwrap();
    sharded.gauge("prefixway_refused_shards", 1).await.unwrap();
    sharded.gauge("prefixway_usable_shards", 1).await.unwrap();
    let log = sharded.envoy.log_tail();
    assert!(log.contains("indexer_west is refused"), "{log}");
    fill(&sharded, 0).await;
    assert_known_by_the_first_only(&sharded).await;
}
