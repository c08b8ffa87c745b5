//! Cost of one request inside the sandbox: held, parsed, rendered, hashed, probed, ranked and counted down again.
//!
//! The emulator copies bodies where Envoy does too. `pass` is the price of the emulator and of four callbacks; the difference to it is the filter's work.
//! Before that it prints where time and host calls of a request go: phases by sampling the module, host calls by counting them. In Envoy the module's
//! time is much the same, and a host call costs what it costs there.
//!
//! Run with `cargo bench -p prefixway-wasm-tests` after `make wasm`.

#![expect(clippy::print_stdout, reason = "a benchmark reports")]

#[path = "request/profile.rs"]
mod profile;

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use prefixway_wasm_tests::rig::chat;
use prefixway_wasm_tests::{Ending, Rig, indexer};

/// Rungs in the table besides those of the prompt.
const RUNGS: u64 = 400_000;

/// A chat of 20 messages, about 32 KiB.
fn conversation() -> String {
    let text = |n: usize| -> String {
        format!("turn {n}: ")
            .chars()
            .chain("Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam\nnonumy eirmod \"tempor\" invidunt ut labore et dolore magna. ".chars().cycle())
            .take(1_570)
            .collect()
    };
    let messages: Vec<serde_json::Value> = (0..20)
        .map(|n| {
            let role = if n == 0 {
                "system"
            } else if n % 2 == 1 {
                "user"
            } else {
                "assistant"
            };
            serde_json::json!({"role": role, "content": text(n)})
        })
        .collect();
    serde_json::json!({"model": indexer::MODEL, "messages": messages, "stream": true}).to_string()
}

fn send(rig: &mut Rig, method: &str, body: &str) {
    let headers = [
        (":method", method),
        (":path", "/v1/chat/completions"),
        (":authority", "a"),
    ];
    let vm = rig.host.vm(1);
    let outcome = vm.request(&headers).chunk(body).end();
    assert!(outcome.forwarded);
    vm.end(outcome.id, Ending::ClientAbort);
}

fn request(criterion: &mut Criterion) {
    let body = conversation();
    if let Err(error) = profile::print("request_32k", &body) {
        println!("no profile: {error:#}");
    }
    let mut rig = Rig::new();
    rig.indexer.store(&[1], &chat("warm", 100));
    rig.indexer.store_random(RUNGS);
    rig.run(Duration::from_secs(2));
    let mut group = criterion.benchmark_group("request_32k");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("pass", |bencher| {
        bencher.iter(|| send(&mut rig, "PUT", &body));
    });
    group.bench_function("nobody_holds_it", |bencher| {
        bencher.iter(|| send(&mut rig, "POST", &body));
    });
    rig.indexer.store(&[1], &body);
    rig.settle();
    group.bench_function("one_holds_it", |bencher| {
        bencher.iter(|| send(&mut rig, "POST", &body));
    });
    group.finish();
    let small = chat("warm", 100);
    criterion.bench_function("request_0k4", |bencher| {
        bencher.iter(|| send(&mut rig, "POST", &small));
    });
    rig.assert_healthy();
}

criterion_group!(benches, request);
criterion_main!(benches);
