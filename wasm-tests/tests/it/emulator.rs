//! The emulator on modules small enough to read.

use std::time::Duration;

use prefixway_wasm_tests::{Ending, Fault, Host, Status, module_from_wat};

/// Sets `x-a: b` on each request, asks for ticks and traps on a DELETE-less path never; `{body}` is the body callback.
fn module(body: &str) -> wasmtime::Module {
    let text = r#"(module
        (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
        (import "env" "proxy_set_shared_data" (func $share (param i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_replace_header_map_value" (func $set (param i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 0) "x-ab")
        (func (export "malloc") (param i32) (result i32) (i32.const 1024))
        (func (export "proxy_on_context_create") (param i32 i32))
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $period (i32.const 10))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (if (i32.ne (call $share (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 4) (i32.const 0)) (i32.const 0))
                (then (drop (call $log (i32.const 4) (i32.const 0) (i32.const 4))))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (i32.const 1))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) BODY)
        (func (export "proxy_on_log") (param i32))
        (func (export "proxy_on_done") (param i32) (result i32) (i32.const 1))
        (func (export "proxy_on_delete") (param i32)))"#;
    module_from_wat(&text.replace("BODY", body)).unwrap()
}

/// Pauses until the end, then sets the header.
const STEER: &str = r"(if (result i32) (local.get 2)
    (then (call $set (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 3) (i32.const 1)))
    (else (i32.const 1)))";

#[test]
fn headers_wait_for_the_body_and_can_be_changed_until_they_go_on() {
    let module = module(STEER);
    let mut host = Host::builder("{}").vms(1).module(module).start().unwrap();
    let outcome = host
        .vm(0)
        .request(&[(":path", "/"), ("X-A", "client")])
        .chunk("he")
        .chunk("llo")
        .end();
    assert!(outcome.paused && outcome.forwarded);
    assert_eq!(outcome.headers.all("x-a"), ["b"]);
    assert_eq!(outcome.body, b"hello");
    let (headers, body) = host.vm(0).response(outcome.id).chunk("ok").end();
    assert_eq!(
        (headers.get(":status"), body.as_slice()),
        (Some("200"), &b"ok"[..])
    );
    assert!(host.complaints().is_empty());
}

#[test]
fn a_trap_is_kept_and_ends_the_vm() {
    let mut host = Host::builder("{}")
        .vms(2)
        .module(module("unreachable"))
        .start()
        .unwrap();
    let outcome = host.vm(1).request(&[(":path", "/")]).chunk("x").end();
    assert!(outcome.trap.is_some() && !outcome.forwarded);
    host.vm(1).end(outcome.id, Ending::Complete);
    assert!(host.vm(0).trap().is_none());
    assert_eq!(host.complaints().len(), 1);
}

#[test]
fn ticks_follow_the_clock_and_faults_follow_their_count() {
    let mut host = Host::builder("{}")
        .vms(2)
        .module(module(STEER))
        .start()
        .unwrap();
    host.inject(
        Fault::on("proxy_set_shared_data", Status::InternalFailure)
            .vm(1)
            .times(2),
    );
    host.advance(Duration::from_millis(50));
    assert_eq!(host.process().logs.len(), 2);
    assert_eq!(host.process().shared("x-a").unwrap().0, b"x-ab");
}
