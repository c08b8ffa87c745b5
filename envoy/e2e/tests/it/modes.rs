//! Modes by route and policy, experiments, access logs and the engine's load, in real Envoy.

use std::collections::BTreeSet;

use prefixway::demo::process::wait_for;
use prefixway_e2e::gateway::{Gateway, manager, seen};
use prefixway_e2e::rig::{Answer, LIMIT, chat_body};
use serde_json::{Value, json};

use crate::repository;

const DESTINATION: &str = "x-gateway-destination-endpoint";

fn is_steered(answer: &Answer) -> bool {
    assert_eq!(answer.status, 200, "{answer:?}");
    seen(answer, DESTINATION).is_some()
}

fn is_decided(answer: &Answer) -> bool {
    let mut headers = answer.headers.iter();
    headers.any(|(name, _)| name == "x-prefixway-decision")
}

/// A route for requests that name it in a header, with a mode in its metadata.
fn route(name: &str, mode: Option<&str>) -> Value {
    let mut route = json!({
        "name": name,
        "match": {"prefix": "/", "headers": [{"name": "x-route", "string_match": {"exact": name}}]},
        "route": {"cluster": "engines", "timeout": "0s"},
    });
    if let Some(mode) = mode {
        route["metadata"] = json!({"filter_metadata": {"prefixway": {"mode": mode}}});
    }
    route
}

/// Puts routes before the one for everything, which gets a name, and the access log of `envoy/access_log.yaml`.
fn change(envoy: &mut Value, log: &std::path::Path) {
    let manager = manager(envoy).unwrap();
    let routes = manager
        .pointer_mut("/route_config/virtual_hosts/0/routes")
        .and_then(Value::as_array_mut)
        .unwrap();
    routes[0]["name"] = "rest".into();
    routes.insert(0, route("quiet", Some("off")));
    routes.insert(0, route("watched", Some("shadow")));
    routes.insert(0, route("free", None));
    let text = std::fs::read_to_string(repository().join("envoy/access_log.yaml")).unwrap();
    let mut access_log: Value = serde_saphyr::from_str(&text).unwrap();
    access_log[0]["typed_config"]["path"] = json!(log);
    manager["access_log"] = access_log;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_and_policy_set_the_mode_while_envoy_runs() {
    let log = tempfile::tempdir().unwrap();
    let file = log.path().join("access.log");
    let plugin = json!({"access_log": true});
    let system = Gateway::start(3, &plugin, |envoy| change(envoy, &file))
        .await
        .unwrap();
    let body = chat_body("system", "hello");
    let send = async |route: &str| system.chat(&body, &[("x-route", route)]).await.unwrap();

    for (route, steered, decided) in [
        ("", true, true),
        ("free", true, true),
        ("watched", false, true),
        ("quiet", false, false),
    ] {
        let answer = send(route).await;
        assert_eq!(is_steered(&answer), steered, "{route}");
        assert_eq!(is_decided(&answer), decided, "{route}");
        assert_eq!(seen(&answer, "endpoint-load-metrics-format"), None);
    }
    let unknown = json!({"model": "nobody", "messages": []});
    assert_eq!(system.chat(&unknown, &[]).await.unwrap().status, 404);

    // By the policy, for one route, while Envoy runs; and the engines are asked for their load.
    system
        .change_policy(|policy| {
            policy["routes"] = json!([{"route": "free", "mode": "off"}]);
            policy["orca"] = true.into();
        })
        .unwrap();
    let changed = wait_for("the policy", LIMIT, async || {
        let answers = [send("free").await, send("free").await, send("free").await];
        (!answers.iter().any(is_decided)).then_some(())
    });
    changed.await.unwrap();
    let asked = wait_for("the other worker", LIMIT, async || {
        let answers = [send("").await, send("").await, send("").await];
        let asked = |answer| seen(answer, "endpoint-load-metrics-format") == Some("JSON");
        (answers.iter().all(is_steered) && answers.iter().all(asked)).then_some(())
    });
    asked.await.unwrap();

    // A file that changes more than the policy changes nothing.
    system
        .change_policy(|policy| policy["mode"] = "sideways".into())
        .unwrap();
    let refused = wait_for("the refusal", LIMIT, async || {
        let reloads = system
            .indexer
            .metric("prefixway_config_reloads_total", "failed");
        reloads.await.filter(|refused| *refused >= 1.0).map(drop)
    });
    refused.await.unwrap();
    assert!(is_steered(&send("").await));

    let lines = wait_for("the access log", LIMIT, async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        (lines.len() >= 5).then_some(lines)
    });
    let lines = lines.await.unwrap();
    let fields = |place: usize| {
        ["route", "mode", "reason"].map(|key| lines[place][key].as_str().unwrap_or("-").to_owned())
    };
    assert_eq!(fields(0)[..2], ["rest", "on"]);
    assert_eq!(lines[0]["endpoint"], lines[0]["served_by"], "{}", lines[0]);
    // From the recorder's usage, at the end of its answer.
    assert_eq!(lines[0]["prompt_tokens"], "9", "{}", lines[0]);
    assert_eq!(lines[0]["cached_tokens"], "8", "{}", lines[0]);
    assert_eq!(lines[3]["cached_tokens"], Value::Null, "{}", lines[3]);
    assert_eq!(fields(2)[..2], ["watched", "shadow"]);
    assert_eq!(fields(3), ["quiet", "-", "-"]);
    assert_eq!(fields(4), ["rest", "-", "unknown_model"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_experiment_keeps_sessions_together_and_counts_by_arm() {
    let system = Gateway::start(2, &json!({}), |_| {}).await.unwrap();
    system
        .change_policy(|policy| {
            policy["mode"] = "split".into();
            policy["split_percent"] = 50.into();
            policy["session_header"] = "X-Session".into();
        })
        .unwrap();
    let body = chat_body("system", "hello");
    let send = async |session: &str| {
        let answer = system.chat(&body, &[("x-session", session)]).await.unwrap();
        is_steered(&answer)
    };
    let split = wait_for("the experiment", LIMIT, async || {
        let arms = [
            send("1").await,
            send("2").await,
            send("3").await,
            send("4").await,
        ];
        arms.contains(&false).then_some(())
    });
    split.await.unwrap();
    // Both workers know by now, or in a moment.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let mut arms = BTreeSet::new();
    for session in 0..20 {
        let session = session.to_string();
        let arm = send(&session).await;
        for _ in 0..3 {
            assert_eq!(send(&session).await, arm, "session {session}");
        }
        arms.insert(arm);
    }
    assert_eq!(arms.len(), 2);
    let stats = format!("http://{}/stats/prometheus", system.envoy.admin());
    let text = reqwest::get(stats).await.unwrap().text().await.unwrap();
    for arm in ["steered", "control"] {
        let line = format!("prefixway_split_requests_total{{arm=\"{arm}\"}} ");
        let count = text.lines().find_map(|text| text.strip_prefix(&line));
        let count: u64 = count
            .unwrap_or_else(|| panic!("{line} in {text}"))
            .parse()
            .unwrap();
        assert!(count > 0, "{arm}");
    }
}
