//! What requests are promised, and how they wait.

use std::fmt::{self, Write};
use std::time::Duration;

use prefixway_core::admission::WhenMissed;
use prefixway_core::proto;

use super::duration::show;

/// What a request is promised that names this objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Its name.
    pub name: String,
    /// Greater goes first.
    pub priority: i32,
    /// Time to the first token, in ms.
    pub ttft_ms: Option<f64>,
    /// Time for each token after it, in ms.
    pub tpot_ms: Option<f64>,
    /// What becomes of a request when no endpoint is expected to meet the first.
    pub when_missed: WhenMissed,
}

impl Objective {
    /// As gateways are told.
    pub(crate) fn message(&self) -> proto::Objective {
        proto::Objective {
            name: self.name.clone(),
            priority: self.priority,
            ttft_ms: self.ttft_ms,
            tpot_ms: self.tpot_ms,
            when_missed: self.when_missed.as_str().to_owned(),
        }
    }

    /// Says in words what it means.
    pub(super) fn describe(&self, waits: bool, out: &mut String) -> fmt::Result {
        write!(out, "Objective {}: priority {}", self.name, self.priority)?;
        if let Some(ms) = self.ttft_ms {
            write!(out, "; first token within {ms} ms, else ")?;
            match self.when_missed {
                WhenMissed::BestEffort => write!(out, "the best endpoint all the same")?,
                WhenMissed::CheaperClass => {
                    write!(out, "the best of the slowest accelerator class")?;
                }
                WhenMissed::Queue if waits => write!(out, "it waits for as long")?,
                WhenMissed::Queue => {
                    write!(
                        out,
                        "the best endpoint (it can't wait without flow_control)"
                    )?;
                }
                WhenMissed::Refuse => write!(out, "429")?,
            }
        }
        if let Some(ms) = self.tpot_ms {
            write!(out, "; {ms} ms for each token after it")?;
        }
        writeln!(out, ".")
    }
}

/// How requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowControl {
    /// Most requests that wait in each worker of a gateway.
    pub max_waiting: u32,
    /// Most bytes of their bodies.
    pub max_waiting_bytes: u64,
    /// Longest wait.
    pub max_wait: Duration,
    /// Share of the slots that goes to lower priorities while higher ones wait, in percent.
    pub lowest_share_percent: u32,
}

impl FlowControl {
    /// As gateways are told.
    pub(crate) fn message(&self) -> proto::FlowControl {
        proto::FlowControl {
            max_waiting: self.max_waiting,
            max_waiting_bytes: self.max_waiting_bytes,
            max_wait_ms: u32::try_from(self.max_wait.as_millis()).unwrap_or(u32::MAX),
            lowest_share_percent: Some(self.lowest_share_percent),
        }
    }

    /// Says in words what it means.
    pub(super) fn describe(&self, retry_after: Duration, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "Requests wait in gateways while every endpoint is full, for at most {} ({} requests and {} bytes in each worker);\n  then they are answered with 429, try again after {}. Lower priorities get {} % of the slots.",
            show(self.max_wait),
            self.max_waiting,
            self.max_waiting_bytes,
            show(retry_after),
            self.lowest_share_percent
        )
    }
}
