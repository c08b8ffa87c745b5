//! Where a request's time and host calls go.

use std::time::Duration;

use prefixway_wasm_tests::rig::{self, CONFIG};
use prefixway_wasm_tests::{Error, Host, Indexer, Rig, Samples, Tally};

use super::RUNGS;

/// The worker that requests go through.
const WORKER: usize = 1;
/// Requests that are sampled.
const SAMPLED: u32 = 20_000;
/// Requests whose host calls are counted.
const COUNTED: u32 = 2_000;
/// Requests between two ticks.
const BETWEEN_TICKS: u32 = 20;

/// Phases in the order of a request's life, with words of the functions that they are in; the innermost one on the stack counts.
const PHASES: [(&str, &[&str]); 13] = [
    ("request headers", &["proxy_on_request_headers"]),
    ("parse", &["4text4json", "4text7request"]),
    (
        "render",
        &[
            "4text8template",
            "4text7dialect",
            "4text8messages",
            "4text8prompter",
        ],
    ),
    ("hash", &["PromptHashes9of_hashed"]),
    ("probe", &["8snapshot5probe7matched"]),
    ("score", &["8schedule"]),
    ("rest of the decision", &["proxy_on_request_body"]),
    ("tell others", &["Running6settle"]),
    ("answer", &["proxy_on_response"]),
    (
        "begin and end",
        &[
            "proxy_on_context_create",
            "proxy_on_log",
            "proxy_on_done",
            "proxy_on_delete",
        ],
    ),
    ("ticks", &["proxy_on_tick"]),
    ("streams", &["proxy_on_grpc"]),
    (OTHER, &[]),
];
const OTHER: &str = "other";
const OUTSIDE: &str = "outside";

fn classify(stack: &[&str]) -> &'static str {
    // What fires at a callback's first check has passed outside.
    if stack.len() < 2 {
        return OUTSIDE;
    }
    let of = |name: &str| {
        let mut phases = PHASES.iter();
        let found = phases.find(|(_, words)| words.iter().any(|word| name.contains(word)));
        found.map(|(phase, _)| *phase)
    };
    stack.iter().find_map(|name| of(name)).unwrap_or(OTHER)
}

/// Prints what a request with this body and its answer cost.
pub(crate) fn print(name: &str, body: &str) -> Result<(), Error> {
    let tally = run(Host::builder(CONFIG).counted().start()?, body, COUNTED)
        .host
        .vm(WORKER)
        .take_tally();
    let samples = run(
        Host::builder(CONFIG).sampled(classify).start()?,
        body,
        SAMPLED,
    )
    .host
    .vm(WORKER)
    .take_samples();
    print_phases(name, &tally, &samples);
    print_calls(&tally);
    Ok(())
}

/// Sends requests to an endpoint that holds their prompt, and has them answered; a tick comes every so often.
fn run(host: Host, body: &str, requests: u32) -> Rig {
    let mut rig = Rig::on(host, Indexer::new(&rig::ENGINES));
    rig.indexer.store_random(RUNGS);
    rig.run(Duration::from_secs(2));
    rig.indexer.store(&[1], body);
    rig.settle();
    for number in 0..2 * requests {
        if number == requests {
            // Only what follows counts: by now all is as it stays.
            rig.host.vm(WORKER).take_tally();
            rig.host.vm(WORKER).take_samples();
        }
        let outcome = rig.chat(WORKER, body);
        rig.answer(WORKER, &outcome, 400);
        if number % BETWEEN_TICKS == 0 {
            rig.run(Duration::from_millis(10));
        }
    }
    rig.assert_healthy();
    rig
}

fn print_phases(name: &str, tally: &Tally, samples: &Samples) {
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(COUNTED);
    let in_module = each(tally.module_time());
    let copy = each(tally.of("get_buffer_bytes").time);
    let inside = samples.iter().filter(|(phase, _)| **phase != OUTSIDE);
    let all: u64 = inside.map(|(_, count)| count).sum();
    println!(
        "\n{name}: {in_module:.1} us in the module for a request, its answer and a {BETWEEN_TICKS}th of a tick"
    );
    println!("    {:<24} {copy:>7.1} us (host call)", "copy");
    for (phase, _) in PHASES {
        let count = samples.get(phase).copied().unwrap_or(0);
        let share = count as f64 / all.max(1) as f64;
        println!("    {phase:<24} {:>7.1} us", share * in_module);
    }
}

fn print_calls(tally: &Tally) {
    let each = |number: u64| number as f64 / f64::from(COUNTED);
    println!("host calls for each:");
    for callback in tally.callbacks.keys() {
        let calls = tally.count(|of| of == callback);
        println!("    {callback:<44} {:>7.2}", each(calls));
        let of_it = tally.calls.iter().filter(|((of, _), _)| of == callback);
        for ((_, call), calls) in of_it {
            println!(
                "        {call:<40} {:>7.2} {:>9.0} B read {:>9.0} B given",
                each(calls.count),
                each(calls.bytes_read),
                each(calls.bytes_given)
            );
        }
    }
}
