//! Scratch.
#![allow(clippy::print_stdout, reason = "scratch")]
use prefixway_simulator::{grid::Grid, report, simulation::Setup, trace::Trace};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let loads: Vec<f64> = args[1].split(',').map(|l| l.parse().unwrap()).collect();
    let policies = args[2].split(',').map(|p| p.parse().unwrap()).collect();
    let seeds = args[3].parse().unwrap();
    let mut traces = vec![];
    for t in args[4].split(',') {
        traces.push(match t {
            "agentic" => Trace::agentic(300, 42),
            "c" => Trace::from_text(
                "conversation",
                &std::fs::read_to_string(
                    "/work/shared/traces/mooncake_conversation_first5000.jsonl",
                )
                .unwrap(),
            )
            .unwrap(),
            "s" => Trace::from_text(
                "synthetic",
                &std::fs::read_to_string("/work/shared/traces/mooncake_synthetic_first2000.jsonl")
                    .unwrap(),
            )
            .unwrap(),
            _ => panic!(),
        });
    }
    let mut setup = Setup::default();
    for a in &args[5..] {
        let (k, v) = a.split_once('=').unwrap();
        match k {
            "ev" => setup.freshness.event_delay_us = v.parse::<u64>().unwrap() * 1000,
            "ld" => setup.freshness.load_delay_us = v.parse::<u64>().unwrap() * 1000,
            "sc" => setup.freshness.scrape_us = v.parse::<u64>().unwrap() * 1000,
            "rep" => setup.replicas = v.parse().unwrap(),
            "sync" => {
                setup.freshness.sharing = if v == "none" {
                    prefixway_simulator::knowledge::Sharing::Never
                } else {
                    prefixway_simulator::knowledge::Sharing::Every(v.parse::<u64>().unwrap() * 1000)
                }
            }
            "cache" => setup.classes[0].cache_tokens = v.parse().unwrap(),
            "het" => {
                let c = setup.classes[0].clone();
                let mk = |name: &str, count, rate| prefixway_simulator::engine::EndpointClass {
                    name: name.into(),
                    count,
                    prefill_tokens_per_s: rate,
                    ..c.clone()
                };
                setup.classes = vec![
                    mk("fast", 4, 8000.0),
                    mk("slow", 4, 8000.0 / 3.0),
                    mk("cpu", 2, 800.0),
                ];
            }
            _ => panic!(),
        }
    }
    let grid = Grid {
        traces,
        loads,
        policies,
        seeds,
        block_tokens: 64,
        setup,
    };
    let t = std::time::Instant::now();
    let cells = grid.run(2, &|_| {});
    let mut last = (String::new(), 0.0);
    for c in &cells {
        if last != (c.trace.clone(), c.load) {
            println!("--- {} {}", c.trace, c.load);
            last = (c.trace.clone(), c.load);
        }
        let r = report::cells(c);
        println!(
            "{:32} mean {:>6} p50 {:>6} p90 {:>6} p99 {:>6} hit {:>5} imb {} vs {} {}",
            r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], c.best_variant
        );
    }
    println!("{:?} for {} runs", t.elapsed(), grid.runs());
}
