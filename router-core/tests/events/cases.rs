//! The event cases: steps through frames, sequence tracking and the index, as the service would take them.

use crate::msgpack;
use prefixway_core::endpoint::HolderId;
use prefixway_core::event::parse_frames;
use prefixway_core::event::{FrameError, Message};
use prefixway_core::hash::{Scope, Seed, Space};
use prefixway_core::index::{Index, IndexConfig, ModelId, SourceId};
use prefixway_core::sequence::{Action, Input, SequenceTracker};
use serde_json::Value;
use std::collections::BTreeMap;

const SEED: Seed = Seed(7);
const MODEL: ModelId = ModelId(0);

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

struct Rank {
    source: SourceId,
    holders: [HolderId; 3],
    block_size: usize,
    can_replay: bool,
    tracker: SequenceTracker<Vec<u8>>,
}

/// A little service: one tracker per pod and rank, one index.
struct Service {
    index: Index,
    ranks: BTreeMap<(String, u64), Rank>,
    sources: u32,
    replay_request: Option<u64>,
    totals: BTreeMap<&'static str, u64>,
}

fn new_index() -> Index {
    let mut index = Index::new(IndexConfig {
        seed: SEED,
        max_bytes: usize::MAX,
    });
    index.add_model(MODEL, "model", 0, None);
    index
}

impl Service {
    fn new(pods: &Value) -> Self {
        let mut service = Self {
            index: new_index(),
            ranks: BTreeMap::new(),
            sources: 0,
            replay_request: None,
            totals: BTreeMap::new(),
        };
        for pod in pods.as_array().unwrap() {
            service.add(pod);
            // Nothing has happened yet, so that there is nothing to replay.
            for rank in 0..pod["dp_ranks"].as_u64().unwrap_or(1) {
                service.step(pod["name"].as_str().unwrap(), rank, Input::ReplayEnd);
            }
        }
        service
    }

    fn next_holders(&mut self) -> (SourceId, [HolderId; 3]) {
        self.sources += 1;
        (
            SourceId(self.sources),
            [0, 1, 2].map(|tier| HolderId(self.sources * 3 + tier)),
        )
    }

    fn add(&mut self, pod: &Value) {
        let name = pod["name"].as_str().unwrap();
        for rank in 0..pod["dp_ranks"].as_u64().unwrap_or(1) {
            let block_size = usize::try_from(pod["block_size"].as_u64().unwrap()).unwrap();
            self.add_rank(
                &(name.to_owned(), rank),
                block_size,
                pod["replay"].as_bool().unwrap_or(false),
            );
        }
    }

    fn add_rank(&mut self, key: &(String, u64), block_size: usize, can_replay: bool) {
        let (source, holders) = self.next_holders();
        self.index.add_source(source, MODEL, holders);
        let tracker = SequenceTracker::new(100);
        self.ranks.insert(
            key.clone(),
            Rank {
                source,
                holders,
                block_size,
                can_replay,
                tracker,
            },
        );
        self.step(&key.0, key.1, Input::Connected { can_replay });
    }

    fn step(&mut self, pod: &str, rank: u64, input: Input<Vec<u8>>) {
        let is_gone = matches!(input, Input::Gone);
        let Some(rank) = self.ranks.get_mut(&(pod.to_owned(), rank)) else {
            return;
        };
        for action in rank.tracker.step(input) {
            match action {
                Action::Apply { batch, .. } => {
                    self.index.apply(rank.source, &batch);
                }
                Action::Reset if is_gone => self.index.remove_source(rank.source),
                Action::Reset => {
                    self.sources += 1;
                    rank.holders = [0, 1, 2].map(|tier| HolderId(self.sources * 3 + tier));
                    self.index.reset_source(rank.source, rank.holders);
                }
                Action::Replay { from } => self.replay_request = Some(from),
            }
        }
    }

    fn frames(&mut self, pod: &str, frames: &[Vec<u8>]) {
        match parse_frames(frames) {
            Ok(Message::Batch { seq, payload, .. }) => {
                self.step(
                    pod,
                    0,
                    Input::Live {
                        seq,
                        batch: payload.to_vec(),
                    },
                );
            }
            Ok(Message::ReplayEnd) => self.step(pod, 0, Input::ReplayEnd),
            Err(error) => {
                *self.totals.entry("frame_errors").or_default() += 1;
                // The batch is lost, but its number came: an empty batch in its place.
                if let Some(seq) = FrameError::seq(error) {
                    self.step(
                        pod,
                        0,
                        Input::Live {
                            seq,
                            batch: vec![0x92, 0xc0, 0x90],
                        },
                    );
                }
            }
        }
    }

    /// The router restarts and has forgotten everything; its totals go on.
    fn restart(&mut self) {
        for (name, value) in self.counters() {
            self.totals.insert(name, value);
        }
        self.index = new_index();
        for (key, rank) in std::mem::take(&mut self.ranks) {
            self.add_rank(&key, rank.block_size, rank.can_replay);
        }
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let index = self.index.stats().counters;
        let sum = |count: fn(&SequenceTracker<Vec<u8>>) -> u64| -> u64 {
            self.ranks.values().map(|rank| count(&rank.tracker)).sum()
        };
        let frame_errors = self.totals.get("frame_errors").copied().unwrap_or_default();
        let now = [
            ("decode_errors", index.decode_errors + frame_errors),
            ("orphan_blocks", index.orphan_blocks),
            ("duplicate_stores", index.duplicate_stores),
            ("unknown_removes", index.unknown_removes),
            ("unknown_medium_events", index.unknown_medium_events),
            ("gaps_detected", sum(|tracker| tracker.counters().gaps)),
            ("source_resets", sum(|tracker| tracker.counters().resets)),
            (
                "stale_source_events",
                sum(|tracker| tracker.counters().stale),
            ),
        ];
        now.map(|(name, value)| {
            (
                name,
                value + self.totals.get(name).copied().unwrap_or_default(),
            )
        })
        .into()
    }

