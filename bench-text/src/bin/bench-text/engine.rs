//! Engines, and taking turns between them.

use anyhow::Result;
use prefixway_bench_text::counting::Counts;
use prefixway_bench_text::subject::Phase;

/// Length of a turn.
const TURN_NS: f64 = 2.5e5;
/// Turns of each phase.
const TURNS: usize = 100;

/// Something that runs the subject.
pub(crate) trait Engine {
    fn name(&self) -> &'static str;

    /// Takes a body; `false`: it has no text under the profile.
    fn load(&mut self, profile: &[u8], body: &[u8]) -> Result<bool>;

    /// Nanoseconds of one run.
    fn measure(&mut self, phase: Phase, rounds: u32) -> Result<f64>;

    /// Allocations of one run.
    fn count(&mut self, phase: Phase) -> Result<Counts>;
}

/// Results of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) engine: &'static str,
    /// Nanoseconds of the fastest turn of each phase, in the order of [`Phase::ALL`].
    best_ns: Vec<f64>,
    /// Allocations of the whole way.
    pub(crate) counts: Counts,
}

impl Measured {
    pub(crate) fn ns(&self, phase: Phase) -> f64 {
        self.best_ns
            .get(phase as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// Measures `phases` in all engines by turns.
pub(crate) fn measure(engines: &mut [Box<dyn Engine>], phases: &[Phase]) -> Result<Vec<Measured>> {
    let mut results = Vec::new();
    let mut rounds = Vec::new();
    for engine in &mut *engines {
        let mut engine_rounds = Vec::new();
        for &phase in phases {
            engine_rounds.push(rounds_of(engine.as_mut(), phase)?);
        }
        rounds.push(engine_rounds);
        results.push(Measured {
            engine: engine.name(),
            best_ns: vec![f64::INFINITY; phases.len()],
            counts: engine.count(Phase::Total)?,
        });
    }
    for _ in 0..TURNS {
        for ((engine, result), rounds) in engines.iter_mut().zip(&mut results).zip(&rounds) {
            for ((&phase, best), &rounds) in phases.iter().zip(&mut result.best_ns).zip(rounds) {
                *best = best.min(engine.measure(phase, rounds)?);
            }
        }
    }
    Ok(results)
}

/// Runs that fill a turn. Finding out warms the engine up.
fn rounds_of(engine: &mut dyn Engine, phase: Phase) -> Result<u32> {
    let mut rounds = 1;
    loop {
        let ns = engine.measure(phase, rounds)?.max(1.0);
        if ns * f64::from(rounds) >= TURN_NS / 2.0 || rounds >= 1 << 16 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped"
            )]
            return Ok((TURN_NS / ns).clamp(1.0, 65_536.0) as u32);
        }
        rounds *= 2;
    }
}
