//! Weighted scorers as llm-d has them: prefix 3, queue 2, KV use 2; the highest sum wins, equal ones in turn.
//!
//! | scorer | score |
//! |---|---|
//! | prefix | matched blocks: as a share of the prompt's, or scaled between the least and the most of all endpoints |
//! | queue | (most - own) / (most - least) waiting requests; 1 where all are equal |
//! | KV use | 1 - share of KV cache in use by running requests |
//!
//! Figures come from the engines, at each scrape. Unknown ones count as the mean of the known ones.

use super::history::History;
use super::{Asked, Choice, Chooser};
use crate::simulation::Setup;
use crate::workload::Workload;

const WEIGHTS: [f64; 3] = [3.0, 2.0, 2.0];

/// History of one endpoint and longest match, in tokens, by the defaults of the Gateway API Inference Extension (31,250 blocks and 256 blocks of 16).
const GAIE_HISTORY_TOKENS: u32 = 500_000;
const GAIE_MATCH_TOKENS: u32 = 4_096;

/// How matched blocks become a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Ratio,
    MinMax,
}

#[derive(Debug)]
pub(super) struct Weighted {
    prefix: Prefix,
    history: Option<History>,
    /// By router: endpoint that comes first among equals.
    turn: Vec<usize>,
    endpoints: usize,
}

impl Weighted {
    /// As published: index by events, with expectations; figures by scrapes.
    pub(super) fn llm_d(prefix: Prefix, setup: &Setup) -> Self {
        let endpoints = setup.endpoints().count();
        Self {
            prefix,
            history: None,
            turn: (0..setup.replicas as usize).collect(),
            endpoints,
        }
    }

    pub(super) fn gaie(setup: &Setup, work: &Workload) -> Self {
        Self {
            history: Some(History::new(setup, work, |_| GAIE_HISTORY_TOKENS)),
            ..Self::llm_d(Prefix::Ratio, setup)
        }
    }

    /// Tokens that each endpoint is thought to hold.
    fn matched(&self, asked: &Asked<'_>, of: usize) -> u32 {
        match &self.history {
            None => asked.indexed[of].max(asked.expected[of]),
            Some(history) => {
                let blocks = history.blocks(asked.router, of, asked.chain);
                (blocks * asked.work.block_tokens).min(GAIE_MATCH_TOKENS)
            }
        }
    }
}

impl Chooser for Weighted {
    fn wants_prefixes(&self) -> bool {
        self.history.is_none()
    }

    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let there: Vec<usize> = asked.there().collect();
        let waiting = |of: usize| asked.figures[of].map(|of| f64::from(of.waiting));
        let usage = |of: usize| asked.figures[of].map(|figures| figures.kv_usage_ratio);
        let usual_waiting = mean(there.iter().filter_map(|&of| waiting(of)));
        let usual_usage = mean(there.iter().filter_map(|&of| usage(of)));
        let queue = |of: usize| waiting(of).unwrap_or(usual_waiting);
        let (least, most) = ends(there.iter().map(|&of| queue(of)));
        let matched: Vec<f64> = (0..self.endpoints)
            .map(|of| f64::from(self.matched(asked, of)))
            .collect();
        let (fewest, highest) = ends(there.iter().map(|&of| matched[of]));
        let score = |of: usize| {
            let prefix = match self.prefix {
                Prefix::Ratio => matched[of] / f64::from(asked.prompt_tokens.max(1)),
                Prefix::MinMax => scaled(matched[of] - fewest, highest - fewest),
            };
            WEIGHTS[0] * prefix
                + WEIGHTS[1] * scaled(most - queue(of), most - least)
                + WEIGHTS[2] * (1.0 - usage(of).unwrap_or(usual_usage))
        };
        let turn = &mut self.turn[asked.router as usize];
        let place = |of: usize| (of + self.endpoints - *turn % self.endpoints) % self.endpoints;
        let best = there
            .iter()
            .copied()
            .map(|of| (score(of), place(of), of))
            .reduce(|best, other| {
                let is_better = match other.0.total_cmp(&best.0) {
                    std::cmp::Ordering::Greater => true,
                    std::cmp::Ordering::Equal => other.1 < best.1,
                    std::cmp::Ordering::Less => false,
                };
                if is_better { other } else { best }
            });
        let endpoint = best.map_or(0, |(_, _, of)| of);
        *turn = endpoint + 1;
        let held = matched[endpoint] as u32;
        if let Some(history) = &mut self.history {
            history.sent(asked.router, endpoint, asked.chain);
        }
        Choice {
            endpoint,
            uncached_tokens: asked.prompt_tokens.saturating_sub(held),
        }
    }
}

/// A part of a span; 1 where there is no span.
fn scaled(part: f64, span: f64) -> f64 {
    if span > 0.0 { part / span } else { 1.0 }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    )
}
