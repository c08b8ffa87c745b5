//! Durations with a unit: `250ms`, `5s`, `2m`, `1h`.

use std::time::Duration;

use serde::Deserialize;

/// A duration as written; its unit is checked with the other rules, so that the error can name the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawDuration(pub(super) String);

impl<'de> Deserialize<'de> for RawDuration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl RawDuration {
    /// The duration; `None` when the text is not a whole number with a unit, or too large.
    pub(super) fn parse(&self) -> Option<Duration> {
        let text = self.0.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at_checked(digits)?;
        let number: u64 = number.parse().ok()?;
        match unit {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(3600).map(Duration::from_secs),
            _ => None,
        }
    }
}

/// Writes a duration in the largest unit that is exact.
pub(super) fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms.is_multiple_of(1000) {
        format!("{}s", ms / 1000)
    } else {
        format!("{ms}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_a_whole_number_and_a_unit() {
        for (text, expected) in [
            ("250ms", Some(Duration::from_millis(250))),
            ("5s", Some(Duration::from_secs(5))),
            ("2m", Some(Duration::from_mins(2))),
            ("1h", Some(Duration::from_hours(1))),
            ("5", None),
            ("s", None),
            ("", None),
            ("1.5s", None),
            ("-1s", None),
            ("5 s", None),
            ("18446744073709551615h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(RawDuration(text.to_owned()).parse(), expected, "{text:?}");
        }
    }
}
