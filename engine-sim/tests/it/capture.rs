//! Reads the captures that all crates share.

use std::fs;
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::msgpack::{self, Value};

/// A captured event batch.
pub(crate) struct CapturedBatch {
    /// `i` of the newest request when it arrived.
    pub(crate) request: u64,
    pub(crate) payload: Vec<u8>,
    pub(crate) decoded: Value,
}

/// Gives the folder of a capture.
pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../router-core/tests/fixtures/vllm")
        .join(name)
}

/// Gives the lines of a JSON lines file of a capture.
pub(crate) fn lines(name: &str, file: &str) -> Vec<Json> {
    let text = fs::read_to_string(folder(name).join(file)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Gives the event batches of a capture in order.
pub(crate) fn batches(name: &str) -> Vec<CapturedBatch> {
    let batch = |line: &Json| {
        let payload = base64(line["frames"][2].as_str().unwrap());
        CapturedBatch {
            request: line["req"].as_u64().unwrap(),
            decoded: msgpack::decode(&payload),
            payload,
        }
    };
    lines(name, "events.jsonl").iter().map(batch).collect()
}

/// Gives an array of token ids.
pub(crate) fn ids(value: &Json) -> Vec<u32> {
    let id = |id: &Json| u32::try_from(id.as_u64().unwrap()).unwrap();
    value.as_array().unwrap().iter().map(id).collect()
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text
        .bytes()
        .filter(|&c| c != b'=')
        .map(|c| u32::from(digit(c)))
        .collect();
    let group = |group: &[u32]| {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
