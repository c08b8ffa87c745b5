//! Policies beside one another, small.

use prefixway_simulator::engine::EndpointClass;
use prefixway_simulator::grid::{Cell, Grid};
use prefixway_simulator::policy::{DEFAULT_POLICY, Policy};
use prefixway_simulator::simulation::Setup;
use prefixway_simulator::summary::{Figures, Interval};
use prefixway_simulator::trace::Trace;

/// 4 fast endpoints, 4 at a third of their rate, 2 at a tenth.
pub(crate) fn unequal() -> Setup {
    let class = |name: &str, count, rate| EndpointClass {
        name: name.to_owned(),
        count,
        prefill_tokens_per_s: rate,
        ..EndpointClass::default()
    };
    Setup {
        classes: vec![
            class("fast", 4, 8_000.0),
            class("slow", 4, 8_000.0 / 3.0),
            class("cpu", 2, 800.0),
        ],
        ..Setup::default()
    }
}

pub(crate) fn cells(
    trace: Trace,
    loads: &[f64],
    policies: &[&str],
    seeds: u32,
    setup: Setup,
) -> Vec<Cell> {
    let grid = Grid {
        traces: vec![trace],
        loads: loads.to_vec(),
        policies: policies.iter().map(|name| name.parse().unwrap()).collect(),
        seeds,
        block_tokens: 64,
        setup,
    };
    grid.run(2, &|_| {})
}

pub(crate) fn mean(cells: &[Cell], policy: &str) -> Figures {
    let policy: Policy = policy.parse().unwrap();
    cells
        .iter()
        .find(|cell| cell.policy == policy)
        .unwrap()
        .mean()
}

/// Mean time to first token of the default policy, of another's, in pairs; for each load.
pub(crate) fn of_other(cells: &[Cell], other: Policy) -> Vec<(f64, Interval)> {
    let ours = cells.iter().filter(|cell| cell.policy == DEFAULT_POLICY);
    ours.map(|ours| {
        let same = |cell: &&Cell| cell.policy == other && cell.load.total_cmp(&ours.load).is_eq();
        let other = cells.iter().find(same).unwrap();
        let pairs = ours.figures.iter().zip(&other.figures);
        let ratio =
            Interval::of_ratio(pairs.map(|(one, other)| (one.mean_ttft_s, other.mean_ttft_s)));
        (ours.load, ratio.unwrap())
    })
    .collect()
}

/// A setup for each input that is 5 s late, alone.
pub(crate) fn late() -> [(&'static str, Setup); 4] {
    let mut setups = [
        ("fresh", Setup::default()),
        ("events", Setup::default()),
        ("load", Setup::default()),
        ("figures", Setup::default()),
    ];
    setups[1].1.freshness.event_delay_us = 5_000_000;
    setups[2].1.freshness.load_delay_us = 5_000_000;
    setups[3].1.freshness.scrape_us = 5_000_000;
    setups
}

/// Prompts that share their first block, which one endpoint gets first, and nothing else.
fn one_common_block() -> Trace {
    let lines: Vec<String> = (0..400u64)
        .map(|request| {
            let ids: Vec<u64> = std::iter::once(0).chain((0..15).map(|block| 1 + 15 * request + block)).collect();
            format!(r#"{{"timestamp": {}, "input_length": 8192, "output_length": 100, "hash_ids": {ids:?}}}"#, 200 * request)
        })
        .collect();
    Trace::from_text("one common block", &lines.join("\n")).unwrap()
}

#[test]
fn min_max_scaling_sends_everybody_to_the_endpoint_with_the_common_block_and_cost_does_not() {
    let cells = cells(
        one_common_block(),
        &[1.0],
        &["llm_d_minmax", "llm_d_ratio", "weighted", "prefixway"],
        2,
        Setup::default(),
    );
    let herd = mean(&cells, "llm_d_minmax");
    assert!(herd.imbalance > 4.0 && herd.mean_ttft_s > 20.0, "{herd:?}");
    for policy in ["llm_d_ratio", "weighted", "prefixway"] {
        let of = mean(&cells, policy);
        assert!(
            of.imbalance < 2.0 && of.mean_ttft_s < 2.0,
            "{policy}: {of:?}"
        );
    }
}

#[test]
fn one_router_is_never_worse_than_least_request_with_inputs_as_late() {
    for (name, setup) in late() {
        let loads = [0.25, 1.0, 2.0];
        let cells = cells(
            Trace::agentic(120, 42),
            &loads,
            &["least_request", "prefixway"],
            8,
            setup,
        );
        for (load, of) in of_other(&cells, Policy::LeastRequest) {
            assert!(of.high <= 1.0, "{name} late, load {load}: {of:?}");
        }
    }
}

#[test]
fn learned_rates_are_as_good_as_configured_ones() {
    let names = [
        "prefixway:rates=learned",
        "prefixway:rates=blind",
        "prefixway",
    ];
    let cells = cells(Trace::agentic(300, 42), &[1.0], &names, 3, unequal());
    let p90 = |name: &str| mean(&cells, name).p90_ttft_s;
    assert!(
        p90(names[0]) < 1.15 * p90(names[2]),
        "{} {}",
        p90(names[0]),
        p90(names[2])
    );
    assert!(
        p90(names[0]) < 0.6 * p90(names[1]),
        "{} {}",
        p90(names[0]),
        p90(names[1])
    );
}
