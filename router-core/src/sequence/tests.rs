use super::*;
use proptest::prelude::*;

type Tracker = SequenceTracker<u64>;

fn live(tracker: &mut Tracker, seq: u64) -> Vec<Action<u64>> {
    tracker.step(Input::Live { seq, batch: seq })
}

fn replayed(tracker: &mut Tracker, seq: u64) -> Vec<Action<u64>> {
    tracker.step(Input::Replayed { seq, batch: seq })
}

fn apply(seq: u64) -> Action<u64> {
    Action::Apply { seq, batch: seq }
}

fn connected(can_replay: bool) -> Tracker {
    let mut tracker = Tracker::new(8);
    let actions = tracker.step(Input::Connected { can_replay });
    let expected = if can_replay {
        vec![Action::Replay { from: 0 }]
    } else {
        vec![]
    };
    assert_eq!(actions, expected);
    tracker
}

/// A tracker that has replayed and applied `0..next`.
fn following(next: u64) -> Tracker {
    let mut tracker = connected(true);
    for seq in 0..next {
        assert_eq!(replayed(&mut tracker, seq), [apply(seq)]);
    }
    assert_eq!(tracker.step(Input::ReplayEnd), []);
    assert_eq!(tracker.state(), SourceState::Live);
    tracker
}

#[test]
fn live_batches_wait_for_the_end_of_the_replay_and_are_applied_once() {
    let mut tracker = connected(true);
    assert_eq!(tracker.state(), SourceState::Replaying);
    assert_eq!(live(&mut tracker, 2), []);
    assert_eq!(live(&mut tracker, 3), []);
    assert_eq!(replayed(&mut tracker, 0), [apply(0)]);
    assert_eq!(replayed(&mut tracker, 1), [apply(1)]);
    assert_eq!(replayed(&mut tracker, 2), [apply(2)]);
    assert_eq!(tracker.step(Input::ReplayEnd), [apply(3)]);
    assert_eq!(tracker.state(), SourceState::Live);
    assert!(!tracker.is_partial());
    assert_eq!(tracker.counters().duplicates, 1);
}

#[test]
fn gap_requests_replay_from_the_first_missing_batch() {
    let mut tracker = following(1);
    assert_eq!(live(&mut tracker, 3), [Action::Replay { from: 1 }]);
    assert_eq!(live(&mut tracker, 4), []);
    for seq in 1..=3 {
        assert_eq!(replayed(&mut tracker, seq), [apply(seq)]);
    }
    assert_eq!(tracker.step(Input::ReplayEnd), [apply(4)]);
    assert_eq!(live(&mut tracker, 5), [apply(5)]);
    assert_eq!(tracker.counters().gaps, 1);
    assert_eq!(tracker.counters().resets, 0);
}

#[test]
fn gap_that_replay_does_not_fill_drops_the_state() {
    let mut tracker = following(2);
    live(&mut tracker, 5);
    assert_eq!(tracker.step(Input::ReplayEnd), [Action::Reset, apply(5)]);
    assert_eq!(tracker.state(), SourceState::Gapped);
    assert!(tracker.is_partial());
    assert_eq!(live(&mut tracker, 6), [apply(6)]);
    assert_eq!(tracker.state(), SourceState::Gapped);
}

#[test]
fn gap_without_replay_drops_the_state() {
    let mut tracker = connected(false);
    assert_eq!(live(&mut tracker, 0), [apply(0)]);
    assert_eq!(live(&mut tracker, 2), [Action::Reset, apply(2)]);
    assert_eq!(tracker.state(), SourceState::Gapped);
    assert_eq!(
        tracker.counters(),
        SequenceCounters {
            gaps: 1,
            resets: 1,
            ..SequenceCounters::default()
        }
    );
}

#[test]
fn first_batch_after_zero_without_replay_is_a_gap_with_nothing_to_drop() {
    let mut tracker = connected(false);
    assert_eq!(live(&mut tracker, 2), [apply(2)]);
    assert_eq!(tracker.state(), SourceState::Gapped);
    assert_eq!(
        tracker.counters(),
        SequenceCounters {
            gaps: 1,
            ..SequenceCounters::default()
        }
    );
}

#[test]
fn replay_that_starts_late_is_kept_and_partial() {
    let mut tracker = connected(true);
    assert_eq!(replayed(&mut tracker, 7), [apply(7)]);
    assert_eq!(tracker.step(Input::ReplayEnd), []);
    assert_eq!(tracker.state(), SourceState::Live);
    assert!(tracker.is_partial());
}

#[test]
fn late_replay_of_a_gap_drops_what_was_known() {
    let mut tracker = following(3);
    live(&mut tracker, 9);
    assert_eq!(replayed(&mut tracker, 6), [Action::Reset, apply(6)]);
    replayed(&mut tracker, 7);
    replayed(&mut tracker, 8);
    assert_eq!(tracker.step(Input::ReplayEnd), [apply(9)]);
    assert!(tracker.is_partial());
}

