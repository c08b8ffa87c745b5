//! What access logs can show of a decision: filter state `wasm.<name>`, as in `%FILTER_STATE(wasm.prefixway_reason:PLAIN)%`.

use prefixway_core::lifecycle::Usage;
use prefixway_core::mode::{Arm, Mode};

use crate::host::{self, HostError};
use crate::plugin::Choice;

/// What decided, as in `prefixway_decisions_total`.
const REASON: &str = "prefixway_reason";
/// on, shadow, steered or control.
const MODE: &str = "prefixway_mode";
/// Address of the best endpoint.
const ENDPOINT: &str = "prefixway_endpoint";
/// Tokens that it was expected to have cached.
const PREDICTED: &str = "prefixway_predicted_tokens";
/// Tokens of the prompt, by the answer's usage.
const PROMPT: &str = "prefixway_prompt_tokens";
/// Tokens of it that were cached, by the answer's usage.
const CACHED: &str = "prefixway_cached_tokens";

/// Tells why a request goes where it goes, or not.
pub(super) fn reason(reason: &str) -> Result<(), HostError> {
    host::set_property(REASON, reason)
}

/// Tells a decision.
pub(super) fn choice(choice: &Choice, mode: Mode, arm: Option<Arm>) -> Result<(), HostError> {
    let decision = &choice.chosen.decision;
    host::set_property(MODE, arm.map_or(mode.as_str(), Arm::as_str))?;
    if let Some(best) = decision.choices.first() {
        host::set_property(ENDPOINT, &best.address)?;
    }
    let predicted = decision.predicted_cached_tokens();
    host::set_property(PREDICTED, &predicted.to_string())
}

/// Tells what the answer's end says.
pub(super) fn usage(usage: Usage) -> Result<(), HostError> {
    let counts = [(PROMPT, usage.prompt_tokens), (CACHED, usage.cached_tokens)];
    let told = counts
        .into_iter()
        .filter_map(|(name, tokens)| Some((name, tokens?)));
    for (name, tokens) in told {
        host::set_property(name, &tokens.to_string())?;
    }
    Ok(())
}
