//! The greedy choice of somebody who knows the engines' true state: time to first token, and `beta` - 1 times the work at the mean rate, as in
//! `prefixway_core::schedule`.

use super::plain::scatter;
use super::{Asked, Choice, Chooser};

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) beta: f64,
}

impl Chooser for Oracle {
    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        let rates = asked.engines.iter().map(|of| of.class.prefill_tokens_per_s);
        let mean_rate = rates.sum::<f64>() / asked.engines.len() as f64;
        let cost = |of: usize| {
            let engine = &asked.engines[of];
            let uncached = asked.prompt_tokens - engine.foreseen_tokens(asked.request, asked.work);
            let work_us = engine.work_us(asked.now_us) as f64;
            let own_us = engine.class.prefill_us(uncached) as f64;
            let others_us = (self.beta - 1.0) * f64::from(uncached) * 1e6 / mean_rate;
            let cost = (work_us + own_us + others_us) as u64;
            (cost, scatter(asked.seed, of), uncached)
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
