//! What a replay found.

use comfy_table::{Table, presets};
use serde::Serialize;
use std::fmt::Write;

/// Requests shown in the table.
const WORST: usize = 10;

/// Result of a replay. Errors are predicted minus actual cached tokens.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What predictions were made from: `text` or `token`.
    pub space: &'static str,
    /// Requests in the capture.
    pub requests: usize,
    /// Requests whose prediction could be compared with the engine's answer: sent alone, and answered with a usage.
    pub compared: usize,
    /// Predictions without an error.
    pub exact: usize,
    /// Predictions with an error of at most 16 tokens.
    pub within_16_tokens: usize,
    /// Mean of the errors' sizes, in tokens.
    pub mean_abs_error_tokens: f64,
    /// Largest amount predicted too little.
    pub max_under_tokens: u32,
    /// Largest amount predicted too much.
    pub max_over_tokens: u32,
    /// Mean of the errors' sizes by the exact index, without rungs.
    pub index_exact_mae: f64,
    /// Chats whose rendering could be compared with the engine's.
    pub render_compared: usize,
    /// Renderings that are equal.
    pub render_equal: usize,
    /// Prompts whose bytes could be compared with those of the engine's token ids.
    pub bytes_compared: usize,
    /// Prompts with equal bytes.
    pub bytes_equal: usize,
    /// Messages, batches and events that could not be read.
    pub decode_errors: u64,
    /// Every comparison, in the order sent.
    pub per_request: Vec<PerRequest>,
    #[serde(skip)]
    judged: Vec<Judged>,
}

/// One comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PerRequest {
    /// Number of the request in the capture.
    pub i: u64,
    /// Cached tokens predicted.
    pub predicted: u32,
    /// Cached tokens the engine reported.
    pub actual: u32,
}

/// Cached tokens in three ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    pub(super) tokens: u32,
    pub(super) exact: u32,
    pub(super) by_token_ids: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) i: u64,
    pub(super) kind: String,
    pub(super) actual: u32,
    /// Or why there is no prompt text.
    pub(super) prediction: Result<Prediction, &'static str>,
}

impl Judged {
    fn predicted(&self) -> u32 {
        self.prediction.map_or(0, |prediction| prediction.tokens)
    }

    fn error(&self) -> i64 {
        i64::from(self.predicted()) - i64::from(self.actual)
    }

    /// The likely cause of the error.
    fn cause(&self) -> String {
        match self.prediction {
            Err(reason) => format!("no prompt ({reason})"),
            Ok(prediction) if prediction.exact == self.actual => {
                "rungs are a chunk or more apart".to_owned()
            }
            Ok(prediction) if prediction.by_token_ids == self.actual => {
                "the same text in other tokens, as when an engine reads back what it wrote"
                    .to_owned()
            }
            Ok(prediction) if prediction.by_token_ids > self.actual => {
                "the engine dropped blocks and had not said so".to_owned()
            }
            Ok(_) => "the engine held blocks that no event told of".to_owned(),
        }
    }
}

impl Report {
    pub(super) fn new(space: &'static str) -> Self {
        Self {
            space,
            ..Self::default()
        }
    }

    pub(super) fn judge(&mut self, judged: Judged) {
        self.judged.push(judged);
    }

    /// Works out the totals.
    pub(super) fn finish(&mut self, decode_errors: u64) {
        self.decode_errors = decode_errors;
        self.compared = self.judged.len();
        let n = self.compared.max(1) as f64;
        let mean = |errors: &mut dyn Iterator<Item = u64>| errors.sum::<u64>() as f64 / n;
        self.mean_abs_error_tokens = mean(
            &mut self
                .judged
                .iter()
                .map(|judged| judged.error().unsigned_abs()),
        );
        self.index_exact_mae = mean(&mut self.judged.iter().map(|judged| {
            u64::from(
                judged
                    .prediction
                    .map_or(0, |prediction| prediction.exact)
                    .abs_diff(judged.actual),
            )
        }));
        self.exact = self
            .judged
            .iter()
            .filter(|judged| judged.error() == 0)
            .count();
        self.within_16_tokens = self
            .judged
            .iter()
            .filter(|judged| judged.error().unsigned_abs() <= 16)
            .count();
        let largest =
            |excess: fn(&Judged) -> u32| self.judged.iter().map(excess).max().unwrap_or(0);
        self.max_under_tokens = largest(|judged| judged.actual.saturating_sub(judged.predicted()));
        self.max_over_tokens = largest(|judged| judged.predicted().saturating_sub(judged.actual));
        self.per_request = self
            .judged
            .iter()
            .map(|judged| PerRequest {
                i: judged.i,
                predicted: judged.predicted(),
                actual: judged.actual,
            })
            .collect();
    }

    /// The report for people.
    pub fn to_table(&self) -> String {
        let mut totals = Table::new();
        totals.load_style(presets::NOTHING);
        for (name, value) in [
            ("predicted from", self.space.to_owned()),
            ("requests", self.requests.to_string()),
            ("compared with the engine", self.compared.to_string()),
            (
                "predicted exactly",
                format!("{} of {}", self.exact, self.compared),
            ),
            (
                "predicted within 16 tokens",
                format!("{} of {}", self.within_16_tokens, self.compared),
            ),
            (
                "mean absolute error",
                format!("{:.2} tokens", self.mean_abs_error_tokens),
            ),
            (
                "  of the index without rungs",
                format!("{:.2} tokens", self.index_exact_mae),
            ),
            (
                "largest error",
                format!(
                    "-{} / +{} tokens",
                    self.max_under_tokens, self.max_over_tokens
                ),
            ),
            (
                "chats rendered as by the engine",
                format!("{} of {}", self.render_equal, self.render_compared),
            ),
            (
                "prompts with the engine's bytes",
                format!("{} of {}", self.bytes_equal, self.bytes_compared),
            ),
            ("decode errors", self.decode_errors.to_string()),
        ] {
            totals.add_row([name, value.as_str()]);
        }
        let mut text = format!("{totals}\n");
        let mut worst: Vec<&Judged> = self
            .judged
            .iter()
            .filter(|judged| judged.error() != 0)
            .collect();
        worst.sort_by_key(|judged| std::cmp::Reverse(judged.error().unsigned_abs()));
        if worst.is_empty() {
            return text;
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "request",
            "kind",
            "predicted",
            "actual",
            "error",
            "likely cause",
        ]);
        for judged in worst.iter().take(WORST) {
            table.add_row([
                judged.i.to_string(),
                judged.kind.clone(),
                judged.predicted().to_string(),
                judged.actual.to_string(),
                format!("{:+}", judged.error()),
                judged.cause(),
            ]);
        }
        // Writing to a string can't fail.
        let _ = writeln!(text, "\nWorst requests\n{table}");
        text
    }
}
