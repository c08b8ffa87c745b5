//! The table for people and the rows for programs.

use std::io::Write;

use anyhow::Result;
use prefixway_bench_text::subject::Phase;
use serde::Serialize;

use crate::engine::Measured;

/// One number beside that of a peer.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    peer: Option<&'static str>,
    peer_value: Option<f64>,
    ratio: Option<f64>,
}

/// Everything measured so far; printed as it comes.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    model: String,
}

/// The way in its parts, and all of it.
const WAY: [(Phase, &str); 4] = [
    (Phase::Parse, "parse"),
    (Phase::Render, "render"),
    (Phase::Hash, "hash"),
    (Phase::Total, "total"),
];

const PEERS: [(Phase, &str); 4] = [
    (Phase::Memcpy, "memcpy"),
    (Phase::JsonValue, "serde_json Value"),
    (Phase::JsonIgnored, "serde_json IgnoredAny"),
    (Phase::Xxh3, "xxh3 whole"),
];

impl Report {
    /// Notes a body that has no text under a model.
    pub(crate) fn skip(&mut self, model: &str, kind: &str, bytes: usize) {
        self.head(model);
        print(&format!(
            "{kind:8} {:>5}  has no text: the template takes no such chat",
            size(bytes)
        ));
    }

    /// Adds what all engines took for one body.
    pub(crate) fn add(
        &mut self,
        model: &str,
        kind: &str,
        size_bytes: usize,
        body_bytes: usize,
        measured: &[Measured],
    ) {
        self.head(model);
        for result in measured {
            let us = |phase| result.ns(phase) / 1000.0;
            let canonicalise = (us(Phase::Text) - us(Phase::Render)).max(0.0);
            let rate = |phase| body_bytes as f64 / result.ns(phase) * 1000.0;
            let name = format!("text/{}/{model}/{kind}/{}", result.engine, size(size_bytes));
            for (phase, label) in WAY {
                self.push(
                    format!("{name}/{label}"),
                    us(phase),
                    "us",
                    Some(("memcpy", us(Phase::Memcpy))),
                );
            }
            self.push(
                format!("{name}/canonicalise"),
                canonicalise,
                "us",
                Some(("memcpy", us(Phase::Memcpy))),
            );
            for (peer, label) in PEERS {
                self.push(
                    format!("{name}/rate"),
                    rate(Phase::Total),
                    "MB/s",
                    Some((label, rate(peer))),
                );
            }
            self.push(
                format!("{name}/allocations"),
                result.counts.calls as f64,
                "calls",
                None,
            );
            self.push(
                format!("{name}/allocated"),
                result.counts.bytes as f64,
                "bytes",
                None,
            );
            self.push(
                format!("{name}/peak"),
                result.counts.peak as f64,
                "bytes",
                None,
            );
            print(&format!(
                "{kind:8} {:>5}  {:8} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>10.1} {:>7.0} {:>8.1} {:>7.2} {:>7.2} {:>7.1} {:>7} {:>8}",
                size(size_bytes),
                result.engine,
                us(Phase::Parse),
                us(Phase::Render),
                canonicalise,
                us(Phase::Hash),
                us(Phase::Total),
                rate(Phase::Total),
                us(Phase::Total) / us(Phase::Memcpy),
                us(Phase::Total) / us(Phase::JsonValue),
                us(Phase::Total) / us(Phase::JsonIgnored),
                us(Phase::Total) / us(Phase::Xxh3),
                result.counts.calls,
                result.counts.bytes / 1024,
            ));
        }
    }

    /// The rows.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&self.rows)? + "\n")
    }

    fn push(
        &mut self,
        name: String,
        value: f64,
        unit: &'static str,
        peer: Option<(&'static str, f64)>,
    ) {
        self.rows.push(Row {
            name,
            value,
            unit,
            peer: peer.map(|(label, _)| label),
            peer_value: peer.map(|(_, of_peer)| of_peer),
            ratio: peer.map(|(_, of_peer)| value / of_peer),
        });
    }

    fn head(&mut self, model: &str) {
        if self.model == model {
            return;
        }
        model.clone_into(&mut self.model);
        print(&format!(
            "\n{model}: microseconds; total against memcpy, serde_json Value and IgnoredAny, one XXH3 of the same bytes; allocations\n\
             {:8} {:>5}  {:8} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7} {:>8}",
            "text",
            "body",
            "engine",
            "parse",
            "render",
            "canonical",
            "hash",
            "total",
            "MB/s",
            "x memcpy",
            "x Value",
            "x Ignor",
            "x XXH3",
            "allocs",
            "KiB",
        ));
    }
}

fn size(bytes: usize) -> String {
    if bytes < 1 << 20 {
        format!("{}K", bytes >> 10)
    } else {
        format!("{}M", bytes >> 20)
    }
}

fn print(line: &str) {
    // A closed pipe is no reason to stop: the rows are still written.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
