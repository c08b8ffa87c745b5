//! Holds the simulator to a captured vLLM 0.32.0.

use prefixway_engine_sim::block_pool::BlockHash;
use prefixway_engine_sim::events::encode::encode_batch;
use prefixway_engine_sim::events::{BlockStored, EventBatch, KvEvent, Lora};
use prefixway_engine_sim::scheduler::{Scheduler, SchedulerConfig};
use prefixway_engine_sim::sequence::{Request, RequestId, Scope};
use prefixway_engine_sim::template::{ChatInput, Template};
use prefixway_engine_sim::tokenizer::Tokenizer;
use serde_json::Value as Json;

use crate::capture::{self, ids};
use crate::msgpack::Value;

/// The flags of the `tinybpe` capture.
const CAPTURED: SchedulerConfig = SchedulerConfig {
    block_size: 16,
    num_blocks: 600,
    max_running: 8,
    chunk_tokens: 2_048,
};

fn request(line: &Json) -> Request {
    let body = &line["body"];
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    Request {
        id: RequestId(line["i"].as_u64().unwrap()),
        prompt: ids(&line["prompt_token_ids"]),
        output: ids(&line["output_token_ids"]),
        scope: Scope {
            lora: None,
            salt: text("cache_salt"),
        },
        session_id: text("session_id"),
        reports_reused: body["vllm_xargs"]["kv_cache_report_mode"] == "full",
    }
}

/// Shape of an event: stored block tokens with session, removed, cleared.
#[derive(Debug, PartialEq)]
enum Shape {
    Stored(Vec<u32>, bool),
    Removed,
    Cleared,
}

fn shape(event: &KvEvent) -> Shape {
    match event {
        KvEvent::Stored(stored) => Shape::Stored(stored.tokens.clone(), stored.parent.is_none()),
        KvEvent::Removed(_) => Shape::Removed,
        KvEvent::Cleared => Shape::Cleared,
    }
}

fn blocks(shapes: &[Shape]) -> (usize, usize) {
    let stored = shapes.iter().map(|shape| match shape {
        Shape::Stored(tokens, _) => tokens.len() / 16,
        _ => 0,
    });
    (
        stored.sum(),
        shapes
            .iter()
            .filter(|shape| **shape == Shape::Removed)
            .count(),
    )
}

#[test]
fn sequential_requests_hit_what_vllm_hit_and_change_the_same_blocks() {
    let mut scheduler = Scheduler::new(CAPTURED);
    let (mut hits, mut sequential) = (0, 0);
    let mut ours: Vec<(u64, Vec<Shape>)> = Vec::new();
    for line in capture::lines("tinybpe", "requests.jsonl") {
        let number = line["i"].as_u64().unwrap();
        if line["kind"] == "reset_prefix_cache" {
            assert!(scheduler.reset_prefix_cache());
            continue;
        }
        scheduler.submit(request(&line));
        let mut hit = None;
        while let Some(step) = scheduler.schedule() {
            hit = hit.or(step
                .admitted
                .first()
                .map(|admission| admission.hit_tokens as u64));
            let events = scheduler.finish_step(&step).events;
            if !events.is_empty() {
                ours.push((number, events.iter().map(shape).collect()));
            }
        }
        if line["concurrent"] == false {
            sequential += 1;
            hits += usize::from(hit == line["cached_tokens"].as_u64());
        }
    }
    println!("cached_tokens equal on {hits} of {sequential}");
    assert!(hits * 100 >= sequential * 95, "{hits} of {sequential}");

    let theirs: Vec<(u64, Vec<Shape>)> = capture::batches("tinybpe")
        .iter()
        .map(|batch| {
            (
                batch.request,
                decode(&batch.decoded).events.iter().map(shape).collect(),
            )
        })
        .collect();
    let count = |batches: &[(u64, Vec<Shape>)]| {
        let all = batches.iter().map(|(_, shapes)| blocks(shapes));
        all.fold((0, 0), |sum, blocks| (sum.0 + blocks.0, sum.1 + blocks.1))
    };
    let (ours_count, theirs_count) = (count(&ours), count(&theirs));
    println!("stored and removed blocks: ours {ours_count:?}, vLLM's {theirs_count:?}");
    let is_near = |a: usize, b: usize| a.abs_diff(b) * 20 <= b;
    assert!(is_near(ours_count.0, theirs_count.0) && is_near(ours_count.1, theirs_count.1));

    // Up to the first concurrent burst, batch by batch and event by event.
    let before = |batches: &[(u64, Vec<Shape>)]| {
        batches
            .iter()
            .take_while(|(number, _)| *number < 134)
            .count()
    };
    assert_eq!(before(&ours), before(&theirs));
    for (position, (ours, theirs)) in ours.iter().zip(&theirs).take(before(&theirs)).enumerate() {
        assert_eq!(ours, theirs, "batch {position}");
    }
}

