use super::*;

fn payload(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Steps, and says what happened in short words.
fn step(feed: &mut Feed, input: FeedInput) -> Vec<String> {
    step_at(feed, 0, input)
}

fn step_at(feed: &mut Feed, now_ms: u64, input: FeedInput) -> Vec<String> {
    feed.step(input, now_ms)
        .into_iter()
        .map(|action| match action {
            FeedAction::Apply(batch) => String::from_utf8(batch.to_vec()).unwrap(),
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
    let mut feed = Feed::new(true, 0);
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
fn a_publisher_that_does_not_answer_proves_nothing_and_is_asked_again() {
    let mut feed = live_feed();
    step(&mut feed, FeedInput::Disconnected);
    step(&mut feed, FeedInput::Connected);
    let mut now_ms = 0;
    for (request, pause_ms) in [(2, 500), (3, 1_000), (4, 2_000)] {
        assert!(step_at(&mut feed, now_ms, ended(request, false)).is_empty());
        assert!(step_at(&mut feed, now_ms + pause_ms - 1, FeedInput::Tick).is_empty());
        now_ms += pause_ms * 3 / 2;
        assert_eq!(
            step_at(&mut feed, now_ms, FeedInput::Tick),
            [format!("replay {} from 1", request + 1)]
        );
        assert!(step_at(&mut feed, now_ms, FeedInput::Tick).is_empty());
    }
    // What comes meanwhile waits; in the end it is followed without an answer.
    assert!(step(&mut feed, live(2, "c")).is_empty());
    assert_eq!(step_at(&mut feed, now_ms, ended(5, false)), ["c"]);
    assert_eq!(feed.state(), SourceState::Live);
}

#[test]
fn a_hole_is_given_up_only_after_several_tries() {
    let mut feed = live_feed();
    assert_eq!(step(&mut feed, live(3, "d")), ["replay 2 from 2"]);
    // A part of it comes: the next try asks for the rest, and counts as the first.
    assert_eq!(step(&mut feed, replayed(2, 2, "c")), ["c"]);
    let mut now_ms = 0;
    for request in 2..5 {
        assert!(step_at(&mut feed, now_ms, ended(request, false)).is_empty());
        now_ms += 10_000;
        let asked = step_at(&mut feed, now_ms, FeedInput::Tick);
        assert_eq!(asked, [format!("replay {} from 3", request + 1)]);
    }
    assert_eq!(step(&mut feed, live(5, "f")), Vec::<String>::new());
    // The batch that is at hand needs no replay; the hole before the other is asked for.
    let released = step_at(&mut feed, now_ms, ended(5, false));
    assert_eq!(released, ["d", "replay 6 from 4"]);
    // That brings nothing either, and there have been tries enough.
    let given_up = step_at(&mut feed, now_ms, ended(6, false));
    assert_eq!(given_up, ["reset", "f"]);
    assert_eq!(feed.state(), SourceState::Gapped);

    // A gapped source is sounded; once it answers, everything is asked for.
    let sounded = step_at(&mut feed, now_ms + 45_000, FeedInput::Tick);
    assert_eq!(sounded, ["replay 7 from 5"]);
    assert!(step(&mut feed, replayed(7, 5, "f")).is_empty());
    assert_eq!(
        step(&mut feed, ended(7, true)),
        ["reset", "replay 8 from 0"]
    );
    for (seq, text) in [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"), (5, "f")] {
        assert_eq!(step(&mut feed, replayed(8, seq, text)), [text]);
    }
    assert!(step(&mut feed, ended(8, true)).is_empty());
    assert_eq!(feed.state(), SourceState::Live);
    assert!(!feed.is_partial());
}

/// Sounds a source that has been quiet; gives what it asks.
fn sound(feed: &mut Feed, now_ms: u64) -> Vec<String> {
    assert!(step_at(feed, now_ms + 29_999, FeedInput::Tick).is_empty());
    let asked = step_at(feed, now_ms + 45_000, FeedInput::Tick);
    assert!(step_at(feed, now_ms + 45_000, FeedInput::Tick).is_empty());
    asked
}

#[test]
fn a_quiet_source_is_sounded_and_stays_live() {
    let mut feed = live_feed();
    assert_eq!(sound(&mut feed, 0), ["replay 2 from 1"]);
    assert_eq!(feed.state(), SourceState::Live);
    assert!(step_at(&mut feed, 45_000, replayed(2, 1, "b")).is_empty());
    assert!(step_at(&mut feed, 45_000, ended(2, true)).is_empty());
    assert_eq!((feed.state(), feed.soundings()), (SourceState::Live, 1));
    // One that sends is left alone.
    step_at(&mut feed, 80_000, live(2, "c"));
    assert_eq!(sound(&mut feed, 80_000), ["replay 3 from 2"]);
}

#[test]
fn a_sounding_brings_what_got_lost_last() {
    let mut feed = live_feed();
    sound(&mut feed, 0);
    assert!(step(&mut feed, replayed(2, 1, "b")).is_empty());
    assert_eq!(step(&mut feed, replayed(2, 2, "c")), ["c"]);
    assert!(step(&mut feed, ended(2, true)).is_empty());
    // It was only late, and is no restart.
    assert!(step(&mut feed, live(2, "c")).is_empty());
    assert_eq!(step(&mut feed, live(3, "d")), ["d"]);
    assert_eq!(feed.counters().resets, 0);
}

#[test]
fn a_sounding_finds_another_engine_behind_an_unbroken_connection() {
    for other in [Some("other"), None] {
        let mut feed = live_feed();
        sound(&mut feed, 0);
        let found = match other {
            Some(text) => replayed(2, 1, text),
            None => ended(2, true),
        };
        assert_eq!(step(&mut feed, found), ["reset", "replay 3 from 0"]);
    }
}

#[test]
fn an_engine_that_answers_no_sounding_is_silent_until_it_does() {
    let mut feed = live_feed();
    let mut now_ms = 0;
    for (request, state) in [(2, SourceState::Live), (3, SourceState::Silent)] {
        assert_eq!(
            sound(&mut feed, now_ms),
            [format!("replay {request} from 1")]
        );
        now_ms += 48_000;
        assert!(step_at(&mut feed, now_ms, ended(request, false)).is_empty());
        assert_eq!(feed.state(), state);
    }
    sound(&mut feed, now_ms);
    step(&mut feed, replayed(4, 1, "b"));
    assert!(step(&mut feed, ended(4, true)).is_empty());
    assert_eq!(feed.state(), SourceState::Live);
    // What it held while it was silent was kept.
    assert_eq!(feed.counters().resets, 0);
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
    assert!(step(&mut Feed::new(true, 0), FeedInput::StartOver).is_empty());
}

#[test]
fn without_replay_a_source_follows_at_once() {
    let mut feed = Feed::new(false, 0);
    assert!(step(&mut feed, FeedInput::Connected).is_empty());
    assert_eq!(step(&mut feed, live(7, "h")), ["h"]);
    assert_eq!(feed.state(), SourceState::Gapped);
}
