//! The subject in this process.

use std::time::Instant;

use anyhow::{Context, Result};
use prefixway_bench_text::counting::Counts;
use prefixway_bench_text::subject::{Phase, Subject};

use crate::engine::Engine;

/// This process.
#[derive(Default)]
pub(crate) struct Native {
    subject: Option<Subject>,
}

impl Engine for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn load(&mut self, profile: &[u8], body: &[u8]) -> Result<bool> {
        self.subject = Subject::try_new(profile, body.to_vec()).ok();
        Ok(self.subject.is_some())
    }

    fn measure(&mut self, phase: Phase, rounds: u32) -> Result<f64> {
        let start = Instant::now();
        let clock = || start.elapsed().as_secs_f64() * 1e9;
        let subject = self.subject.as_mut().context("no body is loaded")?;
        Ok(subject.measure(phase, rounds, clock))
    }

    fn count(&mut self, phase: Phase) -> Result<Counts> {
        let subject = self.subject.as_ref().context("no body is loaded")?;
        Ok(subject.count(phase))
    }
}
