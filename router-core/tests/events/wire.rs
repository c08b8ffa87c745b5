//! Batches as 18 vLLM releases encode them.

use prefixway_core::event::{EngineHash, Event, ExtraKey, decode_batch};
use serde_json::{Value, json};

fn hash(value: &Value) -> EngineHash {
    match value.get("hex") {
        Some(hex) => EngineHash::from_bytes(&bytes(hex)),
        None => EngineHash(value.as_u64().unwrap()),
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn hashes(value: &Value) -> Vec<EngineHash> {
    value.as_array().unwrap().iter().map(hash).collect()
}

/// Texts of the extra keys, `null` for a block without any.
fn texts(blocks: &Value) -> Value {
    let Some(blocks) = blocks.as_array() else {
        return Value::Null;
    };
    blocks
        .iter()
        .map(|block| {
            if block.as_array().is_none_or(Vec::is_empty) {
                json!([])
            } else {
                block.clone()
            }
        })
        .collect()
}

fn check(event: &Event<'_>, expected: &Value, name: &str) {
    match event {
        Event::Stored(stored) => {
            assert_eq!(expected["type"], "BlockStored", "{name}");
            assert_eq!(stored.hashes, hashes(&expected["block_hashes"]), "{name}");
            let parent = &expected["parent_block_hash"];
            assert_eq!(
                stored.parent,
                (!parent.is_null()).then(|| hash(parent)),
                "{name}"
            );
            assert_eq!(json!(stored.tokens), expected["token_ids"], "{name}");
            assert_eq!(json!(stored.block_size), expected["block_size"], "{name}");
            assert_eq!(json!(stored.lora_id), expected["lora_id"], "{name}");
            assert_eq!(json!(stored.lora_name), expected["lora_name"], "{name}");
            assert_eq!(json!(stored.medium), expected["medium"], "{name}");
            assert_eq!(json!(stored.group), expected["group_idx"], "{name}");
            assert_eq!(json!(stored.kind), expected["kv_cache_spec_kind"], "{name}");
            assert_eq!(
                json!(stored.sliding_window),
                expected["kv_cache_spec_sliding_window"],
                "{name}"
            );
            let keys: Option<Vec<Vec<&str>>> = stored.extra_keys.map(|extra| {
                let text = |key| match key {
                    ExtraKey::Text(text) => text,
                    ExtraKey::Item(_) | ExtraKey::Other(_) => "other",
                };
                extra
                    .blocks()
                    .map(|block| block.map(text).collect())
                    .collect()
            });
            assert_eq!(json!(keys), texts(&expected["extra_keys"]), "{name}");
        }
        Event::Removed(removed) => {
            assert_eq!(expected["type"], "BlockRemoved", "{name}");
            assert_eq!(removed.hashes, hashes(&expected["block_hashes"]), "{name}");
            assert_eq!(json!(removed.medium), expected["medium"], "{name}");
            assert_eq!(json!(removed.group), expected["group_idx"], "{name}");
        }
        Event::Cleared => assert_eq!(expected["type"], "AllBlocksCleared", "{name}"),
    }
}

#[test]
fn every_sample_of_every_release_decodes_to_its_logical_values() {
    let Some(fixtures) = crate::fixtures() else {
        return;
    };
    let text = std::fs::read_to_string(fixtures.join("wire_samples.jsonl")).unwrap();
    for line in text.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        let name = format!("vllm {} {}", sample["vllm"], sample["case"]);
        let expected = sample["events"].as_array().unwrap();
        let mut seen = 0;
        let payload = crate::base64(sample["payload_b64"].as_str().unwrap());
        let info = decode_batch(&payload, &mut |event| {
            check(&event, &expected[seen], &name);
            seen += 1;
        });
        assert_eq!(seen, expected.len(), "{name}");
        assert_eq!(
            (info.decode_errors(), info.unknown_events, info.unknown_keys),
            (0, 0, 0),
            "{name}"
        );
        assert_eq!(json!(info.rank), sample["rank"], "{name}");
        assert_eq!(json!(info.ts), sample["ts"], "{name}");
    }
}
