//! Chunks that collide under XXH64 must not collide here.

use prefixway_core::hash::{ChunkHash, Seed};
use serde_json::Value;

#[test]
fn pairs_that_collide_under_xxh64_have_different_chunk_hashes() {
    let Some(cases) = crate::cases() else {
        return;
    };
    let text = std::fs::read_to_string(cases.join("hash/xxh64-collisions.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let pairs = value["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 5);
    for pair in pairs {
        let chunk =
            |at: usize| -> [u8; 64] { pair[at].as_str().unwrap().as_bytes().try_into().unwrap() };
        for number in 0..1000u64 {
            let seed = Seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let parent = ChunkHash(number.wrapping_mul(0xbf58_476d_1ce4_e5b9));
            assert_ne!(
                parent.extend(&chunk(0), seed),
                parent.extend(&chunk(1), seed),
                "{pair}"
            );
        }
    }
}
