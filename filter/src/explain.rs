//! Why a decision was taken, in one line for a response header.

use core::fmt::Write;

use prefixway_core::view::Chosen;

/// Candidates that are named, best first.
const CANDIDATES: usize = 4;

/// `reason=prefix; prompt=1200; age_ms=12; candidates=8; 10.0.0.1:8000 cached=1184 tier=gpu queued=0 in_flight=1 ttft_ms=2 cost_ms=4; ...`
pub(crate) fn explain(chosen: &Chosen) -> String {
    let decision = &chosen.decision;
    let mut text = format!("reason={}", decision.reason.as_str());
    if let Some(why) = chosen.no_text {
        let _ = write!(text, "/{}", why.as_str());
    }
    let _ = write!(text, "; prompt={}", decision.prompt_tokens);
    if let Some(age_ms) = decision.age_ms {
        let _ = write!(text, "; age_ms={age_ms}");
    }
    let _ = write!(text, "; candidates={}", decision.eligible);
    for candidate in decision.ranking.iter().take(CANDIDATES) {
        let _ = write!(text, "; {}", candidate.address);
        if let Some(rank) = candidate.rank {
            let _ = write!(text, " rank={rank}");
        }
        let _ = write!(
            text,
            " cached={} tier={} queued={} in_flight={} ttft_ms={:.0} cost_ms={:.0}",
            candidate.credit.tokens(),
            candidate.credit.tier().map_or("none", |tier| tier.as_str()),
            candidate.queued_prefill_tokens,
            candidate.in_flight,
            candidate.ttft_ms,
            candidate.cost_ms,
        );
        if candidate.indexed_tokens > candidate.credit.tokens() {
            let _ = write!(text, " indexed={}", candidate.indexed_tokens);
        }
    }
    text
}
