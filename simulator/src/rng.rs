//! Random numbers by seed (splitmix64): the same everywhere, which no library promises.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed and a purpose, so that one purpose can draw more without moving the others.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose)))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number from 0 to `bound` - 1; 0 when `bound` is.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u32
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The finaliser of splitmix64.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
