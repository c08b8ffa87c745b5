//! What it costs an engine to bring cached blocks from slower tiers to its accelerator.

use crate::{endpoint::Tier, proto, snapshot::Credit};

/// From host memory: 128 KiB of KV cache per token (Llama 3.1 8B in 16 bits: 32 layers x 2 x 8 heads x 128 x 2 bytes) at 13 GB/s, about
/// half of what `PCIe` 4.0 x16 can carry.
pub const DEFAULT_CPU_US_PER_TOKEN: f64 = 10.0;

/// From storage: the same at 2.6 GB/s, one `NVMe` drive that others read from too.
pub const DEFAULT_DISK_US_PER_TOKEN: f64 = 50.0;

/// Time that a token takes from each tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchCosts {
    /// Microseconds per token by tier, fastest first; the first is 0.
    us_per_token: [f64; 3],
}

impl Default for FetchCosts {
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl FetchCosts {
    /// Microseconds per token; what is absent or no cost at all (negative, not finite) is the default.
    pub fn new(cpu: Option<f64>, disk: Option<f64>) -> Self {
        let known = |cost: Option<f64>, default| {
            cost.filter(|cost| cost.is_finite() && *cost >= 0.0)
                .unwrap_or(default)
        };
        Self {
            us_per_token: [
                0.0,
                known(cpu, DEFAULT_CPU_US_PER_TOKEN),
                known(disk, DEFAULT_DISK_US_PER_TOKEN),
            ],
        }
    }

    /// The costs of a policy.
    pub fn of(policy: &proto::Policy) -> Self {
        Self::new(
            policy.cpu_fetch_us_per_token,
            policy.disk_fetch_us_per_token,
        )
    }

    /// Milliseconds until all of `credit` that belongs to a prompt is at the accelerator. Of each tier it is what goes on from faster ones;
    /// what is only expected has just been computed there.
    pub fn ms(&self, credit: Credit, prompt_tokens: u32) -> f64 {
        let [_, slower @ ..] = credit.by_tier;
        if slower == [0; 2] {
            return 0.0;
        }
        let mut held = credit.speculative.min(prompt_tokens);
        let mut us = 0.0;
        for tier in Tier::ALL {
            let (Some(&tokens), Some(cost)) = (
                credit.by_tier.get(tier as usize),
                self.us_per_token.get(tier as usize),
            ) else {
                continue;
            };
            let tokens = tokens.min(prompt_tokens);
            us += cost * f64::from(tokens.saturating_sub(held));
            held = held.max(tokens);
        }
        us / 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_on_from_faster_tiers_is_fetched() {
        let costs = FetchCosts::new(Some(10.0), Some(50.0));
        let ms = |speculative, by_tier| {
            let credit = Credit {
                by_tier,
                speculative,
            };
            costs.ms(credit, 1_000)
        };
        for (speculative, by_tier, expected) in [
            (0, [0, 0, 0], 0.0),
            (0, [800, 0, 0], 0.0),
            (0, [800, 800, 600], 0.0),
            (0, [200, 800, 0], 6.0),
            (0, [0, 800, 900], 8.0 + 5.0),
            (700, [0, 800, 0], 1.0),
            (0, [0, 5_000, 9_000], 10.0),
        ] {
            let found = ms(speculative, by_tier);
            assert!((found - expected).abs() < 1e-9, "{by_tier:?}: {found}");
        }
    }

    #[test]
    fn nonsense_is_the_default() {
        let default = FetchCosts::default();
        assert_eq!(FetchCosts::new(Some(f64::NAN), Some(-1.0)), default);
        assert_eq!(FetchCosts::of(&proto::Policy::default()), default);
        assert_ne!(FetchCosts::new(Some(0.0), None), default);
    }
}
