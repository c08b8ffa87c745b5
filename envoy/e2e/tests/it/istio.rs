//! The Istio resources of `deploy/istio`, put into a gateway as istiod would.

use std::net::SocketAddr;

use prefixway::demo::engines;
use prefixway::demo::envoy::Envoy;
use prefixway::demo::indexer::{self, Indexer};
use prefixway::demo::process::wait_for;
use prefixway_e2e::Recorder;
use prefixway_e2e::rig::{LIMIT, MODEL, WORKERS, binary, chat_body, envoy_binary, module, post};
use serde_json::{Value, json};

use crate::configuration::validate;
use crate::repository;

/// The cluster of the indexer as Istio names it.
const INDEXER: &str = "outbound|9701||prefixway-indexer.prefixway.svc.cluster.local";
/// The cluster of the engines.
const ENGINES: &str = "outbound|8000||vllm.models.svc.cluster.local";

/// Lays `patch` over `base`: objects key by key, lists appended, all else replaced, as Istio merges.
fn merge(base: &mut Value, patch: &Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(base), Value::Array(patch)) => base.extend(patch.iter().cloned()),
        (base, patch) => *base = patch.clone(),
    }
}

/// The resource of a kind in a file of `deploy/istio`.
fn resource(file: &str, kind: &str) -> Value {
    let text = std::fs::read_to_string(repository().join("deploy/istio").join(file)).unwrap();
    let documents = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    documents
        .into_iter()
        .find(|document| document["kind"] == kind)
        .unwrap()
}

/// Values of the patches of one kind, in order.
fn values(filter: &Value, applies_to: &str) -> Vec<Value> {
    let patches = filter["spec"]["configPatches"].as_array().unwrap().iter();
    let wanted = patches.filter(|patch| patch["applyTo"] == applies_to);
    wanted
        .map(|patch| patch["patch"]["value"].clone())
        .collect()
}

/// A static cluster at the given addresses.
fn cluster(name: &str, addresses: &[SocketAddr]) -> Value {
    let endpoint = |address: &SocketAddr| {
        json!({"endpoint": {"address": {"socket_address":
            {"address": address.ip().to_string(), "port_value": address.port()}}}})
    };
    let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
    json!({"name": name, "type": "STATIC", "load_assignment":
        {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}})
}

/// A gateway with the merged patches of `filter`, and `http_filters` before the router.
fn gateway(
    filter: &Value,
    http_filters: &[Value],
    pool: &[SocketAddr],
    indexer: SocketAddr,
) -> Value {
    let router = json!({"name": "envoy.filters.http.router", "typed_config":
        {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}});
    let http_filters: Vec<&Value> = http_filters.iter().chain([&router]).collect();
    let mut manager = json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway", "http_filters": http_filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": ENGINES}}]}]}}});
    let loopback = json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}});
    let mut listener = json!({"name": "gateway", "address": loopback});
    let mut engines = cluster(ENGINES, pool);
    for (base, kind) in [
        (&mut manager, "NETWORK_FILTER"),
        (&mut listener, "LISTENER"),
        (&mut engines, "CLUSTER"),
    ] {
        let patches = values(filter, kind);
        assert_eq!(patches.len(), 1, "{kind}");
        for patch in &patches {
            merge(base, patch);
        }
    }
    assert_eq!(listener["per_connection_buffer_limit_bytes"], 33_554_432);
    listener["filter_chains"] = json!([{"filters": [manager]}]);
    let mut indexer = cluster(INDEXER, &[indexer]);
    // What Istio does for a port named grpc-*.
    indexer["typed_extension_protocol_options"] = json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}}}});
    json!({"admin": {"address": loopback},
        "static_resources": {"listeners": [listener], "clusters": [engines, indexer]}})
}

#[test]
fn envoy_takes_the_patches_of_the_envoyfilter() {
    let filter = resource("envoyfilter.yaml", "EnvoyFilter");
    let mut extension = values(&filter, "EXTENSION_CONFIG").remove(0);
    // The proxy's agent replaces the remote source by the file that it fetched.
    extension["typed_config"]["config"]["vm_config"]["code"] =
        json!({"local": {"filename": module().unwrap()}});
    assert_eq!(
        values(&filter, "HTTP_FILTER")[0]["name"],
        extension["name"],
        "the inserted filter is the added extension"
    );
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 8_000));
    let gateway = gateway(&filter, &[extension], &[anywhere], anywhere);
    validate("envoyfilter.yaml", &format!("{gateway:#}"));
}

