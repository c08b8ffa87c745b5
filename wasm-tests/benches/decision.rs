//! Cost of a decision by the number of endpoints, inside the sandbox.
//!
//! The same short request (a prompt of 100 tokens, whose text and hashes cost the same each time) is sent and ended over pools of 1, 100 and 1,000
//! endpoints. What it takes longer than over one is the work for the further endpoints: reading their load, eligibility, credit, the default
//! cost, the best three and the eight that are told, and nothing of the prompt's own. Load of every endpoint is known and differs; the others
//! hold nothing of the prompt, a quarter of them, or all.
//!
//! Run with `cargo bench -p prefixway-wasm-tests --bench decision` after `make wasm`.

#![expect(clippy::print_stdout, reason = "a benchmark reports")]

use std::time::{Duration, Instant};

use prefixway_core::proto::EndpointLoad;
use prefixway_wasm_tests::rig::{CONFIG, chat};
use prefixway_wasm_tests::{Ending, Indexer, Rig, indexer};

/// Sizes of the pools; the first is what the others are held against.
const POOLS: [u32; 3] = [1, 100, 1_000];
/// Requests of a round. Their load is told between two rounds.
const REQUESTS: u32 = 200;
/// Rounds; the fastest half counts, since others use the machine too.
const ROUNDS: usize = 40;

fn rig(pool: u32, body: &str, holders: &[u32]) -> Rig {
    let addresses: Vec<String> = (0..pool)
        .map(|id| format!("10.1.{}.{}:8000", id / 250, 1 + id % 250))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut indexer = Indexer::new(&addresses);
    indexer.policy.explain = false;
    for id in 0..pool {
        let load = EndpointLoad {
            in_flight: id % 7,
            queued_prefill_tokens: u64::from(id * 37 % 4_000),
            running: Some(id % 7),
            kv_usage_ratio: Some(f64::from(id % 90) / 100.0),
            ..indexer::idle(id)
        };
        indexer.loads.insert(id, load);
    }
    let mut rig = Rig::with(&CONFIG.replace(",\"explain\":true", ""), indexer);
    if !holders.is_empty() {
        rig.indexer.store(holders, body);
    }
    rig.run(Duration::from_secs(1));
    rig
}

/// Microseconds of a request: the mean of the fastest half of the rounds.
fn request_us(rig: &mut Rig, body: &str) -> f64 {
    let headers = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "a"),
    ];
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..REQUESTS {
                let vm = rig.host.vm(1);
                let outcome = vm.request(&headers).chunk(body).end();
                assert!(outcome.forwarded);
                vm.end(outcome.id, Ending::ClientAbort);
            }
            let spent = begin.elapsed();
            rig.run(Duration::from_millis(20));
            spent.as_secs_f64() * 1e6 / f64::from(REQUESTS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let fastest = rounds.get(..ROUNDS / 2).unwrap_or_default();
    fastest.iter().sum::<f64>() / fastest.len() as f64
}

fn main() {
    let body = chat("decision", 100);
    for (what, every) in [
        ("nobody holds it", 0),
        ("a quarter holds it", 4),
        ("all hold it", 1),
    ] {
        let mut one_us = 0.0;
        for pool in POOLS {
            let holders: Vec<u32> = match every {
                0 => Vec::new(),
                every => (0..pool).step_by(every).collect(),
            };
            let mut rig = rig(pool, &body, &holders);
            let us = request_us(&mut rig, &body);
            rig.assert_healthy();
            if pool == 1 {
                one_us = us;
                println!("{what}: a request over 1 endpoint takes {us:.1} us");
            } else {
                println!(
                    "    over {pool:>5} endpoints {us:>7.1} us: {:>6.1} us more, {:.0} ns an endpoint",
                    us - one_us,
                    (us - one_us) * 1_000.0 / f64::from(pool - 1)
                );
            }
        }
    }
}
