//! One event source: what its updates mean for the index.
//!
//! The sequence tracker decides what is applied. This adds the one thing that it can't see: after a reconnection, whether the engine behind
//! the address is still the same. An idle engine that restarted says nothing, so a replay after a reconnection begins one batch *early*:
//!
//! ```text
//!  asked from n-1:  n-1 with the payload we know ─► same engine, go on      another payload, or nothing at all ─► another engine, from 0
//! ```

use prefixway_core::sequence::{
    Action, DEFAULT_HELD_BATCHES, Input, SequenceCounters, SequenceTracker, SourceState,
};

use crate::kv_events::ReplayRequest;

/// What came from the subscriber for this source.
#[derive(Debug)]
pub(super) enum FeedInput {
    Connected,
    Disconnected,
    Live {
        seq: u64,
        payload: Vec<u8>,
    },
    Replayed {
        request: ReplayRequest,
        seq: u64,
        payload: Vec<u8>,
    },
    ReplayEnded {
        request: ReplayRequest,
        complete: bool,
    },
    /// What was made of the batches no longer holds.
    StartOver,
}

/// What has to be done, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FeedAction {
    Apply(Vec<u8>),
    Reset,
    Replay { request: ReplayRequest, from: u64 },
}

/// State of one source.
#[derive(Debug)]
pub(super) struct Feed {
    tracker: SequenceTracker<Vec<u8>>,
    can_replay: bool,
    is_connected: bool,
    has_been_live: bool,
    /// The newest request; answers to others are old.
    request: Request,
    /// The newest batch applied.
    last: Option<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Request {
    number: ReplayRequest,
    /// Whether its answer has to begin with [`Feed::last`] still.
    overlaps: bool,
}

impl Feed {
    pub(super) fn new(can_replay: bool) -> Self {
        Self {
            tracker: SequenceTracker::new(DEFAULT_HELD_BATCHES),
            can_replay,
            is_connected: false,
            has_been_live: false,
            request: Request {
                number: ReplayRequest(0),
                overlaps: false,
            },
            last: None,
        }
    }

    pub(super) fn state(&self) -> SourceState {
        self.tracker.state()
    }

