//! Questions about the index.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::engines::{self, engine, tinybpe};
use crate::support::eventually;
use crate::support::indexer::{Chain, Gateway, get, get_json, post, ready, settings, start};
use crate::support::publisher::Publisher;

/// Two endpoints that share the beginning of a chain; the first holds the rest of it in host memory.
async fn serving(chain: &Chain, publishers: &mut [Publisher; 2]) -> prefixway::serve::Running {
    publishers[0].lose(&chain.stored(0, 20));
    publishers[0].lose(&chain.stored_in("cpu", 20, 30));
    publishers[1].lose(&chain.stored(0, 10));
    let running = start(&settings(&[&publishers[0], &publishers[1]])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    gateway.holds(chain, &[30, 10]).await;
    running
}

fn completion(prompt: impl Into<Value>) -> String {
    json!({"model": "tiny", "prompt": prompt.into(), "add_special_tokens": false}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_prefix_is_told_for_a_text_and_for_token_ids() {
    let chain = Chain::new(1, 30);
    let mut publishers = [Publisher::bind_anywhere(), Publisher::bind_anywhere()];
    let running = serving(&chain, &mut publishers).await;
    let path = "/api/v1/prefix/v1/completions";
    let (status, by_ids) = post(running.http(), path, completion(chain.tokens.clone())).await;
    assert_eq!(status, 200, "{by_ids}");
    assert_eq!(by_ids["prompt_tokens"], chain.tokens.len());
    assert_eq!(by_ids["prompt_bytes"], chain.text.len());
    assert_eq!(by_ids["matched_tokens"], chain.credit(30));
    let [first, second] = [0, 1].map(|i| &by_ids["endpoints"][i]);
    assert_eq!(first["address"], "127.0.0.1:8000");
    assert_eq!(first["knowledge"], "precise");
    assert_eq!(first["tokens"], chain.credit(30));
    let tiers = json!({"gpu": chain.credit(20), "cpu": chain.credit(30), "disk": 0});
    assert_eq!(first["tiers"], tiers);
    assert_eq!(second["tokens"], chain.credit(10));

    // Its tokens cut characters apart; up to the first such cut it is a text.
    let cut = std::str::from_utf8(&chain.text).unwrap_err().valid_up_to();
    let text = std::str::from_utf8(&chain.text[..cut]).unwrap();
    let (status, by_text) = post(running.http(), path, completion(text)).await;
    assert_eq!(status, 200, "{by_text}");
    assert_eq!(by_text["prompt_bytes"], cut);
    assert_eq!(by_text["prompt_tokens"], Value::Null);
    assert_eq!(by_text["matched_bytes"], cut - cut % 64);
    let tokens = [0, 1].map(|i| by_text["endpoints"][i]["tokens"].as_u64().unwrap());
    assert!(tokens[0] > 0 && tokens[0] == tokens[1], "{by_text}");

    for (path, body, status, hint) in [
        (
            "/api/v1/prefix/v1/nonsense",
            completion("x"),
            404,
            "/api/v1/prefix/v1/chat/completions",
        ),
        (path, "{".to_owned(), 400, ""),
        (
            path,
            completion("x").replace("tiny", "other"),
            404,
            "/api/v1/models",
        ),
        (path, completion(json!(["a", "b"])), 422, "one prompt"),
        (path, " ".repeat((16 << 20) + 1), 413, ""),
    ] {
        let (found, answer) = post(running.http(), path, body).await;
        assert_eq!(found, status, "{answer}");
        assert!(answer["error"].is_string(), "{answer}");
        let told = answer["hint"].as_str().unwrap_or_default();
        assert!(told.contains(hint), "{answer}");
    }
    let (_, page) = get(running.http(), "/metrics").await;
    assert!(page.contains("prefixway_queries_total{result=\"ok\"}"));
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_prefix_is_told_for_a_chat_as_its_engine_spells_it() {
    let folder = tinybpe(None);
    let engine = engine(folder.path()).await;
    let running = start(&engines::settings(folder.path(), "", &[&engine])).await;
    let question = "Which of the lamps in the garden is green, and why is the letter on the table?";
    let chat = |model: &str| {
        json!({"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 1})
            .to_string()
    };
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/v1/chat/completions", engine.http_addr());
    let answer = client.post(url).body(chat("model")).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let prompt_tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    eventually("what the engine holds", async || {
        let path = "/api/v1/prefix/v1/chat/completions";
        let (status, answer) = post(running.http(), path, chat("tiny")).await;
        assert_eq!(status, 200, "{answer}");
        let tokens = answer["endpoints"][0]["tokens"].as_u64().unwrap();
        (tokens > 0 && tokens.abs_diff(prompt_tokens) < 32).then_some(())
    })
    .await;
    running.shut_down().await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routers_that_ask_as_mooncake_s_do_are_answered() {
    let chain = Chain::new(1, 30);
    let mut publishers = [Publisher::bind_anywhere(), Publisher::bind_anywhere()];
    let running = serving(&chain, &mut publishers).await;
    let question = json!({"model": "tiny", "token_ids": chain.tokens, "block_size": 16});
    let (status, answer) = post(running.http(), "/api/v1/query", question.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    let (all, gpu, other) = (chain.credit(30), chain.credit(20), chain.credit(10));
    let first =
        json!({"longest_matched": all, "GPU": gpu, "DP": {"0": all}, "CPU": all, "DISK": 0});
    let second =
        json!({"longest_matched": other, "GPU": other, "DP": {"0": other}, "CPU": 0, "DISK": 0});
    let expected = json!({"default": {"127.0.0.1:8000": first, "127.0.0.1:8001": second}});
    assert_eq!(answer, expected);
    let question = json!({
        "model": "tiny", "token_ids": chain.tokens, "block_size": 64, "tenant_id": "t",
        "instance_id": "127.0.0.1:8001",
    });
    let (_, answer) = post(running.http(), "/api/v1/query", question.to_string()).await;
    let whole = other - other % 64;
    assert_eq!(answer["t"]["127.0.0.1:8001"]["longest_matched"], whole);
    assert_eq!(answer["t"].as_object().unwrap().len(), 1);
    let (status, answer) = post(running.http(), "/api/v1/query", "{}").await;
    assert_eq!(status, 400);
    assert!(answer["hint"].as_str().unwrap().contains("token_ids"));
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_prefixes_and_sizes_are_told_without_any_text() {
    let chain = Chain::new(1, 30);
    let mut publishers = [Publisher::bind_anywhere(), Publisher::bind_anywhere()];
    let running = serving(&chain, &mut publishers).await;
    let page = get_json(running.http(), "/api/v1/shared").await;
    let prefixes = page["prefixes"].as_array().unwrap();
    // Once for each space that is published.
    assert!((1..=2).contains(&prefixes.len()), "{page}");
    let is_text = |prefix: &&Value| prefix["tokens"] == chain.credit(10);
    let shared = prefixes.iter().find(is_text).unwrap();
    assert_eq!(
        shared["endpoints"],
        json!(["127.0.0.1:8000", "127.0.0.1:8001"])
    );
    assert_eq!(shared["models"], json!(["tiny"]));
    assert!(shared["bytes"].as_u64().unwrap() > 64);
    let page = get_json(running.http(), "/api/v1/shared?min_holders=1&limit=1").await;
    assert_eq!(page["prefixes"].as_array().unwrap().len(), 1);
    assert_eq!(
        get(running.http(), "/api/v1/shared?limit=1000").await.0,
        400
    );

    let index = get_json(running.http(), "/api/v1/index").await;
    assert_eq!(index["blocks"], 40);
    assert_eq!(index["sources"][0]["blocks"], 30);
    assert_eq!(index["sources"][1]["blocks"], 10);
    assert_eq!(index["sources"][1]["is_partial"], false);
    assert!(index["sources"][0]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(index["models"]["tiny"]["endpoints"], 2);
    assert_eq!(index["models"]["tiny"]["blocks"], 40);
    assert_eq!(index["evicted_blocks"], 0);
    running.shut_down().await.unwrap();
}

async fn is_answered(stream: &TcpStream) -> bool {
    let mut first = [0u8];
    let peek = stream.peek(&mut first);
    tokio::time::timeout(Duration::from_millis(1), peek)
        .await
        .is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_questions_at_once_are_turned_away() {
    let publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    // Bodies that don't end: four hold a place, and the others are turned away at once.
    let mut streams = Vec::new();
    for _ in 0..12 {
        let mut stream = TcpStream::connect(running.http()).await.unwrap();
        stream
            .write_all(b"POST /api/v1/query HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{")
            .await
            .unwrap();
        streams.push(stream);
    }
    eventually("eight turned away", async || {
        let mut answered = 0;
        for stream in &streams {
            answered += usize::from(is_answered(stream).await);
        }
        (answered == 8).then_some(())
    })
    .await;
    let (status, answer) = post(running.http(), "/api/v1/query", "{}").await;
    assert_eq!(status, 503);
    assert_eq!(answer["hint"], "ask again in a second");
    // Others don't wait for them.
    assert_eq!(get(running.http(), "/healthz").await.0, 200);
    let mut statuses = Vec::new();
    for mut stream in streams {
        if !is_answered(&stream).await {
            stream.write_all(b"         ").await.unwrap();
        }
        let mut answer = [0u8; 12];
        stream.read_exact(&mut answer).await.unwrap();
        statuses.push(String::from_utf8(answer[9..].to_vec()).unwrap());
    }
    statuses.sort();
    assert_eq!(statuses[..4], ["400"; 4]);
    assert_eq!(statuses[4..], ["503"; 8]);
    eventually("room again", async || {
        let (status, _) = post(running.http(), "/api/v1/query", "{}").await;
        (status == 400).then_some(())
    })
    .await;
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_questions_neither_stops_events_nor_goes_unanswered() {
    let mut publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let mut gateway = Gateway::connect(running.grpc(), "a").await;
    let chain = Chain::new(7, 60);
    let question =
        json!({"model": "tiny", "token_ids": chain.tokens, "block_size": 16}).to_string();
    let http = running.http();
    let flood: Vec<_> = (0..60)
        .map(|i| {
            let question = question.clone();
            tokio::spawn(async move {
                if i % 3 == 0 {
                    get(http, "/api/v1/shared").await.0
                } else {
                    post(http, "/api/v1/query", question).await.0
                }
            })
        })
        .collect();
    for block in 0..60 {
        publisher.publish(&chain.stored(block, block + 1));
    }
    gateway.holds(&chain, &[60]).await;
    let mut answered = 0;
    for question in flood {
        match question.await.unwrap() {
            200 => answered += 1,
            status => assert_eq!(status, 503),
        }
    }
    assert!(answered > 0);
    let (status, answer) = post(http, "/api/v1/query", question).await;
    assert_eq!(status, 200);
    assert_eq!(answer["default"]["127.0.0.1:8000"]["GPU"], chain.credit(60));
    running.shut_down().await.unwrap();
}
