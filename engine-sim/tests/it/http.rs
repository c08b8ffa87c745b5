//! The HTTP surface.

use prefixway_engine_sim::EngineConfig;
use prefixway_engine_sim::start;
use prefixway_engine_sim::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};

use crate::capture::{self, ids};
use crate::client::{cached, config, engine, get, post, post_json, stream, url};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn chat(content: &str) -> Json {
    json!({
        "model": "model", "max_tokens": 20, "messages": [{"role": "user", "content": content}], "return_token_ids": true, "return_prompt_text": true,
    })
}

fn with(mut body: Json, key: &str, value: Json) -> Json {
    body[key] = value;
    body
}

#[tokio::test]
async fn a_chat_reply_tells_prompt_usage_and_engine() {
    let engine = engine("pod-a").await;
    let body = chat("a question long enough for more than one block of sixteen tokens, surely");
    let response = post(&engine, CHAT, &body).await;
    assert_eq!(response.headers()["x-engine"], "pod-a");
    let reply: Json = response.json().await.unwrap();
    let tokenizer = Tokenizer::from_model_dir(&config("x").model_dir).unwrap();
    let prompt = tokenizer
        .encode(reply["prompt_text"].as_str().unwrap(), false)
        .unwrap();
    assert_eq!(ids(&reply["prompt_token_ids"]), prompt);
    let choice = &reply["choices"][0];
    let text = tokenizer.decode(&ids(&choice["token_ids"])).unwrap();
    assert_eq!(choice["message"]["content"], json!(text));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(reply["usage"]["prompt_tokens"], json!(prompt.len()));
    assert_eq!(reply["usage"]["completion_tokens"], 20);
    assert_eq!(cached(&reply), 0);
    let again = post_json(&engine, CHAT, &body).await;
    assert_eq!(cached(&again), (prompt.len() as u64 - 1) / 16 * 16);
    assert_eq!(again["choices"], reply["choices"]);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_streamed_reply_holds_the_same_text() {
    let engine = engine("e").await;
    for path in [CHAT, COMPLETIONS] {
        let base = with(with(chat("x"), "prompt", json!("x y z")), "n", json!(2));
        let whole = post_json(&engine, path, &base).await;
        let streamed = with(
            with(base, "stream", json!(true)),
            "stream_options",
            json!({"include_usage": true}),
        );
        let mut chunks = stream(&engine, path, &streamed).await;
        let usage = chunks.pop().unwrap();
        assert_eq!(usage["usage"]["completion_tokens"], 40);
        assert_eq!(
            usage["usage"]["prompt_tokens"],
            whole["usage"]["prompt_tokens"]
        );
        assert_eq!(usage["choices"], json!([]));
        for index in 0..2 {
            let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
            let choices: Vec<&Json> = choices.filter(|choice| choice["index"] == index).collect();
            let piece = |choice: &&Json| {
                choice["delta"]["content"]
                    .as_str()
                    .or(choice["text"].as_str())
                    .unwrap_or_default()
                    .to_owned()
            };
            let text: String = choices.iter().map(piece).collect();
            let expected = &whole["choices"][index];
            assert_eq!(
                Some(text.as_str()),
                expected["message"]["content"]
                    .as_str()
                    .or(expected["text"].as_str())
            );
            let tokens: Vec<u32> = choices
                .iter()
                .flat_map(|choice| {
                    choice["token_ids"]
                        .as_array()
                        .map(|_| ids(&choice["token_ids"]))
                        .unwrap_or_default()
                })
                .collect();
            assert_eq!(tokens, ids(&expected["token_ids"]));
            assert_eq!(choices.last().unwrap()["finish_reason"], "length");
        }
        let first = &chunks[0];
        let prompt = if path == CHAT {
            &first["prompt_token_ids"]
        } else {
            &first["choices"][0]["prompt_token_ids"]
        };
        assert!(!ids(prompt).is_empty());
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn each_completion_prompt_is_a_request_of_its_own() {
    let engine = engine("e").await;
    let body = |prompt: Json| json!({"prompt": prompt, "max_tokens": 3, "return_token_ids": true});
    let by_text = post_json(&engine, COMPLETIONS, &body(json!(["one", "two"]))).await;
    let prompts: Vec<Vec<u32>> = (0..2)
        .map(|index| ids(&by_text["choices"][index]["prompt_token_ids"]))
        .collect();
    let by_ids = post_json(&engine, COMPLETIONS, &body(json!(prompts))).await;
    for index in 0..2 {
        assert_eq!(
            by_ids["choices"][index]["prompt_token_ids"],
            json!(prompts[index])
        );
    }
    let total = prompts.iter().map(Vec::len).sum::<usize>();
    assert_eq!(by_ids["usage"]["prompt_tokens"], json!(total));
    assert_eq!(engine.stats().finished, 4);
    engine.shutdown().await;
}

#[tokio::test]
async fn adapters_and_salts_share_nothing() {
    let engine = start(EngineConfig {
        adapters: vec!["lora-a".to_owned()],
        ..config("e")
    })
    .await
    .unwrap();
    let body = chat("the same words again and again, to fill more than a single block of tokens");
    let variants = [
        body.clone(),
        with(body.clone(), "model", json!("lora-a")),
        with(body.clone(), "cache_salt", json!("s")),
        with(
            with(body, "model", json!("lora-a")),
            "cache_salt",
            json!("s"),
        ),
    ];
    for expected_hit in [false, true] {
        for variant in &variants {
            let reply = post_json(&engine, CHAT, variant).await;
            assert_eq!(cached(&reply) > 0, expected_hit);
            assert_eq!(reply["model"], variant["model"]);
        }
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn refused_requests_say_why() {
    let engine = engine("e").await;
    let cases = [
        (
            with(chat("x"), "model", json!("y")),
            404,
            "The model `y` does not exist.",
        ),
        (
            with(chat("x"), "max_tokens", json!(5_000)),
            400,
            "This model's maximum context length is 4096 tokens",
        ),
        (
            with(chat("x"), "max_tokens", json!(0)),
            400,
            "max_tokens is out of range",
        ),
        (with(chat("x"), "n", json!(65)), 400, "n is out of range"),
        (
            with(chat("x"), "cache_salt", json!("")),
            400,
            "cache_salt is out of range",
        ),
        (
            with(chat("x"), "messages", json!([{"content": "x"}])),
            400,
            "message 0 is not supported",
        ),
        (json!([]), 400, "invalid type"),
    ];
    for (body, status, text) in cases {
        let response = post(&engine, CHAT, &body).await;
        assert_eq!(response.status(), status);
        let error: Json = response.json().await.unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(text), "{message}");
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn facts_are_served_as_vllm_serves_them() {
    let engine = engine("e").await;
    let json =
        async |path: &str| -> Json { serde_json::from_str(&get(&engine, path).await).unwrap() };
    assert_eq!(json("/version").await, json!({"version": "0.32.0"}));
    assert_eq!(json("/v1/models").await["data"][0]["id"], "model");
    let sources = json("/kv_event_sources").await;
    assert_eq!(sources["0"]["endpoint"], json!(engine.events_endpoint()));
    assert_eq!(
        sources["0"]["replay_endpoint"],
        json!(engine.replay_endpoint())
    );
    assert_eq!(get(&engine, "/health").await, "");
    let tokenized = json!({"messages": [{"role": "user", "content": "hello render"}], "return_token_strs": true});
    let tokenized = post_json(&engine, "/tokenize", &tokenized).await;
    // The answer of the captured server.
    let captured = [
        2046, 307, 260, 198, 256, 75, 279, 265, 77, 67, 260, 2047, 198, 2046, 64, 1063, 1516, 198,
    ];
    assert_eq!(tokenized["tokens"], json!(captured));
    assert_eq!(tokenized["token_strs"][3], "Ċ");
    assert_eq!(tokenized["count"], 18);
    post_json(&engine, CHAT, &chat("count me")).await;
    let metrics = get(&engine, "/metrics").await;
    assert!(
        metrics.contains("vllm:generation_tokens_total{engine=\"0\",model_name=\"model\"} 20.0"),
        "{metrics}"
    );
    assert!(
        metrics.contains(
            "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"model\"} 1.0"
        )
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn whole_replies_report_the_load_where_asked_for() {
    let engine = engine("e").await;
    let header = async |format: &str, stream: bool, path: &str| {
        let body = json!({"prompt": "a b", "max_tokens": 1, "stream": stream});
        let request = reqwest::Client::new()
            .post(url(&engine, path))
            .header("endpoint-load-metrics-format", format)
            .json(&body);
        let response = request.send().await.unwrap();
        response
            .headers()
            .get("endpoint-load-metrics")
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let path = "/v1/completions";
    let text = "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=";
    let told = header("TEXT", false, path).await.unwrap();
    assert!(told.starts_with(text), "{told}");
    for format in ["JSON", "json", "Json"] {
        let told = header(format, false, path).await.unwrap();
        assert!(told.starts_with("JSON {\"named_metrics\": {"), "{told}");
    }
    assert_eq!(header("BIN", false, path).await, None);
    assert_eq!(header("JSON", true, path).await, None, "no stream has it");
    assert_eq!(header("JSON", false, "/tokenize").await, None);
    assert_eq!(
        header("JSON", false, "/v1/chat/completions").await,
        None,
        "an error"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn what_was_cached_is_told_only_where_something_was() {
    let engine = engine("e").await;
    let body = json!({"prompt": "word ".repeat(80), "max_tokens": 1});
    let details = async || {
        let reply = post_json(&engine, "/v1/completions", &body).await;
        reply["usage"]["prompt_tokens_details"].clone()
    };
    assert_eq!(details().await, json!(null));
    assert!(details().await["cached_tokens"].as_u64() > Some(0));
    engine.forget_cache().await;
    assert_eq!(details().await, json!(null), "and no event tells of it");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_captured_session_over_http_gives_the_captured_replies() {
    let engine = engine("e").await;
    let mut compared = 0;
    for line in capture::lines("tinybpe", "requests.jsonl") {
        if line["kind"] == "reset_prefix_cache" {
            assert_eq!(
                post_json(&engine, "/reset_prefix_cache", &json!({})).await,
                json!({"success": true})
            );
            continue;
        }
        let mut body = line["body"].clone();
        body["vllm_xargs"]["forced_token_ids"] = line["output_token_ids"].clone();
        body["return_prompt_text"] = json!(true);
        let reply = post_json(&engine, line["path"].as_str().unwrap(), &body).await;
        let choice = &reply["choices"][0];
        assert_eq!(
            choice["token_ids"], line["output_token_ids"],
            "request {}",
            line["i"]
        );
        if line["path"] == CHAT {
            assert_eq!(
                reply["prompt_token_ids"], line["prompt_token_ids"],
                "request {}",
                line["i"]
            );
            assert_eq!(
                reply["prompt_text"], line["rendered"],
                "request {}",
                line["i"]
            );
        } else {
            assert_eq!(
                choice["prompt_token_ids"], line["prompt_token_ids"],
                "request {}",
                line["i"]
            );
        }
        if line["concurrent"] == false {
            assert_eq!(
                json!(cached(&reply)),
                line["cached_tokens"],
                "request {}",
                line["i"]
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 153);
    engine.shutdown().await;
}
