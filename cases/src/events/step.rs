//! Steps as the files write them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::error::CaseError;

/// A pod that is there from the start, or is added.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Where it is: identity comes from the connection, so nothing hangs on it.
    #[serde(rename = "address")]
    pub(super) _address: Option<String>,
    #[serde(rename = "uid")]
    pub(super) _uid: Option<String>,
    pub(super) block_size: usize,
    #[serde(default = "one")]
    pub(super) dp_ranks: u64,
    #[serde(default)]
    pub(super) replay: bool,
}

fn one() -> u64 {
    1
}

/// One message of a pod.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    pub(super) pod: String,
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) dp_rank: u64,
    #[serde(default)]
    pub(super) replay: bool,
    /// Fields of events are the engine's: any may come.
    pub(super) events: Vec<serde_json::Map<String, Value>>,
}

/// Whose tokens are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    pub(super) tokens: Vec<u32>,
    #[serde(default)]
    pub(super) lora_name: String,
    #[serde(default)]
    pub(super) extra_by_block: BTreeMap<usize, Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayRequest {
    pub(super) pod: String,
    pub(super) from_seq: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayEnd {
    pub(super) pod: String,
    #[serde(default)]
    pub(super) dp_rank: u64,
}

/// Tiers that a query counts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tier {
    Device,
    Host,
}

/// Every key that a step may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    batch: Option<Batch>,
    frames_hex: Option<Vec<String>>,
    query: Option<Query>,
    expect_best: Option<String>,
    counters: Option<BTreeMap<String, u64>>,
    expect_replay_request: Option<ReplayRequest>,
    replay_end: Option<ReplayEnd>,
    pod_added: Option<Pod>,
    pod_removed: Option<String>,
    router_restart: Option<bool>,
    // Companions of the keys above.
    pod: Option<String>,
    tiers: Option<Vec<Tier>>,
    expect_matched_tokens: Option<BTreeMap<String, u64>>,
    expect_no_candidates: Option<bool>,
    for_tokens: Option<Vec<u32>>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

/// What a step does or asks.
#[derive(Debug)]
pub(super) enum Step {
    Batch(Batch),
    Frames {
        pod: String,
        frames: Vec<Vec<u8>>,
    },
    Query {
        query: Query,
        tiers: Vec<Tier>,
        /// `None`: there must be no candidate at all.
        matched: Option<BTreeMap<String, u64>>,
    },
    Best {
        pod: String,
        tokens: Vec<u32>,
    },
    Counters(BTreeMap<String, u64>),
    ReplayRequest(ReplayRequest),
    ReplayEnd(ReplayEnd),
    Added(Pod),
    Removed(String),
    Restart,
}

impl Step {
    /// Reads a step; every key must have been of use.
    pub(super) fn read(value: Value) -> Result<Self, CaseError> {
        let shown = value.to_string();
        let mut raw: Raw = serde_json::from_value(value)?;
        let step = raw.take().transpose()?.ok_or_else(|| {
            CaseError::not_understood(format!("a step that does nothing: {shown}"))
        })?;
        // What is left belongs to another kind of step, or asks for two things at once.
        match raw.left() {
            None => Ok(step),
            Some(key) => Err(CaseError::not_understood(format!(
                "`{key}` in this step: {shown}"
            ))),
        }
    }
}

impl Raw {
    fn take(&mut self) -> Option<Result<Step, CaseError>> {
        if let Some(batch) = self.batch.take() {
            return Some(Ok(Step::Batch(batch)));
        }
        if let Some(frames) = self.frames_hex.take() {
            let pod = self.pod.take().unwrap_or_default();
            let frames: Result<Vec<_>, _> = frames.iter().map(|frame| hex(frame)).collect();
            return Some(frames.map(|frames| Step::Frames { pod, frames }));
        }
        if let Some(query) = self.query.take() {
            let none = self.expect_no_candidates.take() == Some(true);
            let matched = self.expect_matched_tokens.take();
            if none == matched.is_some() {
                return Some(Err(CaseError::not_understood(
                    "a query that expects nothing, or two things",
                )));
            }
            return Some(Ok(Step::Query {
                query,
                tiers: self.tiers.take().unwrap_or_else(|| vec![Tier::Device]),
                matched,
            }));
        }
        if let Some(pod) = self.expect_best.take() {
            let tokens = self.for_tokens.take().unwrap_or_default();
            return Some(Ok(Step::Best { pod, tokens }));
        }
        let counters = self.counters.take().map(Step::Counters);
        counters
            .or_else(|| self.expect_replay_request.take().map(Step::ReplayRequest))
            .or_else(|| self.replay_end.take().map(Step::ReplayEnd))
            .or_else(|| self.pod_added.take().map(Step::Added))
            .or_else(|| self.pod_removed.take().map(Step::Removed))
            .or_else(|| (self.router_restart.take() == Some(true)).then_some(Step::Restart))
            .map(Ok)
    }

    /// A key that is still there.
    fn left(&self) -> Option<&'static str> {
        let keys = [
            ("batch", self.batch.is_some()),
            ("frames_hex", self.frames_hex.is_some()),
            ("query", self.query.is_some()),
            ("expect_best", self.expect_best.is_some()),
            ("counters", self.counters.is_some()),
            (
                "expect_replay_request",
                self.expect_replay_request.is_some(),
            ),
            ("replay_end", self.replay_end.is_some()),
            ("pod_added", self.pod_added.is_some()),
            ("pod_removed", self.pod_removed.is_some()),
            ("router_restart", self.router_restart.is_some()),
            ("pod", self.pod.is_some()),
            ("tiers", self.tiers.is_some()),
            (
                "expect_matched_tokens",
                self.expect_matched_tokens.is_some(),
            ),
            ("expect_no_candidates", self.expect_no_candidates.is_some()),
            ("for_tokens", self.for_tokens.is_some()),
        ];
        keys.into_iter().find(|key| key.1).map(|key| key.0)
    }
}

/// Bytes of a hexadecimal text.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, CaseError> {
    let wrong = || CaseError::not_understood(format!("hexadecimal {text:.20}"));
    if !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| {
            let digits = text.get(at..at + 2).ok_or_else(wrong)?;
            u8::from_str_radix(digits, 16).map_err(|_| wrong())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(step: Value) -> String {
        Step::read(step).unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_is_not_known_or_has_no_use_is_an_error() {
        assert!(error(json!({"querry": {"tokens": []}})).contains("unknown field `querry`"));
        assert!(error(json!({"counters": {}, "tiers": ["device"]})).contains("`tiers`"));
        assert!(
            error(json!({"pod_removed": "a", "router_restart": true})).contains("`router_restart`")
        );
        assert!(error(json!({"note": "nothing"})).contains("does nothing"));
        assert!(
            error(json!({"query": {"tokens": [], "salt": "s"}, "expect_no_candidates": true}))
                .contains("salt")
        );
        assert!(error(json!({"query": {"tokens": []}})).contains("expects nothing"));
        assert!(
            error(
                json!({"query": {"tokens": []}, "tiers": ["tape"], "expect_no_candidates": true})
            )
            .contains("tape")
        );
    }

    #[test]
    fn hexadecimal_is_read_or_refused() {
        assert_eq!(hex("00ff1a").unwrap(), [0, 255, 26]);
        assert!(hex("0").is_err() && hex("zz").is_err() && hex("é").is_err());
    }
}
