//! Who is next: priorities with a share for the lower ones, and tenants by turns within each.
//!
//! ```text
//!  lane ─► credit of the lower priorities        + share for each slot; at 100 one of them is next, in turns
//!       └► priority ─► virtual time, in prompt tokens
//!                   └► tenant ─► end of what it was given
//! ```
//!
//! Tenants are served by start-time fair queueing (Goyal, Vin, Cheng 1996): a request starts at the greater of the priority's virtual time
//! and the end of what its tenant was given before; the least start is next, and becomes the virtual time. So tenants with requests get equal
//! shares of prompt tokens, and one that was away gets no more than its share afterwards.
//!
//! All VMs of a proxy share one such state; it is read and written under the [turn](super::Turn).
//!
//! ```text
//! offset 0   4 bytes  "PWF1"
//!        4   u32      number of entries
//!        8   entries: u64 lane, i32 priority, u32 kind, u64 tenant, u64 value
//!                     kind 0 credit, 1 lower priority that was served last (as value), 2 virtual time, 3 end of a tenant
//! ```

use std::collections::BTreeMap;

use super::Arrival;
use crate::shared::{read_u32, read_u64};

const MAGIC: &[u8; 4] = b"PWF1";
const ENTRY_BYTES: usize = 32;
/// Most entries: with more, tenants that were given least are forgotten first, which favours nobody for long.
const MAX_ENTRIES: usize = 1_024;
/// Credit for which a lower priority is next.
const WHOLE: u32 = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Band {
    now: u64,
    ends: BTreeMap<u64, u64>,
}

impl Band {
    fn start(&self, tenant: u64) -> u64 {
        let end = self.ends.get(&tenant).copied().unwrap_or(0);
        end.max(self.now)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lane {
    credit: u32,
    last_lower: Option<i32>,
    bands: BTreeMap<i32, Band>,
}

impl Lane {
    /// The priority that is next, of those that wait.
    fn priority(&self, heads: &[Arrival], share: u32) -> Option<i32> {
        let waiting = || heads.iter().map(|head| head.priority);
        let top = waiting().max()?;
        let lower = || waiting().filter(|priority| *priority < top);
        if self.credit.saturating_add(share) < WHOLE {
            return Some(top);
        }
        let below_last = lower().filter(|of| self.last_lower.is_none_or(|last| *of < last));
        Some(below_last.max().or(lower().max()).unwrap_or(top))
    }
}

/// What was handed out so far, as far as it matters for what comes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fair {
    lanes: BTreeMap<u64, Lane>,
}

impl Fair {
    /// The place of the request that is next among the first ones of all tenants, which are of one lane.
    pub fn next(&self, heads: &[Arrival], share_percent: u32) -> Option<usize> {
        let none = Lane::default();
        let lane = self.lanes.get(&heads.first()?.lane).unwrap_or(&none);
        let priority = lane.priority(heads, share_percent)?;
        let no_band = Band::default();
        let band = lane.bands.get(&priority).unwrap_or(&no_band);
        let of_band = heads.iter().enumerate();
        let of_band = of_band.filter(|(_, head)| head.priority == priority);
        let first =
            of_band.min_by_key(|(_, head)| (band.start(head.tenant), head.at_ms, head.tenant));
        first.map(|(place, _)| place)
    }

    /// A request was given a slot; `heads` as for [`Self::next`], it among them.
    pub fn serve(&mut self, served: &Arrival, heads: &[Arrival], share_percent: u32) {
        let lane = self.lanes.entry(served.lane).or_default();
        let top = heads.iter().map(|head| head.priority).max();
        let has_lower = heads.iter().any(|head| Some(head.priority) < top);
        if has_lower {
            lane.credit = lane.credit.saturating_add(share_percent);
        }
        if Some(served.priority) < top {
            lane.credit = lane.credit.saturating_sub(WHOLE);
            lane.last_lower = Some(served.priority);
        }
        // What could not be given is not saved up.
        lane.credit = lane.credit.min(WHOLE);
        let band = lane.bands.entry(served.priority).or_default();
        let start = band.start(served.tenant);
        let end = start.saturating_add(u64::from(served.tokens.max(1)));
        band.now = start;
        band.ends.insert(served.tenant, end);
    }

    /// Reads the shared value; what can't be read is as if nothing had been handed out.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut fair = Self::default();
        if bytes.get(..4) != Some(MAGIC) {
            return fair;
        }
        let count = read_u32(bytes, 4).unwrap_or(0) as usize;
        let entries = bytes.get(8..).unwrap_or_default();
        let entries = entries.as_chunks::<ENTRY_BYTES>().0.iter();
        for entry in entries.take(count.min(MAX_ENTRIES)) {
            let (Some(lane), Some(priority), Some(kind), Some(tenant), Some(value)) = (
                read_u64(entry, 0),
                read_u32(entry, 8).map(u32::cast_signed),
                read_u32(entry, 12),
                read_u64(entry, 16),
                read_u64(entry, 24),
            ) else {
                continue;
            };
            let lane = fair.lanes.entry(lane).or_default();
            match kind {
                0 => lane.credit = u32::try_from(value).unwrap_or(0).min(WHOLE),
                1 => lane.last_lower = Some(priority),
                2 => lane.bands.entry(priority).or_default().now = value,
                3 => {
                    let band = lane.bands.entry(priority).or_default();
                    band.ends.insert(tenant, value);
                }
                _ => {}
            }
        }
        fair
    }

    /// Bytes of the shared value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut entries: Vec<(u64, i32, u32, u64, u64)> = Vec::new();
        let mut ends: Vec<(u64, i32, u32, u64, u64)> = Vec::new();
        for (&number, lane) in &self.lanes {
            if lane.credit > 0 {
                entries.push((number, 0, 0, 0, u64::from(lane.credit)));
            }
            if let Some(last) = lane.last_lower {
                entries.push((number, last, 1, 0, 0));
            }
            for (&priority, band) in &lane.bands {
                // One whose end is past starts at the virtual time in any case.
                let of_band = band.ends.iter().filter(|(_, end)| **end > band.now);
                let before = ends.len();
                ends.extend(of_band.map(|(&tenant, &end)| (number, priority, 3, tenant, end)));
                if ends.len() > before {
                    entries.push((number, priority, 2, 0, band.now));
                }
            }
        }
        let room = MAX_ENTRIES.saturating_sub(entries.len());
        if ends.len() > room {
            ends.sort_unstable_by_key(|(.., end)| core::cmp::Reverse(*end));
            ends.truncate(room);
        }
        entries.append(&mut ends);
        entries.truncate(MAX_ENTRIES);
        let mut bytes = Vec::with_capacity(8 + entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&u32::try_from(entries.len()).unwrap_or(0).to_le_bytes());
        for (lane, priority, kind, tenant, value) in entries {
            bytes.extend_from_slice(&lane.to_le_bytes());
            bytes.extend_from_slice(&priority.to_le_bytes());
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&tenant.to_le_bytes());
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}
