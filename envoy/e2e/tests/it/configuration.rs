//! Real Envoy takes every configuration that the project ships.

use std::path::Path;
use std::process::Command;

use prefixway::demo::envoy::{Balancing, Filter, Settings, render};
use prefixway_e2e::rig::{envoy_binary, module};
use serde_json::{Map, Value, json};

use crate::repository;

/// Lets Envoy check a configuration without running it.
fn validate(name: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(envoy_binary().unwrap());
    let output = command
        .args(["--mode", "validate", "--config-path"])
        .arg(&file)
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}:\n{text}\n{log}");
}

/// The plugin configuration of the local set-up.
fn filter() -> Balancing {
    Balancing::Prefixway(Filter {
        module: module().unwrap(),
        plugin: json!({"indexers": ["prefixway_indexer"]}),
        indexer: "127.0.0.1:9701".parse().unwrap(),
    })
}

#[test]
fn envoy_takes_the_local_configurations() {
    for balancing in [Balancing::RoundRobin, Balancing::LeastRequest, filter()] {
        let name = balancing.as_str();
        let settings = Settings {
            balancing,
            engines: vec![
                "127.0.0.1:8000".parse().unwrap(),
                "[::1]:8000".parse().unwrap(),
            ],
            concurrency: 1,
        };
        let any = "127.0.0.1:0".parse().unwrap();
        validate(name, &render(&settings, any, any).unwrap());
    }
}

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

/// Documents of a YAML file, each as JSON.
fn documents(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

/// The patches of the EnvoyFilter in `file` by what they apply to.
fn patches(file: &str) -> Map<String, Value> {
    let documents = documents(&repository().join(file));
    let filter = documents
        .iter()
        .find(|document| document["kind"] == "EnvoyFilter")
        .unwrap();
    let patches = filter["spec"]["configPatches"].as_array().unwrap();
    patches
        .iter()
        .map(|patch| {
            (
                patch["applyTo"].as_str().unwrap().to_owned(),
                patch["patch"]["value"].clone(),
            )
        })
        .collect()
}

/// A gateway as istiod would make it from the patches: `extension` stands where config discovery would put it.
fn gateway(patches: &Map<String, Value>, filters: &[Value]) -> Value {
    let router = json!({"name": "envoy.filters.http.router", "typed_config":
        {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}});
    let http_filters: Vec<&Value> = filters.iter().chain([&router]).collect();
    let endpoint = json!({"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 8000}}}});
    let cluster = |name: &str| {
        json!({"name": name, "type": "STATIC", "load_assignment":
            {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}})
    };
    let engines_name = "outbound|8000||vllm.models.svc.cluster.local";
    let mut engines = cluster(engines_name);
    merge(&mut engines, &patches["CLUSTER"]);
    let mut manager = json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway", "http_filters": http_filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": engines_name}}]}]}}});
    merge(&mut manager, &patches["NETWORK_FILTER"]);
    let mut listener = json!({"name": "gateway", "filter_chains": [{"filters": [manager]}],
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}});
    merge(&mut listener, &patches["LISTENER"]);
    json!({"static_resources": {"listeners": [listener], "clusters":
        [engines, cluster("outbound|9701||prefixway-indexer.prefixway.svc.cluster.local")]}})
}

#[test]
fn envoy_takes_the_patches_of_the_istio_envoyfilter() {
    let patches = patches("deploy/istio/envoyfilter.yaml");
    let mut extension = patches["EXTENSION_CONFIG"].clone();
    // The proxy's agent replaces the remote source by the file that it fetched.
    extension["typed_config"]["config"]["vm_config"]["code"] =
        json!({"local": {"filename": module().unwrap()}});
    assert_eq!(
        patches["HTTP_FILTER"]["name"], extension["name"],
        "the inserted filter is the added extension"
    );
    let gateway = gateway(&patches, &[extension]);
    assert_eq!(
        gateway["static_resources"]["listeners"][0]["per_connection_buffer_limit_bytes"],
        33_554_432
    );
    validate("envoyfilter.yaml", &format!("{gateway:#}"));
}
