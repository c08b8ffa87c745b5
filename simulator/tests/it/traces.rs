//! The public traces; skipped, and said, where they are not there.

use std::path::{Path, PathBuf};

use prefixway_simulator::policy::Policy;
use prefixway_simulator::simulation::Setup;
use prefixway_simulator::trace::Trace;

use crate::policies::{cells, late, mean, of_other, unequal};

/// At most so much above the oracle, with the upper end of the interval.
const GOAL: f64 = 1.12;

fn traces() -> Vec<Trace> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("PREFIXWAY_TRACES").map_or(beside, PathBuf::from);
    let files = [
        ("conversation", "mooncake_conversation_first5000.jsonl"),
        ("synthetic", "mooncake_synthetic_first2000.jsonl"),
    ];
    let mut traces = Vec::new();
    for (name, file) in files {
        let path = folder.join(file);
        if path.is_file() {
            let text = std::fs::read_to_string(&path).unwrap();
            traces.push(Trace::from_text(name, &text).unwrap());
        } else {
            println!(
                "skipped: no file {} (set PREFIXWAY_TRACES to another folder)",
                path.display()
            );
        }
    }
    traces
}

#[test]
fn the_default_policy_is_near_the_best_greedy_choice_of_somebody_who_knows_everything() {
    for trace in traces() {
        let cells = cells(
            trace,
            &[1.0, 1.5],
            &["prefixway", "oracle"],
            5,
            Setup::default(),
        );
        for cell in cells.iter().filter(|cell| cell.policy != Policy::Oracle) {
            let of = cell.vs_oracle.unwrap();
            assert!(of.high <= GOAL, "{} {}: {of:?}", cell.trace, cell.load);
        }
    }
}

#[test]
fn the_default_policy_is_never_worse_than_least_request_with_inputs_as_late() {
    for trace in traces() {
        for (name, setup) in late() {
            let loads = [0.5, 1.0, 2.0];
            let cells = cells(
                trace.clone(),
                &loads,
                &["least_request", "prefixway"],
                8,
                setup,
            );
            for (load, of) in of_other(&cells, Policy::LeastRequest) {
                assert!(
                    of.high <= 1.0,
                    "{} {name} late, load {load}: {of:?}",
                    trace.name
                );
            }
        }
    }
}

#[test]
fn knowing_the_classes_of_endpoints_takes_a_third_from_the_90th_percentile() {
    let blind = [
        "least_request",
        "llm_d_ratio",
        "dynamo",
        "prefixway:rates=blind",
        "approximate:rates=blind",
    ];
    for trace in traces() {
        let mut names = blind.to_vec();
        names.push("prefixway");
        let cells = cells(trace, &[0.5], &names, 2, unequal());
        let ours = mean(&cells, "prefixway").p90_ttft_s;
        for other in blind {
            let theirs = mean(&cells, other).p90_ttft_s;
            assert!(
                ours <= 0.7 * theirs,
                "{}: {ours} {other} {theirs}",
                cells[0].trace
            );
        }
    }
}
