//! Load that an engine reports with a reply, in the header `endpoint-load-metrics` of ORCA (Open Request Cost Aggregation).
//!
//! ```text
//!  TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25
//!  JSON {"named_metrics": {"num_requests_waiting": 3.0, "kv_cache_usage_perc": 0.25}}
//! ```
//!
//! vLLM (0.32) answers so where a request has `endpoint-load-metrics-format: TEXT` or `JSON` (in any case), with these two figures and only on whole
//! replies; its Rust front end leaves the word before the figures out. The third form of ORCA, `BIN`, is not read.

use serde::Deserialize;

/// Request header that asks for the load.
pub const REQUEST_HEADER: &str = "endpoint-load-metrics-format";
/// Response header that tells it.
pub const RESPONSE_HEADER: &str = "endpoint-load-metrics";
/// The form that is asked for.
pub const FORMAT: &str = "JSON";

/// Longest header that is read; vLLM's has about 100 bytes.
pub const MAX_BYTES: usize = 4_096;

/// What an engine says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Waiting requests.
    pub waiting: Option<u32>,
    /// Running requests.
    pub running: Option<u32>,
    /// Share of KV cache in use, 0 to 1.
    pub kv_usage_ratio: Option<f64>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(alias = "namedMetrics", default)]
    named_metrics: Named,
}

#[derive(Default, Deserialize)]
struct Named {
    num_requests_waiting: Option<f64>,
    num_requests_running: Option<f64>,
    kv_cache_usage_perc: Option<f64>,
}

/// Reads the header's value; `None` when it is too long, has another form, or says nothing of these figures. A figure that can't be one
/// (negative, not finite, a share above 1) is left out.
pub fn read(value: &str) -> Option<Report> {
    if value.len() > MAX_BYTES {
        return None;
    }
    let value = value.trim();
    let after = |word: &str| {
        let (head, rest) = value.split_at_checked(word.len())?;
        let is_word = head.eq_ignore_ascii_case(word) && rest.starts_with([' ', '\t']);
        is_word.then(|| rest.trim_start())
    };
    let named = if let Some(json) = after("JSON").or(Some(value).filter(|v| v.starts_with('{'))) {
        serde_json::from_str::<Raw>(json).ok()?.named_metrics
    } else {
        pairs(after("TEXT").unwrap_or(value))
    };
    let report = Report {
        waiting: named.num_requests_waiting.and_then(count),
        running: named.num_requests_running.and_then(count),
        kv_usage_ratio: named
            .kv_cache_usage_perc
            .filter(|share| (0.0..=1.0).contains(share)),
    };
    (report != Report::default()).then_some(report)
}

/// `named_metrics.name=number`, separated by commas; what is no such pair is passed over.
fn pairs(text: &str) -> Named {
    let mut named = Named::default();
    for pair in text.split(',') {
        let Some((name, number)) = pair.split_once('=') else {
            continue;
        };
        let name = name.trim();
        let field = match name.strip_prefix("named_metrics.").unwrap_or(name) {
            "num_requests_waiting" => &mut named.num_requests_waiting,
            "num_requests_running" => &mut named.num_requests_running,
            "kv_cache_usage_perc" => &mut named.kv_cache_usage_perc,
            _ => continue,
        };
        if let Ok(number) = number.trim().parse::<f64>() {
            *field = Some(number);
        }
    }
    named
}

