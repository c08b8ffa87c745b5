//! Sequence tracking of one event source.
//!
//! ```text
//!              Connected (replay)             ReplayEnd, nothing missing
//!  Connecting ────────────────────► Replaying ─────────────────────────► Live ◄──► Silent
//!      │                             ▲  ▲   │                             │ ▲
//!      │ Connected (no replay)       │  │   │ ReplayEnd, hole left        │ │ sequence back to 0,
//!      └───────────────► Live        │  │   └──────────► Gapped ◄─────────┘ │ new engine
//!                                    │  │                  │  gap, no replay│
//!                    gap (replay)    │  └──────────────────┴────────────────┘
//!              from Live or Gapped ──┘   sequence went back, new engine
//!
//!  any state ── Gone ──► Gone
//! ```
//!
//! - Batches that arrive live while the tracker connects or replays are held (bounded) and applied after the replay; each sequence number
//!   is applied once.
//! - A live sequence number that is not above the last live one means that the engine restarted: its state is dropped and replayed from 0.
//! - A replay whose first batch is later than asked is kept and makes the source *partial*.
//! - A first replay that fails leaves the source *gapped*, until its first batch shows that there was none before, or another replay succeeds.
//! - A hole that a replay doesn't fill drops the state; what comes after it is applied, and the source is *gapped* until the engine starts over.
//!
//! The tracker is pure: it holds batches and says what to do with them.

use core::cmp::Ordering;
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Batches held while a replay runs, unless set otherwise.
pub const DEFAULT_HELD_BATCHES: usize = 10_000;

/// Bytes of the batches held while a replay runs, unless set otherwise.
pub const DEFAULT_HELD_BYTES: usize = 64 << 20;

/// What the outside tells the tracker. `B` is a batch in whatever form the caller keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<B> {
    /// The live subscription is set up.
    Connected {
        /// Whether the source can be asked for older batches.
        can_replay: bool,
    },
    /// A batch from the live subscription.
    Live {
        /// Its sequence number.
        seq: u64,
        /// The batch.
        batch: B,
    },
    /// A batch that answers the newest replay request. Answers to earlier requests must not be fed.
    Replayed {
        /// Its sequence number.
        seq: u64,
        /// The batch.
        batch: B,
    },
    /// The newest replay request is answered.
    ReplayEnd,
    /// The newest replay request got no answer, or no end.
    ReplayFailed,
    /// A batch that was found by asking, though the live subscription showed no hole: the newest ones may have got lost on their way.
    Found {
        /// Its sequence number.
        seq: u64,
        /// The batch.
        batch: B,
    },
    /// A source that was taken for silent has given a sign of life, though no batch.
    Heard,
    /// Another engine process answers at this source's address.
    NewEngine,
    /// The source said nothing for longer than the caller accepts.
    Silent,
    /// The source no longer exists.
    Gone,
}

/// What the caller has to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<B> {
    /// Apply the batch to the index.
    Apply {
        /// Its sequence number.
        seq: u64,
        /// The batch.
        batch: B,
    },
    /// Drop everything known from this source (a new incarnation begins).
    Reset,
    /// Ask the source for its batches from `from` on. Replaces an earlier request.
    Replay {
        /// First sequence number wanted.
        from: u64,
    },
}

/// State of a source, as shown to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceState {
    /// Not subscribed yet.
    Connecting,
    /// Older batches are being fetched.
    Replaying,
    /// Following the live stream without a hole.
    Live,
    /// Following the live stream after a hole that could not be filled: what was stored before it is unknown.
    Gapped,
    /// Nothing heard for longer than accepted.
    Silent,
    /// The source no longer exists.
    Gone,
}

impl SourceState {
    /// Name in metrics, messages and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Replaying => "replaying",
            Self::Live => "live",
            Self::Gapped => "gapped",
            Self::Silent => "silent",
            Self::Gone => "gone",
        }
    }
}

/// How much of what the engine holds is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// Everything since the engine's start.
    Whole,
    /// Everything since the oldest batch that the engine could replay.
    Partial,
    /// What came after a hole.
    Gapped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Replaying {
        /// Whether the running request has delivered a batch that was new.
        progressed: bool,
    },
    Following,
    Silent,
    Gone,
}

/// Totals since the tracker was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounters {
    /// Holes seen in the live stream.
    pub gaps: u64,
    /// Times the source's state was dropped because the engine started over or a hole stayed open.
    pub resets: u64,
    /// Replay requests made.
    pub replays: u64,
    /// Batches not applied because their number had been applied before.
    pub duplicates: u64,
    /// Batches that came after the source was gone.
    pub stale: u64,
    /// Live batches not held because too many were waiting for a replay.
    pub overflowed: u64,
}

