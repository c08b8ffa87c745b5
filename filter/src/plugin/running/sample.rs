//! Decisions that the indexer is told in full: as many in a second as the policy says, and nothing of the prompt.

use prefixway_core::mode::Arm;
use prefixway_core::proto::{Considered, Sampled};
use prefixway_core::schedule::Explanation;
use prefixway_core::view::MAX_CONSIDERED;

use super::{Choice, Running, Told};

impl Running {
    /// The decision in full, when another one is due.
    pub(super) fn sample(&mut self, choice: &Choice, told: &Told, now_ms: u64) -> Option<Sampled> {
        let per_s = self.policy()?.sampled_decisions_per_s;
        let pause_ms = 1_000u64.checked_div(u64::from(per_s))?;
        if now_ms < self.sample_at_ms {
            return None;
        }
        self.sample_at_ms = now_ms.saturating_add(pause_ms);
        let decision = &choice.chosen.decision;
        let no_text = choice.chosen.no_text;
        Some(Sampled {
            model: choice.model.clone(),
            route: told.route.clone().unwrap_or_default(),
            mode: told.mode.as_str().to_owned(),
            arm: told.arm.map_or("", Arm::as_str).to_owned(),
            reason: choice.reason().as_str().to_owned(),
            no_text: no_text.map_or("", |why| why.as_str()).to_owned(),
            estimated_prompt_tokens: decision.prompt_tokens,
            index_age_ms: decision.age_ms,
            eligible: u32::try_from(decision.eligible).unwrap_or(u32::MAX),
            considered: decision
                .ranking
                .iter()
                .take(MAX_CONSIDERED)
                .map(considered)
                .collect(),
            unix_ms: told.decided_ms,
            ..Sampled::default()
        })
    }
}

fn considered(candidate: &Explanation) -> Considered {
    Considered {
        address: candidate.address.clone(),
        rank: candidate.rank,
        cached_tokens: candidate.credit.tokens(),
        tier: candidate
            .credit
            .tier()
            .map_or("", |tier| tier.as_str())
            .to_owned(),
        indexed_tokens: candidate.indexed_tokens,
        queued_prefill_tokens: candidate.queued_prefill_tokens,
        in_flight: candidate.in_flight,
        load_is_known: candidate.load_is_known,
        ttft_ms: candidate.ttft_ms,
        cost_ms: candidate.cost_ms,
    }
}
