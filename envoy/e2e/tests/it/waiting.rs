//! Requests that wait while every engine is full, in real Envoy with two workers.

use std::time::{Duration, Instant};

use prefixway::demo::process::wait_for;
use prefixway_e2e::gateway::Gateway;
use prefixway_e2e::rig::{Answer, LIMIT, chat_body};
use serde_json::{Value, json};

use crate::system_prompt;

/// So many requests at once, each on a connection of its own, which take an engine this long.
async fn send(system: &Gateway, count: usize, takes_ms: u64) -> Vec<Answer> {
    let takes = takes_ms.to_string();
    let sent = (0..count).map(|number| {
        let takes = takes.as_str();
        async move {
            let body = chat_body(&system_prompt(number), "hello");
            system.chat(&body, &[("x-takes-ms", takes)]).await.unwrap()
        }
    });
    futures_util::future::join_all(sent).await
}

fn set(system: &Gateway, max_wait: &str) {
    system
        .change_policy(|policy| {
            policy["admission"] = json!({"max_in_flight": 1, "retry_after": "2s"});
            policy["flow_control"] = json!({"max_wait": max_wait});
        })
        .unwrap();
}

/// Waits until three requests for two engines end as `is_as_set` says.
async fn until(system: &Gateway, takes_ms: u64, is_as_set: impl Fn(&[Answer]) -> bool) {
    let set = wait_for("the policy", LIMIT, async || {
        system.pool.iter().for_each(|engine| {
            engine.take_most();
        });
        let answers = send(system, 3, takes_ms).await;
        is_as_set(&answers).then_some(())
    });
    set.await.unwrap();
    // Both workers know by now, or in a moment.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_never_get_more_than_they_take_and_whoever_waits_is_served_or_told() {
    let system = Gateway::start(2, &json!({}), |_| {}).await.unwrap();
    set(&system, "20s");
    until(&system, 100, |answers| {
        let engines = &system.pool;
        let is_kept = engines.iter().all(|engine| engine.take_most() == 1);
        is_kept && answers.iter().all(|answer| answer.status == 200)
    })
    .await;
    let start = Instant::now();
    let answers = send(&system, 60, 50).await;
    let time = start.elapsed();
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for engine in &system.pool {
        assert_eq!(engine.take_most(), 1);
    }
    // Thirty on each, one after the other, and a tick or two between them.
    assert!(time >= Duration::from_millis(1_500), "{time:?}");
    assert!(time < Duration::from_secs(10), "{time:?}");

    set(&system, "100ms");
    until(&system, 1_000, |answers| {
        answers.iter().any(|answer| answer.status == 429)
    })
    .await;
    let answers = send(&system, 4, 1_000).await;
    let refused: Vec<&Answer> = answers.iter().filter(|of| of.status == 429).collect();
    assert_eq!(refused.len(), 2, "{answers:?}");
    for answer in refused {
        let header = |name: &str| {
            let mut headers = answer.headers.iter();
            headers
                .find(|(of, _)| of == name)
                .map(|(_, value)| value.as_str())
        };
        let code = answer.body.pointer("/error/code").and_then(Value::as_str);
        assert_eq!(code, Some("queue_timeout"), "{answer:?}");
        assert_eq!(header("retry-after"), Some("2"));
        let reason = header("x-llm-d-request-dropped-reason");
        assert_eq!(reason, Some("rejected-ttl-expired"));
    }
    // Nothing is left behind.
    let empty = wait_for("empty gauges", LIMIT, async || {
        let waiting = system.envoy.stats("prefixway_waiting_requests").await;
        let in_flight = system.envoy.stats("prefixway_in_flight_requests").await;
        let mut gauges = waiting.iter().chain(&in_flight);
        gauges.all(|(_, value)| *value == 0).then_some(())
    });
    empty.await.unwrap();
    assert_eq!(send(&system, 1, 10).await[0].status, 200);
}
