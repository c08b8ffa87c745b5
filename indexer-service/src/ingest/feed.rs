//! One event source: what its updates mean for the index.
//!
//! ```text
//!               Connected                 all replayed
//!  connecting ────────────► replaying ─────────────────────► live ◄──────────────┐
//!                            ▲  │  ▲                          │ │                │ answers, or a batch
//!                            │  │  │ gap, other engine        │ └──► silent ─────┤
//!               failed: asked│  │  └──────────────────────────┤   Disconnected,  │
//!               again, ever  └──┤                             │   or two soundings without an answer
//!               more rarely     │ given up                    │
//!                               ▼                             │
//!                             gapped ─────────────────────────┘
//!                                    a sounding is answered: everything is asked for anew
//! ```
//!
//! The sequence tracker ([`prefixway_core::sequence`]) decides what is applied. This adds what it can't see:
//!
//! - **Is it still the same engine?** An idle engine that restarted says nothing, and another one may have taken the address. So a replay after a
//!   reconnection begins one batch *early*:
//!   ```text
//!    asked from n-1:  n-1 with the payload we know ─► same engine, go on      another payload, or nothing at all ─► another engine, from 0
//!   ```
//! - **Has a batch got lost that no later one shows?** A source that has been quiet is asked the same way, by a *sounding*: a replay from the newest batch
//!   that changes no state where everything is as expected. It also finds an engine that was replaced behind a connection that never broke, brings the
//!   newest batches where those got lost, and tells an idle engine from a dead one.
//! - **When is a failed replay asked for again?** After a pause that doubles, with jitter; meanwhile what was known stays, and live batches wait.

use prefixway_core::sequence::{
    Action, DEFAULT_HELD_BATCHES, DEFAULT_HELD_BYTES, Input, SequenceCounters, SequenceTracker,
    SourceState,
};
use prost::bytes::Bytes;

use super::pauses::Pauses;
use crate::kv_events::ReplayRequest;

/// Replays that fail one after the other before what they should have brought is given up. A publisher whose replays have all failed so far
/// is asked once.
const MAX_TRIES: u32 = 4;
/// First pause before a failed replay is asked for again; it doubles.
const RETRY_MS: u64 = 500;
/// Quiet after which a source is sounded, and time between two soundings of a gapped one.
const SOUND_MS: u64 = 30_000;
/// Soundings without an answer after which a source is silent.
const MAX_UNANSWERED: u32 = 2;

/// What came from the subscriber for this source.
#[derive(Debug)]
pub(super) enum FeedInput {
    Connected,
    Disconnected,
    Live {
        seq: u64,
        payload: Bytes,
    },
    Replayed {
        request: ReplayRequest,
        seq: u64,
        payload: Bytes,
    },
    ReplayEnded {
        request: ReplayRequest,
        complete: bool,
    },
    /// What was made of the batches no longer holds.
    StartOver,
    /// Time has passed.
    Tick,
}

/// What has to be done, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FeedAction {
    Apply(Bytes),
    Reset,
    Replay { request: ReplayRequest, from: u64 },
}

/// State of one source.
#[derive(Debug)]
pub(super) struct Feed {
    tracker: SequenceTracker<Bytes>,
    can_replay: bool,
    link: LinkState,
    has_been_live: bool,
    /// The newest request; answers to others are old.
    request: ReplayRequest,
    purpose: Purpose,
    /// The newest batch that was given to be applied.
    last: Option<(u64, Bytes)>,
    pauses: Pauses,
    /// Replays that have failed one after the other.
    failures: u32,
    /// Whether a replay has ever come to its end.
    has_replayed: bool,
    /// When the source was heard of last, or sounded in vain.
    heard_ms: u64,
    /// Soundings that have not been answered, one after the other.
    unanswered: u32,
    soundings: u64,
}

/// Whether the publisher is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Never,
    Up,
    Down,
}

/// What the newest request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    /// Nothing is under way.
    None,
    /// What the tracker asked for.
    CatchUp { from: u64, overlaps: bool },
    /// The same, failed: asked again at the time.
    Retry {
        from: u64,
        overlaps: bool,
        at_ms: u64,
    },
    /// To see whether everything is as expected; `is_confirmed` once the newest batch has been seen again.
    Sounding {
        newest: Option<(u64, Bytes)>,
        is_confirmed: bool,
    },
}

