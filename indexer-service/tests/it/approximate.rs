//! Engines without events: known by what was decided alone.

use std::path::Path;

use prefixway_core::hash::Scope;
use prefixway_core::proto::{self, up};
use prefixway_core::snapshot::PromptHashes;
use prefixway_core::text::{Api, LocalTime, PromptProfile, Prompter, parse};
use prefixway_engine_sim::{Engine, EngineConfig, Timing};
use serde_json::{Value, json};

use crate::support::engines::tinybpe;
use crate::support::eventually;
use crate::support::indexer::{Gateway, get, get_json, start};

/// Tokens that an engine here has room for.
const CACHE_TOKENS: u32 = 16 * 200;

async fn engine(folder: &Path, address: &str) -> Engine {
    let config = EngineConfig {
        http: address.parse().unwrap(),
        served_names: vec!["tiny".to_owned()],
        num_blocks: CACHE_TOKENS / 16,
        max_model_len: 2_048,
        events: None,
        timing: Timing::instant(),
        ..EngineConfig::new("engine", folder)
    };
    prefixway_engine_sim::start(config).await.unwrap()
}

fn settings(folder: &Path, engines: &[&Engine]) -> String {
    let endpoints: Vec<String> = engines
        .iter()
        .map(|engine| format!("{{address: '{}', model: tiny}}", engine.http_addr()))
        .collect();
    format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nseed: 0x5eed\n\
         scrape: {{interval: 20ms, idle_interval: 50ms}}\n\
         models: [{{id: tiny, names: [tiny], model_dir: '{}'}}]\nendpoints: [{}]",
        folder.display(),
        endpoints.join(", ")
    )
}

/// Words that are others for each seed.
fn words(seed: u64, count: u64) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "cloud", "lamp", "seven", "green", "window", "paper", "quiet", "engine",
        "north", "salt", "copper", "garden", "letter", "winter",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::new();
    for _ in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text.push_str(WORDS[(state >> 60) as usize]);
        text.push(' ');
    }
    text
}

fn chat(messages: &[(&str, &str)]) -> Value {
    let messages: Vec<Value> = messages
        .iter()
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect();
    json!({"model": "tiny", "messages": messages, "max_tokens": 1})
}

/// A gateway that reports what it does as the filter does.
struct Router {
    gateway: Gateway,
    requests: u64,
}

/// What came of a request.
#[derive(Debug)]
struct Answered {
    predicted: u32,
    cached: u32,
    prompt_tokens: u32,
}

impl Router {
    fn hashes(&self, body: &Value) -> PromptHashes {
        let model = &self.gateway.policy.models[0];
        let profile: PromptProfile = serde_json::from_slice(&model.prompt_profile).unwrap();
        let prompter = Prompter::try_new(profile).unwrap();
        let body = body.to_string();
        let request = parse(Api::Chat, body.as_bytes()).unwrap();
        let now = LocalTime::from_date(2026, 1, 1);
        let prompt = prompter.prompt(&request, now).unwrap();
        let seed = self.gateway.replica.seed().unwrap();
        let scope = Scope {
            space: prompt.space,
            profile: &model.id,
            revision: model.revision,
            adapter: "",
            salt: "",
        };
        PromptHashes::new(scope.hash(seed), &prompt.text, seed, usize::MAX)
    }

