//! What a request asks of its host: each call costs time on the way of the request, wherever the module runs.

use prefixway_wasm_tests::rig::{CONFIG, chat};
use prefixway_wasm_tests::{Host, Indexer, Rig, Tally, rig};

/// Counts the calls of so many requests that are routed and answered, once what only the first ones need is over.
fn counted(requests: u32, send: impl Fn(&mut Rig)) -> Tally {
    let host = Host::builder(CONFIG).counted().start().unwrap();
    let mut rig = Rig::on(host, Indexer::new(&rig::ENGINES));
    for _ in 0..8 {
        send(&mut rig);
    }
    rig.settle();
    rig.host.vm(1).take_tally();
    for _ in 0..requests {
        send(&mut rig);
    }
    rig.assert_healthy();
    rig.host.vm(1).take_tally()
}

#[test]
fn a_request_and_its_answer_take_two_dozen_host_calls() {
    let body = chat("calls", 500);
    let tally = counted(10, |rig| {
        let outcome = rig.chat(1, &body);
        rig.answer(1, &outcome, 400);
    });
    assert_eq!(tally.callbacks["on_request_headers"].0, 10);
    let of = |callback: &str| tally.count(|name| name == callback) / 10;
    assert!(of("on_request_headers") <= 3, "{tally:?}");
    assert!(of("on_request_body") <= 7, "{tally:?}");
    assert!(tally.count(|_| true) / 10 <= 24, "{tally:?}");
    // Headers are read as a whole, and the body once.
    assert_eq!(tally.of("get_header_map_pairs").count, 20);
    assert_eq!(tally.of("get_header_map_value").count, 0);
    assert_eq!(tally.of("remove_header_map_value").count, 0);
    let read = tally.of("get_buffer_bytes");
    assert!(
        read.bytes_given < 10 * (body.len() as u64 + 200),
        "{read:?}"
    );
}

#[test]
fn a_request_that_is_no_inference_call_takes_one() {
    let tally = counted(10, |rig| {
        let headers = [
            (":method", "GET"),
            (":path", "/health"),
            (":authority", "a"),
        ];
        let vm = rig.host.vm(1);
        let outcome = vm.request(&headers).end();
        vm.end(outcome.id, prefixway_wasm_tests::Ending::Complete);
    });
    assert_eq!(tally.count(|_| true), 10, "{tally:?}");
}
