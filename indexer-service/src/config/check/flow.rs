//! Rules of what requests are promised, and of how they wait.

use std::collections::HashMap;

use prefixway_core::flow::{
    DEFAULT_LOWEST_SHARE_PERCENT, DEFAULT_MAX_WAIT_MS, DEFAULT_MAX_WAITING,
    DEFAULT_MAX_WAITING_BYTES,
};

use super::{Checker, MS, S};
use crate::config::raw::{RawFlowControl, RawObjective, RawPolicy};
use crate::config::{FlowControl, Objective};

/// Most objectives.
const MAX_OBJECTIVES: usize = 64;
/// Greatest distance of a priority from 0.
const MAX_PRIORITY: i32 = 1_000_000;
/// Longest target, in ms.
const MAX_TARGET_MS: f64 = 3_600_000.0;

impl Checker {
    pub(super) fn objectives(&mut self, raw: &[RawObjective]) -> Vec<Objective> {
        if raw.len() > MAX_OBJECTIVES {
            let allowed = format!("are too many objectives, allowed: up to {MAX_OBJECTIVES}");
            self.problem("policy.objectives", raw.len(), allowed);
        }
        let mut seen = HashMap::new();
        let mut objectives = Vec::with_capacity(raw.len());
        for (number, objective) in raw.iter().enumerate() {
            let key = |field: &str| format!("policy.objectives[{number}].{field}");
            self.name(&key("name"), &objective.name);
            self.unique(&mut seen, &objective.name, key("name"));
            let priority = -MAX_PRIORITY..=MAX_PRIORITY;
            objectives.push(Objective {
                name: objective.name.clone(),
                priority: self.number(&key("priority"), objective.priority, priority),
                ttft_ms: self.target(&key("ttft_ms"), objective.ttft_ms),
                tpot_ms: self.target(&key("tpot_ms"), objective.tpot_ms),
                when_missed: objective.when_missed,
            });
        }
        objectives
    }

    fn target(&mut self, key: &str, raw: Option<f64>) -> Option<f64> {
        raw.map(|ms| self.number(key, ms, 0.1..=MAX_TARGET_MS))
    }

    pub(super) fn flow_control(&mut self, raw: &RawFlowControl, policy: &RawPolicy) -> FlowControl {
        if policy.admission.is_none() {
            self.hinted(
                "policy.flow_control",
                "",
                "needs policy.admission, because no endpoint is ever full without it",
                "set policy.admission.max_in_flight to the sequences that an engine runs at once, or leave flow_control out",
            );
        }
        let key = |name: &str| format!("policy.flow_control.{name}");
        FlowControl {
            max_waiting: self.number(
                &key("max_waiting"),
                raw.max_waiting.unwrap_or(DEFAULT_MAX_WAITING),
                1..=100_000,
            ),
            max_waiting_bytes: self.number(
                &key("max_waiting_bytes"),
                raw.max_waiting_bytes.unwrap_or(DEFAULT_MAX_WAITING_BYTES),
                1 << 16..=1 << 36,
            ),
            max_wait: self.duration(
                &key("max_wait"),
                raw.max_wait.as_ref(),
                MS(u64::from(DEFAULT_MAX_WAIT_MS)),
                MS(20)..=S(600),
            ),
            lowest_share_percent: self.number(
                &key("lowest_share_percent"),
                raw.lowest_share_percent
                    .unwrap_or(DEFAULT_LOWEST_SHARE_PERCENT),
                1..=50,
            ),
        }
    }
}
