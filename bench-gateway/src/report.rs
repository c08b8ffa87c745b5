//! The table and the rows.

use std::path::Path;

use serde::Serialize;

use crate::load::Cell;

/// One variant in one cell.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    variant: String,
    body_bytes: usize,
    concurrency: usize,
    p50_us: f64,
    p99_us: f64,
    added_p50_us: f64,
    rps: f64,
    envoy_cpu_us: f64,
    server_cpu_us: f64,
    /// Requests that got no answer.
    lost_requests: usize,
}

impl Row {
    pub(crate) fn new(
        variant: &str,
        body_bytes: usize,
        concurrency: usize,
        cell: &Cell,
        plain_p50_us: f64,
    ) -> Self {
        let p50_us = cell.percentile_us(500);
        let each = |time: std::time::Duration| time.as_secs_f64() * 1e6 / cell.count().max(1.0);
        Self {
            variant: variant.to_owned(),
            body_bytes,
            concurrency,
            p50_us,
            p99_us: cell.percentile_us(990),
            added_p50_us: p50_us - plain_p50_us,
            rps: cell.count() / cell.span.as_secs_f64().max(1e-9),
            envoy_cpu_us: each(cell.envoy),
            server_cpu_us: each(cell.server),
            lost_requests: cell.lost,
        }
    }
}

/// A number as people say it.
pub(crate) fn count(number: u64) -> String {
    match number {
        1_000_000.. => format!("{}M", number / 1_000_000),
        1_000.. => format!("{}k", number / 1_000),
        _ => number.to_string(),
    }
}

/// Prints the table, cell by cell, with ratios to plain Envoy and to `ext_proc`.
pub(crate) fn print(rows: &[Row]) {
    for cell in rows.chunk_by(|a, b| (a.body_bytes, a.concurrency) == (b.body_bytes, b.concurrency))
    {
        let Some(plain) = cell.first() else {
            continue;
        };
        let ext_proc = cell.iter().find(|row| row.variant == "ext_proc");
        println!(
            "\n{} KiB, {} client(s)",
            plain.body_bytes >> 10,
            plain.concurrency
        );
        println!(
            "{:<16} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>10} {:>9} {:>8}",
            "",
            "p50 us",
            "p99 us",
            "added",
            "of ext_p",
            "req/s",
            "of plain",
            "Envoy CPU",
            "over",
            "server"
        );
        for row in cell {
            let of_ext_proc = ext_proc.map_or(f64::NAN, |ext_proc| {
                row.added_p50_us / ext_proc.added_p50_us
            });
            println!(
                "{:<16} {:>8.0} {:>8.0} {:>8.0} {:>9.2} {:>8.0} {:>8.2} {:>10.0} {:>9.0} {:>8.0}",
                row.variant,
                row.p50_us,
                row.p99_us,
                row.added_p50_us,
                of_ext_proc,
                row.rps,
                row.rps / plain.rps,
                row.envoy_cpu_us,
                row.envoy_cpu_us - plain.envoy_cpu_us,
                row.server_cpu_us,
            );
        }
        for row in cell.iter().filter(|row| row.lost_requests > 0) {
            println!(
                "{}: {} requests got no answer",
                row.variant, row.lost_requests
            );
        }
    }
}

/// Writes the rows as JSON.
///
/// # Errors
/// When the file can't be written.
pub(crate) fn write(rows: &[Row], path: &str) -> anyhow::Result<()> {
    if let Some(folder) = Path::new(path).parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, serde_json::to_vec_pretty(rows)?)?;
    Ok(())
}
