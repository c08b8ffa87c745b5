//! Pauses of one source, each a little different, so that sources which failed together don't ask together.

use crate::random::Random;

/// Draws pauses from the source's number and a counter: the same ones in each run, and others than those of other sources.
#[derive(Debug)]
pub(super) struct Pauses {
    random: Random,
    /// When the last pause that [`Self::is_over`] found over ended.
    last_ms: u64,
    /// How much longer than asked the present one is, in 1/256 of half of it.
    stretch: u64,
}

impl Pauses {
    pub(super) fn new(number: u32) -> Self {
        let mut pauses = Self {
            random: Random::new(u64::from(number)),
            last_ms: 0,
            stretch: 0,
        };
        pauses.stretch = pauses.draw();
        pauses
    }

    /// A pause that doubles with each failure, and is between it and half as much again.
    pub(super) fn growing(&mut self, first_ms: u64, failures: u32) -> u64 {
        let pause = first_ms.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let stretch = self.draw();
        pause.saturating_add((pause / 512).saturating_mul(stretch))
    }

    /// Whether a pause of `at_least_ms` and up to half as much again is over; then another begins.
    pub(super) fn is_over(&mut self, at_least_ms: u64, since_ms: u64, now_ms: u64) -> bool {
        let pause = at_least_ms + at_least_ms * self.stretch / 512;
        let is_over = now_ms.saturating_sub(since_ms) >= pause;
        if is_over {
            self.last_ms = now_ms;
            self.stretch = self.draw();
        }
        is_over
    }

    /// When the last pause that was over ended; 0 before.
    pub(super) fn last_ms(&self) -> u64 {
        self.last_ms
    }

    /// Below 256.
    fn draw(&mut self) -> u64 {
        self.random.bits() & 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_bounds_and_differ_between_sources() {
        let pauses = |number| {
            let mut pauses = Pauses::new(number);
            [1, 2, 3, 4].map(|failures| pauses.growing(10_000, failures))
        };
        let mut first = Vec::new();
        for number in 0..64 {
            let drawn = pauses(number);
            assert_eq!(drawn, pauses(number));
            for (pause, least) in drawn.into_iter().zip([10_000, 20_000, 40_000, 80_000]) {
                assert!((least..least + least / 2).contains(&pause), "{drawn:?}");
            }
            first.push(drawn[0]);
        }
        first.sort_unstable();
        first.dedup();
        assert!(first.len() > 20, "{first:?}");
        assert!(Pauses::new(1).growing(u64::MAX / 4, u32::MAX) > 0);
    }
}
