//! What is written of a grid: rows, CSV.

use std::fmt::Write;

use serde::Serialize;

use crate::grid::Cell;
use crate::summary::{Figures, Interval};

/// One cell, as JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is not as usual, where something isn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Name of the trace.
    pub trace: String,
    /// Load.
    pub load: f64,
    /// Policy.
    pub policy: String,
    /// Seeds.
    pub seeds: usize,
    /// Mean time to first token.
    pub mean_ttft_s: f64,
    /// Median.
    pub p50_ttft_s: f64,
    /// 90th percentile.
    pub p90_ttft_s: f64,
    /// 99th percentile.
    pub p99_ttft_s: f64,
    /// Share of prompt tokens found in caches.
    pub hit_ratio: f64,
    /// Most prefilled tokens of an endpoint, of the mean.
    pub imbalance: f64,
    /// Mean time to first token, of the oracle's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vs_oracle: Option<f64>,
    /// Lower end of its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vs_oracle_low: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vs_oracle_high: Option<f64>,
}

impl Row {
    /// The row of a cell.
    pub fn of(cell: &Cell) -> Self {
        let Figures {
            mean_ttft_s,
            p50_ttft_s,
            p90_ttft_s,
            p99_ttft_s,
            hit_ratio,
            imbalance,
            ..
        } = cell.mean();
        let end = |of: fn(Interval) -> f64| cell.vs_oracle.map(of);
        Self {
            setup: None,
            trace: cell.trace.clone(),
            load: cell.load,
            policy: cell.policy.to_string(),
            seeds: cell.figures.len(),
            mean_ttft_s,
            p50_ttft_s,
            p90_ttft_s,
            p99_ttft_s,
            hit_ratio,
            imbalance,
            vs_oracle: end(|of| of.value),
            vs_oracle_low: end(|of| of.low),
            vs_oracle_high: end(|of| of.high),
        }
    }
}

/// Columns of [`table`].
const COLUMNS: [&str; 8] = [
    "policy",
    "TTFT mean s",
    "p50",
    "p90",
    "p99",
    "hit %",
    "imbalance",
    "of oracle [95 %]",
];

/// A table for people, one part for each trace and load.
pub fn table(cells: &[Cell]) -> String {
    let mut text = String::new();
    for part in cells
        .chunk_by(|one, other| one.trace == other.trace && one.load.total_cmp(&other.load).is_eq())
    {
        let Some(Cell {
            trace,
            load,
            figures,
            ..
        }) = part.first()
        else {
            continue;
        };
        let requests = figures.first().map_or(0, |of| of.requests);
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "\n{trace}, load {load}: {requests} requests, mean of {} seeds",
            figures.len()
        );
        let mut lines = vec![COLUMNS.map(str::to_owned).to_vec()];
        lines.extend(part.iter().map(line));
        let widths: Vec<usize> = (0..COLUMNS.len())
            .map(|column| {
                lines
                    .iter()
                    .map(|line| line[column].len())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for line in lines {
            let padded = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (field, &width))| {
                    if column == 0 {
                        format!("{field:width$}")
                    } else {
                        format!("{field:>width$}")
                    }
                });
            let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
    text
}

fn line(cell: &Cell) -> Vec<String> {
    let of = cell.mean();
    let of_oracle = cell
        .vs_oracle
        .map_or_else(String::new, |Interval { value, low, high }| {
            format!("{value:.3} [{low:.3}, {high:.3}]")
        });
    vec![
        cell.policy.to_string(),
        seconds(of.mean_ttft_s),
        seconds(of.p50_ttft_s),
        seconds(of.p90_ttft_s),
        seconds(of.p99_ttft_s),
        format!("{:.1}", 100.0 * of.hit_ratio),
        format!("{:.2}", of.imbalance),
        of_oracle,
    ]
}

fn seconds(value: f64) -> String {
    let decimals = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Every run as a line of comma-separated values, with a heading.
pub fn csv(cells: &[Cell]) -> String {
    let mut text = String::from(
        "trace,load,policy,seed,requests,mean_ttft_s,p50_ttft_s,p90_ttft_s,p99_ttft_s,hit_ratio,imbalance\n",
    );
    for cell in cells {
        for (figures, seed) in cell.figures.iter().zip(1..) {
            let Figures {
                requests,
                mean_ttft_s,
                p50_ttft_s,
                p90_ttft_s,
                p99_ttft_s,
                hit_ratio,
                imbalance,
            } = figures;
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "{},{},{},{seed},{requests},{mean_ttft_s:.6},{p50_ttft_s:.6},{p90_ttft_s:.6},{p99_ttft_s:.6},{hit_ratio:.6},{imbalance:.4}",
                quoted(&cell.trace),
                cell.load,
                cell.policy
            );
        }
    }
    text
}

/// A field, in quotes where it needs them (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