#[test]
fn sequence_going_back_resets_and_replays_from_zero() {
    let mut tracker = following(3);
    assert_eq!(live(&mut tracker, 3), [apply(3)]);
    assert_eq!(
        live(&mut tracker, 1),
        [Action::Reset, Action::Replay { from: 0 }]
    );
    assert_eq!(replayed(&mut tracker, 0), [apply(0)]);
    assert_eq!(tracker.step(Input::ReplayEnd), [apply(1)]);
    assert!(!tracker.is_partial());
    assert_eq!(tracker.counters().resets, 1);
}

#[test]
fn restart_at_zero_needs_no_replay() {
    for can_replay in [false, true] {
        let mut tracker = connected(can_replay);
        tracker.step(Input::ReplayEnd);
        live(&mut tracker, 0);
        live(&mut tracker, 1);
        assert_eq!(
            live(&mut tracker, 0),
            [Action::Reset, apply(0)],
            "{can_replay}"
        );
        assert_eq!(tracker.state(), SourceState::Live);
    }
}

#[test]
fn restart_during_a_replay_starts_the_replay_over() {
    let mut tracker = following(3);
    live(&mut tracker, 3);
    live(&mut tracker, 6);
    assert_eq!(tracker.state(), SourceState::Replaying);
    assert_eq!(
        live(&mut tracker, 0),
        [Action::Reset, Action::Replay { from: 0 }]
    );
    assert_eq!(tracker.step(Input::ReplayEnd), [apply(0)]);
}

#[test]
fn queued_live_batches_that_were_replayed_are_duplicates_not_a_restart() {
    let mut tracker = following(3);
    assert_eq!(live(&mut tracker, 1), []);
    assert_eq!(live(&mut tracker, 2), []);
    assert_eq!(live(&mut tracker, 3), [apply(3)]);
    assert_eq!(tracker.counters().duplicates, 2);
    assert_eq!(tracker.counters().resets, 0);
}

#[test]
fn resumed_source_that_restarted_meanwhile_starts_over() {
    let mut tracker = Tracker::resume(500, 8);
    assert_eq!(
        tracker.step(Input::Connected { can_replay: true }),
        [Action::Replay { from: 500 }]
    );
    assert_eq!(tracker.step(Input::ReplayEnd), []);
    assert_eq!(
        live(&mut tracker, 3),
        [Action::Reset, Action::Replay { from: 0 }]
    );
}

#[test]
fn new_engine_drops_the_state_and_replays_from_zero() {
    let mut tracker = following(3);
    assert_eq!(
        tracker.step(Input::NewEngine),
        [Action::Reset, Action::Replay { from: 0 }]
    );
    assert_eq!(replayed(&mut tracker, 0), [apply(0)]);
}

#[test]
fn held_batches_are_bounded_and_the_rest_is_asked_for_again() {
    let mut tracker = connected(true);
    for seq in 10..20 {
        assert_eq!(live(&mut tracker, seq), []);
    }
    assert_eq!(tracker.counters().overflowed, 2);
    for seq in 0..5 {
        replayed(&mut tracker, seq);
    }
    // The replay brought something but not all: it is asked for the rest.
    assert_eq!(tracker.step(Input::ReplayEnd), [Action::Replay { from: 5 }]);
    for seq in 5..10 {
        replayed(&mut tracker, seq);
    }
    assert_eq!(
        tracker.step(Input::ReplayEnd),
        (10..18).map(apply).collect::<Vec<_>>()
    );
    assert_eq!(live(&mut tracker, 20), [Action::Replay { from: 18 }]);
}

#[test]
fn held_batches_are_bounded_in_bytes_too() {
    // Each batch has as many bytes as its number says.
    let mut tracker = Tracker::new(8).with_held_bytes(40, |seq| usize::try_from(*seq).unwrap());
    tracker.step(Input::Connected { can_replay: true });
    for seq in 10..20 {
        live(&mut tracker, seq);
    }
    assert_eq!(tracker.counters().overflowed, 7);
    for seq in 0..10 {
        replayed(&mut tracker, seq);
    }
    assert_eq!(
        tracker.step(Input::ReplayEnd),
        [apply(10), apply(11), apply(12)]
    );
    // What was released makes room.
    assert_eq!(live(&mut tracker, 22), [Action::Replay { from: 13 }]);
    live(&mut tracker, 15);
    assert_eq!(tracker.counters().overflowed, 7);
}

#[test]
fn failed_first_replay_is_tried_again_at_the_next_batch() {
    let mut tracker = connected(true);
    assert_eq!(tracker.step(Input::ReplayFailed), []);
    assert_eq!(tracker.state(), SourceState::Gapped);
    assert_eq!(live(&mut tracker, 4), [Action::Replay { from: 0 }]);
    assert_eq!(tracker.step(Input::ReplayFailed), [apply(4)]);
    assert_eq!(tracker.state(), SourceState::Gapped);
}

