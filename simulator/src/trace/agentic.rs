//! A made trace of agents that work in loops.
//!
//! 24 agent types with system prompts of 6 to 16 full blocks, the popular ones far more so (Pareto, shape 0.9); sessions come at 0.35/s; the first
//! context is the prompt and 500 to 3,000 tokens; 6 to 22 turns; answers of 40 to 400 tokens; a turn adds the answer and 150 to 2,000 tokens;
//! the next one comes after 2 s + 30 ms for each token of the answer + a lognormal pause (median 3 s, sigma 0.8); no context passes 100,000 tokens. Full
//! blocks keep their ids, a partial tail is new each time.

use super::{Trace, TraceRequest};
use crate::rng::Rng;

const BLOCK: u32 = 512;
const TYPES: u32 = 24;
const SESSIONS_PER_S: f64 = 0.35;
const LONGEST: u32 = 100_000;

pub(super) fn make(sessions: u32, seed: u64) -> Trace {
    let mut rng = Rng::new(seed, 0xA6E7);
    let mut next_id = 0u64;
    let mut fresh = || {
        next_id += 1;
        next_id
    };
    let prompts: Vec<Vec<u64>> = (0..TYPES)
        .map(|_| (0..between(&mut rng, 6, 16)).map(|_| fresh()).collect())
        .collect();
    let mut turns: Vec<(u64, u32, u32, Vec<u64>)> = Vec::new();
    let mut start_s = 0.0;
    for _ in 0..sessions {
        start_s += -(1.0 - rng.unit()).ln() / SESSIONS_PER_S;
        let pareto = (1.0 - rng.unit()).powf(-1.0 / 0.9);
        let kind = (pareto as u32).clamp(1, TYPES) - 1;
        let mut blocks = prompts.get(kind as usize).cloned().unwrap_or_default();
        let mut tokens = blocks.len() as u32 * BLOCK + between(&mut rng, 500, 3_000);
        let mut at_s = start_s;
        for _ in 0..between(&mut rng, 6, 22) {
            if tokens > LONGEST {
                break;
            }
            while (blocks.len() as u32 + 1) * BLOCK <= tokens {
                blocks.push(fresh());
            }
            let mut ids = blocks.clone();
            if !tokens.is_multiple_of(BLOCK) {
                ids.push(fresh());
            }
            let output = between(&mut rng, 40, 400);
            turns.push(((at_s * 1e6) as u64, tokens, output, ids));
            tokens += output + between(&mut rng, 150, 2_000);
            at_s += 2.0 + 0.03 * f64::from(output) + 3.0 * (0.8 * normal(&mut rng)).exp();
        }
    }
    turns.sort_by_key(|(at_us, ..)| *at_us);
    let first_us = turns.first().map_or(0, |(at_us, ..)| *at_us);
    let mut trace = Trace {
        name: "agentic".to_owned(),
        block_tokens: BLOCK,
        requests: Vec::with_capacity(turns.len()),
        ids: Vec::new(),
        skipped: 0,
    };
    for (at_us, prompt_tokens, output_tokens, ids) in turns {
        let start = trace.ids.len();
        trace.ids.extend(ids);
        trace.requests.push(TraceRequest {
            at_us: at_us - first_us,
            prompt_tokens,
            output_tokens,
            ids: start..trace.ids.len(),
        });
    }
    trace
}

/// A whole number of a closed range.
fn between(rng: &mut Rng, low: u32, high: u32) -> u32 {
    low + rng.below(high - low + 1)
}

/// A standard normal number (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}
