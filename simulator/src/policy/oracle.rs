//! The greedy choice of somebody who knows the engines' true state.

use super::plain::scatter;
use super::{Asked, Choice, Chooser};

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) beta: f64,
}

impl Chooser for Oracle {
    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let cost = |of: usize| {
            let engine = &asked.engines[of];
            let uncached = asked.prompt_tokens - engine.foreseen_tokens(asked.request, asked.work);
            let work_us = engine.work_us(asked.now_us) as f64;
            let own_us = engine.class.prefill_us(uncached) as f64;
            (
                (work_us + self.beta * own_us) as u64,
                scatter(asked.seed, of),
                uncached,
            )
        };
        let best = asked.there().map(|of| (cost(of), of)).min();
        best.map_or(asked.blind(0), |((_, _, uncached_tokens), endpoint)| {
            Choice {
                endpoint,
                uncached_tokens,
            }
        })
    }
}
