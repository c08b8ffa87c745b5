//! The policies side by side on the public traces, with the goals that the default one has to reach.
//!
//! Writes the rows to the file that `BENCH_OUT` names, and ends with 1 where a goal is missed. Traces come from the folder that
//! `PREFIXWAY_TRACES` names, else from `../shared/traces`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use prefixway_simulator::engine::EndpointClass;
use prefixway_simulator::grid::{Cell, Grid};
use prefixway_simulator::policy::{DEFAULT_POLICY, Policy};
use prefixway_simulator::report::{Row, table};
use prefixway_simulator::simulation::Setup;
use prefixway_simulator::summary::Interval;
use prefixway_simulator::trace::Trace;

const FILES: [(&str, &str); 2] = [
    ("conversation", "mooncake_conversation_first5000.jsonl"),
    ("synthetic", "mooncake_synthetic_first2000.jsonl"),
];
/// At most so much above the oracle, with the upper end of the interval.
const GOAL: f64 = 1.12;
/// At least so much faster than the best that knows nothing of classes, in the 90th percentile.
const CLASS_GOAL: f64 = 0.7;
const LATE_US: u64 = 5_000_000;
const SEEDS: u32 = 10;

type Problem = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match bench() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            let _ = writeln!(std::io::stderr(), "{missed} goals missed");
            ExitCode::FAILURE
        }
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that is written and counted.
struct Bench {
    rows: Vec<Row>,
    missed: usize,
    threads: usize,
}

fn bench() -> Result<usize, Problem> {
    let mut bench = Bench {
        rows: Vec::new(),
        missed: 0,
        threads: std::thread::available_parallelism()?.get(),
    };
    let public = traces()?;
    bench.usual(&public)?;
    bench.late(&public)?;
    bench.unequal(&public)?;
    let path = std::env::var_os("BENCH_OUT")
        .map_or_else(|| PathBuf::from("target/bench/policy.json"), PathBuf::from);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&path, serde_json::to_string_pretty(&bench.rows)?)?;
    say(&format!("\nrows in {}", path.display()))?;
    Ok(bench.missed)
}

/// The public traces that are there, and the made one.
fn traces() -> Result<Vec<Trace>, Problem> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("PREFIXWAY_TRACES").map_or(beside, PathBuf::from);
    let mut traces = Vec::new();
    for (name, file) in FILES {
        let path = folder.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => traces.push(Trace::from_text(name, &text)?),
            Err(error) => say(&format!(
                "skipped: {}: {error} (set PREFIXWAY_TRACES to another folder)",
                path.display()
            ))?,
        }
    }
    traces.push(Trace::agentic(300, 42));
    Ok(traces)
}

impl Bench {
    fn run(&mut self, setup_name: Option<&str>, grid: &Grid) -> Result<Vec<Cell>, Problem> {
        let all = grid.runs();
        let shown = Mutex::new(0);
        let cells = grid.run(self.threads, &|done| {
            let percent = 100 * done / all;
            if let Ok(mut shown) = shown.lock()
                && percent / 10 > *shown
            {
                *shown = percent / 10;
                let _ = writeln!(
                    std::io::stderr(),
                    "{}: {percent} % of {all} runs",
                    setup_name.unwrap_or("usual")
                );
            }
        });
        for cell in &cells {
            self.rows.push(Row {
                setup: setup_name.map(str::to_owned),
                ..Row::of(cell)
            });
        }
        say(&format!(
            "\n== {}{}",
            setup_name.unwrap_or("8 equal endpoints, 1M tokens each"),
            table(&cells)
        ))?;
        Ok(cells)
    }

    fn goal(&mut self, is_reached: bool, what: &str) -> Result<(), Problem> {
        self.missed += usize::from(!is_reached);
        say(&format!(
            "{} {what}",
            if is_reached { "reached" } else { "MISSED " }
        ))
    }

    fn usual(&mut self, traces: &[Trace]) -> Result<(), Problem> {
        let grid = grid(
            traces,
            &[0.25, 0.5, 0.75, 1.0, 1.5, 2.0],
            &Policy::USUAL,
            Setup::default(),
        );
        let cells = self.run(None, &grid)?;
        for cell in cells.iter().filter(|cell| cell.policy == DEFAULT_POLICY) {
            let is_measured = (cell.load - 1.0).abs() < 1e-9 || (cell.load - 1.5).abs() < 1e-9;
            if let Some(of) = cell
                .vs_oracle
                .filter(|_| is_measured && cell.trace != "agentic")
            {
                let what = format!(
                    "{} {}: {:.3} [{:.3}, {:.3}] of the oracle, wanted at most {GOAL}",
                    cell.trace, cell.load, of.value, of.low, of.high
                );
                self.goal(of.high <= GOAL, &what)?;
            }
        }
        self.never_worse("fresh", &cells)
    }

