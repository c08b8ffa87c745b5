//! An Envoy that can't do what the configuration says of it.

use std::time::Duration;

use prefixway_wasm_tests::rig::{DESTINATION, ENGINES, chat, destination};
use prefixway_wasm_tests::{LogLevel, Outcome, Rig};

const HEADERS: [(&str, &str); 2] = [(":method", "POST"), (":path", "/v1/chat/completions")];

/// Lets time pass until the filter lets the request go, at most so long.
fn until_resumed(rig: &mut Rig, held: &Outcome, limit: Duration) -> bool {
    let step = Duration::from_millis(10);
    let mut passed = Duration::ZERO;
    while passed < limit {
        rig.host.advance(step);
        passed += step;
        if rig.host.vm(1).is_resumed(held.id) {
            return true;
        }
    }
    false
}

fn errors(rig: &Rig) -> Vec<String> {
    let lines = rig.host.logs().into_iter();
    let errors = lines.filter(|line| line.level == LogLevel::Error);
    errors.map(|line| line.text).collect()
}

#[test]
fn requests_are_let_go_after_a_second_and_held_at_their_body_once_that_is_certain() {
    let mut rig = Rig::new();
    let body = chat("stuck", 100);
    for number in 0..2 {
        let held = rig.host.vm(1).request(&HEADERS).keep_body();
        assert!(held.paused && !held.forwarded);
        assert!(!until_resumed(&mut rig, &held, Duration::from_millis(900)));
        assert!(until_resumed(&mut rig, &held, Duration::from_millis(200)));
        // Envoy has kept the body all the time.
        let outcome = rig.host.vm(1).late_body(held.id, &body);
        assert!(
            outcome.forwarded && destination(&outcome).is_none(),
            "request {number}"
        );
        assert_eq!(outcome.body, body.as_bytes());
    }
    let errors = errors(&rig);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("allow_on_headers_stop_iteration"),
        "{errors:?}"
    );
    assert_eq!(rig.host.metric("prefixway_wrong_hold_at_vms"), 1);
    assert_eq!(rig.host.metric("prefixway_hold_timeouts_total"), 2);
    assert_eq!(
        rig.host.metric("prefixway_decisions_total.reason=not_held"),
        2
    );
    // From now on headers go on, and the choice is left as filter state.
    rig.settle();
    let outcome = rig.host.vm(1).request(&HEADERS).chunk(&body).end();
    assert!(!outcome.paused && outcome.forwarded);
    assert_eq!(outcome.header(DESTINATION), None);
    let state = rig
        .host
        .vm(1)
        .property(outcome.id, "wasm.prefixway_destination");
    assert!(state.is_some_and(|list| list.split(',').count() == ENGINES.len()));
    assert!(rig.host.vm(1).trap().is_none());
}

#[test]
fn a_slow_client_proves_nothing_and_a_held_one_that_goes_leaves_nothing() {
    let mut rig = Rig::new();
    let body = chat("slow", 100);
    let gone = rig.host.vm(1).request(&HEADERS).keep_body();
    rig.host
        .vm(1)
        .end(gone.id, prefixway_wasm_tests::Ending::ClientAbort);
    for _ in 0..4 {
        let held = rig.host.vm(1).request(&HEADERS).keep_body();
        assert!(until_resumed(&mut rig, &held, Duration::from_millis(1_100)));
        // The body comes later than at once.
        rig.host.advance(Duration::from_millis(50));
        let outcome = rig.host.vm(1).late_body(held.id, &body);
        assert!(outcome.forwarded && destination(&outcome).is_none());
    }
    assert_eq!(rig.host.metric("prefixway_wrong_hold_at_vms"), 0);
    assert_eq!(rig.host.metric("prefixway_hold_timeouts_total"), 4);
    // One whose body comes while it is held shows that holding works: nobody is let go early any more.
    rig.settle();
    assert!(destination(&rig.chat(1, &body)).is_some());
    let held = rig.host.vm(1).request(&HEADERS).keep_body();
    assert!(held.paused);
    assert!(!until_resumed(&mut rig, &held, Duration::from_secs(5)));
    rig.assert_healthy();
}

#[test]
fn choices_that_nobody_obeys_are_counted_and_said_once() {
    let mut rig = Rig::new();
    let send = |rig: &mut Rig, obeys: bool| {
        let outcome = rig.chat(1, &chat("obeyed", 100));
        let first = destination(&outcome).unwrap().to_owned();
        let other = ENGINES.iter().find(|engine| **engine != first).unwrap();
        let server = if obeys { first.as_str() } else { other };
        rig.host
            .vm(1)
            .response(outcome.id)
            .upstream(server)
            .chunk("{}")
            .end();
    };
    let warnings = |rig: &Rig| {
        let lines = rig.host.logs().into_iter();
        lines
            .filter(|line| line.text.contains("override_host"))
            .count()
    };
    // Retries now and then are nothing to speak of.
    for number in 0..64 {
        send(&mut rig, number % 8 != 0);
    }
    assert_eq!(rig.host.metric("prefixway_disobeyed_requests_total"), 8);
    assert_eq!(warnings(&rig), 0);
    for _ in 0..64 {
        send(&mut rig, false);
    }
    assert_eq!(rig.host.metric("prefixway_disobeyed_requests_total"), 72);
    assert_eq!(warnings(&rig), 1);
    rig.assert_healthy();
}