#[test]
fn a_first_batch_shows_that_a_failed_replay_missed_nothing() {
    let mut tracker = connected(true);
    tracker.step(Input::ReplayFailed);
    assert_eq!(live(&mut tracker, 0), [apply(0)]);
    assert_eq!(tracker.state(), SourceState::Live);
    assert!(!tracker.is_partial());
}

#[test]
fn found_batches_are_applied_once_and_are_no_restart() {
    let mut tracker = following(3);
    let found = |tracker: &mut Tracker, seq| tracker.step(Input::Found { seq, batch: seq });
    assert_eq!(found(&mut tracker, 2), []);
    assert_eq!(found(&mut tracker, 3), [apply(3)]);
    // Not the next one: a hole that the live stream will show.
    assert_eq!(found(&mut tracker, 6), []);
    // It was only late.
    assert_eq!(live(&mut tracker, 3), []);
    assert_eq!(live(&mut tracker, 4), [apply(4)]);
    assert_eq!(tracker.counters().resets, 0);
    tracker.step(Input::Silent);
    assert_eq!(found(&mut tracker, 5), [apply(5)]);
    assert_eq!(tracker.state(), SourceState::Live);
}

#[test]
fn a_sign_of_life_ends_silence() {
    let mut tracker = following(1);
    tracker.step(Input::Heard);
    assert_eq!(tracker.state(), SourceState::Live);
    tracker.step(Input::Silent);
    tracker.step(Input::Heard);
    assert_eq!(tracker.state(), SourceState::Live);
}

#[test]
fn silent_source_is_live_again_with_its_next_batch() {
    let mut tracker = following(1);
    tracker.step(Input::Silent);
    assert_eq!(tracker.state(), SourceState::Silent);
    assert_eq!(live(&mut tracker, 1), [apply(1)]);
    assert_eq!(tracker.state(), SourceState::Live);
}

#[test]
fn source_that_is_gone_drops_late_batches() {
    let mut tracker = following(1);
    assert_eq!(tracker.step(Input::Gone), [Action::Reset]);
    assert_eq!(live(&mut tracker, 1), []);
    assert_eq!(tracker.step(Input::Connected { can_replay: true }), []);
    assert_eq!(tracker.state(), SourceState::Gone);
    assert_eq!(tracker.counters().stale, 1);
}

#[test]
fn batches_before_the_connection_is_set_up_are_held() {
    let mut tracker = Tracker::new(8);
    assert_eq!(live(&mut tracker, 0), []);
    assert_eq!(tracker.state(), SourceState::Connecting);
    assert_eq!(
        tracker.step(Input::Connected { can_replay: false }),
        [apply(0)]
    );
}

proptest! {
    /// Whatever gets lost on the live stream, a replay that works brings every batch exactly once and in order.
    #[test]
    fn every_batch_is_applied_once_and_in_order(
        delivered in prop::collection::vec(any::<bool>(), 1..60),
        replay_lag in 0usize..5,
    ) {
        let mut tracker = Tracker::new(4);
        let mut applied = Vec::new();
        let mut request = None;
        let mut due = 0;
        let mut run = |tracker: &mut Tracker, input: Input<u64>, request: &mut Option<u64>| {
            for action in tracker.step(input) {
                match action {
                    Action::Apply { seq, .. } => applied.push(seq),
                    Action::Replay { from } => *request = Some(from),
                    Action::Reset => panic!("nothing restarts here"),
                }
            }
        };
        run(&mut tracker, Input::Connected { can_replay: true }, &mut request);
        for (published, &arrives) in (1u64..).zip(&delivered) {
            let seq = published - 1;
            if arrives || published == delivered.len() as u64 {
                run(&mut tracker, Input::Live { seq, batch: seq }, &mut request);
            }
            due += 1;
            if due > replay_lag {
                due = 0;
                if let Some(from) = request.take() {
                    for seq in from..published {
                        run(&mut tracker, Input::Replayed { seq, batch: seq }, &mut request);
                    }
                    run(&mut tracker, Input::ReplayEnd, &mut request);
                }
            }
        }
        let published = delivered.len() as u64;
        while let Some(from) = request.take() {
            for seq in from..published {
                run(&mut tracker, Input::Replayed { seq, batch: seq }, &mut request);
            }
            run(&mut tracker, Input::ReplayEnd, &mut request);
        }
        // Batches that overflowed after the last one held are seen with the next live batch.
        let last = published;
        run(&mut tracker, Input::Live { seq: last, batch: last }, &mut request);
        while let Some(from) = request.take() {
            for seq in from..=last {
                run(&mut tracker, Input::Replayed { seq, batch: seq }, &mut request);
            }
            run(&mut tracker, Input::ReplayEnd, &mut request);
        }
        prop_assert_eq!(applied, (0..=published).collect::<Vec<_>>());
        prop_assert_eq!(tracker.state(), SourceState::Live);
    }
}