#[test]
fn captured_events_encode_to_the_captured_bytes() {
    for name in ["tinybpe", "llama3_1"] {
        for (position, captured) in capture::batches(name).iter().enumerate() {
            let encoded = encode_batch(&decode(&captured.decoded));
            assert_eq!(encoded, captured.payload, "{name}, batch {position}");
        }
    }
}

#[test]
fn chat_requests_render_to_the_captured_text() {
    for name in ["tinybpe", "llama3_1"] {
        let template = Template::from_model_dir(&capture::folder(name).join("model")).unwrap();
        let mut chats = 0;
        for line in capture::lines(name, "requests.jsonl") {
            if line["path"] == "/v1/chat/completions" {
                let input: ChatInput = serde_json::from_value(line["body"].clone()).unwrap();
                let text = template.render(&input).unwrap();
                assert_eq!(
                    text,
                    line["rendered"].as_str().unwrap(),
                    "{name}, request {}",
                    line["i"]
                );
                chats += 1;
            }
        }
        assert!(chats > 140, "{name}: {chats}");
    }
}

#[test]
fn prompts_tokenize_to_the_captured_ids() {
    let tokenizer = Tokenizer::from_model_dir(&capture::folder("tinybpe").join("model")).unwrap();
    let mut prompts = 0;
    for line in capture::lines("tinybpe", "requests.jsonl") {
        if let Some(text) = line["rendered"].as_str() {
            let special = line["add_special_tokens"].as_bool().unwrap();
            assert_eq!(
                tokenizer.encode(text, special).unwrap(),
                ids(&line["prompt_token_ids"]),
                "request {}",
                line["i"]
            );
            prompts += 1;
        }
    }
    assert!(prompts > 160, "{prompts}");
}

fn decode(batch: &Value) -> EventBatch {
    let [Value::Float(timestamp_s), events, rank] = batch.array() else {
        panic!("{batch:?}")
    };
    EventBatch {
        timestamp_s: *timestamp_s,
        events: events.array().iter().map(decode_event).collect(),
        rank: u32::try_from(rank.uint()).unwrap(),
    }
}

fn decode_event(event: &Value) -> KvEvent {
    let field = |key: &str| event.get(key).unwrap();
    let hashes = || -> Vec<BlockHash> {
        field("block_hashes")
            .array()
            .iter()
            .map(|hash| BlockHash(hash.uint()))
            .collect()
    };
    let number = |value: &Value| u32::try_from(value.uint()).unwrap();
    match field("type").text() {
        "BlockStored" => KvEvent::Stored(BlockStored {
            hashes: hashes(),
            parent: field("parent_block_hash")
                .some()
                .map(|hash| BlockHash(hash.uint())),
            tokens: field("token_ids").array().iter().map(number).collect(),
            block_size: number(field("block_size")),
            lora: field("lora_id").some().map(|id| Lora {
                id: number(id),
                name: field("lora_name").text().to_owned(),
            }),
            extra_keys: field("extra_keys")
                .array()
                .iter()
                .map(|keys| {
                    Some(
                        keys.some()?
                            .array()
                            .iter()
                            .map(|key| key.text().to_owned())
                            .collect(),
                    )
                })
                .collect(),
            session_id: event
                .get("session_id")
                .map(|session| session.text().to_owned()),
        }),
        "BlockRemoved" => KvEvent::Removed(hashes()[0]),
        _ => KvEvent::Cleared,
    }
}