    pub(super) fn is_partial(&self) -> bool {
        self.tracker.is_partial()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
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

    /// The payload of an [`FeedAction::Apply`], given back after it was applied.
    pub(super) fn applied(&mut self, payload: Vec<u8>) {
        if let Some(seq) = self.tracker.next_seq().checked_sub(1) {
            self.last = Some((seq, payload));
        }
    }

    pub(super) fn step(&mut self, input: FeedInput) -> Vec<FeedAction> {
        let actions = match input {
            FeedInput::Connected => return self.connected(),
            FeedInput::Disconnected => {
                self.is_connected = false;
                self.tracker.step(Input::Silent)
            }
            FeedInput::Live { seq, payload } => self.tracker.step(Input::Live {
                seq,
                batch: payload,
            }),
            FeedInput::Replayed { request, .. } | FeedInput::ReplayEnded { request, .. }
                if request != self.request.number =>
            {
                Vec::new()
            }
            FeedInput::Replayed { seq, payload, .. } => return self.replayed(seq, payload),
            FeedInput::ReplayEnded { complete, .. } => return self.replay_ended(complete),
            FeedInput::StartOver => return self.new_engine(),
        };
        self.finish(actions)
    }

    fn connected(&mut self) -> Vec<FeedAction> {
        self.is_connected = true;
        let actions = self.tracker.step(Input::Connected {
            can_replay: self.can_replay,
        });
        let mut actions = self.finish(actions);
        if let (Some((seq, _)), [FeedAction::Replay { from, .. }]) =
            (&self.last, actions.as_mut_slice())
            && *from == seq + 1
        {
            *from = *seq;
            self.request.overlaps = true;
        }
        actions
    }

    fn replayed(&mut self, seq: u64, payload: Vec<u8>) -> Vec<FeedAction> {
        if std::mem::take(&mut self.request.overlaps)
            && let Some((last_seq, last)) = &self.last
            && seq == *last_seq
        {
            return if *last == payload {
                Vec::new()
            } else {
                self.new_engine()
            };
        }
        let actions = self.tracker.step(Input::Replayed {
            seq,
            batch: payload,
        });
        self.finish(actions)
    }

    fn replay_ended(&mut self, complete: bool) -> Vec<FeedAction> {
        if std::mem::take(&mut self.request.overlaps) && complete {
            // The engine does not even have the batch that we know to be its newest.
            return self.new_engine();
        }
        let actions = self.tracker.step(if complete {
            Input::ReplayEnd
        } else {
            Input::ReplayFailed
        });
        self.finish(actions)
    }

    fn new_engine(&mut self) -> Vec<FeedAction> {
        let actions = self.tracker.step(Input::NewEngine);
        self.finish(actions)
    }

    /// Numbers the replays, and keeps in mind what the actions mean here.
    fn finish(&mut self, actions: Vec<Action<Vec<u8>>>) -> Vec<FeedAction> {
        let actions = actions
            .into_iter()
            .map(|action| match action {
                Action::Apply { batch, .. } => FeedAction::Apply(batch),
                Action::Reset => {
                    self.last = None;
                    FeedAction::Reset
                }
                Action::Replay { from } => {
                    let number = ReplayRequest(self.request.number.0 + 1);
                    self.request = Request {
                        number,
                        overlaps: false,
                    };
                    FeedAction::Replay {
                        request: number,
                        from,
                    }
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
mod tests {
    use super::*;

    fn payload(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    /// Steps, gives applied payloads back, and says what happened in short words.
    fn step(feed: &mut Feed, input: FeedInput) -> Vec<String> {
        feed.step(input)
            .into_iter()
            .map(|action| match action {
                FeedAction::Apply(batch) => {
                    let text = String::from_utf8(batch.clone()).unwrap();
                    feed.applied(batch);
                    text
                }
                FeedAction::Reset => "reset".to_owned(),
                FeedAction::Replay { request, from } => format!("replay {} from {from}", request.0),
            })
            .collect()
    }

    fn live(seq: u64, text: &str) -> FeedInput {
        FeedInput::Live {
            seq,
            payload: payload(text),
        }
    }

    fn replayed(request: u64, seq: u64, text: &str) -> FeedInput {
        FeedInput::Replayed {
            request: ReplayRequest(request),
            seq,
            payload: payload(text),
        }
    }

    fn ended(request: u64, complete: bool) -> FeedInput {
        FeedInput::ReplayEnded {
            request: ReplayRequest(request),
            complete,
        }
    }

    /// A source that is live after batches 0 and 1.
    fn live_feed() -> Feed {
        let mut feed = Feed::new(true);
        assert_eq!(step(&mut feed, FeedInput::Connected), ["replay 1 from 0"]);
        assert_eq!(step(&mut feed, replayed(1, 0, "a")), ["a"]);
        assert!(!feed.has_been_live());
        assert!(step(&mut feed, ended(1, true)).is_empty());
        assert!(feed.has_been_live());
        assert_eq!(step(&mut feed, live(1, "b")), ["b"]);
        feed
    }

    #[test]
    fn the_same_engine_goes_on_after_a_reconnection() {
        let mut feed = live_feed();
        step(&mut feed, FeedInput::Disconnected);
        assert_eq!(feed.state(), SourceState::Silent);
        assert_eq!(step(&mut feed, FeedInput::Connected), ["replay 2 from 1"]);
        assert!(step(&mut feed, replayed(2, 1, "b")).is_empty());
        assert_eq!(step(&mut feed, replayed(2, 2, "c")), ["c"]);
        assert!(step(&mut feed, ended(2, true)).is_empty());
        assert_eq!(feed.state(), SourceState::Live);
    }

    #[test]
    fn an_idle_engine_that_restarted_is_noticed() {
        let mut feed = live_feed();
        step(&mut feed, FeedInput::Disconnected);
        step(&mut feed, FeedInput::Connected);
        assert_eq!(
            step(&mut feed, ended(2, true)),
            ["reset", "replay 3 from 0"]
        );
        assert!(step(&mut feed, ended(3, true)).is_empty());
        assert_eq!(step(&mut feed, live(0, "z")), ["z"]);
    }

    #[test]
    fn a_restarted_engine_that_has_got_further_is_noticed() {
        let mut feed = live_feed();
        step(&mut feed, FeedInput::Disconnected);
        step(&mut feed, FeedInput::Connected);
        assert_eq!(
            step(&mut feed, replayed(2, 1, "other")),
            ["reset", "replay 3 from 0"]
        );
        assert!(step(&mut feed, replayed(2, 2, "old answer")).is_empty());
        assert_eq!(step(&mut feed, replayed(3, 0, "x")), ["x"]);
    }

    #[test]
    fn a_publisher_that_does_not_answer_proves_nothing() {
        let mut feed = live_feed();
        step(&mut feed, FeedInput::Disconnected);
        step(&mut feed, FeedInput::Connected);
        assert!(step(&mut feed, ended(2, false)).is_empty());
        assert_eq!(step(&mut feed, live(2, "c")), ["c"]);
    }

    #[test]
    fn a_gap_asks_from_the_missing_batch_without_overlap() {
        let mut feed = live_feed();
        assert_eq!(step(&mut feed, live(3, "d")), ["replay 2 from 2"]);
        assert_eq!(step(&mut feed, replayed(2, 2, "c")), ["c"]);
        assert_eq!(step(&mut feed, ended(2, true)), ["d"]);
    }

    #[test]
    fn a_source_that_starts_over_gets_all_its_batches_again() {
        let mut feed = live_feed();
        assert_eq!(
            step(&mut feed, FeedInput::StartOver),
            ["reset", "replay 2 from 0"]
        );
        assert_eq!(step(&mut feed, replayed(2, 0, "a")), ["a"]);
        assert_eq!(step(&mut feed, replayed(2, 1, "b")), ["b"]);
        assert!(step(&mut feed, ended(2, true)).is_empty());
        assert_eq!(step(&mut feed, live(2, "c")), ["c"]);
        // Before it has connected there is nothing to drop and nobody to ask.
        assert!(step(&mut Feed::new(true), FeedInput::StartOver).is_empty());
    }

    #[test]
    fn without_replay_a_source_follows_at_once() {
        let mut feed = Feed::new(false);
        assert!(step(&mut feed, FeedInput::Connected).is_empty());
        assert_eq!(step(&mut feed, live(7, "h")), ["h"]);
        assert_eq!(feed.state(), SourceState::Gapped);
    }
}
