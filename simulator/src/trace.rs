//! Request traces: when requests came, how long they were, and which blocks their prompts share.
//!
//! | format | told by | blocks |
//! |---|---|---|
//! | Mooncake (`timestamp` in ms, `input_length`, `output_length`, `hash_ids`) | `hash_ids` | 512 tokens, or what the lengths say |
//! | Qwen-Bailian: the same with `chat_id`, and `timestamp` in seconds | `chat_id` | 16 tokens |
//! | our captures (`requests.jsonl` of `replay`): `prompt_token_ids`, `t_start`, `usage` | neither | 16 tokens, hashed here |
//!
//! All are JSON, one object a line.

mod agentic;
mod capture;
mod mooncake;

use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Tokens of a block that ids of a trace may stand for, longest first.
const BLOCK_TOKENS: [u32; 6] = [512, 256, 128, 64, 32, 16];

/// Why a trace can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is no request in it.
    #[error("no request in it")]
    Empty,
    /// A line is not of the format.
    #[error("line {line} is not of a known trace format")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Ids and length of a prompt don't agree.
    #[error("line {line}: {ids} block ids for {tokens} tokens fit no block size of the others")]
    Shape {
        /// Number of the line, from 1.
        line: usize,
        /// Block ids.
        ids: usize,
        /// Tokens of the prompt.
        tokens: u32,
    },
    /// A time that is none.
    #[error("line {line}: the time {value} is negative or no number")]
    Time {
        /// Number of the line, from 1.
        line: usize,
        /// What it says.
        value: f64,
    },
}

impl TraceError {
    /// What the user can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "a trace has one JSON object a line; a capture needs `prompt_token_ids`",
            Self::Line { .. } | Self::Time { .. } => {
                "a line of a trace has `timestamp`, `input_length`, `output_length` and `hash_ids`, one of a capture `prompt_token_ids` and `t_start`"
            }
            Self::Shape { .. } => {
                "`hash_ids` has one id for each block of the prompt, the last one may be partial"
            }
        }
    }
}

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Microseconds since the start of the trace.
    pub at_us: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Its blocks in [`Trace::ids`].
    pub ids: Range<usize>,
}

/// A request trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What it is called in tables.
    pub name: String,
    /// Tokens that an id stands for.
    pub block_tokens: u32,
    /// Requests, in the order of their times.
    pub requests: Vec<TraceRequest>,
    /// Block ids of all requests; equal ids after equal ids are the same block.
    pub ids: Vec<u64>,
    /// Lines that are no request with known tokens.
    pub skipped: usize,
}

#[derive(Deserialize)]
struct Glimpse {
    hash_ids: Option<IgnoredAny>,
}

impl Trace {
    /// Reads a trace from text.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn from_text(name: &str, text: &str) -> Result<Self, TraceError> {
        let (line, first) = lines(text).next().ok_or(TraceError::Empty)?;
        let glimpse: Glimpse =
            serde_json::from_str(first).map_err(|source| TraceError::Line { line, source })?;
        let mut trace = if glimpse.hash_ids.is_some() {
            mooncake::read(name, text)?
        } else {
            capture::read(name, text)?
        };
        if trace.requests.is_empty() {
            return Err(TraceError::Empty);
        }
        trace.requests.sort_by_key(|request| request.at_us);
        let first_us = trace.requests.first().map_or(0, |first| first.at_us);
        for request in &mut trace.requests {
            request.at_us -= first_us;
        }
        Ok(trace)
    }

    /// A made trace of agents in loops, see `docs/simulation.md`: 24 system prompts, sessions of 6 to 22 turns that come seconds apart.
    pub fn agentic(sessions: u32, seed: u64) -> Self {
        agentic::make(sessions, seed)
    }

    /// Keeps the first requests only.
    pub fn truncate(&mut self, requests: usize) {
        self.requests.truncate(requests);
    }

    /// Seconds from the first to the last request.
    pub fn duration_s(&self) -> f64 {
        self.requests
            .last()
            .map_or(0.0, |last| last.at_us as f64 / 1e6)
    }
}

/// Lines with something in them, and their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
}