#[test]
fn both_ways_protect_and_balance_alike() {
    let filters = ["envoyfilter.yaml", "wasmplugin.yaml"].map(|file| resource(file, "EnvoyFilter"));
    for kind in ["NETWORK_FILTER", "LISTENER", "CLUSTER"] {
        let [envoyfilter, wasmplugin] = filters.each_ref().map(|filter| values(filter, kind));
        assert_eq!(envoyfilter, wasmplugin, "{kind}");
    }
}

/// The HTTP filter that istiod makes of a WasmPlugin: no `allow_on_headers_stop_iteration`, an empty `vm_id`.
fn plugin(resource: &Value) -> Value {
    let spec = &resource["spec"];
    json!({"name": "prefixway", "typed_config": {
    "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
    "config": {
        "name": "prefixway", "root_id": spec["pluginName"], "failure_policy": spec["failStrategy"],
        "configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue",
            "value": spec["pluginConfig"].to_string()},
        "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": module().unwrap()}}},
    }}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wasmplugin_steers_without_the_headers_flag() {
    let folder = tempfile::tempdir().unwrap();
    let model_dir = folder.path().join("model");
    engines::model(&model_dir).unwrap();
    let pool = [
        Recorder::start("a").await.unwrap(),
        Recorder::start("b").await.unwrap(),
    ];
    let addresses: Vec<_> = pool.iter().map(Recorder::address).collect();
    let sources = addresses.iter().map(|address| indexer::Source {
        address: *address,
        events: None,
        replay: None,
        prefill_tokens_per_s: 8_000.0,
    });
    let settings = indexer::Settings::on_free_ports(MODEL, &model_dir, sources.collect()).unwrap();

    let filter = resource("wasmplugin.yaml", "EnvoyFilter");
    let mut http_filters = vec![plugin(&resource("wasmplugin.yaml", "WasmPlugin"))];
    http_filters.extend(values(&filter, "HTTP_FILTER"));
    let gateway = gateway(&filter, &http_filters, &addresses, settings.grpc);
    let text = format!("{gateway:#}");
    let envoy = Envoy::start_with(&envoy_binary().unwrap(), folder.path(), &text, WORKERS)
        .await
        .unwrap();
    let http = reqwest::Client::new();
    let send = |number: usize| {
        let body = chat_body(&format!("system {number}"), &"word ".repeat(20_000));
        let spoofed = [
            ("x-gateway-destination-endpoint", "192.0.2.1:1"),
            ("x-data-parallel-rank", "7"),
        ];
        let (http, gateway) = (http.clone(), envoy.http());
        async move {
            post(&http, gateway, "/v1/chat/completions", &body, &spoofed)
                .await
                .unwrap()
        }
    };

    let before = send(0).await;
    assert_eq!(before.status, 200, "without an indexer the fallback picks");

    let indexer = Indexer::start(&binary(), folder.path(), &settings)
        .await
        .unwrap();
    let ready = wait_for("the snapshot", LIMIT, async || {
        let ready = envoy.stats("prefixway_ready_vms").await;
        ready
            .iter()
            .any(|(_, vms)| *vms > u64::from(WORKERS))
            .then_some(())
    });
    let waited = ready.await;
    assert!(
        waited.is_ok(),
        "{waited:?}: {:?}\n{}",
        envoy.stats("prefixway").await,
        envoy.log_tail()
    );
    for number in 0..20 {
        let answer = send(number).await;
        assert_eq!(
            answer.status,
            200,
            "request {number}: {answer:?}\n{}",
            envoy.log_tail()
        );
        let seen = |header: &str| {
            answer
                .body
                .pointer(&format!("/headers/{header}"))
                .and_then(Value::as_str)
        };
        let first = seen("x-gateway-destination-endpoint").and_then(|list| list.split(',').next());
        let named = addresses
            .iter()
            .position(|address| first == Some(&address.to_string()));
        assert_eq!(
            named.map(|place| ["a", "b"][place]),
            Some(answer.engine.as_str()),
            "{:?}",
            answer.body
        );
        assert_eq!(
            seen("x-data-parallel-rank"),
            None,
            "nothing stands for an absent rank"
        );
    }
    // Headers have gone on when a body turns out bad; the answer still comes.
    let long = "a".repeat(17 << 20);
    for (body, status, code) in [
        ("{\"model\":", 400, "body_invalid"),
        ("{\"model\":\"huge\"}", 404, "model_not_found"),
        (long.as_str(), 413, "body_too_large"),
    ] {
        let request = http.post(format!("http://{}/v1/chat/completions", envoy.http()));
        let request = request.header("content-type", "application/json");
        let answer = request.body(body.to_owned()).send().await.unwrap();
        assert_eq!(answer.status(), status);
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    indexer.kill().await;
    envoy.stop().await;
}
