//! Requests that carry token ids go to the endpoint that holds them.

use prefixway_e2e::rig::{Answer, MODEL};
use prefixway_e2e::{Pool, Rig};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/inference/v1/generate";
/// Prompts of a test.
const GROUPS: u32 = 12;
/// Tokens of a prompt.
const TOKENS: u32 = 512;

/// Ids that differ from every other group's from the first on.
fn ids(group: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .map(|i| 300 + (group * 71 + i * 7) % 1_000)
        .collect()
}

fn completion(ids: &[u32]) -> Value {
    json!({"model": MODEL, "prompt": ids, "max_tokens": 1, "temperature": 0})
}

/// The decision's reason, and the tokens that the best candidate is predicted to hold.
fn decision(answer: &Answer) -> (String, u32) {
    let header = answer
        .headers
        .iter()
        .find(|(name, _)| name == "x-prefixway-decision");
    let (_, why) = header.unwrap();
    let reason = why.split("; ").next().unwrap().to_owned();
    let cached = why.split(" cached=").nth(1).unwrap();
    let cached = cached.split(' ').next().unwrap().parse().unwrap();
    (reason, cached)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_token_ids_go_to_the_engine_that_holds_them() {
    let rig = Rig::start(Pool::Binding(3), "on").await.unwrap();
    for group in 0..GROUPS {
        let engine = group as usize % 3;
        let body = completion(&ids(group, TOKENS));
        rig.straight(engine, COMPLETIONS, &body).await.unwrap();
    }
    rig.settle().await.unwrap();
    for group in 0..GROUPS {
        let name = format!("engine-{}", group % 3);
        let longer = ids(group, TOKENS + 40);
        let answer = rig.post(COMPLETIONS, &completion(&longer), &[]).await;
        let answer = answer.unwrap().success().unwrap();
        assert_eq!(answer.engine, name, "group {group}");
        let (reason, predicted) = decision(&answer);
        assert_eq!(reason, "reason=prefix");
        assert_eq!(
            (u64::from(predicted), answer.cached_tokens()),
            (u64::from(TOKENS), u64::from(TOKENS)),
            "group {group}"
        );

        // The simulated engine has no such path, but says who was asked.
        let body =
            json!({"model": MODEL, "token_ids": longer, "sampling_params": {"max_tokens": 1}});
        let answer = rig.post(GENERATE, &body, &[]).await.unwrap();
        assert_eq!(answer.engine, name, "group {group}");
        let (reason, predicted) = decision(&answer);
        assert_eq!(reason, "reason=prefix");
        assert!(predicted >= TOKENS, "{predicted} tokens");
    }
}
