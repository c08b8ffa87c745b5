//! An engine that does not hold what its events say.

use prefixway::demo::process::wait_for;
use prefixway_e2e::rig::{LIMIT, chat_body};
use prefixway_e2e::{Pool, Rig};
use serde_json::Value;

use crate::system_prompt;

const CHAT: &str = "/v1/chat/completions";
/// Prompts that one engine holds, or is said to hold.
const GROUPS: usize = 12;

async fn trust(rig: &Rig, engine: usize) -> Value {
    let http = rig.indexer.as_ref().unwrap().http();
    let page = reqwest::get(format!("http://{http}/api/v1/endpoints"));
    let page: Value = serde_json::from_slice(&page.await.unwrap().bytes().await.unwrap()).unwrap();
    let address = rig.engines[engine].http_addr().to_string();
    let mut endpoints = page["endpoints"].as_array().unwrap().iter();
    let endpoint = endpoints.find(|endpoint| endpoint["address"] == address.as_str());
    endpoint.unwrap()["trust"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_events_lie_loses_its_credit_and_gets_it_back() {
    let rig = Rig::start(Pool::Binding(2), "on").await.unwrap();
    for group in 0..GROUPS {
        let body = chat_body(&system_prompt(group), "hello");
        rig.straight(0, CHAT, &body).await.unwrap();
    }
    rig.settle().await.unwrap();
    for group in 0..GROUPS {
        let answer = rig.chat(&system_prompt(group), "and then?").await.unwrap();
        assert_eq!(answer.engine, "engine-0");
        assert!(answer.cached_tokens() > 300);
    }
    let told = wait_for("evidence", LIMIT, async || {
        let trust = trust(&rig, 0).await;
        (trust["state"] == "trusted" && trust["precision"].as_f64() > Some(0.9)).then_some(())
    });
    told.await.unwrap();

    // The cache is gone each time, and no event says so.
    let mut turn = 0;
    let distrusted = wait_for("distrust", LIMIT, async || {
        rig.engines[0].forget_cache().await;
        turn += 1;
        let group = turn % GROUPS;
        let answer = rig
            .chat(&system_prompt(group), &format!("turn {turn}"))
            .await;
        answer.unwrap();
        (trust(&rig, 0).await["state"] == "distrusted").then_some(())
    });
    distrusted.await.unwrap();
    // All workers obey: prompts that are said to be on the first engine follow the load, and stay where they go.
    rig.settle().await.unwrap();
    let other = chat_body(&system_prompt(0), "hello");
    rig.straight(1, CHAT, &other).await.unwrap();
    rig.settle().await.unwrap();
    let mut elsewhere = 0;
    for turn in 0..20 {
        let user = format!("late turn {turn}");
        let answer = rig.chat(&system_prompt(0), &user).await.unwrap();
        elsewhere += usize::from(answer.engine == "engine-1");
    }
    // A few decisions try out whether it is right again.
    assert!(elsewhere >= 16, "{elsewhere} of 20");

    // It caches again, and replies show it, though nobody has to go there.
    let mut turn = 0;
    let trusted = wait_for("trust", LIMIT, async || {
        turn += 1;
        let group = GROUPS + turn % 4;
        if turn <= 4 {
            let body = chat_body(&system_prompt(group), "hello");
            rig.straight(0, CHAT, &body).await.unwrap();
            rig.settle().await.unwrap();
        }
        let user = format!("turn {turn}");
        rig.chat(&system_prompt(group), &user).await.unwrap();
        (trust(&rig, 0).await["state"] == "trusted").then_some(())
    });
    trusted.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_says_which_engine_setting_is_missing() {
    let rig = Rig::with_engines(2, "on", |config| config.prompt_tokens_details = false)
        .await
        .unwrap();
    for turn in 0..4 {
        rig.chat(&system_prompt(turn), "hello").await.unwrap();
    }
    let missing = wait_for("what is missing", LIMIT, async || {
        let (one, two) = (trust(&rig, 0).await, trust(&rig, 1).await);
        let texts = [&one["missing"], &two["missing"]].map(|missing| missing.as_str());
        texts.into_iter().flatten().next().map(str::to_owned)
    });
    let missing = missing.await.unwrap();
    assert!(
        missing.contains("--enable-prompt-tokens-details"),
        "{missing}"
    );
}
