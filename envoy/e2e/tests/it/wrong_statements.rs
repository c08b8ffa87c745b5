//! A configuration that says something of its Envoy that is not so: no request hangs, and it is said.

use prefixway::demo::process::wait_for;
use prefixway_e2e::gateway::{Gateway, manager, seen};
use prefixway_e2e::rig::{LIMIT, WORKERS, chat_body};
use serde_json::{Value, json};

const DESTINATION: &str = "x-gateway-destination-endpoint";

async fn stat(system: &Gateway, name: &str) -> u64 {
    let stats = system.envoy.stats(name).await;
    stats.iter().map(|(_, value)| value).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_that_can_not_hold_headers_is_found_out() {
    let system = Gateway::start(2, &json!({"hold_at": "headers"}), |envoy| {
        let filters = manager(envoy).unwrap()["http_filters"]
            .as_array_mut()
            .unwrap();
        let config = filters[0]["typed_config"]["config"]
            .as_object_mut()
            .unwrap();
        config.remove("allow_on_headers_stop_iteration").unwrap();
    })
    .await
    .unwrap();
    // More than one read, so that the end of the body is not there with its beginning.
    let body = chat_body("system", &"word ".repeat(40_000));
    let send = async || {
        let answer = system.chat(&body, &[]).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(seen(&answer, DESTINATION), None);
    };
    let found = wait_for("both workers to find out", LIMIT, async || {
        send().await;
        let wrong = stat(&system, "prefixway_wrong_hold_at_vms").await;
        (wrong == u64::from(WORKERS)).then_some(())
    });
    found.await.unwrap();
    let log = system.envoy.log_tail();
    assert!(log.contains("set allow_on_headers_stop_iteration"), "{log}");
    let timeouts = stat(&system, "prefixway_hold_timeouts_total").await;
    assert!(timeouts >= 2 * u64::from(WORKERS), "{timeouts}");
    for _ in 0..10 {
        send().await;
    }
    assert_eq!(
        stat(&system, "prefixway_hold_timeouts_total").await,
        timeouts
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_that_no_filter_takes_up_is_found_out() {
    let system = Gateway::start(4, &json!({"hold_at": "body"}), |_| {})
        .await
        .unwrap();
    let found = wait_for("the warning", LIMIT, async || {
        let body = chat_body("system", "hello");
        let answer = system.chat(&body, &[]).await.unwrap();
        assert_eq!(
            (answer.status, seen(&answer, DESTINATION)),
            (200, None::<&str>)
        );
        let disobeyed = stat(&system, "prefixway_disobeyed_requests_total").await;
        (disobeyed > 0 && system.envoy.log_tail().contains("override_host")).then_some(())
    });
    found.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_statement_is_not_complained_about() {
    let system = Gateway::start(2, &json!({}), |_| {}).await.unwrap();
    for number in 0..20 {
        let body: Value = chat_body(&format!("system {number}"), "hello");
        let answer = system.chat(&body, &[]).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(seen(&answer, DESTINATION).is_some());
    }
    for name in [
        "hold_timeouts_total",
        "wrong_hold_at_vms",
        "disobeyed_requests_total",
    ] {
        assert_eq!(
            stat(&system, &format!("prefixway_{name}")).await,
            0,
            "{name}"
        );
    }
}
