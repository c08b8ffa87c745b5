//! Profiles of the policy, in real Envoy.

use prefixway::demo::process::wait_for;
use prefixway_e2e::gateway::{Gateway, seen};
use prefixway_e2e::rig::{LIMIT, chat_body};
use serde_json::json;

const DESTINATION: &str = "x-gateway-destination-endpoint";

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_changes_where_requests_go_while_envoy_runs() {
    let system = Gateway::start(3, &json!({}), |_| {}).await.unwrap();
    let body = chat_body("system", "hello");
    let send = async || {
        let answer = system.chat(&body, &[]).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        seen(&answer, DESTINATION).unwrap_or_default().to_owned()
    };
    let all = send().await;
    let addresses: Vec<&str> = all.split(',').collect();
    assert_eq!(addresses.len(), 3, "best, second and third: {all}");
    for address in &addresses {
        system
            .change_policy(|policy| {
                policy["profiles"] = json!([{
                    "name": "own",
                    "filters": [{
                        "type": "expression",
                        "required": true,
                        "parameters": {"expression": format!("endpoint.address == '{address}'")},
                    }],
                }]);
            })
            .unwrap();
        let changed = wait_for("the expression in both workers", LIMIT, async || {
            let sent = [
                send().await,
                send().await,
                send().await,
                send().await,
                send().await,
            ];
            sent.iter().all(|to| to == address).then_some(())
        });
        changed.await.unwrap();
    }
    // What can't be used is refused whole, and the last good policy goes on.
    system
        .change_policy(|policy| {
            let filters = &mut policy["profiles"][0]["filters"];
            filters[0]["parameters"]["expression"] = "endpoint.colour == 'red'".into();
        })
        .unwrap();
    let refused = wait_for("the refusal", LIMIT, async || {
        let reloads = system
            .indexer
            .metric("prefixway_config_reloads_total", "failed");
        reloads.await.filter(|refused| *refused >= 1.0).map(drop)
    });
    refused.await.unwrap();
    assert_eq!(send().await, addresses[2]);
    // No profile: the default cost again.
    system
        .change_policy(|policy| policy["profiles"] = json!([]))
        .unwrap();
    let back = wait_for("the default", LIMIT, async || {
        (send().await.split(',').count() == 3).then_some(())
    });
    back.await.unwrap();
}
