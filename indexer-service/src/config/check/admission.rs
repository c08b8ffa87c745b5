//! Rules of what endpoints take.

use super::{Checker, S};
use crate::config::raw::RawAdmission;
use crate::config::{Admission, DEFAULT_RETRY_AFTER};

impl Checker {
    pub(super) fn admission(&mut self, raw: &RawAdmission) -> Admission {
        let key = |name: &str| format!("policy.admission.{name}");
        let many = 1..=1_000_000;
        let admission = Admission {
            max_in_flight: raw
                .max_in_flight
                .map(|bound| self.number(&key("max_in_flight"), bound, many.clone())),
            max_waiting: raw
                .max_waiting
                .map(|bound| self.number(&key("max_waiting"), bound, many)),
            max_queued_tokens: raw
                .max_queued_tokens
                .map(|bound| self.number(&key("max_queued_tokens"), bound, 1..=1_000_000_000)),
            max_kv_usage_ratio: raw
                .max_kv_usage_ratio
                .map(|bound| self.number(&key("max_kv_usage_ratio"), bound, 0.01..=1.0)),
            retry_after: self.duration(
                &key("retry_after"),
                raw.retry_after.as_ref(),
                DEFAULT_RETRY_AFTER,
                S(1)..=S(3_600),
            ),
        };
        let bounds = [
            admission.max_in_flight.is_some(),
            admission.max_waiting.is_some(),
            admission.max_queued_tokens.is_some(),
            admission.max_kv_usage_ratio.is_some(),
        ];
        if !bounds.contains(&true) {
            self.hinted(
                "policy.admission",
                "without a bound",
                "needs one",
                "set max_in_flight, max_waiting, max_queued_tokens or max_kv_usage_ratio, or leave it out",
            );
        }
        admission
    }
}
