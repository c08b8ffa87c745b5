//! Chunks that collide under XXH64 for nearly every seed are told apart, so that no tenant can pose as the holder of another's prefix.

use std::time::Duration;

use prefixway_core::text::Api;

use prefixway_wasm_tests::Rig;
use prefixway_wasm_tests::rig::{ENGINES, destination};

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
fn body(chunk: &str) -> String {
    let rest = " and the rest is the same for both of the pair".repeat(40);
    serde_json::json!({"model": "tiny", "prompt": format!("{chunk}{rest}")}).to_string()
}

#[test]
fn colliding_chunks_name_different_prefixes() {
    let mut rig = Rig::new();
    for pair in PAIRS {
        for (place, chunk) in (0u32..).zip(pair) {
            assert_eq!(chunk.len(), 64);
            rig.indexer
                .store_as(Api::Completions, &[place], &body(chunk));
        }
    }
    rig.settle();
    for pair in PAIRS {
        for (engine, chunk) in ENGINES.iter().zip(pair) {
            let outcome = rig.post(1, "/v1/completions", &body(chunk));
            assert_eq!(destination(&outcome), Some(*engine), "{chunk}");
            rig.answer(1, &outcome, 400);
            rig.run(Duration::from_millis(50));
        }
    }
    rig.assert_healthy();
}
