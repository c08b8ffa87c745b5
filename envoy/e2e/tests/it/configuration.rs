//! Real Envoy takes every configuration that the project ships.

use std::process::Command;

use prefixway::demo::envoy::{Balancing, Filter, Settings, render};
use prefixway_e2e::rig::{envoy_binary, module};
use serde_json::json;

/// Lets Envoy check a configuration without running it.
pub(crate) fn validate(name: &str, text: &str) {
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
