//! Real Envoy takes every configuration that the project ships.

use std::process::Command;

use prefixway::demo::envoy::{Balancing, Filter, INDEXER, Settings, render};
use prefixway_e2e::rig::{envoy_binary, module};
use serde_json::{Value, json};

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
        indexers: vec![(INDEXER.to_owned(), "127.0.0.1:9701".parse().unwrap())],
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

#[test]
fn a_body_has_as_much_room_over_http_2_as_over_http_1() {
    let settings = Settings {
        balancing: filter(),
        engines: vec!["127.0.0.1:8000".parse().unwrap()],
        concurrency: 1,
    };
    let any = "127.0.0.1:0".parse().unwrap();
    let text = render(&settings, any, any).unwrap();
    let envoy: Value = serde_saphyr::from_str(&text).unwrap();
    let listener = &envoy["static_resources"]["listeners"][0];
    let manager = &listener["filter_chains"][0]["filters"][0]["typed_config"];
    let room = listener["per_connection_buffer_limit_bytes"].as_u64();
    let window = &manager["http2_protocol_options"]["initial_stream_window_size"];
    assert!(room > Some(16 << 20), "what the filter reads: {room:?}");
    assert_eq!(window.as_u64(), room);
}