    /// Matched tokens per pod (or `pod/rank-n`).
    fn query(&self, query: &Value, tiers: &Value) -> BTreeMap<String, u64> {
        let tokens: Vec<u32> = serde_json::from_value(query["tokens"].clone()).unwrap();
        let extra = query["extra_by_block"].as_object();
        let of_block =
            |block: usize| extra.and_then(|extra| extra.get(&block.to_string())?.as_array());
        let salt = of_block(0)
            .and_then(|keys| keys.first()?.as_str())
            .unwrap_or_default();
        let scope = Scope {
            space: Space::Text,
            profile: "model",
            revision: 0,
            adapter: query["lora_name"].as_str().unwrap_or_default(),
            salt,
        }
        .hash(SEED);
        let with_host = tiers
            .as_array()
            .is_some_and(|tiers| tiers.contains(&Value::from("host")));
        let mut matched: BTreeMap<String, u64> = BTreeMap::new();
        for ((pod, number), rank) in &self.ranks {
            let keys = |tokens_before: usize| -> Vec<String> {
                let block = tokens_before / rank.block_size;
                let keys = of_block(block).filter(|_| block > 0);
                keys.map_or_else(Vec::new, |keys| {
                    keys.iter()
                        .map(|key| key.as_str().unwrap().to_owned())
                        .collect()
                })
            };
            let credit = self
                .index
                .exact_tokens(scope, &tokens, rank.block_size, keys);
            let of = |tier: usize| credit.get(&rank.holders[tier]).copied().unwrap_or(0);
            let tokens = u64::from(of(0).max(if with_host { of(1) } else { 0 }));
            matched.insert(format!("{pod}/rank-{number}"), tokens);
            let best = matched.entry(pod.clone()).or_default();
            *best = tokens.max(*best);
        }
        matched
    }

    fn run(&mut self, step: &Value, name: &str) {
        let pod = |value: &Value| value["pod"].as_str().unwrap_or_default().to_owned();
        if let Some(batch) = step.get("batch") {
            let rank = batch["dp_rank"].as_u64().unwrap_or(0);
            let seq = batch["seq"].as_u64().unwrap();
            let payload = msgpack::batch(&batch["events"], rank);
            let input = if batch["replay"].as_bool().unwrap_or(false) {
                Input::Replayed {
                    seq,
                    batch: payload,
                }
            } else {
                Input::Live {
                    seq,
                    batch: payload,
                }
            };
            self.step(&pod(batch), rank, input);
        } else if let Some(frames) = step.get("frames_hex") {
            let frames: Vec<Vec<u8>> = frames
                .as_array()
                .unwrap()
                .iter()
                .map(|frame| hex(frame.as_str().unwrap()))
                .collect();
            self.frames(&pod(step), &frames);
        } else if let Some(query) = step.get("query") {
            let matched = self.query(query, &step["tiers"]);
            if step.get("expect_no_candidates").is_some() {
                assert!(matched.is_empty(), "{name}: {step}");
                return;
            }
            for (pod, tokens) in step["expect_matched_tokens"].as_object().unwrap() {
                assert_eq!(
                    matched.get(pod).copied(),
                    tokens.as_u64(),
                    "{name}: {pod} in {step}"
                );
            }
        } else if let Some(best) = step.get("expect_best") {
            let query = serde_json::json!({ "tokens": step["for_tokens"] });
            let matched = self.query(&query, &Value::Null);
            let (pod, _) = matched
                .iter()
                .filter(|(pod, _)| !pod.contains('/'))
                .max_by_key(|pod| pod.1)
                .unwrap();
            assert_eq!(best, pod, "{name}");
        } else if let Some(counters) = step.get("counters") {
            let totals = self.counters();
            for (counter, value) in counters.as_object().unwrap() {
                assert_eq!(
                    totals.get(counter.as_str()).copied(),
                    value.as_u64(),
                    "{name}: {counter}"
                );
            }
        } else if let Some(request) = step.get("expect_replay_request") {
            assert_eq!(
                self.replay_request.take(),
                request["from_seq"].as_u64(),
                "{name}"
            );
        } else if let Some(end) = step.get("replay_end") {
            self.step(&pod(end), 0, Input::ReplayEnd);
        } else if let Some(added) = step.get("pod_added") {
            self.add(added);
        } else if let Some(removed) = step.get("pod_removed") {
            self.step(removed.as_str().unwrap(), 0, Input::Gone);
        } else if step.get("router_restart").is_some() {
            self.restart();
        } else {
            panic!("{name}: unknown step {step}");
        }
    }
}

#[test]
fn event_cases_end_as_they_say() {
    let Some(cases) = crate::cases() else {
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(cases.join("events"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let name = format!(
            "{} {}",
            case["id"].as_str().unwrap(),
            file.file_stem().unwrap().display()
        );
        let mut service = Service::new(&case["pods"]);
        for step in case["steps"].as_array().unwrap() {
            service.run(step, &name);
        }
        println!("{name}: passed");
    }
}