    /// Sends a chat to an engine and tells the indexer of it; waits until that is taken.
    async fn send(&mut self, body: &Value, endpoint: u32, engine: &Engine) -> Answered {
        let hashes = self.hashes(body);
        let predicted = self.gateway.held(&hashes)[endpoint as usize];
        let learned = self.gateway.policy.models[0].bytes_per_token;
        let per_100_tokens = (1..2_000u64)
            .find(|&bytes| bytes as f64 >= 100.0 * learned)
            .filter(|_| learned > 0.0)
            .unwrap_or(400);
        self.requests += 1;
        let rungs: Vec<u8> = hashes
            .rungs
            .iter()
            .flat_map(|rung| rung.hash.to_le_bytes())
            .collect();
        let routed = proto::Routed {
            request: self.requests,
            endpoint,
            rungs: rungs.into(),
            prompt_bytes: hashes.bytes,
            estimated_prompt_tokens: u32::try_from(100 * hashes.bytes / per_100_tokens).unwrap(),
            ..proto::Routed::default()
        };
        self.gateway.send(up::Kind::Routed(routed)).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client
            .post(format!("http://{}/v1/chat/completions", engine.http_addr()))
            .json(body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        let usage = &answer["usage"];
        let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let answered = Answered {
            predicted,
            // Left out where nothing was cached.
            cached: usage["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .map_or(0, |cached| u32::try_from(cached).unwrap()),
            prompt_tokens: number(&usage["prompt_tokens"]),
        };
        let outcome = proto::Outcome {
            request: self.requests,
            endpoint,
            predicted_cached_tokens: predicted,
            cached_tokens: Some(answered.cached),
            prompt_tokens: Some(answered.prompt_tokens),
            ..proto::Outcome::default()
        };
        let seq = self.gateway.send(up::Kind::Outcome(outcome)).await;
        let taken = |gateway: &Gateway| (gateway.acked >= seq).then_some(());
        self.gateway.until("the outcome taken", taken).await;
        answered
    }

    /// Waits until what the endpoints hold of a chat is as wanted.
    async fn held(&mut self, body: &Value, what: &str, is_it: impl Fn(&[u32]) -> bool) -> Vec<u32> {
        let hashes = self.hashes(body);
        let held = |gateway: &Gateway| Some(gateway.held(&hashes)).filter(|held| is_it(held));
        self.gateway.until(what, held).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_goes_back_to_its_engine_until_the_engine_has_forgotten_it() {
    let folder = tinybpe(None);
    let engines = [
        engine(folder.path(), "127.0.0.1:0").await,
        engine(folder.path(), "127.0.0.1:0").await,
    ];
    let running = start(&settings(folder.path(), &[&engines[0], &engines[1]])).await;
    eventually("the size of the caches", async || {
        let page = get_json(running.http(), "/api/v1/endpoints").await;
        let is_known = |i: usize| {
            let endpoint = &page["endpoints"][i];
            endpoint["cache_tokens"] == CACHE_TOKENS && endpoint["knowledge"] == "approximate"
        };
        (is_known(0) && is_known(1)).then_some(())
    })
    .await;
    let mut router = Router {
        gateway: Gateway::connect(running.grpc(), "a").await,
        requests: 0,
    };
    router
        .gateway
        .until("a base and block sizes", |gateway| {
            let endpoints = &gateway.endpoints.endpoints;
            let is_known = endpoints.len() == 2 && endpoints.iter().all(|e| e.block_size == 16);
            (gateway.bases == 1 && !gateway.policy.models.is_empty() && is_known).then_some(())
        })
        .await;

    // The first turn goes to the second engine, the next one must follow.
    let system = words(1, 250);
    let first = chat(&[("system", &system), ("user", "What do the words say?")]);
    let answered = router.send(&first, 1, &engines[1]).await;
    assert_eq!((answered.predicted, answered.cached), (0, 0));
    let whole = answered.prompt_tokens;
    let near = |held: &[u32]| held[0] == 0 && held[1].abs_diff(whole) <= 32;
    router.held(&first, "credit of the first turn", near).await;
    let second = chat(&[
        ("system", &system),
        ("user", "What do the words say?"),
        ("assistant", "Nothing at all."),
        ("user", "Are you sure of that?"),
    ]);
    let held = router
        .held(&second, "credit of the next turn", |held| held[1] > 0)
        .await;
    assert_eq!(
        held.iter().enumerate().max_by_key(|held| held.1).unwrap().0,
        1
    );
    let answered = router.send(&second, 1, &engines[1]).await;
    assert!(answered.cached > 200, "{answered:?}");
    assert!(
        answered.predicted.abs_diff(answered.cached) <= 32,
        "{answered:?}"
    );

    // What replies say is learned, so that other prompts are estimated well too.
    router
        .gateway
        .until("learned bytes per token", |gateway| {
            let learned = gateway.policy.models[0].bytes_per_token;
            (learned > 1.0 && (learned - 4.0).abs() > 0.05).then_some(())
        })
        .await;

    // Others fill the engine's cache, and the conversation is dropped there and here.
    let mut sent = 0;
    for seed in 10.. {
        let other = chat(&[("user", &words(seed, 250))]);
        sent += router.send(&other, 1, &engines[1]).await.prompt_tokens;
        if sent > CACHE_TOKENS {
            break;
        }
    }
    router
        .held(&second, "no credit any more", |held| held == [0, 0])
        .await;
    let answered = router.send(&second, 1, &engines[1]).await;
    assert_eq!((answered.predicted, answered.cached), (0, 0));
    let page = get_json(running.http(), "/api/v1/endpoints").await;
    let decisions = &page["endpoints"][1]["decisions"];
    assert!(decisions["used_tokens"].as_u64().unwrap() <= u64::from(CACHE_TOKENS));
    assert_eq!(decisions["capacity_tokens"], CACHE_TOKENS);
    assert!(decisions["evicted_rungs"].as_u64().unwrap() > 0);
    assert!(page["endpoints"][0]["decisions"].is_null());
    let models = get_json(running.http(), "/api/v1/models").await;
    let model = &models["models"][0];
    assert_eq!(model["knowledge"], "approximate");
    assert_eq!(model["endpoints"]["approximate"], 2);
    let (_, page) = get(running.http(), "/metrics").await;
    let line = "prefixway_model_knowledge{model=\"tiny\",state=\"approximate\"} 2";
    assert!(page.lines().any(|found| found == line), "{page}");

    // An engine that has started anew holds nothing, and nothing is claimed.
    router
        .held(&second, "credit again", |held| held[1] > 200)
        .await;
    let [_idle, second_engine] = engines;
    let address = second_engine.http_addr().to_string();
    second_engine.shutdown().await;
    let _restarted = engine(folder.path(), &address).await;
    router
        .held(&second, "no credit of a new engine", |held| held == [0, 0])
        .await;
    running.shut_down().await.unwrap();
}