/// Decides, for one source, which batches are applied and when.
#[derive(Debug)]
pub struct SequenceTracker<B> {
    phase: Phase,
    knowledge: Knowledge,
    can_replay: bool,
    /// The next number to apply; `None` until a batch was applied.
    next: Option<u64>,
    last_live: Option<u64>,
    held: VecDeque<(u64, B)>,
    held_limit: usize,
    /// Bytes of the held batches, where they are counted.
    held_bytes: usize,
    held_bytes_limit: usize,
    bytes_of: fn(&B) -> usize,
    counters: SequenceCounters,
}

impl<B> SequenceTracker<B> {
    /// A tracker that knows nothing yet and holds at most `held_limit` batches during a replay.
    pub fn new(held_limit: usize) -> Self {
        Self {
            phase: Phase::Connecting,
            knowledge: Knowledge::Whole,
            can_replay: false,
            next: None,
            last_live: None,
            held: VecDeque::new(),
            held_limit,
            held_bytes: 0,
            held_bytes_limit: usize::MAX,
            bytes_of: |_| 0,
            counters: SequenceCounters::default(),
        }
    }

    /// Holds batches of at most `limit` bytes together, too.
    #[must_use]
    pub fn with_held_bytes(mut self, limit: usize, bytes_of: fn(&B) -> usize) -> Self {
        self.held_bytes_limit = limit;
        self.bytes_of = bytes_of;
        self
    }

    /// A tracker for a source whose batches below `next` are applied already (a loaded checkpoint).
    pub fn resume(next: u64, held_limit: usize) -> Self {
        Self {
            next: Some(next),
            ..Self::new(held_limit)
        }
    }

    /// The source's state.
    pub fn state(&self) -> SourceState {
        match (self.phase, self.knowledge) {
            (Phase::Connecting, _) => SourceState::Connecting,
            (Phase::Replaying { .. }, _) => SourceState::Replaying,
            (Phase::Following, Knowledge::Gapped) => SourceState::Gapped,
            (Phase::Following, _) => SourceState::Live,
            (Phase::Silent, _) => SourceState::Silent,
            (Phase::Gone, _) => SourceState::Gone,
        }
    }

    /// Whether blocks may exist that were stored before the first known batch.
    pub fn is_partial(&self) -> bool {
        self.knowledge != Knowledge::Whole
    }

    /// The next sequence number to apply; 0 before the first.
    pub fn next_seq(&self) -> u64 {
        self.next.unwrap_or(0)
    }

    /// Totals so far.
    pub fn counters(&self) -> SequenceCounters {
        self.counters
    }

    /// Takes one input and returns what to do, in order.
    pub fn step(&mut self, input: Input<B>) -> Vec<Action<B>> {
        let mut actions = Vec::new();
        if self.phase == Phase::Gone {
            if matches!(input, Input::Live { .. } | Input::Replayed { .. }) {
                self.counters.stale += 1;
            }
            return actions;
        }
        match input {
            Input::Connected { can_replay } => {
                self.can_replay = can_replay;
                // Numbers applied before this subscription can't arrive on it, unless the engine restarted.
                self.last_live = self
                    .last_live
                    .or(self.next.and_then(|next| next.checked_sub(1)));
                self.catch_up(&mut actions);
            }
            Input::Live { seq, batch } => self.live(seq, batch, &mut actions),
            Input::Replayed { seq, batch } => self.replayed(seq, batch, &mut actions),
            Input::Found { seq, batch } => {
                let is_following = matches!(self.phase, Phase::Following | Phase::Silent);
                if is_following && seq == self.next_seq() {
                    self.phase = Phase::Following;
                    self.apply(seq, batch, &mut actions);
                }
            }
            Input::Heard => {
                if self.phase == Phase::Silent {
                    self.phase = Phase::Following;
                }
            }
            Input::ReplayEnd => {
                if self.next.is_none() && matches!(self.phase, Phase::Replaying { .. }) {
                    // Asked for everything, it has nothing.
                    self.knowledge = Knowledge::Whole;
                }
                self.replay_ended(&mut actions);
            }
            Input::ReplayFailed => {
                if self.next.is_none() && matches!(self.phase, Phase::Replaying { .. }) {
                    // Whether the engine has stored anything is not known.
                    self.knowledge = Knowledge::Gapped;
                }
                self.replay_ended(&mut actions);
            }
            Input::NewEngine => {
                self.start_over(&mut actions);
                if self.phase != Phase::Connecting {
                    self.catch_up(&mut actions);
                }
            }
            Input::Silent => {
                if self.phase == Phase::Following {
                    self.phase = Phase::Silent;
                }
            }
            Input::Gone => {
                self.forget_held();
                self.phase = Phase::Gone;
                actions.push(Action::Reset);
            }
        }
        actions
    }

