//! Events on the wire, faults and restarts of whole engines.

use std::time::Duration;

use prefixway_engine_sim::{Engine, EngineConfig, EventsConfig, Fault, Timing, start};
use serde_json::{Value as Json, json};
use tokio::time::timeout;
use zmq::{Context, Socket, SocketType};

use crate::client::{cached, config, engine, get, post, post_json, url};
use crate::msgpack::{self, Value};

const PATIENCE: Duration = Duration::from_secs(10);

/// A subscriber that binds, so that an engine connects to it as in the captures.
struct Subscriber {
    socket: Socket,
    endpoint: String,
}

impl Subscriber {
    fn new() -> Self {
        let socket = Context::new().socket(SocketType::SUB).unwrap();
        socket.set_subscribe(b"").unwrap();
        socket.set_rcvtimeo(10_000).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint = socket.get_last_endpoint().unwrap().unwrap();
        Self { socket, endpoint }
    }

    /// Gives topic, sequence number and payload of the next message.
    fn next(&self) -> (String, u64, Value) {
        let frames = self.socket.recv_multipart(0).unwrap();
        let [topic, sequence, payload] = frames.as_slice() else {
            panic!("{} frames", frames.len())
        };
        let sequence = u64::from_be_bytes(sequence.as_slice().try_into().unwrap());
        (
            String::from_utf8(topic.clone()).unwrap(),
            sequence,
            msgpack::decode(payload),
        )
    }

    /// Runs requests until the subscription has travelled; gives the sequence number of the last batch seen.
    async fn connect(&self, engine: &Engine) -> u64 {
        let mut number = 0;
        loop {
            ask(
                engine,
                &format!("warm up number {number}, in words enough for a whole block of sixteen"),
            )
            .await;
            number += 1;
            if self.socket.poll(zmq::POLLIN, 100).unwrap() > 0 {
                break;
            }
        }
        let mut last = self.next().1;
        while self.socket.poll(zmq::POLLIN, 50).unwrap() > 0 {
            last = self.next().1;
        }
        last
    }
}

async fn ask(engine: &Engine, content: &str) -> Json {
    let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 2});
    post_json(engine, "/v1/chat/completions", &body).await
}

fn replay(engine: &Engine, from: u64) -> Vec<u64> {
    let dealer = Context::new().socket(SocketType::DEALER).unwrap();
    dealer.set_rcvtimeo(10_000).unwrap();
    dealer.set_linger(0).unwrap();
    dealer.connect(&engine.replay_endpoint().unwrap()).unwrap();
    dealer
        .send_multipart([&b""[..], &from.to_be_bytes()], 0)
        .unwrap();
    let sequences = std::iter::repeat_with(|| {
        let frames = dealer.recv_multipart(0).unwrap();
        assert_eq!(frames.len(), 4);
        u64::from_be_bytes(frames[2].as_slice().try_into().unwrap())
    });
    sequences
        .take_while(|&sequence| sequence != u64::MAX)
        .collect()
}

fn connecting(subscriber: &Subscriber) -> EngineConfig {
    EngineConfig {
        events: Some(EventsConfig {
            endpoint: subscriber.endpoint.clone(),
            topic: "kv@e@model".to_owned(),
            ..EventsConfig::default()
        }),
        ..config("e")
    }
}