impl Feed {
    /// A source that has not been heard of. `number` tells its pauses from those of others.
    pub(super) fn new(can_replay: bool, number: u32) -> Self {
        Self {
            tracker: SequenceTracker::new(DEFAULT_HELD_BATCHES)
                .with_held_bytes(DEFAULT_HELD_BYTES, Bytes::len),
            can_replay,
            link: LinkState::Never,
            has_been_live: false,
            request: ReplayRequest(0),
            purpose: Purpose::None,
            last: None,
            pauses: Pauses::new(number),
            failures: 0,
            has_replayed: false,
            heard_ms: 0,
            unanswered: 0,
            soundings: 0,
        }
    }

    /// The source's state. Without a connection it is silent, whatever it was before.
    pub(super) fn state(&self) -> SourceState {
        match (self.link, self.tracker.state()) {
            (_, SourceState::Gone) => SourceState::Gone,
            (LinkState::Down, _) => SourceState::Silent,
            (_, state) => state,
        }
    }

    pub(super) fn is_partial(&self) -> bool {
        self.tracker.is_partial()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link == LinkState::Up
    }

    /// Whether the source has connected and caught up at least once.
    pub(super) fn has_been_live(&self) -> bool {
        self.has_been_live
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.tracker.next_seq()
    }

    pub(super) fn counters(&self) -> SequenceCounters {
        self.tracker.counters()
    }

    /// Soundings so far.
    pub(super) fn soundings(&self) -> u64 {
        self.soundings
    }

    pub(super) fn step(&mut self, input: FeedInput, now_ms: u64) -> Vec<FeedAction> {
        match input {
            FeedInput::Connected => self.connected(now_ms),
            FeedInput::Disconnected => {
                self.link = LinkState::Down;
                // Nobody is there to be asked; the next connection asks anew.
                self.purpose = Purpose::None;
                self.track(Input::Silent)
            }
            FeedInput::Live { seq, payload } => {
                self.heard(now_ms);
                self.track(Input::Live {
                    seq,
                    batch: payload,
                })
            }
            FeedInput::Replayed { request, .. } | FeedInput::ReplayEnded { request, .. }
                if request != self.request =>
            {
                Vec::new()
            }
            FeedInput::Replayed { seq, payload, .. } => {
                self.heard(now_ms);
                self.replayed(seq, payload)
            }
            FeedInput::ReplayEnded { complete: true, .. } => {
                self.heard(now_ms);
                self.has_replayed = true;
                self.failures = 0;
                self.replay_ended()
            }
            FeedInput::ReplayEnded {
                complete: false, ..
            } => self.replay_failed(now_ms),
            FeedInput::StartOver => self.new_engine(),
            FeedInput::Tick => self.tick(now_ms),
        }
    }

    fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.unanswered = 0;
    }

    fn connected(&mut self, now_ms: u64) -> Vec<FeedAction> {
        self.link = LinkState::Up;
        self.failures = 0;
        self.heard(now_ms);
        let mut actions = self.track(Input::Connected {
            can_replay: self.can_replay,
        });
        if let (Some((seq, _)), [FeedAction::Replay { from, .. }]) =
            (&self.last, actions.as_mut_slice())
            && *from == seq + 1
        {
            *from = *seq;
            self.purpose = Purpose::CatchUp {
                from: *seq,
                overlaps: true,
            };
        }
        actions
    }

    fn replayed(&mut self, seq: u64, payload: Bytes) -> Vec<FeedAction> {
        match &mut self.purpose {
            Purpose::None | Purpose::Retry { .. } => Vec::new(),
            Purpose::CatchUp { overlaps, .. } => {
                if std::mem::take(overlaps) {
                    let is_same = self.last.as_ref() == Some(&(seq, payload));
                    return if is_same {
                        Vec::new()
                    } else {
                        self.new_engine()
                    };
                }
                // What a retry would ask for is what comes now.
                self.failures = 0;
                self.track(Input::Replayed {
                    seq,
                    batch: payload,
                })
            }
            Purpose::Sounding {
                newest: Some(newest),
                is_confirmed,
            } if !*is_confirmed => {
                *is_confirmed = *newest == (seq, payload);
                if *is_confirmed {
                    Vec::new()
                } else {
                    self.new_engine()
                }
            }
            Purpose::Sounding { .. } => self.track(Input::Found {
                seq,
                batch: payload,
            }),
        }
    }

    fn replay_ended(&mut self) -> Vec<FeedAction> {
        match std::mem::replace(&mut self.purpose, Purpose::None) {
            Purpose::None | Purpose::Retry { .. } => Vec::new(),
            // The engine does not even have the batch that we know to be its newest.
            Purpose::CatchUp { overlaps: true, .. }
            | Purpose::Sounding {
                newest: Some(_),
                is_confirmed: false,
            } => self.new_engine(),
            Purpose::CatchUp { .. } => self.track(Input::ReplayEnd),
            Purpose::Sounding { .. } if self.tracker.state() == SourceState::Gapped => {
                // It answers again: what was given up can be had now, as far as it is still there.
                self.new_engine()
            }
            Purpose::Sounding { .. } => self.track(Input::Heard),
        }
    }

    fn replay_failed(&mut self, now_ms: u64) -> Vec<FeedAction> {
        match std::mem::replace(&mut self.purpose, Purpose::None) {
            Purpose::None | Purpose::Retry { .. } => Vec::new(),
            Purpose::CatchUp { from, overlaps } => {
                self.failures += 1;
                let tries = if self.has_replayed { MAX_TRIES } else { 2 };
                if self.failures < tries {
                    // What has come of it is not asked for again.
                    let from = if overlaps {
                        from
                    } else {
                        self.tracker.next_seq()
                    };
                    self.purpose = Purpose::Retry {
                        from,
                        overlaps,
                        at_ms: now_ms + self.pauses.growing(RETRY_MS, self.failures),
                    };
                    return Vec::new();
                }
                self.track(Input::ReplayFailed)
            }
            Purpose::Sounding { .. } => {
                self.heard_ms = now_ms;
                self.unanswered += 1;
                if self.unanswered >= MAX_UNANSWERED {
                    self.track(Input::Silent)
                } else {
                    Vec::new()
                }
            }
        }
    }

    fn tick(&mut self, now_ms: u64) -> Vec<FeedAction> {
        match self.purpose {
            Purpose::Retry {
                from,
                overlaps,
                at_ms,
            } if now_ms >= at_ms => {
                self.purpose = Purpose::CatchUp { from, overlaps };
                vec![self.ask(from)]
            }
            Purpose::None if self.can_replay && self.is_connected() => self.sound(now_ms),
            _ => Vec::new(),
        }
    }

    /// Asks for the newest batch, where the source has been quiet for long or is gapped.
    fn sound(&mut self, now_ms: u64) -> Vec<FeedAction> {
        let is_following = matches!(
            self.tracker.state(),
            SourceState::Live | SourceState::Gapped | SourceState::Silent
        );
        let since_ms = if self.tracker.state() == SourceState::Gapped {
            self.pauses.last_ms()
        } else {
            self.heard_ms.max(self.pauses.last_ms())
        };
        if !is_following || !self.pauses.is_over(SOUND_MS, since_ms, now_ms) {
            return Vec::new();
        }
        self.soundings += 1;
        let from = self.last.as_ref().map_or(0, |(seq, _)| *seq);
        self.purpose = Purpose::Sounding {
            newest: self.last.clone(),
            is_confirmed: false,
        };
        vec![self.ask(from)]
    }

    fn ask(&mut self, from: u64) -> FeedAction {
        self.request = ReplayRequest(self.request.0 + 1);
        FeedAction::Replay {
            request: self.request,
            from,
        }
    }

    fn new_engine(&mut self) -> Vec<FeedAction> {
        self.purpose = Purpose::None;
        self.track(Input::NewEngine)
    }

    /// Steps the tracker, numbers the replays, and keeps in mind what the actions mean here.
    fn track(&mut self, input: Input<Bytes>) -> Vec<FeedAction> {
        let actions = self
            .tracker
            .step(input)
            .into_iter()
            .map(|action| match action {
                Action::Apply { seq, batch } => {
                    self.last = Some((seq, batch.clone()));
                    FeedAction::Apply(batch)
                }
                Action::Reset => {
                    self.last = None;
                    FeedAction::Reset
                }
                Action::Replay { from } => {
                    self.purpose = Purpose::CatchUp {
                        from,
                        overlaps: false,
                    };
                    self.ask(from)
                }
            })
            .collect();
        self.has_been_live |= matches!(
            self.tracker.state(),
            SourceState::Live | SourceState::Gapped
        );
        actions
    }
}

#[cfg(test)]
mod tests;
