//! Many runs: every trace, load, policy and seed, on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::policy::Policy;
use crate::simulation::{Setup, run};
use crate::summary::{Figures, Interval};
use crate::trace::Trace;
use crate::workload::Workload;

/// What is run.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Traces.
    pub traces: Vec<Trace>,
    /// Factors by which arrivals come faster.
    pub loads: Vec<f64>,
    /// Policies.
    pub policies: Vec<Policy>,
    /// Seeds of each, from 1.
    pub seeds: u32,
    /// Tokens of the engines' blocks.
    pub block_tokens: u32,
    /// Endpoints and routers.
    pub setup: Setup,
}

/// All runs of one trace, load and policy.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the trace.
    pub trace: String,
    /// Load.
    pub load: f64,
    /// Policy.
    pub policy: Policy,
    /// Of the policies that it stands for, the one that was best by mean over seeds.
    pub best_variant: Policy,
    /// By seed; of several variants those of the best one for the seed.
    pub figures: Vec<Figures>,
    /// Mean time to first token beside the oracle's, in pairs by seed; `None` without an oracle or with one seed.
    pub vs_oracle: Option<Interval>,
}

impl Cell {
    /// Mean over seeds.
    pub fn mean(&self) -> Figures {
        Figures::mean(&self.figures)
    }
}

struct Job {
    work: usize,
    load: usize,
    policy: Policy,
}

impl Grid {
    /// Runs in all.
    pub fn runs(&self) -> usize {
        let variants: usize = self
            .policies
            .iter()
            .map(|policy| policy.variants().len())
            .sum();
        self.traces.len() * self.loads.len() * variants * self.seeds as usize
    }

    /// Runs everything on `threads` threads. `progress` is told after each run how many are done.
    pub fn run(&self, threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Vec<Cell> {
        let works: Vec<Workload> = self
            .traces
            .iter()
            .flat_map(|trace| {
                (1..=u64::from(self.seeds))
                    .map(|seed| Workload::new(trace, self.block_tokens, seed))
            })
            .collect();
        let variants: Vec<Policy> = self
            .policies
            .iter()
            .flat_map(|policy| policy.variants())
            .collect();
        let jobs: Vec<Job> = (0..works.len())
            .flat_map(|work| (0..self.loads.len()).map(move |load| (work, load)))
            .flat_map(|(work, load)| {
                variants
                    .iter()
                    .map(move |&policy| Job { work, load, policy })
            })
            .collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Mutex<Vec<(usize, Figures)>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while let Some((at, job)) = {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        jobs.get(at).map(|job| (at, job))
                    } {
                        let work = &works[job.work];
                        let figures = Figures::of(
                            &run(work, &self.setup, job.policy, self.loads[job.load]),
                            work,
                        );
                        if let Ok(mut results) = results.lock() {
                            results.push((at, figures));
                        }
                        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_default();
        results.sort_by_key(|(at, _)| *at);
        let at = |trace: usize, seed: usize, load: usize, variant: usize| {
            let work = trace * self.seeds as usize + seed;
            results[(work * self.loads.len() + load) * variants.len() + variant].1
        };
        let mut cells = Vec::new();
        for (trace, of) in self.traces.iter().enumerate() {
            for (load, &factor) in self.loads.iter().enumerate() {
                let first = cells.len();
                let mut variant = 0;
                for &policy in &self.policies {
                    let of_policy = policy.variants();
                    let columns: Vec<Vec<Figures>> = (variant..variant + of_policy.len())
                        .map(|variant| {
                            (0..self.seeds as usize)
                                .map(|seed| at(trace, seed, load, variant))
                                .collect()
                        })
                        .collect();
                    variant += of_policy.len();
                    cells.push(cell(&of.name, factor, policy, &of_policy, &columns));
                }
                compare(&mut cells[first..]);
            }
        }
        cells
    }
}

fn cell(
    trace: &str,
    load: f64,
    policy: Policy,
    variants: &[Policy],
    columns: &[Vec<Figures>],
) -> Cell {
    let mean = |column: &[Figures]| Figures::mean(column).mean_ttft_s;
    let best = variants
        .iter()
        .zip(columns)
        .min_by(|one, other| mean(one.1).total_cmp(&mean(other.1)))
        .map_or(policy, |(variant, _)| *variant);
    let seeds = columns.first().map_or(0, Vec::len);
    let of_seed = |seed: usize| {
        columns
            .iter()
            .map(|column| column[seed])
            .min_by(|one, other| one.mean_ttft_s.total_cmp(&other.mean_ttft_s))
            .unwrap_or_default()
    };
    Cell {
        trace: trace.to_owned(),
        load,
        policy,
        best_variant: best,
        figures: (0..seeds).map(of_seed).collect(),
        vs_oracle: None,
    }
}

/// Holds cells of one trace and load against the oracle.
fn compare(cells: &mut [Cell]) {
    let is_oracle = |cell: &&Cell| matches!(cell.policy, Policy::Oracle);
    let Some(oracle) = cells
        .iter()
        .find(is_oracle)
        .map(|cell| cell.figures.clone())
    else {
        return;
    };
    for cell in cells {
        let pairs = cell.figures.iter().zip(&oracle);
        cell.vs_oracle =
            Interval::of_ratio(pairs.map(|(of, best)| (of.mean_ttft_s, best.mean_ttft_s)));
    }
}