    /// Each input alone is late.
    fn late(&mut self, traces: &[Trace]) -> Result<(), Problem> {
        let mut late = [Setup::default(), Setup::default(), Setup::default()];
        late[0].freshness.event_delay_us = LATE_US;
        late[1].freshness.load_delay_us = LATE_US;
        late[2].freshness.scrape_us = LATE_US;
        for (name, setup) in [
            "events 5 s late",
            "load 5 s late",
            "engines' figures every 5 s",
        ]
        .into_iter()
        .zip(late)
        {
            let grid = grid(
                traces,
                &[0.25, 0.5, 1.0, 1.5, 2.0],
                &[Policy::LeastRequest, DEFAULT_POLICY],
                setup,
            );
            let cells = self.run(Some(name), &grid)?;
            self.never_worse(name, &cells)?;
        }
        Ok(())
    }

    fn never_worse(&mut self, name: &str, cells: &[Cell]) -> Result<(), Problem> {
        for ours in cells.iter().filter(|cell| cell.policy == DEFAULT_POLICY) {
            let same =
                |cell: &&Cell| cell.trace == ours.trace && cell.load.total_cmp(&ours.load).is_eq();
            let other = cells
                .iter()
                .filter(same)
                .find(|cell| cell.policy == Policy::LeastRequest);
            let Some(other) = other else { continue };
            let pairs = ours.figures.iter().zip(&other.figures);
            let ratio =
                Interval::of_ratio(pairs.map(|(one, other)| (one.mean_ttft_s, other.mean_ttft_s)));
            let Some(of) = ratio else { continue };
            let what = format!(
                "{} {} ({name}): {:.3} [{:.3}, {:.3}] of least request, wanted at most 1",
                ours.trace, ours.load, of.value, of.low, of.high
            );
            self.goal(of.high <= 1.0, &what)?;
        }
        Ok(())
    }

    /// 4 fast endpoints, 4 at a third of their rate, 2 at a tenth.
    fn unequal(&mut self, traces: &[Trace]) -> Result<(), Problem> {
        let blind: Vec<Policy> = [
            "round_robin",
            "random",
            "least_request",
            "llm_d_ratio",
            "dynamo",
            "approximate:rates=blind",
            "prefixway:rates=blind",
        ]
        .into_iter()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
        let learned: Policy = "prefixway:rates=learned".parse()?;
        let mut policies = blind.clone();
        policies.extend([learned, DEFAULT_POLICY, Policy::Oracle]);
        let setup = Setup {
            classes: unequal(),
            ..Setup::default()
        };
        let name = "4 endpoints of 8,000, 4 of 2,667, 2 of 800 tokens/s";
        let cells = self.run(
            Some(name),
            &grid(traces, &[0.5, 0.75, 1.0], &policies, setup),
        )?;
        for ours in cells.iter().filter(|cell| cell.policy == DEFAULT_POLICY) {
            let same =
                |cell: &&Cell| cell.trace == ours.trace && cell.load.total_cmp(&ours.load).is_eq();
            let p90 = |cell: &Cell| cell.mean().p90_ttft_s;
            let others = cells
                .iter()
                .filter(same)
                .filter(|cell| blind.contains(&cell.policy));
            let Some(best) = others.min_by(|one, other| p90(one).total_cmp(&p90(other))) else {
                continue;
            };
            let ratio = p90(ours) / p90(best);
            let what = format!(
                "{} {}: p90 {ratio:.2} of the best class-blind one ({})",
                ours.trace, ours.load, best.policy
            );
            // Half load leaves room to choose; near the capacity of all endpoints together everybody needs the slow ones. Agents' prompts are
            // cached but for a little, whatever the class.
            if ours.load < 0.6 && ours.trace != "agentic" {
                self.goal(
                    ratio <= CLASS_GOAL,
                    &format!("{what}, wanted at most {CLASS_GOAL}"),
                )?;
            } else {
                say(&format!("seen    {what}"))?;
            }
        }
        Ok(())
    }
}

fn unequal() -> Vec<EndpointClass> {
    let class = |name: &str, count, rate| EndpointClass {
        name: name.to_owned(),
        count,
        prefill_tokens_per_s: rate,
        ..EndpointClass::default()
    };
    vec![
        class("fast", 4, 8_000.0),
        class("slow", 4, 8_000.0 / 3.0),
        class("cpu", 2, 800.0),
    ]
}

fn grid(traces: &[Trace], loads: &[f64], policies: &[Policy], setup: Setup) -> Grid {
    Grid {
        traces: traces.to_vec(),
        loads: loads.to_vec(),
        policies: policies.to_vec(),
        seeds: SEEDS,
        block_tokens: 64,
        setup,
    }
}

fn say(text: &str) -> Result<(), Problem> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
