//! The default: time to the first token, weighted so that hits are worth what they save others too.
//!
//! ```text
//!   cost(e) = (queued_prefill(e) + beta * uncached(e)) / prefill_rate(e) + fetch(e) + decode_pressure(e)      lowest wins
//!
//!   decode_pressure(e) = output_ms * ( max(0, in_flight(e) + 1 - max_sequences) / max_sequences       waits for a slot
//!                                    + max(0, kv_usage(e) + uncached(e) / kv_tokens(e) - 1) / kv_usage(e) )   waits for memory
//!   output_ms          = output_tokens * decode_ms_per_token
//! ```
//!
//! `queued_prefill` are prompt tokens sent to the endpoint and not yet prefilled, `uncached` those of this prompt that it does not
//! hold. `beta` = 2 makes a hit worth more than the wait it saves once, because the copy made by a miss displaces others; mean TTFT
//! is then within 10 % of a clairvoyant greedy choice (simulation on public traces). Unknown load counts as the mean of the known ones when
//! that is more. Requests that wait in an engine and that no gateway accounts for count as prompts like this one.
//!
//! `fetch` is the time in which the engine brings what it holds in slower tiers to its accelerator. It brings all of it, so it is the
//! endpoint's cost even where computing would be faster; then another endpoint may win.
//!
//! The two waits of `decode_pressure` follow from requests that end at an even pace: of `n` running ones that take `output_ms` each, one
//! ends every `output_ms / n`, and gives back a slot and 1 / n of the memory in use. Each is left out where its figure (`max_sequences`,
//! the endpoint's KV cache in tokens) is not known.
//!
//! **A hot prefix spills.** What an endpoint holds never makes it much busier than the others: from `max_imbalance` sequences more than the
//! least busy one on, and half as many again, its cost is reckoned as if it held nothing.

use super::{Contender, FetchCosts, Field};

/// `beta` when the policy has none.
pub const DEFAULT_BETA: f64 = 2.0;

/// `max_imbalance` when the policy has none.
pub const DEFAULT_MAX_IMBALANCE: u32 = 24;

/// Generated tokens when neither request nor policy says how many: the mean of the public chat traces is 211 to 343.
pub const DEFAULT_OUTPUT_TOKENS: u32 = 256;

/// Time for each generated token when the policy has none.
pub const DEFAULT_DECODE_MS_PER_TOKEN: f64 = 30.0;

/// Constants of the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Weight of uncached tokens; greater than 0.
    pub beta: f64,
    /// What slower tiers cost.
    pub fetch: FetchCosts,
    /// Sequences by which what it holds may make an endpoint busier than the least busy one.
    pub max_imbalance: u32,
    /// Sequences that an engine runs at once (`max_num_seqs`); `None` = not known.
    pub max_sequences: Option<u32>,
    /// Generated tokens of a request that does not say how many it may have.
    pub output_tokens: u32,
    /// Time for each generated token.
    pub decode_ms_per_token: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            beta: DEFAULT_BETA,
            fetch: FetchCosts::default(),
            max_imbalance: DEFAULT_MAX_IMBALANCE,
            max_sequences: None,
            output_tokens: DEFAULT_OUTPUT_TOKENS,
            decode_ms_per_token: DEFAULT_DECODE_MS_PER_TOKEN,
        }
    }
}

/// The terms of one endpoint's cost, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Time to bring what slower tiers hold to the accelerator.
    pub fetch_ms: f64,
    /// Waits for a slot and for memory.
    pub decode_ms: f64,
    /// Work until the first token without `beta`.
    pub ttft_ms: f64,
    /// All together.
    pub cost_ms: f64,
    /// Whether the endpoint is so much busier than others that what it holds does not count in its cost.
    pub is_overfull: bool,
}

impl Cost {
    /// The terms of a contender; `least` are the fewest sequences in flight at any.
    pub fn terms(&self, field: &Field<'_>, contender: &Contender<'_>, least: f64) -> Terms {
        let need = field.need;
        let fetch_ms = self.fetch.ms(contender.credit, need.prompt_tokens);
        let decode_ms = self.decode_ms(field, contender);
        let uncached = f64::from(contender.uncached_tokens);
        let is_overfull = self.is_overfull(contender, least);
        Terms {
            fetch_ms,
            decode_ms,
            ttft_ms: contender.work_ms(uncached) + fetch_ms + decode_ms,
            cost_ms: decode_ms
                + if is_overfull {
                    contender.work_ms(self.beta * f64::from(need.prompt_tokens))
                } else {
                    contender.work_ms(self.beta * uncached) + fetch_ms
                },
            is_overfull,
        }
    }

    fn decode_ms(&self, field: &Field<'_>, contender: &Contender<'_>) -> f64 {
        let output_tokens = field.need.output_tokens.unwrap_or(self.output_tokens);
        let output_tokens = output_tokens.min(self.output_tokens.max(1) * 4);
        let output_ms = f64::from(output_tokens) * self.decode_ms_per_token;
        let slots = self.max_sequences.map_or(0.0, |slots| {
            let slots = f64::from(slots.max(1));
            (contender.in_flight + 1.0 - slots).max(0.0) / slots
        });
        let memory = match contender.endpoint().kv_tokens {
            Some(kv_tokens) if contender.kv_usage_ratio > 0.0 => {
                let wanted = f64::from(contender.uncached_tokens) / kv_tokens.max(1) as f64;
                (contender.kv_usage_ratio + wanted - 1.0).max(0.0) / contender.kv_usage_ratio
            }
            _ => 0.0,
        };
        output_ms * (slots + memory)
    }

    /// Whether one more would make it too much busier than the least busy one.
    fn is_overfull(&self, contender: &Contender<'_>, least: f64) -> bool {
        let then = contender.in_flight + 1.0;
        then >= least + f64::from(self.max_imbalance) && then >= 1.5 * least
    }
}
