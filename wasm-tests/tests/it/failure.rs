//! What breaks, and what goes on.

use std::time::Duration;

use prefixway_wasm_tests::indexer::Indexer;
use prefixway_wasm_tests::rig::{CONFIG, DESTINATION, ENGINES, chat, destination};
use prefixway_wasm_tests::{Fault, Host, Rig, Status};

#[test]
fn without_a_snapshot_requests_pass_to_the_fallback() {
    let mut host = Host::new(CONFIG).unwrap();
    host.process_mut().refuse_streams = true;
    host.advance(Duration::from_secs(2));
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    for vm in [1, 2] {
        let outcome = host.vm(vm).request(&headers).chunk(chat("x", 100)).end();
        assert!(outcome.forwarded);
        assert_eq!(outcome.header(DESTINATION), None);
    }
    assert_eq!(
        host.metric("prefixway_decisions_total.reason=no_snapshot"),
        2
    );
    assert!(host.metric("prefixway_stream_ends_total") > 2);
    assert_eq!(host.complaints(), Vec::<String>::new());
}

#[test]
fn a_request_before_the_first_tick_passes() {
    let mut host = Host::new(CONFIG).unwrap();
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let outcome = host.vm(1).request(&headers).chunk(chat("x", 100)).end();
    assert!(outcome.forwarded && outcome.trap.is_none());
}

