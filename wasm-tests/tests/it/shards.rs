//! Several indexers, several plugins.

use std::time::Duration;

use prefixway_core::hash::Seed;
use prefixway_core::text::{Api, PromptProfile};
use prefixway_wasm_tests::indexer::SEED;
use prefixway_wasm_tests::rig::{DESTINATION, chat, destination};
use prefixway_wasm_tests::{Host, Indexer, StreamToken};

const TWO: &str = r#"{"indexers":["east","west"]}"#;

/// Lets time pass while each indexer serves the streams to its cluster.
fn run(host: &mut Host, shards: &mut [(&str, Indexer)], time: Duration) {
    let steps = time.as_millis() / 10;
    for _ in 0..steps {
        for (cluster, indexer) in &mut *shards {
            let mine = |host: &mut Host, vm: usize, token: StreamToken| {
                host.vm(vm)
                    .stream(token)
                    .is_some_and(|s| s.cluster == *cluster)
            };
            indexer.serve_where(host, mine);
        }
        host.advance(Duration::from_millis(10));
    }
}

#[test]
fn each_shard_is_probed_and_all_endpoints_are_ranked_together() {
    let mut host = Host::new(TWO).unwrap();
    let mut shards = [
        ("east", Indexer::new(&["10.0.0.1:8000", "10.0.0.2:8000"])),
        ("west", Indexer::new(&["10.1.0.1:8000", "10.1.0.2:8000"])),
    ];
    let (east, west) = (chat("east", 500), chat("west", 500));
    shards[0].1.store_as(Api::Chat, &[1], &east);
    shards[1].1.store_as(Api::Chat, &[0], &west);
    run(&mut host, &mut shards, Duration::from_millis(500));
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    for vm in [1, 2] {
        for (body, engine) in [(&east, "10.0.0.2:8000"), (&west, "10.1.0.1:8000")] {
            let outcome = host.vm(vm).request(&headers).chunk(body).end();
            assert_eq!(destination(&outcome), Some(engine));
        }
    }
    run(&mut host, &mut shards, Duration::from_millis(200));
    for (_, indexer) in &shards {
        assert_eq!(
            indexer.heard.routed.len(),
            2,
            "decisions go to the endpoint's own shard"
        );
    }
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn one_shard_that_is_down_costs_only_its_own_endpoints() {
    let mut host = Host::new(TWO).unwrap();
    let mut shards = [("west", Indexer::new(&["10.1.0.1:8000", "10.1.0.2:8000"]))];
    let body = chat("west", 500);
    shards[0].1.store_as(Api::Chat, &[1], &body);
    run(&mut host, &mut shards, Duration::from_millis(500));
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let outcome = host.vm(2).request(&headers).chunk(&body).end();
    assert_eq!(destination(&outcome), Some("10.1.0.2:8000"));
    assert_eq!(host.complaints(), Vec::<String>::new());
}

/// Where a chat goes from a worker, and why.
fn decide(host: &mut Host, vm: usize, body: &str) -> (String, String) {
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let outcome = host.vm(vm).request(&headers).chunk(body).end();
    let engine = destination(&outcome).unwrap_or_default().to_owned();
    let (headers, _) = host
        .vm(vm)
        .response(outcome.id)
        .upstream(&engine)
        .chunk("{}")
        .end();
    let why = headers.get("x-prefixway-decision").unwrap_or_default();
    let reason = why.split(';').next().unwrap_or_default();
    (engine, reason.to_owned())
}

/// Two indexers with two endpoints each, of which the second holds a prompt of its own.
fn two() -> ([(&'static str, Indexer); 2], [String; 2]) {
    let mut shards = [
        ("east", Indexer::new(&["10.0.0.1:8000", "10.0.0.2:8000"])),
        ("west", Indexer::new(&["10.1.0.1:8000", "10.1.0.2:8000"])),
    ];
    let prompts = ["east", "west"].map(|name| chat(name, 500));
    for ((_, indexer), prompt) in shards.iter_mut().zip(&prompts) {
        indexer.store(&[1], prompt);
    }
    (shards, prompts)
}

const EXPLAINED: &str = r#"{"indexers":["east","west"],"explain":true}"#;

#[test]
fn a_shard_that_goes_down_leaves_its_endpoints_to_load_and_the_others_prefixes() {
    let (mut shards, [east, west]) = two();
    let mut host = Host::new(EXPLAINED).unwrap();
    run(&mut host, &mut shards, Duration::from_millis(1_500));
    let prefix = "reason=prefix".to_owned();
    assert_eq!(host.metric("prefixway_usable_shards"), 2);
    // Only the first is served from now on; the policy's `max_age` is 5 s.
    run(&mut host, &mut shards[..1], Duration::from_secs(7));
    assert_eq!(host.metric("prefixway_usable_shards"), 1);
    for vm in [1, 2] {
        let found = decide(&mut host, vm, &east);
        assert_eq!(found, ("10.0.0.2:8000".to_owned(), prefix.clone()));
        assert_eq!(decide(&mut host, vm, &west).1, "reason=no_prefix");
    }
    let engines: std::collections::BTreeSet<String> = (0..40)
        .map(|n| decide(&mut host, 1, &chat(&format!("new {n}"), 50)).0)
        .collect();
    assert_eq!(engines.len(), 4, "{engines:?}");
    run(&mut host, &mut shards, Duration::from_secs(12));
    assert_eq!(host.metric("prefixway_usable_shards"), 2);
    let found = decide(&mut host, 2, &west);
    assert_eq!(found, ("10.1.0.2:8000".to_owned(), prefix));
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn a_shard_with_another_seed_is_refused_and_that_is_told() {
    let (mut shards, [east, west]) = two();
    // What it holds is hashed with its own seed, as it should be there.
    shards[1].1 = Indexer::with_seed(&["10.1.0.1:8000", "10.1.0.2:8000"], Seed(0xbad));
    shards[1].1.store(&[1], &west);
    let mut host = Host::new(EXPLAINED).unwrap();
    run(&mut host, &mut shards, Duration::from_millis(1_500));
    assert_eq!(host.metric("prefixway_refused_shards"), 1);
    assert_eq!(host.metric("prefixway_usable_shards"), 1);
    let process = host.process();
    let refusals = process
        .logs
        .iter()
        .filter(|line| line.text.contains("is refused"));
    let refusals: Vec<&str> = refusals.map(|line| line.text.as_str()).collect();
    assert!(
        !refusals.is_empty() && refusals.iter().all(|line| line.contains("indexer west")),
        "{refusals:?}"
    );
    drop(process);
    for vm in [1, 2] {
        let found = decide(&mut host, vm, &east);
        assert_eq!(
            found,
            ("10.0.0.2:8000".to_owned(), "reason=prefix".to_owned())
        );
        assert_eq!(decide(&mut host, vm, &west).1, "reason=no_prefix");
    }
}

#[test]
fn of_three_shards_the_one_that_differs_is_refused_also_when_it_is_the_first() {
    let address = ["10.0.0.1:8000", "10.1.0.1:8000", "10.2.0.1:8000"];
    let seeds = [Seed(0xbad), SEED, SEED];
    let names = ["a", "b", "c"];
    let mut shards: Vec<(&str, Indexer)> = names
        .into_iter()
        .zip(address.iter().zip(seeds))
        .map(|(name, (address, seed))| (name, Indexer::with_seed(&[address], seed)))
        .collect();
    let body = chat("third", 500);
    shards[2].1.store(&[0], &body);
    let mut host = Host::new(r#"{"indexers":["a","b","c"],"explain":true}"#).unwrap();
    run(&mut host, &mut shards, Duration::from_secs(2));
    assert_eq!(host.metric("prefixway_refused_shards"), 1);
    let found = decide(&mut host, 2, &body);
    assert_eq!(found, (address[2].to_owned(), "reason=prefix".to_owned()));
}

#[test]
fn shards_that_spell_a_model_differently_are_each_asked_in_their_way() {
    let (mut shards, [east, _]) = two();
    // The second has found its engines to follow no reading of the model's files.
    shards[1].1.spell(PromptProfile::outline(), "approximate");
    let west = chat("outline", 500);
    shards[1].1.store(&[0], &west);
    let mut host = Host::new(EXPLAINED).unwrap();
    run(&mut host, &mut shards, Duration::from_millis(500));
    let prefix = "reason=prefix".to_owned();
    for vm in [1, 2] {
        for (body, engine) in [(&east, "10.0.0.2:8000"), (&west, "10.1.0.1:8000")] {
            let found = decide(&mut host, vm, body);
            assert_eq!(found, (engine.to_owned(), prefix.clone()));
        }
    }
    run(&mut host, &mut shards, Duration::from_millis(200));
    // It hears of the decision as it would hash the prompt itself.
    let told = &shards[1].1.heard.routed[0].rungs;
    let hashes = shards[1].1.hashes(Api::Chat, &west);
    let expected: Vec<u8> = hashes
        .rungs
        .iter()
        .flat_map(|rung| rung.hash.to_le_bytes())
        .collect();
    assert_eq!(told.as_ref(), expected.as_slice());
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn an_endpoint_that_two_shards_name_is_one_candidate() {
    let mut shards = [
        ("east", Indexer::new(&["10.0.0.1:8000", "10.0.0.2:8000"])),
        ("west", Indexer::new(&["10.0.0.2:8000", "10.0.0.3:8000"])),
    ];
    let body = chat("moving", 500);
    // The new owner knows of it already.
    shards[1].1.store(&[0], &body);
    let mut host = Host::new(EXPLAINED).unwrap();
    run(&mut host, &mut shards, Duration::from_millis(500));
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let outcome = host.vm(1).request(&headers).chunk(&body).end();
    let mut list: Vec<&str> = outcome.header(DESTINATION).unwrap().split(',').collect();
    assert_eq!(list[0], "10.0.0.2:8000");
    list.sort_unstable();
    assert_eq!(list, ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]);
    let (headers, _) = host.vm(1).response(outcome.id).chunk("x").end();
    let why = headers.get("x-prefixway-decision").unwrap();
    assert!(
        why.contains("reason=prefix") && why.contains("candidates=3"),
        "{why}"
    );
    run(&mut host, &mut shards, Duration::from_millis(200));
    assert_eq!(
        shards
            .each_ref()
            .map(|(_, indexer)| indexer.heard.routed.len()),
        [0, 1]
    );
}

#[test]
fn scopes_share_nothing() {
    for (scope, prefix) in [("default", "pw/1/"), ("blue", "blue/pw/1/")] {
        let config = format!(r#"{{"indexers":["i"],"scope":"{scope}"}}"#);
        let mut host = Host::new(&config).unwrap();
        host.advance(Duration::from_millis(100));
        let process = host.process();
        let keys = process.shared_keys();
        assert!(
            !keys.is_empty() && keys.iter().all(|key| key.starts_with(prefix)),
            "{keys:?}"
        );
    }
}
