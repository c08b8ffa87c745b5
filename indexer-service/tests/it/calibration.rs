//! Profiles held against simulated engines.

use std::net::SocketAddr;

use prefixway::serve::Running;
use prefixway_core::text::{Api, Dialect, LocalTime, PromptProfile, Prompter, parse};
use serde_json::{Value, json};

use crate::support::engines::{
    complete, engine, engine_at, open_engine, sentence_pieces, settings, tinybpe,
};
use crate::support::eventually;
use crate::support::indexer::{Gateway, get, get_json, start};

const OTHER_TEMPLATE: &str =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";
/// Long enough for several blocks of any tokenizer here.
const PROMPT: &str = "The cache holds a block of every prefix and request that reads its first token, and waits for one engine to answer.";

/// The model's entry of the API, once its calibration is that.
async fn model(running: &Running, calibration: &str) -> Value {
    eventually(calibration, async || {
        let page = get_json(running.http(), "/api/v1/models").await;
        let model = page["models"][0].clone();
        (model["calibration"] == calibration).then_some(model)
    })
    .await
}

async fn metric(address: SocketAddr, line: &str) -> bool {
    let (_, page) = get(address, "/metrics").await;
    page.lines().any(|found| found.starts_with(line))
}

fn profile(gateway: &Gateway) -> PromptProfile {
    serde_json::from_slice(&gateway.policy.models[0].prompt_profile).unwrap()
}

