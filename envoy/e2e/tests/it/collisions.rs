//! Chunks that collide under XXH64 for nearly every seed are told apart, so that no tenant can pose as the holder of another's prefix.

use std::path::PathBuf;

use prefixway_e2e::rig::MODEL;
use prefixway_e2e::{Pool, Rig};
use serde_json::{Value, json};

use crate::repository;

/// The pairs of `hash/xxh64-collisions.json` in `$PREFIXWAY_CASES`, here so that the test always runs.
const PAIRS: [[&str; 2]; 5] = [
    [
        "fqhaygrrhmqlsloivrtxamz xqzeqyrgnbplsrgqnp lnlarrtztkotazhufrsfc",
        "fqhaygrbhmqlsloivrtxamz xqzeqyrgnbp$yr0Knp lnlarrtztkotazhufrsfc",
    ],
    [
        "zrz ib vccaoayyihidztfljcffiqfviuwjowkppdajmknzgidixqgtn ahamebx",
        "zrz ib fccaoayyihidztfljcffiqfviuwj'}k9Jdajmknzgidixqgtn ahamebx",
    ],
    [
        "vnsgpdvmjqpaktmjafgkzszekngivd mrl vrpyrhcxbceffrgiyktq ilkkdjht",
        "vnsgpdv]jqpaktmjafgkzszekngivd mrl .xpBLhcxbceffrgiyktq ilkkdjht",
    ],
    [
        "ywpesrydkbncmze ekdtszmcsrhsciljsrdoidzb jatvacnd zbghzsnfdofvhf",
        "ywpesryTkbncmze ekdtszmcsrhsciljsrd'odC< jatvacnd zbghzsnfdofvhf",
    ],
    [
        "xdnmzr jriwpkdgukbaazjxtkomkmccktodigztyrwpvlifrgjghlc icyocusuk",
        "xdnmzr Zriwpkdgukbaazjxtkomkmccktod!mz=Srwpvlifrgjghlc icyocusuk",
    ],
];

/// A completion prompt whose first chunk is `chunk`; all that follows is the same for everybody.
fn body(chunk: &str) -> Value {
    let prompt = format!(
        "{chunk}{}",
        " and the rest is the same for both of the pair".repeat(20)
    );
    json!({"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0})
}

#[tokio::test(flavor = "multi_thread")]
async fn colliding_chunks_name_different_prefixes() {
    let rig = Rig::start(Pool::Binding(2), "on").await.unwrap();
    for pair in PAIRS {
        for (engine, chunk) in pair.iter().enumerate() {
            rig.straight(engine, "/v1/completions", &body(chunk))
                .await
                .unwrap();
        }
    }
    rig.settle().await.unwrap();
    // If a pair shared its hashes, both engines would seem to hold both prompts and ties would fall either way.
    for round in 0..6 {
        for pair in PAIRS {
            for (engine, chunk) in pair.iter().enumerate() {
                let answer = rig
                    .post("/v1/completions", &body(chunk), &[])
                    .await
                    .unwrap()
                    .success()
                    .unwrap();
                assert_eq!(
                    answer.engine,
                    format!("engine-{engine}"),
                    "round {round}: {chunk}"
                );
                assert!(answer.cached_tokens() > 0);
            }
        }
    }
}

#[test]
fn the_pairs_are_those_of_the_cases_where_they_are() {
    // A relative path is taken from the repository's root: a test runner starts elsewhere.
    let named = std::env::var_os("PREFIXWAY_CASES").map(PathBuf::from);
    let folder = repository().join(named.unwrap_or_else(|| PathBuf::from("../shared/cases")));
    let file = folder.join("hash/xxh64-collisions.json");
    if !file.is_file() {
        let folder = folder.display();
        println!(
            "skipped: no collision pairs in {folder}; set PREFIXWAY_CASES to use another folder"
        );
        return;
    }
    let text = std::fs::read_to_string(file).unwrap();
    let cases: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(cases["pairs"], json!(PAIRS));
    assert!(PAIRS.iter().flatten().all(|chunk| chunk.len() == 64));
}
