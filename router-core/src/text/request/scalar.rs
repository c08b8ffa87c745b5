//! Flags and counts as pydantic reads them.

use crate::text::error::Unscorable;
use crate::text::json::Json;

/// A flag as engines read it: also 0 and 1, and their usual words.
pub(in crate::text) fn flag(json: &Json<'_>, default: bool) -> Result<bool, Unscorable> {
    match json {
        Json::Null => Ok(default),
        Json::Bool(flag) => Ok(*flag),
        Json::Number("1" | "1.0") => Ok(true),
        Json::Number("0" | "0.0") => Ok(false),
        Json::String(word) => match word.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err(Unscorable::Invalid),
        },
        _ => Err(Unscorable::Invalid),
    }
}

/// Whether a flag is set; what is no flag is not.
pub(super) fn is_set(json: &Json<'_>) -> bool {
    flag(json, false) == Ok(true)
}

/// A count, also spelled `16.0`, `1.6e1` or `"16"`.
pub(super) fn count(json: &Json<'_>) -> Option<u64> {
    let spelled = match json {
        Json::Number(spelled) => spelled,
        Json::String(spelled) => spelled.as_ref(),
        _ => return None,
    };
    spelled.parse().ok().or_else(|| {
        let value: f64 = spelled.parse().ok()?;
        let whole = value >= 0.0 && value.fract() == 0.0 && value < 9e15;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, positive and below 2^53"
        )]
        whole.then_some(value as u64)
    })
}

/// A list of token ids.
pub(super) fn token_ids(items: &[Json<'_>]) -> Result<Vec<u32>, Unscorable> {
    let id = |item: &Json<'_>| match item {
        Json::Number(spelled) => spelled
            .parse()
            .ok()
            .or_else(|| count(item).and_then(|id| u32::try_from(id).ok())),
        _ => None,
    };
    items
        .iter()
        .map(|item| id(item).ok_or(Unscorable::Invalid))
        .collect()
}