fn micros(line: usize, value: f64, unit_us: f64) -> Result<u64, TraceError> {
    if value.is_finite() && value >= 0.0 {
        Ok((value * unit_us) as u64)
    } else {
        Err(TraceError::Time { line, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mooncake_lines_are_read_in_order_of_time_and_the_block_size_follows() {
        let text = r#"
{"timestamp": 3000, "input_length": 513, "output_length": 2, "hash_ids": [7, 9]}
{"timestamp": 1000, "input_length": 512, "output_length": 1, "hash_ids": [7]}
"#;
        let trace = Trace::from_text("t", text).unwrap();
        assert_eq!((trace.block_tokens, trace.duration_s()), (512, 2.0));
        let of = |at: usize| &trace.requests[at];
        assert_eq!((of(0).at_us, of(0).prompt_tokens), (0, 512));
        assert_eq!(&trace.ids[of(1).ids.clone()], [7, 9]);
        let short = r#"{"chat_id": 1, "timestamp": 2.5, "input_length": 30, "output_length": 2, "hash_ids": [1, 2]}
{"chat_id": 1, "timestamp": 3, "input_length": 33, "output_length": 2, "hash_ids": [1, 2, 3]}"#;
        let trace = Trace::from_text("t", short).unwrap();
        assert_eq!((trace.block_tokens, trace.requests[1].at_us), (16, 500_000));
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let good = r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [7]}"#;
        let of = |line: &str| {
            let error = Trace::from_text("t", &format!("{good}\n{line}")).unwrap_err();
            assert!(!error.hint().is_empty());
            error.to_string()
        };
        assert!(
            Trace::from_text("t", "\n")
                .unwrap_err()
                .to_string()
                .contains("no request")
        );
        assert!(of("{}").starts_with("line 2 is not"));
        assert!(
            of(r#"{"timestamp": 1, "input_length": 5000, "output_length": 1, "hash_ids": [7]}"#)
                .starts_with("line 2: 1 block ids for 5000 tokens")
        );
        assert!(
            of(r#"{"timestamp": -1, "input_length": 5, "output_length": 1, "hash_ids": [7]}"#)
                .contains("time -1")
        );
    }

    #[test]
    fn a_capture_is_read_by_its_token_ids() {
        let ids: Vec<u32> = (0..40).collect();
        let more: Vec<u32> = (0..35).chain(100..120).collect();
        let text = format!(
            r#"{{"i": 0, "path": "/v1/completions", "prompt_token_ids": {ids:?}, "t_start": 100.0, "usage": {{"completion_tokens": 3}}}}
{{"i": 1, "kind": "reset_prefix_cache", "path": "/reset"}}
{{"i": 2, "path": "/v1/completions", "prompt_token_ids": {more:?}, "t_start": 101.5, "output_token_ids": [1, 2]}}"#
        );
        let trace = Trace::from_text("t", &text).unwrap();
        assert_eq!((trace.block_tokens, trace.skipped), (16, 1));
        let [a, b] = &trace.requests[..] else {
            panic!("two requests")
        };
        assert_eq!(
            (a.prompt_tokens, a.output_tokens, b.output_tokens),
            (40, 3, 2)
        );
        assert_eq!(b.at_us, 1_500_000);
        let (a, b) = (&trace.ids[a.ids.clone()], &trace.ids[b.ids.clone()]);
        assert_eq!((a.len(), b.len()), (3, 4));
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
    }

    #[test]
    fn the_agentic_trace_is_the_same_for_a_seed_and_shares_most_of_its_prompts() {
        let trace = Trace::agentic(60, 42);
        assert_eq!(trace.ids, Trace::agentic(60, 42).ids);
        let mean = trace
            .requests
            .iter()
            .map(|of| f64::from(of.prompt_tokens))
            .sum::<f64>()
            / trace.requests.len() as f64;
        assert!((12_000.0..24_000.0).contains(&mean), "{mean}");
        let mut seen = std::collections::HashSet::new();
        let (mut shared, mut all) = (0, 0);
        for request in &trace.requests {
            for id in &trace.ids[request.ids.clone()] {
                all += 1;
                shared += u32::from(!seen.insert(*id));
            }
        }
        let ratio = f64::from(shared) / f64::from(all);
        assert!((0.8..0.95).contains(&ratio), "{ratio}");
    }
}
