//! The leader's gRPC stream to one indexer shard.
//!
//! ```text
//!             retry_at passed: open            first message
//!  ┌────────┐ ───────────────────► ┌─────────┐ ─────────────► ┌──────┐
//!  │ Closed │                      │ Opening │                │ Live │
//!  └────────┘ ◄─────────────────── └─────────┘                └──────┘
//!       ▲       closed: wait twice as long                       │
//!       └──────────── closed, or silent too long ◄───────────────┘
//! ```
//!
//! Records go up with numbers 1, 2, ... and are kept until the indexer acknowledges them; at most [`WINDOW`] are under way, at most [`QUEUE`]
//! wait. A new stream numbers and sends again what was not acknowledged.

use std::collections::VecDeque;

use prefixway_core::proto::{Up, up};

/// gRPC service.
pub(crate) const SERVICE: &str = "prefixway.v1.Snapshot";
/// gRPC method.
pub(crate) const METHOD: &str = "Watch";

/// Records sent and not acknowledged.
pub(crate) const WINDOW: usize = 256;
/// Records that wait for the window; more are dropped, oldest first.
pub(crate) const QUEUE: usize = 4096;

const MIN_BACKOFF_MS: u64 = 50;
const MAX_BACKOFF_MS: u64 = 5_000;
/// A live indexer sends a heartbeat every second.
const SILENCE_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { retry_at_ms: u64 },
    Opening { token: u32, since_ms: u64 },
    Live { token: u32, heard_ms: u64 },
}

/// What to do with the stream now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// Open it and report [`Link::opened`] or [`Link::closed`].
    Open,
    /// Cancel this token, then report [`Link::closed`].
    Cancel(u32),
}

/// State of one stream and its outgoing records.
#[derive(Debug)]
pub(crate) struct Link {
    state: State,
    backoff_ms: u64,
    next_seq: u64,
    unacknowledged: VecDeque<(u64, up::Kind)>,
    waiting: VecDeque<up::Kind>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            state: State::Closed { retry_at_ms: 0 },
            backoff_ms: MIN_BACKOFF_MS,
            next_seq: 1,
            unacknowledged: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }
}

impl Link {
    /// The stream's token while it is open.
    pub(crate) fn token(&self) -> Option<u32> {
        match self.state {
            State::Closed { .. } => None,
            State::Opening { token, .. } | State::Live { token, .. } => Some(token),
        }
    }

    /// Whether it is time to open or give up.
    pub(crate) fn due(&self, now_ms: u64) -> Due {
        match self.state {
            State::Closed { retry_at_ms } if now_ms >= retry_at_ms => Due::Open,
            State::Opening { token, since_ms: at } | State::Live { token, heard_ms: at }
                if now_ms.saturating_sub(at) > SILENCE_MS =>
            {
                Due::Cancel(token)
            }
            _ => Due::Nothing,
        }
    }

    /// The host opened the stream.
    pub(crate) fn opened(&mut self, token: u32, now_ms: u64) {
        self.state = State::Opening {
            token,
            since_ms: now_ms,
        };
        self.next_seq = 1;
        while let Some((_, kind)) = self.unacknowledged.pop_back() {
            self.waiting.push_front(kind);
        }
    }

    /// The stream ended, or could not be opened. `noise` spreads the retries of many proxies.
    pub(crate) fn closed(&mut self, now_ms: u64, noise: u64) {
        let half = self.backoff_ms / 2;
        let wait = half + noise.checked_rem(half.max(1)).unwrap_or(0);
        self.state = State::Closed {
            retry_at_ms: now_ms.saturating_add(wait),
        };
        self.backoff_ms = (self.backoff_ms * 2).min(MAX_BACKOFF_MS);
    }

    /// A message came.
    pub(crate) fn heard(&mut self, now_ms: u64) {
        if let Some(token) = self.token() {
            self.backoff_ms = MIN_BACKOFF_MS;
            self.state = State::Live {
                token,
                heard_ms: now_ms,
            };
        }
    }