#[tokio::test]
async fn a_lost_batch_leaves_a_gap_that_a_replay_fills() {
    let subscriber = Subscriber::new();
    let engine = start(connecting(&subscriber)).await.unwrap();
    let last = subscriber.connect(&engine).await;
    engine.lose_batches(1);
    ask(
        &engine,
        "this one gets lost on its way, although it fills a block or two of the cache",
    )
    .await;
    ask(
        &engine,
        "and this one arrives, with words enough to fill at least one block of the cache",
    )
    .await;
    let (topic, sequence, batch) = subscriber.next();
    assert_eq!((topic.as_str(), sequence), ("kv@e@model", last + 2));
    let event = &batch.array()[1].array()[0];
    assert_eq!(event.get("type").unwrap().text(), "BlockStored");
    assert_eq!(replay(&engine, last + 1), [last + 1, last + 2]);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_restarted_engine_has_an_empty_cache_and_counts_from_zero() {
    let subscriber = Subscriber::new();
    let engine = start(connecting(&subscriber)).await.unwrap();
    subscriber.connect(&engine).await;
    let question =
        "a question that was cached before the engine was restarted in the middle of the day";
    ask(&engine, question).await;
    assert!(cached(&ask(&engine, question).await) > 0);
    let (http, endpoint) = (engine.http_addr(), engine.events_endpoint());
    engine.restart().await.unwrap();
    assert_eq!(
        (engine.http_addr(), engine.events_endpoint()),
        (http, endpoint)
    );
    assert!(replay(&engine, 0).is_empty());
    assert_eq!(cached(&ask(&engine, question).await), 0);
    assert_eq!(replay(&engine, 0), [0]);
    engine.stop_publisher().await;
    ask(
        &engine,
        "a silent engine answers, but tells nobody about its blocks, many as they may be",
    )
    .await;
    engine.restart_publisher().await.unwrap();
    assert!(replay(&engine, 0).is_empty());
    assert!(
        cached(&ask(&engine, question).await) > 0,
        "only the publisher was restarted"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn faults_come_and_go() {
    let engine = engine("e").await;
    engine.inject(Fault::Status(503));
    let response = post(&engine, "/v1/completions", &json!({"prompt": "x"})).await;
    assert_eq!(
        (
            response.status().as_u16(),
            response.headers()["x-engine"].to_str().unwrap()
        ),
        (503, "e")
    );
    engine.inject(Fault::Hang);
    let health = tokio::spawn(reqwest::get(url(&engine, "/health")));
    engine.inject(Fault::Refuse);
    assert!(reqwest::get(url(&engine, "/health")).await.is_err());
    engine.inject(Fault::None);
    assert_eq!(get(&engine, "/health").await, "");
    // The one that hung was either answered or refused, but ended.
    timeout(PATIENCE, health).await.unwrap().unwrap().ok();
    engine.shutdown().await;
}

#[tokio::test]
async fn dropped_connections_break_streams_and_the_requests_behind_them() {
    let engine = start(EngineConfig {
        timing: Timing::default(),
        ..config("e")
    })
    .await
    .unwrap();
    let body = json!({"prompt": "x", "max_tokens": 3_000, "stream": true});
    let mut response = post(&engine, "/v1/completions", &body).await;
    assert!(response.chunk().await.unwrap().is_some());
    assert_eq!(engine.stats().running, 1);
    engine.drop_connections();
    let broken = async { while response.chunk().await.is_ok_and(|chunk| chunk.is_some()) {} };
    timeout(PATIENCE, broken).await.unwrap();
    let aborted = async {
        while engine.stats().running > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, aborted).await.unwrap();
    engine.shutdown().await;
}

#[tokio::test]
async fn a_stopped_engine_frees_its_addresses() {
    let first = engine("e").await;
    let again = EngineConfig {
        http: first.http_addr(),
        events: Some(EventsConfig {
            endpoint: first.events_endpoint().unwrap().replace("127.0.0.1", "*"),
            replay: first.replay_endpoint(),
            ..EventsConfig::default()
        }),
        ..config("e")
    };
    ask(&first, "hello").await;
    first.shutdown().await;
    let second = start(again).await.unwrap();
    ask(&second, "hello").await;
    second.shutdown().await;
}

#[tokio::test]
async fn many_engines_run_in_one_process_and_keep_apart() {
    let mut engines = Vec::new();
    for number in 0..8 {
        engines.push(engine(&format!("pod-{number}")).await);
    }
    let question =
        "the same question for everybody, long enough to fill at least one block of tokens";
    for engine in &engines {
        assert_eq!(cached(&ask(engine, question).await), 0);
    }
    for engine in engines {
        assert!(cached(&ask(&engine, question).await) > 0);
        engine.shutdown().await;
    }
}
