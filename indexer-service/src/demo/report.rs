//! Figures of a run, as a table and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::load::Run;

/// All runs of a demo; its JSON form is a contract.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// One entry a policy, in the order they ran.
    pub runs: Vec<Figures>,
}

/// Figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// `round_robin`, `least_request` or `prefixway`.
    pub policy: String,
    /// Time to first token.
    pub ttft_ms: Distribution,
    /// Time per output token after the first.
    pub tpot_ms: Distribution,
    /// Answered requests per second.
    pub requests_per_s: f64,
    /// Cached prompt tokens over all prompt tokens.
    pub cached_token_ratio: f64,
    /// Requests sent.
    pub requests: usize,
    /// Requests without a whole answer.
    pub errors: usize,
    /// Answers of each engine by its name.
    pub per_endpoint: BTreeMap<String, usize>,
}

/// A distribution in milliseconds; all zero when it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
}

impl Distribution {
    /// Of the given times, in any order; percentiles by nearest rank.
    pub fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut values: Vec<f64> = times
            .into_iter()
            .map(|time| rounded(time.as_secs_f64() * 1e3))
            .collect();
        values.sort_by(f64::total_cmp);
        if values.is_empty() {
            return Self::default();
        }
        let rank = |percent: usize| {
            let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
            values.get(index).copied().unwrap_or_default()
        };
        Self {
            mean: rounded(values.iter().sum::<f64>() / values.len() as f64),
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
        }
    }
}

/// To three decimals: more would be noise in a report.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Figures {
    /// Sums a run up.
    pub fn of(policy: &str, run: &Run) -> Self {
        let mut per_endpoint = BTreeMap::new();
        for reply in &run.replies {
            *per_endpoint.entry(reply.engine.clone()).or_insert(0) += 1;
        }
        let cached: u64 = run.replies.iter().map(|reply| reply.cached_tokens).sum();
        let prompt: u64 = run.replies.iter().map(|reply| reply.prompt_tokens).sum();
        let per_token = run.replies.iter().filter_map(|reply| {
            let steps = u32::try_from(reply.completion_tokens.checked_sub(1)?).ok()?;
            reply.decode.checked_div(steps)
        });
        Self {
            policy: policy.to_owned(),
            ttft_ms: Distribution::of(run.replies.iter().map(|reply| reply.ttft)),
            tpot_ms: Distribution::of(per_token),
            requests_per_s: rounded(run.replies.len() as f64 / run.elapsed.as_secs_f64().max(1e-9)),
            cached_token_ratio: rounded(cached as f64 / prompt.max(1) as f64),
            requests: run.replies.len() + run.errors.len(),
            errors: run.errors.len(),
            per_endpoint,
        }
    }
}

impl Report {
    /// The table for people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
            "policy",
            "TTFT ms\nmean",
            "\np50",
            "\np90",
            "\np99",
            "ms per token\np50",
            "\np99",
            "requests/s",
            "cached tokens",
            "errors",
            "requests per endpoint",
        ]);
        for run in &self.runs {
            let endpoints: Vec<String> = run.per_endpoint.values().map(usize::to_string).collect();
            table.add_row([
                run.policy.replace('_', " "),
                format!("{:.0}", run.ttft_ms.mean),
                format!("{:.0}", run.ttft_ms.p50),
                format!("{:.0}", run.ttft_ms.p90),
                format!("{:.0}", run.ttft_ms.p99),
                format!("{:.1}", run.tpot_ms.p50),
                format!("{:.1}", run.tpot_ms.p99),
                format!("{:.1}", run.requests_per_s),
                format!("{:.1} %", run.cached_token_ratio * 100.0),
                run.errors.to_string(),
                endpoints.join(" / "),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::{Reply, ReplyError};

    fn reply(engine: &str, ttft_ms: u64) -> Reply {
        Reply {
            engine: engine.to_owned(),
            ttft: Duration::from_millis(ttft_ms),
            decode: Duration::from_millis(30),
            prompt_tokens: 100,
            cached_tokens: 25,
            completion_tokens: 4,
            ..Reply::default()
        }
    }

    fn figures() -> Figures {
        let run = Run {
            replies: vec![reply("a", 10), reply("b", 30), reply("a", 20)],
            errors: vec![ReplyError::Cut],
            elapsed: Duration::from_secs(2),
        };
        Figures::of("round_robin", &run)
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let of = Distribution::of((1..=200).map(Duration::from_millis));
        let expected = Distribution {
            mean: 100.5,
            p50: 100.0,
            p90: 180.0,
            p99: 198.0,
        };
        assert_eq!(of, expected);
        assert_eq!(Distribution::of([]), Distribution::default());
    }

    #[test]
    fn figures_count_failures_and_weigh_tokens() {
        let figures = figures();
        assert_eq!((figures.requests, figures.errors), (4, 1));
        assert_eq!(
            figures.per_endpoint,
            BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)])
        );
        assert!((figures.cached_token_ratio - 0.25).abs() < 1e-9);
        assert!((figures.tpot_ms.p50 - 10.0).abs() < 1e-9);
    }

    #[test]
    fn the_json_form_has_the_promised_names() {
        let report = serde_json::to_value(Report {
            runs: vec![figures()],
        })
        .unwrap();
        let run = report.pointer("/runs/0").unwrap();
        for name in [
            "policy",
            "ttft_ms",
            "cached_token_ratio",
            "requests",
            "errors",
            "per_endpoint",
        ] {
            assert!(run.get(name).is_some(), "{name}");
        }
        for name in ["mean", "p50", "p90", "p99"] {
            assert!(run["ttft_ms"].get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_policy() {
        let table = Report {
            runs: vec![figures()],
        }
        .table();
        assert!(
            table.contains("round robin") && table.contains("25.0 %") && table.contains("2 / 1"),
            "{table}"
        );
    }
}