#[test]
fn a_refused_configuration_is_refused_and_says_why() {
    let error = Host::new(r#"{"indexers":["a"],"mod":"on"}"#).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn a_broken_stream_is_opened_again_and_resumes_from_its_version() {
    let mut rig = Rig::new();
    let body = chat("resume", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    let version = rig.indexer.version();
    let leader = rig.leader().unwrap();
    let token = rig.host.vm(leader).streams()[0];
    rig.host.vm(leader).close_stream(token, 14, "reset");
    // Steering goes on with what is known.
    let outcome = rig.chat(1, &body);
    assert_eq!(destination(&outcome), Some(ENGINES[1]));
    let other = chat("other", 500);
    rig.indexer.store(&[2], &other);
    rig.settle();
    let subscribe = rig.indexer.heard.subscriptions.last().unwrap();
    assert_eq!((subscribe.have_epoch, subscribe.have_version), (1, version));
    for vm in [1, 2] {
        assert_eq!(destination(&rig.chat(vm, &other)), Some(ENGINES[2]));
    }
    rig.assert_healthy();
}

#[test]
fn an_indexer_with_another_epoch_replaces_everything() {
    let mut rig = Rig::new();
    let old = chat("old", 500);
    rig.indexer.store(&[0], &old);
    rig.settle();
    rig.indexer = Indexer::with_epoch(&ENGINES, 2);
    let new = chat("new", 500);
    rig.indexer.store(&[2], &new);
    let leader = rig.leader().unwrap();
    let token = rig.host.vm(leader).streams()[0];
    rig.host.vm(leader).close_stream(token, 0, "");
    rig.settle();
    for vm in [1, 2] {
        assert_eq!(destination(&rig.chat(vm, &new)), Some(ENGINES[2]));
        let outcome = rig.chat(vm, &old);
        let (headers, _) = rig.host.vm(vm).response(outcome.id).chunk("x").end();
        let why = headers.get("x-prefixway-decision").unwrap();
        assert!(!why.contains("cached=4"), "{why}");
    }
    rig.assert_healthy();
}

#[test]
fn messages_that_make_no_sense_start_the_stream_over() {
    for junk in [&b"\xff\xff\xff"[..], &[0x3a, 0x02, 0x08, 0x63]] {
        let mut rig = Rig::new();
        let leader = rig.leader().unwrap();
        let token = rig.host.vm(leader).streams()[0];
        rig.host.vm(leader).deliver(token, junk);
        rig.settle();
        assert_eq!(rig.indexer.heard.subscriptions.len(), 2);
        let body = chat("after", 500);
        rig.indexer.store(&[1], &body);
        rig.settle();
        assert_eq!(destination(&rig.chat(2, &body)), Some(ENGINES[1]));
        rig.assert_healthy();
    }
}

#[test]
fn old_knowledge_is_ignored_and_load_goes_on() {
    let mut rig = Rig::new();
    let body = chat("stale", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    // Nobody serves: the stream is silent.
    rig.host.advance(Duration::from_secs(8));
    let outcome = rig.chat(1, &body);
    assert!(outcome.header(DESTINATION).is_some());
    assert_eq!(rig.host.metric("prefixway_decisions_total.reason=stale"), 1);
    assert!(rig.host.metric("prefixway_index_age_seconds") >= 7);
    // After ten seconds of silence the stream is opened anew.
    rig.host.advance(Duration::from_secs(4));
    rig.settle();
    assert_eq!(rig.indexer.heard.subscriptions.len(), 2);
    let outcome = rig.chat(2, &body);
    assert_eq!(destination(&outcome), Some(ENGINES[1]));
    rig.assert_healthy();
}

#[test]
fn the_lease_of_a_dead_leader_moves() {
    let mut rig = Rig::new();
    let body = chat("before", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    let leader = rig.leader().unwrap();
    rig.host.vm(leader).kill();
    rig.run(Duration::from_secs(4));
    let next = rig.leader().unwrap();
    assert_ne!(next, leader);
    let after = chat("after", 500);
    rig.indexer.store(&[2], &after);
    rig.settle();
    for vm in (0..3).filter(|vm| *vm != leader) {
        assert_eq!(destination(&rig.chat(vm, &body)), Some(ENGINES[1]));
        assert_eq!(destination(&rig.chat(vm, &after)), Some(ENGINES[2]));
    }
    assert_eq!(rig.host.metric("prefixway_leader_elections_total"), 2);
}

#[test]
fn a_failed_cas_demotes_and_another_vm_leads() {
    let mut rig = Rig::new();
    let leader = rig.leader().unwrap();
    rig.host.inject(
        Fault::on("proxy_set_shared_data", Status::CasMismatch)
            .key("/head")
            .vm(leader),
    );
    rig.run(Duration::from_secs(4));
    rig.host.clear_faults();
    let next = rig.leader().unwrap();
    assert_ne!(next, leader);
    let streams: usize = (0..3).map(|vm| rig.host.vm(vm).streams().len()).sum();
    assert_eq!(streams, 1);
    let body = chat("demoted", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    for vm in [0, 1, 2] {
        assert_eq!(destination(&rig.chat(vm, &body)), Some(ENGINES[1]));
    }
    rig.assert_healthy();
}

#[test]
fn shared_data_that_fails_is_counted_and_survived() {
    let mut rig = Rig::new();
    let body = chat("shared", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    for call in ["proxy_get_shared_data", "proxy_set_shared_data"] {
        rig.host.inject(Fault::on(call, Status::InternalFailure));
        rig.run(Duration::from_millis(500));
        assert_eq!(destination(&rig.chat(1, &body)), Some(ENGINES[1]), "{call}");
        rig.host.clear_faults();
        rig.run(Duration::from_secs(3));
        assert_eq!(destination(&rig.chat(2, &body)), Some(ENGINES[1]), "{call}");
    }
    assert!(rig.host.metric("prefixway_host_errors_total") > 0);
    rig.assert_healthy();
}

#[test]
fn a_host_that_refuses_calls_gets_no_trap() {
    let mut rig = Rig::new();
    for (call, status) in [
        ("proxy_get_buffer_bytes", Status::InternalFailure),
        ("proxy_replace_header_map_value", Status::BadArgument),
        ("proxy_remove_header_map_value", Status::Unimplemented),
        ("proxy_get_property", Status::InternalFailure),
        ("proxy_grpc_send", Status::NotFound),
    ] {
        rig.host.inject(Fault::on(call, status));
        let outcome = rig.chat(1, &chat(call, 100));
        assert!(outcome.forwarded, "{call}");
        rig.answer(1, &outcome, 0);
        rig.run(Duration::from_millis(100));
        rig.host.clear_faults();
        rig.settle();
    }
    rig.assert_healthy();
}

#[test]
fn a_vm_that_comes_later_learns_everything() {
    let mut rig = Rig::new();
    let body = chat("late", 500);
    rig.indexer.store(&[1], &body);
    rig.settle();
    let vm = rig.host.add_vm().unwrap();
    rig.settle();
    assert_eq!(destination(&rig.chat(vm, &body)), Some(ENGINES[1]));
    rig.assert_healthy();
}
