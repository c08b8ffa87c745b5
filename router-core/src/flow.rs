//! Flow control: requests wait in the gateway while no endpoint takes more, and go on in a fair order.
//!
//! ```text
//!  request ─► Queue of its VM ──heads──► record of the VM ─► seen by all VMs
//!               │                                                │
//!  tick: Turn (one VM at a time) ─► Pass: whose head is next? ◄──┘
//!               │                     mine ─► a slot is booked, and the record written, before the turn is given back
//!               │                     another's ─► a slot is left for it
//!               ▼
//!          resumed, timed out, or gone
//! ```
//!
//! **Order.** Requests of one model are a lane. In a lane the greatest priority goes first, but for the share of the slots that goes to lower
//! ones ([`Fair`]). Within a priority tenants get equal shares, by prompt tokens; within a tenant the request that came first goes first.
//!
//! **Slots.** Booking happens under a turn that one VM of the proxy has at a time ([`Turn`]): it reads the others' records, books, writes its own
//! and gives the turn back. What was booked under a turn that had run out meanwhile is given up, so that no slot is handed out twice.

mod fair;
mod pass;
mod queue;
mod turn;

pub use fair::Fair;
pub use pass::{Pass, Patience, Pick};
pub use queue::{Arrival, Head, MAX_HEADS, NoRoom, Queue, Ticket, Waiting};
pub use turn::{TURN_MS, Taken, Turn};

use crate::proto;

/// Requests that wait in one VM when the policy says nothing: a second's worth of a busy worker.
pub const DEFAULT_MAX_WAITING: u32 = 1_024;

/// Bytes of their bodies: Envoy holds them in memory, for each worker.
pub const DEFAULT_MAX_WAITING_BYTES: u64 = 64 << 20;

/// Longest wait: half of what clients usually wait before they give up.
pub const DEFAULT_MAX_WAIT_MS: u32 = 30_000;

/// Share of the slots that goes to lower priorities, in percent.
pub const DEFAULT_LOWEST_SHARE_PERCENT: u32 = 10;

/// How requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowControl {
    /// Most requests that wait in a VM.
    pub max_waiting: u32,
    /// Most bytes of their bodies.
    pub max_waiting_bytes: u64,
    /// Longest wait.
    pub max_wait_ms: u64,
    /// Share of the slots that goes to lower priorities while higher ones wait, in percent.
    pub lowest_share_percent: u32,
}

impl FlowControl {
    /// That of a policy; `None` where nothing waits.
    pub fn of(policy: &proto::Policy) -> Option<Self> {
        let flow = policy.flow_control?;
        let or = |value: u32, default: u32| if value == 0 { default } else { value };
        let share = flow.lowest_share_percent;
        Some(Self {
            max_waiting: or(flow.max_waiting, DEFAULT_MAX_WAITING),
            max_waiting_bytes: match flow.max_waiting_bytes {
                0 => DEFAULT_MAX_WAITING_BYTES,
                bytes => bytes,
            },
            max_wait_ms: u64::from(or(flow.max_wait_ms, DEFAULT_MAX_WAIT_MS)),
            lowest_share_percent: share.unwrap_or(DEFAULT_LOWEST_SHARE_PERCENT).min(100),
        })
    }
}

#[cfg(test)]
mod tests;
