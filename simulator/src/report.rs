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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::policy::{DEFAULT_POLICY, Policy};
    use crate::simulation::Setup;
    use crate::trace::Trace;

    fn grid(seeds: u32) -> Vec<Cell> {
        let mut trace = Trace::agentic(10, 1);
        trace.name = "a, \"b\" & <c>".to_owned();
        let grid = Grid {
            traces: vec![trace],
            loads: vec![1.0, 2.0],
            policies: vec![DEFAULT_POLICY, Policy::Oracle],
            seeds,
            block_tokens: 64,
            setup: Setup::default(),
        };
        let most = std::sync::atomic::AtomicUsize::new(0);
        let cells = grid.run(2, &|done| {
            most.fetch_max(done, std::sync::atomic::Ordering::Relaxed);
        });
        // The oracle stands for three.
        assert_eq!(grid.runs(), 2 * 4 * seeds as usize);
        assert_eq!(most.into_inner(), grid.runs());
        cells
    }

    #[test]
    fn every_run_is_a_line_of_csv_and_every_cell_one_of_the_table() {
        let cells = grid(3);
        let csv = csv(&cells);
        assert_eq!(csv.lines().count(), 1 + 4 * 3);
        assert!(
            csv.lines()
                .skip(1)
                .all(|line| line.starts_with("\"a, \"\"b\"\" & <c>\","))
        );
        let table = table(&cells);
        assert_eq!(table.matches("prefixway").count(), 2);
        assert_eq!(table.matches("1.000 [1.000, 1.000]").count(), 2);
        let rows: Vec<Row> = cells.iter().map(Row::of).collect();
        let json = serde_json::to_value(&rows).unwrap();
        assert!(json[0]["vs_oracle"].as_f64().unwrap() > 0.5);
        assert!(json[0].get("setup").is_none());
    }

    #[test]
    fn one_seed_has_no_interval() {
        let cells = grid(1);
        assert!(cells.iter().all(|cell| cell.vs_oracle.is_none()));
        assert!(table(&cells).contains("prefixway"));
    }

    #[test]
    fn the_plot_has_a_line_for_each_policy_and_no_stray_marks() {
        let svg = crate::plot::svg(&grid(3));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("a, \"b\" &amp; &lt;c&gt;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }
}
