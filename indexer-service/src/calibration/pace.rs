//! When an engine is asked again.
//!
//! ```text
//!  settled (it answered): every 10 minutes     not reached: 1 s, doubling up to a minute     each with up to a quarter less by chance
//! ```

use std::time::{Duration, Instant};

/// Time between two looks at an engine that answers.
const SETTLED: Duration = Duration::from_mins(10);
/// Time to the second try of an engine that does not answer.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest time between two tries.
const LAST_RETRY: Duration = Duration::from_mins(1);
/// Part of a pause that chance may take away.
const JITTER: f64 = 0.25;

/// One engine's pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// `None`: now.
    due: Option<Instant>,
    retry: Duration,
}

impl Pace {
    /// A new engine is asked at once.
    pub(super) fn new() -> Self {
        Self {
            due: None,
            retry: FIRST_RETRY,
        }
    }

    /// Time until the engine is to be asked.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// The engine may be another one: it is asked at once, and soon again where it is just starting.
    pub(super) fn hurry(&mut self) {
        *self = Self::new();
    }

    /// The engine was asked; `chance` is from 0 to 1.
    pub(super) fn asked(&mut self, is_settled: bool, now: Instant, chance: f64) {
        let pause = if is_settled {
            self.retry = FIRST_RETRY;
            SETTLED
        } else {
            let pause = self.retry;
            self.retry = (pause * 2).min(LAST_RETRY);
            pause
        };
        self.due = Some(now + pause.mul_f64(1.0 - JITTER * chance.clamp(0.0, 1.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_does_not_answer_is_asked_ever_more_rarely() {
        let now = Instant::now();
        let mut pace = Pace::new();
        assert_eq!(pace.wait(now), Duration::ZERO);
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                pace.asked(false, now, 0.0);
                pace.wait(now).as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        pace.asked(true, now, 0.0);
        assert_eq!(pace.wait(now), SETTLED);
        pace.asked(true, now, 1.0);
        assert_eq!(pace.wait(now), SETTLED.mul_f64(0.75));
        pace.hurry();
        assert_eq!(pace.wait(now), Duration::ZERO);
        pace.asked(false, now, 0.0);
        assert_eq!(pace.wait(now), FIRST_RETRY);
    }
}
