//! Chance that is the same on every run.

use std::time::Duration;

/// A small seeded generator (`SplitMix64`, Steele et al. 2014): enough for traffic and pauses, not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of numbers that depends on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % (bound.max(1) as u64)).unwrap_or_default()
    }

    /// A number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed time around `mean`.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-self.unit().ln())
    }
}
