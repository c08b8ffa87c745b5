//! Captures of a real engine: predicted cached tokens from the index's rungs, given the prompt text as the engine rendered it.

use prefixway_core::endpoint::HolderId;
use prefixway_core::event::{Message, parse_frames};
use prefixway_core::hash::{ChunkHash, Scope, Seed, Space, chunk_hashes};
use prefixway_core::index::{Index, IndexConfig, ModelId, RungChange, SourceId};
use prefixway_core::rung::rungs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SEED: Seed = Seed(99);
const MODEL: ModelId = ModelId(0);
const SOURCE: SourceId = SourceId(0);
const GPU: HolderId = HolderId(0);

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/vllm")
        .join(name)
}

/// Batches of a capture by sequence number.
fn batches(folder: &Path) -> Vec<(i64, Vec<u8>)> {
    lines(&folder.join("events.jsonl"))
        .iter()
        .map(|line| {
            let frames: Vec<Vec<u8>> = line["frames"]
                .as_array()
                .unwrap()
                .iter()
                .map(|frame| crate::base64(frame.as_str().unwrap()))
                .collect();
            match parse_frames(&frames).unwrap() {
                Message::Batch { seq, payload, .. } => {
                    (i64::try_from(seq).unwrap(), payload.to_vec())
                }
                Message::ReplayEnd => panic!("no replay in a capture"),
            }
        })
        .collect()
}

fn index(folder: &Path) -> Index {
    let pieces: BTreeMap<String, String> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("pieces.json")).unwrap())
            .unwrap();
    let mut vocabulary: Vec<Vec<u8>> = Vec::new();
    for (id, piece) in pieces {
        let id: usize = id.parse().unwrap();
        if vocabulary.len() <= id {
            vocabulary.resize(id + 1, Vec::new());
        }
        vocabulary[id] = crate::base64(&piece);
    }
    let mut index = Index::new(IndexConfig {
        seed: SEED,
        max_bytes: usize::MAX,
    });
    index.add_model(MODEL, "model", 0, Some(vocabulary.into_iter().collect()));
    index.add_source(SOURCE, MODEL, [GPU, HolderId(1), HolderId(2)]);
    index
}

/// Prompt text and scope of a request.
fn prompt(request: &Value, bos: &str) -> Option<(ChunkHash, String)> {
    let rendered = request["rendered"].as_str()?;
    let is_completion = request["path"].as_str()?.ends_with("/v1/completions");
    let adds_bos = is_completion
        && request["body"]["add_special_tokens"]
            .as_bool()
            .unwrap_or(true);
    let text = if adds_bos {
        format!("{bos}{rendered}")
    } else {
        rendered.to_owned()
    };
    let model = request["body"]["model"].as_str().unwrap_or_default();
    let scope = Scope {
        space: Space::Text,
        profile: "model",
        revision: 0,
        adapter: if model.starts_with("lora") { model } else { "" },
        salt: request["body"]["cache_salt"].as_str().unwrap_or_default(),
    };
    Some((scope.hash(SEED), text))
}

fn credit(table: &BTreeMap<u64, RungChange>, scope: ChunkHash, text: &str) -> u32 {
    let hashes: Vec<ChunkHash> = chunk_hashes(scope, text.as_bytes(), SEED).collect();
    let mut credit = 0;
    for depth in rungs(Space::Text, u32::try_from(hashes.len()).unwrap()) {
        let Some(rung) = table.get(&hashes[depth as usize - 1].0) else {
            break;
        };
        if rung.holders.contains(&GPU) {
            credit = rung.token_depth;
        }
    }
    credit
}

/// Mean absolute errors in tokens: through the rungs, and block by block.
fn errors(name: &str, bos: &str) -> (f64, f64) {
    let folder = capture(name);
    let mut index = index(&folder);
    let mut batches = batches(&folder).into_iter().peekable();
    let mut table: BTreeMap<u64, RungChange> = BTreeMap::new();
    let (mut compared, mut through_rungs, mut exact) = (0u32, 0f64, 0f64);
    for request in lines(&folder.join("requests.jsonl")) {
        let Some(before) = request["seq_before"].as_i64() else {
            continue;
        };
        while let Some((_, payload)) = batches.next_if(|batch| batch.0 <= before) {
            let outcome = index.apply(SOURCE, &payload);
            assert_eq!(outcome.info.decode_errors(), 0);
        }
        let changes = index.take_changes();
        table.extend(changes.upserts.into_iter().map(|rung| (rung.hash, rung)));
        for hash in changes.removes {
            table.remove(&hash);
        }
        if request["concurrent"].as_bool().unwrap_or(false) {
            continue;
        }
        let (Some(real), Some((scope, text))) =
            (request["cached_tokens"].as_f64(), prompt(&request, bos))
        else {
            continue;
        };
        compared += 1;
        through_rungs += (f64::from(credit(&table, scope, &text)) - real).abs();
        let best = index
            .exact_credit(scope, text.as_bytes())
            .get(&GPU)
            .copied()
            .unwrap_or(0);
        exact += (f64::from(best) - real).abs();
    }
    let counters = index.stats().counters;
    assert_eq!(
        (
            counters.orphan_blocks,
            counters.unknown_removes,
            counters.conflicts
        ),
        (0, 0, 0),
        "{name}"
    );
    let n = f64::from(compared);
    println!(
        "{name}: {compared} compared, {:.2} tokens through rungs, {:.2} exact",
        through_rungs / n,
        exact / n
    );
    (through_rungs / n, exact / n)
}

#[test]
fn prediction_errors_on_captures_stay_within_half_a_block() {
    let (through_rungs, exact) = errors("tinybpe", "");
    assert!(
        through_rungs <= 5.4 && exact <= 1.5,
        "{through_rungs} {exact}"
    );
    let (through_rungs, exact) = errors("llama3_1", "<|begin_of_text|>");
    assert!(
        through_rungs <= 5.8 && exact <= 1.5,
        "{through_rungs} {exact}"
    );
}