/// Nearest whole number of requests.
fn count(value: f64) -> Option<u32> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and the sign was looked at"
    )]
    let count = (value.is_finite() && value >= 0.0).then(|| value.round() as u32);
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THREE_AND_A_QUARTER: Option<Report> = Some(Report {
        waiting: Some(3),
        running: None,
        kv_usage_ratio: Some(0.25),
    });

    #[test]
    fn every_form_that_engines_send_is_read() {
        for value in [
            "TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25",
            "JSON {\"named_metrics\": {\"kv_cache_usage_perc\": 0.25, \"num_requests_waiting\": 3.0}}",
            "named_metrics.kv_cache_usage_perc=0.25,named_metrics.num_requests_waiting=3",
            "{\"named_metrics\":{\"kv_cache_usage_perc\":0.25,\"num_requests_waiting\":3}}",
            "json {\"cpu_utilization\": 0.3, \"namedMetrics\": {\"kv_cache_usage_perc\": 0.25, \"num_requests_waiting\": 3, \"x\": 1}}",
            "  text\tcpu_utilization=0.3,named_metrics.num_requests_waiting = 3 , kv_cache_usage_perc=2.5e-1",
        ] {
            assert_eq!(read(value), THREE_AND_A_QUARTER, "{value}");
        }
    }

    #[test]
    fn nonsense_says_nothing() {
        let long = format!(
            "TEXT {}named_metrics.num_requests_waiting=3",
            " ".repeat(MAX_BYTES)
        );
        let nested = format!("JSON {}", "{\"named_metrics\":".repeat(200));
        for value in [
            "",
            "TEXT",
            "JSON",
            "BIN AAAA",
            "TEXTnamed_metrics.num_requests_waiting",
            "JSON {\"named_metrics\": {\"num_requests_waiting\": \"3\"}}",
            "JSON {\"named_metrics\": {\"num_requests_waiting\": NaN}}",
            "JSON [1]",
            "JSON {\"named_metrics\": {\"num_requests_waiting\": 3}",
            "TEXT named_metrics.num_requests_waiting=-1, named_metrics.kv_cache_usage_perc=1.5",
            "TEXT named_metrics.num_requests_waiting=inf, named_metrics.kv_cache_usage_perc=nan",
            long.as_str(),
            nested.as_str(),
        ] {
            assert_eq!(read(value), None, "{value}");
        }
    }

    /// Pieces of real values in any order, and noise.
    fn value() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("TEXT ".to_owned()),
            Just("JSON ".to_owned()),
            Just("named_metrics.".to_owned()),
            Just("num_requests_waiting".to_owned()),
            Just("kv_cache_usage_perc".to_owned()),
            Just("{\"named_metrics\":{\"num_requests_waiting\":".to_owned()),
            Just("=".to_owned()),
            Just(",".to_owned()),
            Just("}".to_owned()),
            any::<f64>().prop_map(|number| number.to_string()),
            any::<String>(),
            "[\\x00-\\x7f]{0,8}",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn whatever_is_sent_gives_figures_in_range_or_none(value in value()) {
            if let Some(report) = read(&value) {
                prop_assert!(report.kv_usage_ratio.is_none_or(|share| (0.0..=1.0).contains(&share)));
                prop_assert!(report != Report::default());
            }
        }

        #[test]
        fn both_forms_of_any_figures_say_the_same_however_they_are_cut(waiting in 0u32..1_000_000, share in 0.0f64..=1.0, cut in any::<prop::sample::Index>()) {
            let report = Some(Report { waiting: Some(waiting), running: None, kv_usage_ratio: Some(share) });
            let text = format!("TEXT named_metrics.num_requests_waiting={waiting:?}, named_metrics.kv_cache_usage_perc={share:?}");
            let json = format!(r#"JSON {{"named_metrics": {{"num_requests_waiting": {waiting:?}, "kv_cache_usage_perc": {share:?}}}}}"#);
            prop_assert_eq!(read(&text), report);
            // The JSON reader's last bit is not exact.
            let read_json = read(&json).unwrap();
            prop_assert_eq!(read_json.waiting, Some(waiting));
            prop_assert!((read_json.kv_usage_ratio.unwrap() - share).abs() < 1e-12);
            prop_assert_eq!(read(&json[..cut.index(json.len())]), None);
            // Text has no end mark: what is cut says less, or another number.
            let _ = read(&text[..cut.index(text.len())]);
        }
    }
}
