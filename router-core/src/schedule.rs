//! Choosing endpoints.
//!
//! ```text
//!  candidates ─► eligible? ─► full? ─► filters ─► cost, or weighted scorers ─► picker ─► ranking, best first
//!                └──────── Field ─────────┘        └──────────── Profile ────────────┘
//! ```
//!
//! What is the same under every policy is in [`Field`]: who may serve the request at all, who is full, and what load and credit are
//! reckoned with. The rest is a [`Profile`]: filters, then a [`Cost`] or weighted scorers, then a picker. Without a policy it is the
//! default cost alone.
//!
//! **A full endpoint** ([`Limits`]) is chosen only when all are full, and then the decision says so.
//!
//! Of an endpoint about which the index has proved wrong ([`crate::trust`]) only a share of the prefix counts, but for one decision in
//! [`TRIALS`].
//!
//! [`Limits`]: crate::admission::Limits

mod adapter;
mod attribute;
mod cost;
pub mod expression;
mod fetch;
mod field;
pub mod filter;
mod labels;
mod need;
mod picker;
mod profile;
mod ranking;
pub mod rates;
pub mod registry;
pub mod scorer;

pub use adapter::DEFAULT_ADAPTER_LOAD_MS;
pub use attribute::Attribute;
pub use cost::{
    BETA_PER_WAIT_S, Cost, DEFAULT_BETA, DEFAULT_DECODE_MS_PER_TOKEN, DEFAULT_OUTPUT_TOKENS,
    MAX_BETA,
};
pub use fetch::{DEFAULT_CPU_US_PER_TOKEN, DEFAULT_DISK_US_PER_TOKEN, FetchCosts};
pub use field::{Contender, DEFAULT_PREFILL_TOKENS_PER_S, Field, TRIALS, is_eligible};
pub use filter::Filter;
pub use labels::{LabelSelector, SelectorError};
pub use need::{Candidate, Need, Phase};
pub use picker::Picker;
pub use profile::{DEFAULT_MAX_IMBALANCE, Judge, OnNone, Profile, Selecting, Weighted};
pub use ranking::{Explanation, Holding, Ranking, choices};
pub use registry::{Profiles, Registry, ScheduleError};
pub use scorer::Scorer;

/// Most endpoints that a request may try.
pub const MAX_CHOICES: usize = 3;

/// Orders the eligible candidates by the default policy, best first.
pub fn rank(candidates: &[Candidate<'_>], need: &Need<'_>, seed: u64) -> Vec<Explanation> {
    Profile::default().rank(candidates, need, seed)
}

/// Nearest whole number; negative and NaN are 0.
fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, NaN is 0"
    )]
    let whole = value.round() as u64;
    whole
}

/// The mean of values that are not negative, to 2^-40. Summed in whole steps, so that their order is of no matter.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    const STEP: f64 = 1.0 / (1u64 << 40) as f64;
    // Whole numbers and what is beyond them apart: 128 bits take long where there is no instruction for them.
    let (wholes, steps, count) = values.fold(
        (0u64, 0u64, 0u32),
        |(wholes, steps, count): (u64, u64, u32), value| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float cast saturates, NaN is 0"
            )]
            let (whole, step) = (value as u64, (value.fract() / STEP) as u64);
            (wholes.saturating_add(whole), steps + step, count + 1)
        },
    );
    (count > 0).then(|| (wholes as f64 + steps as f64 * STEP) / f64::from(count))
}

/// A random number for an endpoint that differs from seed to seed (splitmix64).
fn scatter(key: crate::snapshot::EndpointKey, seed: u64) -> u64 {
    let mut z =
        (key.0 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
