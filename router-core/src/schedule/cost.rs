//! The default: time to the first token, weighted so that hits are worth what they save others too.
//!
//! ```text
//!   ttft(e) = (queued_prefill(e) + uncached(e)) / prefill_rate(e) + fetch(e) + adapter(e) + decode_pressure(e)
//!   cost(e) = ttft(e) + (beta - 1) * uncached(e) / mean prefill_rate                          lowest wins
//!
//!   decode_pressure(e) = output_ms * ( max(0, in_flight(e) + 1 - max_sequences) / max_sequences       waits for a slot
//!                                    + max(0, kv_usage(e) + uncached(e) / kv_tokens(e) - 1) / kv_usage(e) )   waits for memory
//!   output_ms          = output_tokens * decode_ms_per_token
//! ```
//!
//! `queued_prefill` are prompt tokens sent to the endpoint and not yet prefilled, `uncached` those of this prompt that it does not
//! hold. The second term of the cost is what a miss costs others: they wait for its work, and its copy displaces theirs. It is reckoned by one rate
//! for all: on a slow endpoint the work takes longer, but as many fewer requests wait there. `beta` = 2 while nothing waits, and more the longer
//! requests wait ([`BETA_PER_WAIT_S`]), since work is then what everybody waits for. Mean TTFT is within 10 % of a clairvoyant greedy choice
//! (`docs/simulation.md`). Unknown load counts as the mean of the known ones when that is more. Requests that wait in an engine and that no
//! gateway accounts for count as prompts like this one.
//!
//! `fetch` is the time in which the engine brings what it holds in slower tiers to its accelerator. It brings all of it, so it is the
//! endpoint's cost even where computing would be faster; then another endpoint may win.
//!
//! `adapter` is the time until the request's adapter is loaded: see [`super::adapter`].
//!
//! The two waits of `decode_pressure` follow from requests that end at an even pace: of `n` running ones that take `output_ms` each, one
//! ends every `output_ms / n`, and gives back a slot and 1 / n of the memory in use. Each is left out where its figure (`max_sequences`,
//! the endpoint's KV cache in tokens) is not known.

use super::{Contender, DEFAULT_ADAPTER_LOAD_MS, FetchCosts, Field, adapter, mean};

/// `beta` when the policy has none.
pub const DEFAULT_BETA: f64 = 2.0;

/// How much `beta` grows with each second of the mean wait for prefill over all candidates.
pub const BETA_PER_WAIT_S: f64 = 0.5;

/// Most that `beta` grows to; more than that gains nothing in simulation.
pub const MAX_BETA: f64 = 8.0;

/// Generated tokens when neither request nor policy says how many: the mean of the public chat traces is 211 to 343.
pub const DEFAULT_OUTPUT_TOKENS: u32 = 256;

/// Time for each generated token when the policy has none.
pub const DEFAULT_DECODE_MS_PER_TOKEN: f64 = 30.0;

/// Constants of the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Weight of uncached tokens while nothing waits; greater than 0.
    pub beta: f64,
    /// What slower tiers cost.
    pub fetch: FetchCosts,
    /// Sequences that an engine runs at once (`max_num_seqs`); `None` = not known.
    pub max_sequences: Option<u32>,
    /// Generated tokens of a request that does not say how many it may have.
    pub output_tokens: u32,
    /// Time for each generated token.
    pub decode_ms_per_token: f64,
    /// Time to load an adapter.
    pub adapter_load_ms: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            beta: DEFAULT_BETA,
            fetch: FetchCosts::default(),
            max_sequences: None,
            output_tokens: DEFAULT_OUTPUT_TOKENS,
            decode_ms_per_token: DEFAULT_DECODE_MS_PER_TOKEN,
            adapter_load_ms: DEFAULT_ADAPTER_LOAD_MS,
        }
    }
}

/// What of the cost is the same for all contenders of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Weight of uncached tokens.
    pub beta: f64,
    /// Whether an adapter is wanted, and some engine tells which ones it has.
    pub knows_adapters: bool,
}

/// The terms of one endpoint's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name")]
pub struct Terms {
    /// Time to bring what slower tiers hold to the accelerator.
    pub fetch_ms: f64,
    /// Waits for a slot and for memory.
    pub decode_ms: f64,
    /// Time until the request's adapter is loaded.
    pub adapter_ms: f64,
    /// Work until the first token without `beta`.
    pub ttft_ms: f64,
    /// All together.
    pub cost_ms: f64,
}

impl Cost {
    /// What of the cost is the same for all contenders.
    pub fn setting(&self, field: &Field<'_>) -> Setting {
        let waits = field.contenders.iter();
        let waits_s = waits.map(|of| of.queued_tokens / of.prefill_tokens_per_s);
        let wait_s = mean(waits_s).unwrap_or(0.0);
        Setting {
            beta: (self.beta + BETA_PER_WAIT_S * wait_s).min(self.beta.max(MAX_BETA)),
            knows_adapters: adapter::is_known(field),
        }
    }

    /// The terms of a contender.
    pub fn terms(&self, field: &Field<'_>, contender: &Contender<'_>, setting: Setting) -> Terms {
        let need = field.need;
        let fetch_ms = self.fetch.ms(contender.credit, need.prompt_tokens);
        let output_ms = self.output_ms(field);
        let decode_ms = self.decode_ms(output_ms, contender);
        let adapter_ms = match need.adapter {
            Some(name) if setting.knows_adapters => {
                adapter::ms(name, contender, self.adapter_load_ms, output_ms)
            }
            _ => 0.0,
        };
        let uncached = f64::from(contender.uncached_tokens);
        let others_ms =
            |uncached: f64| 1_000.0 * (setting.beta - 1.0) * uncached / field.common_rate;
        let all = f64::from(need.prompt_tokens);
        Terms {
            fetch_ms,
            decode_ms,
            adapter_ms,
            ttft_ms: contender.work_ms(uncached) + fetch_ms + decode_ms + adapter_ms,
            cost_ms: decode_ms
                + adapter_ms
                + if contender.is_overfull {
                    contender.work_ms(all) + others_ms(all)
                } else {
                    contender.work_ms(uncached) + others_ms(uncached) + fetch_ms
                },
        }
    }

    /// Time in which an answer is generated.
    fn output_ms(&self, field: &Field<'_>) -> f64 {
        let output_tokens = field.need.output_tokens.unwrap_or(self.output_tokens);
        let output_tokens = output_tokens.min(self.output_tokens.max(1).saturating_mul(4));
        f64::from(output_tokens) * self.decode_ms_per_token
    }

    fn decode_ms(&self, output_ms: f64, contender: &Contender<'_>) -> f64 {
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
}
