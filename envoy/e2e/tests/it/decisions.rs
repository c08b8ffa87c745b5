//! Decisions in full, as the indexer's API shows them.

use prefixway::demo::process::wait_for;
use prefixway_e2e::rig::LIMIT;
use prefixway_e2e::{Pool, Rig};
use serde_json::Value;

use crate::system_prompt;

#[tokio::test(flavor = "multi_thread")]
async fn the_api_shows_why_requests_went_where_they_went() {
    let rig = Rig::start(Pool::Binding(2), "on").await.unwrap();
    rig.chat(&system_prompt(1), "hello").await.unwrap();
    rig.settle().await.unwrap();
    let http = rig.indexer.as_ref().unwrap().http();
    let page = async |query: &str| -> Value {
        let answer = reqwest::get(format!("http://{http}/api/v1/decisions{query}"));
        let bytes = answer.await.unwrap().bytes().await.unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    let told = wait_for("a decision by prefix", LIMIT, async || {
        rig.chat(&system_prompt(1), "and then?").await.unwrap();
        let page = page("?limit=5&model=tiny").await;
        let decisions = page["decisions"].as_array()?;
        assert!(decisions.len() <= 5);
        decisions
            .iter()
            .find(|decision| decision["reason"] == "prefix")
            .cloned()
    });
    let decision = told.await.unwrap();
    let best = &decision["candidates"][0];
    assert_eq!(decision["served_by"], best["address"], "{decision}");
    assert_eq!(
        (&decision["mode"], &decision["eligible"]),
        (&"on".into(), &2.into())
    );
    assert_eq!(
        (&best["tier"], &decision["failed"]),
        (&"gpu".into(), &false.into())
    );
    let cached = decision["cached_tokens"].as_u64().unwrap();
    let predicted = decision["predicted_cached_tokens"].as_u64().unwrap();
    assert!(
        cached > 300 && predicted.abs_diff(cached) <= 32,
        "{decision}"
    );
    let text = decision.to_string();
    assert!(
        !text.contains("guest") && !text.contains("and then"),
        "{text}"
    );

    let none = page("?endpoint=10.9.9.9:1").await;
    assert_eq!(none["decisions"], Value::Array(Vec::new()));
    let answer = reqwest::get(format!("http://{http}/api/v1/decisions?limit=0")).await;
    assert_eq!(answer.unwrap().status(), 400);
}
