//! Endpoints that are split over shards, and entries that stand for several.

use super::*;

#[test]
fn shards_split_the_endpoints_and_ranks_stay_together() {
    let mut text = "shards: [a, b, c]\nmodels: [{id: tiny, model_dir: m}]\nendpoints:\n".to_owned();
    for i in 1..=60 {
        for rank in [0, 1] {
            let line = format!("- {{address: '10.0.0.{i}:8000', rank: {rank}, model: tiny}}\n");
            text.push_str(&line);
        }
    }
    let mut owned = Vec::new();
    for shard in ["a", "b", "c"] {
        let overrides = Overrides {
            shard: Some(shard.to_owned()),
            ..Overrides::default()
        };
        let config = Config::parse(&text, Path::new(""), &overrides).unwrap();
        let own: Vec<String> = config
            .endpoints
            .iter()
            .map(|endpoint| endpoint.address.to_string())
            .collect();
        assert_eq!(own.len() + config.elsewhere.len(), 120);
        assert!((20..60).contains(&own.len()), "{shard} has {}", own.len());
        // Both ranks of each.
        assert!(own.chunks(2).all(|pair| pair[0] == pair[1]), "{own:?}");
        let described = config.describe();
        assert!(described.contains(&format!("it has {} of 120 endpoints", own.len())));
        let (other, name) = &config.elsewhere[0];
        assert!(
            described.contains(&format!("Shard {name:?} has {other}")),
            "{described}"
        );
        owned.extend(own);
    }
    owned.sort();
    owned.dedup();
    assert_eq!(owned.len(), 60);
    let message = error(&text);
    assert!(
        message.contains("shard: \"default\" is none of shards, allowed: a, b, c\n  hint: "),
        "{message}"
    );
    let message = error(&text.replace("[a, b, c]", "[default, a, a]"));
    assert!(
        message.contains("shards[2]: \"a\" is also shards[1]"),
        "{message}"
    );
}

#[test]
fn ranks_have_ports_that_follow_each_other() {
    let ranks = |line: &str| {
        with(
            "    model: tiny\n",
            &format!("    model: tiny\n    {line}\n"),
        )
    };
    let message = error(&ranks("ranks: 2"));
    let expected = "endpoints[0].ranks: \"2\" ranks' event ports run into their replay ports, allowed: two ranges\n  hint: ";
    assert!(message.contains(expected), "{message}");
    let far = ranks("ranks: 3").replace("5558", "5657");
    let config = parse(&far).unwrap();
    let found: Vec<_> = config
        .endpoints
        .iter()
        .map(|endpoint| {
            let events = endpoint.events.clone().unwrap();
            (endpoint.rank, events.publisher, events.replay)
        })
        .collect();
    let expected =
        [(0, 5557, 5657), (1, 5558, 5658), (2, 5559, 5659)].map(|(rank, events, replay)| {
            (
                Some(rank),
                Publisher::Connect(format!("tcp://127.0.0.1:{events}")),
                Some(format!("tcp://127.0.0.1:{replay}")),
            )
        });
    assert_eq!(found, expected);
    for (text, expected) in [
        (
            far.replace("ranks: 3", "ranks: 3\n    rank: 1"),
            "ranks: \"3\" is given besides rank",
        ),
        (
            far.replace("5657", "65534"),
            "ranks have ports that follow each other",
        ),
        (
            far.replace("tcp://127.0.0.1:5557", "ipc:///tmp/x"),
            "ranks have ports that follow each other",
        ),
        (
            ranks("ranks: 0"),
            "ranks: \"0\" is out of range, allowed: 1 to 256",
        ),
    ] {
        let message = error(&text);
        assert!(
            message.contains(expected),
            "expected {expected}\ngot {message}"
        );
    }
}

#[test]
fn the_deployed_example_splits_its_endpoints_over_its_pods() {
    let text = include_str!("../../../../deploy/shards/statefulset.yaml");
    let documents: Vec<serde_json::Value> = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let of_kind = |kind: &'static str| documents.iter().filter(move |of| of["kind"] == kind);
    let file = of_kind("ConfigMap").next().unwrap()["data"]["indexer.yaml"]
        .as_str()
        .unwrap();
    let set = of_kind("StatefulSet").next().unwrap();
    let name = set["metadata"]["name"].as_str().unwrap();
    let services: Vec<&str> = of_kind("Service")
        .map(|service| service["metadata"]["name"].as_str().unwrap())
        .collect();
    let replicas = set["spec"]["replicas"].as_u64().unwrap();
    let mut endpoints = 0;
    for pod in (0..replicas).map(|number| format!("{name}-{number}")) {
        assert!(services.contains(&pod.as_str()), "{pod} has no Service");
        let overrides = Overrides {
            shard: Some(pod),
            ..Overrides::default()
        };
        let config = Config::parse(file, Path::new(""), &overrides).unwrap();
        assert_eq!(config.shards.len() as u64, replicas);
        assert!(!config.endpoints.is_empty());
        endpoints += config.endpoints.len();
    }
    assert_eq!(endpoints, 4);
}