    fn live(&mut self, seq: u64, batch: B, actions: &mut Vec<Action<B>>) {
        let went_back = self.last_live.is_some_and(|last| seq <= last);
        if went_back {
            self.start_over(actions);
        }
        self.last_live = Some(seq);
        match self.phase {
            Phase::Replaying { .. } if went_back => {
                self.hold(seq, batch);
                self.catch_up(actions);
            }
            Phase::Connecting | Phase::Replaying { .. } => self.hold(seq, batch),
            Phase::Following | Phase::Silent | Phase::Gone => {
                self.phase = Phase::Following;
                self.follow(seq, batch, actions);
            }
        }
    }

    /// A live batch outside a replay.
    fn follow(&mut self, seq: u64, batch: B, actions: &mut Vec<Action<B>>) {
        match seq.cmp(&self.next_seq()) {
            Ordering::Less => self.counters.duplicates += 1,
            Ordering::Equal => self.apply(seq, batch, actions),
            Ordering::Greater => {
                self.counters.gaps += 1;
                if self.can_replay {
                    self.hold(seq, batch);
                    self.catch_up(actions);
                } else {
                    self.leave_hole(actions);
                    self.apply(seq, batch, actions);
                }
            }
        }
    }

    fn replayed(&mut self, seq: u64, batch: B, actions: &mut Vec<Action<B>>) {
        let Phase::Replaying { progressed } = &mut self.phase else {
            self.counters.duplicates += 1;
            return;
        };
        let next = self.next.unwrap_or(0);
        if seq < next {
            self.counters.duplicates += 1;
            return;
        }
        *progressed = true;
        if seq > next {
            // The engine no longer has what was asked for.
            self.drop_state(actions);
            self.knowledge = Knowledge::Partial;
        }
        self.apply(seq, batch, actions);
    }

    fn replay_ended(&mut self, actions: &mut Vec<Action<B>>) {
        if let Phase::Replaying { progressed } = self.phase {
            self.release(progressed, actions);
        }
    }

    /// Applies held batches after a replay, asks again where the replay stopped short, and gives a hole up when it brought nothing.
    fn release(&mut self, progressed: bool, actions: &mut Vec<Action<B>>) {
        self.phase = Phase::Following;
        while let Some(&(seq, _)) = self.held.front() {
            let next = self.next_seq();
            if seq > next && progressed {
                self.catch_up(actions);
                return;
            }
            let Some((_, batch)) = self.held.pop_front() else {
                break;
            };
            self.held_bytes -= (self.bytes_of)(&batch);
            if seq < next {
                self.counters.duplicates += 1;
            } else {
                if seq > next {
                    self.leave_hole(actions);
                }
                self.apply(seq, batch, actions);
            }
        }
    }

    /// Asks for everything from the next number on, or follows the live stream where that is not possible.
    fn catch_up(&mut self, actions: &mut Vec<Action<B>>) {
        if self.can_replay {
            self.phase = Phase::Replaying { progressed: false };
            self.counters.replays += 1;
            actions.push(Action::Replay {
                from: self.next_seq(),
            });
        } else {
            self.release(false, actions);
        }
    }

    fn hold(&mut self, seq: u64, batch: B) {
        let bytes = self.held_bytes.saturating_add((self.bytes_of)(&batch));
        if self.held.len() < self.held_limit && bytes <= self.held_bytes_limit {
            self.held_bytes = bytes;
            self.held.push_back((seq, batch));
        } else {
            // The hole this leaves shows after the replay and is asked for again.
            self.counters.overflowed += 1;
        }
    }

    fn forget_held(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }

    fn apply(&mut self, seq: u64, batch: B, actions: &mut Vec<Action<B>>) {
        if seq == 0 {
            // From the engine's first batch on, everything is known.
            self.knowledge = Knowledge::Whole;
        }
        self.next = Some(seq.saturating_add(1));
        actions.push(Action::Apply { seq, batch });
    }

    /// A hole that nobody can fill: counts are unsound from here on.
    fn leave_hole(&mut self, actions: &mut Vec<Action<B>>) {
        self.drop_state(actions);
        self.knowledge = Knowledge::Gapped;
    }

    /// The engine process is another one.
    fn start_over(&mut self, actions: &mut Vec<Action<B>>) {
        self.forget_held();
        self.drop_state(actions);
        self.knowledge = Knowledge::Whole;
        self.next = None;
        self.last_live = None;
    }

    /// Drops what was applied, if anything was.
    fn drop_state(&mut self, actions: &mut Vec<Action<B>>) {
        if self.next.is_some() {
            self.counters.resets += 1;
            actions.push(Action::Reset);
        }
    }
}
