//! A little service: one sequence tracker per pod and rank, one index.

use std::collections::BTreeMap;

use prefixway_core::endpoint::HolderId;
use prefixway_core::event::{FrameError, Message, parse_frames};
use prefixway_core::hash::{Scope, Seed, Space};
use prefixway_core::index::{Index, IndexConfig, ModelId, SourceId};
use prefixway_core::sequence::{Action, Input, SequenceTracker};

use super::msgpack;
use super::step::{Pod, Query, Step, Tier};
use crate::error::CaseError;

const SEED: Seed = Seed(7);
const MODEL: ModelId = ModelId(0);
/// Batches that a tracker holds during a replay.
const HELD_BATCHES: usize = 100;
/// A batch without events, in place of one that could not be read: its number came all the same.
const EMPTY_BATCH: [u8; 3] = [0x92, 0xc0, 0x90];

struct Rank {
    source: SourceId,
    /// By tier, fastest first.
    holders: [HolderId; 3],
    block_size: usize,
    can_replay: bool,
    tracker: SequenceTracker<Vec<u8>>,
}

/// What a router knows, from nothing but the steps.
pub(super) struct Service {
    index: Index,
    ranks: BTreeMap<(String, u64), Rank>,
    sources: u32,
    replay_request: Option<(String, u64)>,
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
    /// A service with these pods, of which nothing is known yet.
    pub(super) fn new(pods: &[Pod]) -> Self {
        let mut service = Self {
            index: new_index(),
            ranks: BTreeMap::new(),
            sources: 0,
            replay_request: None,
            totals: BTreeMap::new(),
        };
        for pod in pods {
            service.add(pod);
            // Nothing has happened yet, so that there is nothing to replay.
            for rank in 0..pod.dp_ranks {
                service.step(&pod.name, rank, Input::ReplayEnd);
            }
        }
        service.replay_request = None;
        service
    }