/// Canonical text of a completion prompt by the profile that the gateway has.
fn canonical(gateway: &Gateway) -> Vec<u8> {
    let prompter = Prompter::try_new(profile(gateway)).unwrap();
    let body = json!({"prompt": PROMPT}).to_string();
    let request = parse(Api::Completions, body.as_bytes()).unwrap();
    let now = LocalTime::from_date(2026, 1, 1);
    prompter.prompt(&request, now).unwrap().text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_agrees_makes_its_model_precise() {
    let folder = tinybpe(None);
    let engine = engine(folder.path()).await;
    let running = start(&settings(folder.path(), "", &[&engine])).await;
    let found = model(&running, "calibrated").await;
    assert_eq!(found["state"], "precise");
    assert_eq!(found["state_reason"], "");
    assert_eq!(found["assumes"], "the tokenizer class of transformers 5");
    let page = get_json(running.http(), "/api/v1/endpoints").await;
    let facts = &page["endpoints"][0]["engine"];
    assert_eq!(facts["calibration"], "fits");
    assert_eq!(facts["version"], "0.32.0");
    assert_eq!(facts["served_names"], json!(["model"]));
    assert_eq!(facts["max_model_len"], 4096);
    for line in [
        "prefixway_model_state{model=\"tiny\",state=\"precise\"} 1",
        "prefixway_model_state{model=\"tiny\",state=\"approximate\"} 0",
        "prefixway_calibrations_total{model=\"tiny\",result=\"fits\"} ",
        "prefixway_odd_endpoints{model=\"tiny\"} 0",
    ] {
        assert!(metric(running.http(), line).await, "{line}");
    }
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    complete(&engine, PROMPT).await;
    gateway
        .until("credit by events", |gateway| {
            let policy = gateway.policy.models.first()?;
            (policy.state == "precise" && gateway.credits(&canonical(gateway)) != [0]).then_some(())
        })
        .await;
    running.shut_down().await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_template_demotes_the_model_with_a_reason() {
    let (folder, other) = (tinybpe(None), tinybpe(Some(OTHER_TEMPLATE)));
    let engine = engine(other.path()).await;
    complete(&engine, PROMPT).await;
    let running =
        start(&(settings(folder.path(), "", &[&engine]) + "\nindex: {token_space: off}")).await;
    let found = model(&running, "differs").await;
    assert_eq!(found["state"], "approximate");
    let reason = found["state_reason"].as_str().unwrap();
    let engine_name = engine.http_addr().to_string();
    assert!(reason.starts_with(&engine_name), "{reason}");
    assert!(
        reason.contains("a chat with one message otherwise"),
        "{reason}"
    );
    assert!(reason.contains("[user]Hello"), "{reason}");
    let line = "prefixway_model_state{model=\"tiny\",state=\"approximate\"} 1";
    assert!(metric(running.http(), line).await);
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("policy", |gateway| gateway.policy.models.first().map(drop))
        .await;
    assert_eq!(profile(&gateway).dialect, Dialect::Outline);
    assert_eq!(gateway.policy.models[0].state, "approximate");
    // Its events are followed, but nothing of them is published as text.
    let stored = format!("prefixway_stored_blocks_total{{endpoint=\"{engine_name}\"}} ");
    eventually("blocks and no rungs", async || {
        let (_, page) = get(running.http(), "/metrics").await;
        let has_blocks = page
            .lines()
            .filter_map(|line| line.strip_prefix(&stored))
            .any(|count| count != "0");
        let index = get_json(running.http(), "/api/v1/index").await;
        (has_blocks && index["nodes"] != 0 && index["rungs"] == 0).then_some(())
    })
    .await;
    running.shut_down().await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_that_the_engine_shows_takes_the_folder_s_place() {
    let (folder, other) = (tinybpe(None), tinybpe(Some(OTHER_TEMPLATE)));
    let engine = open_engine(other.path()).await;
    let running = start(&settings(folder.path(), "", &[&engine])).await;
    let found = model(&running, "calibrated").await;
    assert_eq!(found["state"], "precise");
    assert_eq!(found["assumes"], "the chat template that the engine shows");
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("policy", |gateway| gateway.policy.models.first().map(drop))
        .await;
    assert_eq!(profile(&gateway).template.unwrap().source, OTHER_TEMPLATE);
    running.shut_down().await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_tells_which_reading_of_the_files_holds() {
    // The simulated engine takes tokenizer.json as it stands; the class in the configuration puts spaces otherwise.
    let folder = sentence_pieces("LlamaTokenizer");
    let engine = engine(folder.path()).await;
    let off = start(&settings(folder.path(), ", calibration: off", &[&engine])).await;
    let derived = model(&off, "off").await;
    assert_eq!(derived["state"], "precise");
    off.shut_down().await.unwrap();
    complete(&engine, PROMPT).await;
    let running = start(&settings(folder.path(), "", &[&engine])).await;
    let found = model(&running, "calibrated").await;
    assert_eq!(found["state"], "precise");
    assert_eq!(found["assumes"], "tokenizer.json as it stands");
    assert_ne!(found["revision"], derived["revision"]);
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    // Events that came before are indexed under the new reading too.
    gateway
        .until("credit by events", |gateway| {
            let policy = gateway.policy.models.first()?;
            let is_new = format!("{:016x}", policy.revision) == found["revision"].as_str()?;
            (is_new && gateway.credits(&canonical(gateway)) != [0]).then_some(())
        })
        .await;
    assert!(canonical(&gateway).starts_with(b"<s> The cache"));
    running.shut_down().await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_asked_when_it_comes_and_when_it_comes_back_as_another() {
    let (folder, other) = (tinybpe(None), tinybpe(Some(OTHER_TEMPLATE)));
    let first = engine(folder.path()).await;
    let address = first.http_addr().to_string();
    let settings = settings(folder.path(), "", &[&first]);
    first.shutdown().await;
    let running = start(&settings).await;
    let found = model(&running, "pending").await;
    assert_eq!(found["state"], "unknown");
    assert_eq!(
        found["state_reason"],
        "no engine has answered calibration yet"
    );
    let second = engine_at(folder.path(), &address).await;
    assert_eq!(model(&running, "calibrated").await["state"], "precise");
    second.shutdown().await;
    eventually("bad health", async || {
        let page = get_json(running.http(), "/api/v1/endpoints").await;
        (page["endpoints"][0]["healthy"] == false).then_some(())
    })
    .await;
    let third = engine_at(other.path(), &address).await;
    assert_eq!(model(&running, "differs").await["state"], "approximate");
    running.shut_down().await.unwrap();
    third.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_odd_engine_is_named_and_known_from_decisions_alone() {
    let (folder, other) = (tinybpe(None), tinybpe(Some(OTHER_TEMPLATE)));
    let (good, odd) = (engine(folder.path()).await, engine(other.path()).await);
    complete(&good, PROMPT).await;
    complete(&odd, PROMPT).await;
    let running = start(&settings(folder.path(), "", &[&odd, &good])).await;
    let found = model(&running, "calibrated").await;
    assert_eq!(found["state"], "precise");
    assert_eq!(found["odd_endpoints"], json!([odd.http_addr().to_string()]));
    let page = get_json(running.http(), "/api/v1/endpoints").await;
    let [first, second] = [0, 1].map(|i| &page["endpoints"][i]);
    assert_eq!(first["state"], "approximate");
    assert_eq!(first["knowledge"], "approximate");
    assert_eq!(first["engine"]["calibration"], "differs");
    assert!(first["engine"]["reason"].as_str().unwrap().contains("chat"));
    assert_ne!(second["state"], "approximate");
    assert!(metric(running.http(), "prefixway_odd_endpoints{model=\"tiny\"} 1").await);
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway
        .until("credit of the good engine", |gateway| {
            gateway.policy.models.first()?;
            let credits = gateway.credits(&canonical(gateway));
            matches!(credits.as_slice(), [0, credit] if *credit > 0).then_some(())
        })
        .await;
    running.shut_down().await.unwrap();
    good.shutdown().await;
    odd.shutdown().await;
}
