//! Requests that wait in one VM.
//!
//! ```text
//!  (lane, priority, tenant) ─► first come, ..., last come
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashMap;

use super::FlowControl;
use crate::shared::{read_u32, read_u64};

/// Most (lane, priority, tenant) of a VM that others are told of.
pub const MAX_HEADS: usize = 64;

/// Bytes of a head on the wire.
const HEAD_BYTES: usize = 48;

/// Number of a waiting request, unique within a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a request's place depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Hash of its model.
    pub lane: u64,
    /// Greater goes first.
    pub priority: i32,
    /// Whose it is, as a hash.
    pub tenant: u64,
    /// Tokens of its prompt.
    pub tokens: u32,
    /// Sequences that it takes slots for.
    pub units: u32,
    /// Bytes of its body.
    pub bytes: u64,
    /// When it came.
    pub at_ms: u64,
}

/// A waiting request.
#[derive(Debug)]
pub struct Waiting<T> {
    /// What its place depends on.
    pub arrival: Arrival,
    /// When it has waited long enough.
    pub until_ms: u64,
    /// The request.
    pub request: T,
}

/// The first of the requests of a tenant.
///
/// On the wire, little endian: u64 lane, u64 tenant, u64 ms at which it came, i32 priority, u32 requests, u32 tokens, u32 sequences,
/// u64 its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What its place depends on; how large its body is matters to nobody else.
    pub arrival: Arrival,
    /// Requests that wait there, this one among them.
    pub waiting: u32,
    /// Its number in its VM.
    pub number: u64,
}

impl Head {
    /// Adds its bytes.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let Arrival {
            lane,
            priority,
            tenant,
            tokens,
            units,
            at_ms,
            bytes: _,
        } = self.arrival;
        for number in [lane, tenant, at_ms] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&priority.to_le_bytes());
        for number in [self.waiting, tokens, units] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.number.to_le_bytes());
    }

    /// Reads as many as there are, at most [`MAX_HEADS`].
    pub fn read_all(bytes: &[u8]) -> Vec<Self> {
        let heads = bytes.as_chunks::<HEAD_BYTES>().0.iter().take(MAX_HEADS);
        heads.filter_map(|bytes| Self::read(bytes)).collect()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let arrival = Arrival {
            lane: read_u64(bytes, 0)?,
            tenant: read_u64(bytes, 8)?,
            at_ms: read_u64(bytes, 16)?,
            priority: read_u32(bytes, 24)?.cast_signed(),
            tokens: read_u32(bytes, 32)?,
            units: read_u32(bytes, 36)?,
            bytes: 0,
        };
        Some(Self {
            arrival,
            waiting: read_u32(bytes, 28)?,
            number: read_u64(bytes, 40)?,
        })
    }
}

/// There is no room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for one more waiting request")]
pub struct NoRoom;

type Key = (u64, i32, u64);

fn key(arrival: &Arrival) -> Key {
    (arrival.lane, arrival.priority, arrival.tenant)
}

fn head(ticket: Ticket, arrival: Arrival, waiting: u32) -> Head {
    Head {
        arrival,
        waiting,
        number: ticket.0,
    }
}

/// Requests that wait, with what each needs to go on.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: HashMap<Ticket, Waiting<T>>,
    lines: BTreeMap<Key, VecDeque<Ticket>>,
    ends: BTreeSet<(u64, Ticket)>,
    bytes: u64,
    next: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            lines: BTreeMap::new(),
            ends: BTreeSet::new(),
            bytes: 0,
            next: 1,
        }
    }
}

impl<T> Queue<T> {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of their bodies.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether one of a lane waits.
    pub fn has(&self, lane: u64) -> bool {
        let from = (lane, i32::MIN, 0);
        let to = (lane, i32::MAX, u64::MAX);
        self.lines.range(from..=to).next().is_some()
    }

    /// Whether a request of so many bytes may wait.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn admits(&self, bytes: u64, limits: &FlowControl) -> Result<(), NoRoom> {
        let has_room = self.waiting.len() < limits.max_waiting as usize
            && self.bytes.saturating_add(bytes) <= limits.max_waiting_bytes;
        if has_room { Ok(()) } else { Err(NoRoom) }
    }

    /// Adds a request behind those of its tenant, whether there is room or not ([`Self::admits`]).
    pub fn push(&mut self, arrival: Arrival, max_wait_ms: u64, request: T) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let until_ms = arrival.at_ms.saturating_add(max_wait_ms);
        self.lines
            .entry(key(&arrival))
            .or_default()
            .push_back(ticket);
        self.ends.insert((until_ms, ticket));
        self.bytes = self.bytes.saturating_add(arrival.bytes);
        let waiting = Waiting {
            arrival,
            until_ms,
            request,
        };
        self.waiting.insert(ticket, waiting);
        ticket
    }

    /// A waiting request.
    pub fn get(&self, ticket: Ticket) -> Option<&Waiting<T>> {
        self.waiting.get(&ticket)
    }

    /// Takes a request out; `None` when it waits no more.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&ticket)?;
        self.bytes = self.bytes.saturating_sub(waiting.arrival.bytes);
        self.ends.remove(&(waiting.until_ms, ticket));
        let key = key(&waiting.arrival);
        if let Some(line) = self.lines.get_mut(&key) {
            if line.front() == Some(&ticket) {
                line.pop_front();
            } else {
                line.retain(|other| *other != ticket);
            }
            if line.is_empty() {
                self.lines.remove(&key);
            }
        }
        Some(waiting)
    }

    /// Puts a request back to the front of its line that was taken out there.
    pub fn restore(&mut self, ticket: Ticket, waiting: Waiting<T>) {
        let line = self.lines.entry(key(&waiting.arrival)).or_default();
        line.push_front(ticket);
        self.ends.insert((waiting.until_ms, ticket));
        self.bytes = self.bytes.saturating_add(waiting.arrival.bytes);
        self.waiting.insert(ticket, waiting);
    }

    /// Takes out one that has waited long enough; `None` when there is none.
    pub fn expire(&mut self, now_ms: u64) -> Option<(Ticket, Waiting<T>)> {
        let (until_ms, ticket) = *self.ends.first()?;
        if until_ms > now_ms {
            return None;
        }
        Some((ticket, self.remove(ticket)?))
    }

    /// Takes all out, in any order.
    pub fn drain(&mut self) -> Vec<(Ticket, Waiting<T>)> {
        self.lines.clear();
        self.ends.clear();
        self.bytes = 0;
        self.waiting.drain().collect()
    }

    /// The first of each lane, priority and tenant.
    pub fn heads(&self) -> impl Iterator<Item = (Ticket, Head)> {
        self.lines.values().filter_map(|line| {
            let ticket = *line.front()?;
            let arrival = self.waiting.get(&ticket)?.arrival;
            let waiting = u32::try_from(line.len()).unwrap_or(u32::MAX);
            Some((ticket, head(ticket, arrival, waiting)))
        })
    }

    /// The request behind `ticket`, and of the same lane, priority and tenant, that comes next once it is taken out.
    pub fn after(&self, ticket: Ticket) -> Option<(Ticket, Head)> {
        let waiting = self.waiting.get(&ticket)?;
        let line = self.lines.get(&key(&waiting.arrival))?;
        let place = line.iter().position(|other| *other == ticket)?;
        let next = *line.get(place + 1)?;
        let arrival = self.waiting.get(&next)?.arrival;
        let waiting = u32::try_from(line.len() - place - 1).unwrap_or(u32::MAX);
        Some((next, head(next, arrival, waiting)))
    }
}