    /// Carries a step out, or checks what it asks.
    pub(super) fn run(&mut self, step: Step) -> Result<(), CaseError> {
        match step {
            Step::Batch(batch) => {
                let (seq, payload) = (batch.seq, msgpack::batch(&batch.events, batch.dp_rank)?);
                let input = if batch.replay {
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
                self.step(&batch.pod, batch.dp_rank, input);
            }
            Step::Frames { pod, frames } => self.frames(&pod, &frames),
            Step::Query {
                query,
                tiers,
                matched,
            } => return self.check_query(&query, &tiers, matched.as_ref()),
            Step::Best { pod, tokens } => return self.check_best(&pod, tokens),
            Step::Counters(counters) => return self.check_counters(&counters),
            Step::ReplayRequest(wanted) => {
                let asked = self.replay_request.take();
                let wanted = Some((wanted.pod, wanted.from_seq));
                if asked != wanted {
                    let shown = |request| format!("{request:?}");
                    return Err(CaseError::mismatch(
                        "replay request",
                        &shown(wanted),
                        &shown(asked),
                    ));
                }
            }
            Step::ReplayEnd(end) => self.step(&end.pod, end.dp_rank, Input::ReplayEnd),
            Step::Added(pod) => self.add(&pod),
            Step::Removed(pod) => {
                let ranks = self.ranks.keys().filter(|(name, _)| *name == pod);
                let ranks: Vec<u64> = ranks.map(|(_, rank)| *rank).collect();
                for rank in ranks {
                    self.step(&pod, rank, Input::Gone);
                }
            }
            Step::Restart => self.restart(),
        }
        Ok(())
    }

    fn add(&mut self, pod: &Pod) {
        for rank in 0..pod.dp_ranks {
            let key = (pod.name.clone(), rank);
            self.add_rank(&key, pod.block_size, pod.replay);
        }
    }

    fn next_holders(&mut self) -> [HolderId; 3] {
        self.sources += 1;
        [0, 1, 2].map(|tier| HolderId(self.sources * 3 + tier))
    }

    fn add_rank(&mut self, key: &(String, u64), block_size: usize, can_replay: bool) {
        let holders = self.next_holders();
        let source = SourceId(self.sources);
        self.index.add_source(source, MODEL, holders);
        let rank = Rank {
            source,
            holders,
            block_size,
            can_replay,
            tracker: SequenceTracker::new(HELD_BATCHES),
        };
        self.ranks.insert(key.clone(), rank);
        self.step(&key.0, key.1, Input::Connected { can_replay });
    }

    /// Events of a pod that is not known (yet) are nobody's.
    fn step(&mut self, pod: &str, number: u64, input: Input<Vec<u8>>) {
        let is_gone = matches!(input, Input::Gone);
        let holders = self.next_holders();
        let Some(rank) = self.ranks.get_mut(&(pod.to_owned(), number)) else {
            return;
        };
        for action in rank.tracker.step(input) {
            match action {
                Action::Apply { batch, .. } => {
                    self.index.apply(rank.source, &batch);
                }
                Action::Reset if is_gone => self.index.remove_source(rank.source),
                Action::Reset => {
                    rank.holders = holders;
                    self.index.reset_source(rank.source, rank.holders);
                }
                Action::Replay { from } => self.replay_request = Some((pod.to_owned(), from)),
            }
        }
    }

    fn frames(&mut self, pod: &str, frames: &[Vec<u8>]) {
        match parse_frames(frames) {
            Ok(Message::Batch { seq, payload, .. }) => {
                let batch = payload.to_vec();
                self.step(pod, 0, Input::Live { seq, batch });
            }
            Ok(Message::ReplayEnd) => self.step(pod, 0, Input::ReplayEnd),
            Err(error) => {
                *self.totals.entry("frame_errors").or_default() += 1;
                if let Some(seq) = FrameError::seq(error) {
                    let batch = EMPTY_BATCH.to_vec();
                    self.step(pod, 0, Input::Live { seq, batch });
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
        let before = |name| self.totals.get(name).copied().unwrap_or_default();
        let now = [
            (
                "decode_errors",
                index.decode_errors + before("frame_errors"),
            ),
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
        now.map(|(name, value)| (name, value + before(name))).into()
    }

    /// Matched tokens per pod (its best rank) and per `pod/rank-n`.
    fn matched(&self, query: &Query, tiers: &[Tier]) -> BTreeMap<String, u64> {
        let of_block = |block: usize| query.extra_by_block.get(&block);
        let salt = of_block(0).and_then(|keys| keys.first());
        let scope = Scope {
            space: Space::Token,
            profile: "model",
            revision: 0,
            adapter: &query.lora_name,
            salt: salt.map_or("", String::as_str),
        };
        let scope = scope.hash(SEED);
        let mut matched: BTreeMap<String, u64> = BTreeMap::new();
        for ((pod, number), rank) in &self.ranks {
            let keys = |tokens_before: usize| -> Vec<String> {
                let block = tokens_before / rank.block_size.max(1);
                // Block 0's key is the salt, and that is in the scope.
                of_block(block)
                    .filter(|_| block > 0)
                    .cloned()
                    .unwrap_or_default()
            };
            let credit = self
                .index
                .exact_tokens(scope, &query.tokens, rank.block_size, keys);
            let [device, host, _] = rank
                .holders
                .map(|holder| credit.get(&holder).copied().unwrap_or(0));
            let of_tier = |tier: &Tier| match tier {
                Tier::Device => device,
                Tier::Host => host,
            };
            let tokens = tiers.iter().map(of_tier).max().map_or(0, u64::from);
            matched.insert(format!("{pod}/rank-{number}"), tokens);
            let best = matched.entry(pod.clone()).or_default();
            *best = tokens.max(*best);
        }
        matched
    }

    fn check_query(
        &self,
        query: &Query,
        tiers: &[Tier],
        wanted: Option<&BTreeMap<String, u64>>,
    ) -> Result<(), CaseError> {
        let matched = self.matched(query, tiers);
        let Some(wanted) = wanted else {
            return if matched.is_empty() {
                Ok(())
            } else {
                Err(CaseError::mismatch(
                    "candidates",
                    &"none",
                    &format!("{matched:?}"),
                ))
            };
        };
        for (pod, tokens) in wanted {
            let got = matched.get(pod);
            if got != Some(tokens) {
                return Err(CaseError::mismatch(
                    format!("matched tokens of {pod}"),
                    tokens,
                    &got.map_or("no such pod".to_owned(), u64::to_string),
                ));
            }
        }
        Ok(())
    }

    fn check_best(&self, wanted: &str, tokens: Vec<u32>) -> Result<(), CaseError> {
        let query = Query {
            tokens,
            ..Query::default()
        };
        let matched = self.matched(&query, &[Tier::Device]);
        let mut pods = matched.iter().filter(|(pod, _)| !pod.contains('/'));
        let most = pods.clone().map(|(_, tokens)| tokens).max();
        let best = pods.find(|(_, tokens)| Some(*tokens) == most);
        match best {
            Some((pod, _)) if pod == wanted => Ok(()),
            _ => Err(CaseError::mismatch(
                "best pod",
                &wanted,
                &format!("{matched:?}"),
            )),
        }
    }

    fn check_counters(&self, wanted: &BTreeMap<String, u64>) -> Result<(), CaseError> {
        let totals = self.counters();
        for (name, value) in wanted {
            match totals.get(name.as_str()) {
                None => return Err(CaseError::not_understood(format!("counter {name}"))),
                Some(total) if total != value => {
                    return Err(CaseError::mismatch(name, value, total));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