    /// The indexer took every record up to `seq`.
    pub(crate) fn acknowledged(&mut self, seq: u64) {
        while self.unacknowledged.front().is_some_and(|(s, _)| *s <= seq) {
            self.unacknowledged.pop_front();
        }
    }

    /// Queues a record; gives whether an older one had to go for it.
    pub(crate) fn push(&mut self, kind: up::Kind) -> bool {
        let full = self.waiting.len() >= QUEUE;
        if full {
            self.waiting.pop_front();
        }
        self.waiting.push_back(kind);
        full
    }

    /// The next record to send, or `None` when none waits, the window is full or the stream is not live.
    pub(crate) fn next(&mut self) -> Option<Up> {
        let live = matches!(self.state, State::Live { .. });
        if !live || self.unacknowledged.len() >= WINDOW {
            return None;
        }
        let kind = self.waiting.pop_front()?;
        let seq = self.next_seq;
        self.next_seq += 1;
        // Usage is absolute: a newer one replaces it, so a lost one is not sent again.
        if !matches!(kind, up::Kind::Usage(_)) {
            self.unacknowledged.push_back((seq, kind.clone()));
        }
        Some(Up {
            seq,
            kind: Some(kind),
        })
    }

    /// Forgets records and stream: another VM leads now. Gives the token to cancel.
    pub(crate) fn reset(&mut self) -> Option<u32> {
        let token = self.token();
        *self = Self::default();
        token
    }
}

#[cfg(test)]
mod tests {
    use prefixway_core::proto::{Outcome, Usage};

    use super::*;

    fn outcome(request: u64) -> up::Kind {
        up::Kind::Outcome(Outcome {
            request,
            ..Outcome::default()
        })
    }

    fn live() -> Link {
        let mut link = Link::default();
        assert_eq!(link.due(0), Due::Open);
        link.opened(7, 0);
        link.heard(0);
        link
    }

    #[test]
    fn retries_wait_longer_each_time_until_something_is_heard() {
        let mut link = Link::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..10 {
            link.opened(1, now);
            link.closed(now, 0);
            let start = now;
            while link.due(now) == Due::Nothing {
                now += 1;
            }
            waits.push(now - start);
        }
        assert_eq!(waits, [25, 50, 100, 200, 400, 800, 1600, 2500, 2500, 2500]);
        link.opened(1, now);
        link.heard(now);
        link.closed(now, 3);
        assert_eq!(link.due(now + 27), Due::Nothing);
        assert_eq!(link.due(now + 28), Due::Open);
    }

    #[test]
    fn a_silent_stream_is_given_up() {
        let mut link = live();
        assert_eq!(link.due(SILENCE_MS), Due::Nothing);
        assert_eq!(link.due(SILENCE_MS + 1), Due::Cancel(7));
        link.heard(SILENCE_MS);
        assert_eq!(link.due(SILENCE_MS + 1), Due::Nothing);
    }

    #[test]
    fn unacknowledged_records_go_up_again_on_a_new_stream() {
        let mut link = live();
        for request in 1..=3 {
            assert!(!link.push(outcome(request)));
            assert_eq!(link.next().unwrap().seq, request);
        }
        link.acknowledged(1);
        link.closed(0, 0);
        assert_eq!(link.next(), None);
        link.opened(8, 100);
        link.heard(100);
        let again: Vec<Up> = std::iter::from_fn(|| link.next()).collect();
        let kinds: Vec<_> = again.iter().map(|up| up.kind.clone().unwrap()).collect();
        assert_eq!(kinds, [outcome(2), outcome(3)]);
        assert_eq!(again.iter().map(|up| up.seq).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn window_and_queue_are_bounded() {
        let mut link = live();
        for request in 0..(WINDOW + QUEUE) as u64 {
            assert!(!link.push(outcome(request)));
            link.next();
        }
        assert_eq!(link.next(), None);
        assert!(link.push(outcome(0)));
        link.acknowledged(1);
        assert!(link.next().is_some() && link.next().is_none());
        let mut usage = live();
        usage.push(up::Kind::Usage(Usage::default()));
        assert!(usage.next().is_some() && usage.unacknowledged.is_empty());
    }
}
