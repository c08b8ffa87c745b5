//! Traces with block ids.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{BLOCK_TOKENS, Trace, TraceError, TraceRequest, lines, micros};

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
    chat_id: Option<IgnoredAny>,
}

pub(super) fn read(name: &str, text: &str) -> Result<Trace, TraceError> {
    let mut trace = Trace {
        name: name.to_owned(),
        block_tokens: 0,
        requests: Vec::new(),
        ids: Vec::new(),
        skipped: 0,
    };
    let mut fitting = BLOCK_TOKENS.to_vec();
    for (number, line) in lines(text) {
        let line: Line = serde_json::from_str(line).map_err(|source| TraceError::Line {
            line: number,
            source,
        })?;
        let fits = |block: u32| line.input_length.div_ceil(block) as usize == line.hash_ids.len();
        fitting.retain(|&block| fits(block));
        if fitting.is_empty() {
            return Err(TraceError::Shape {
                line: number,
                ids: line.hash_ids.len(),
                tokens: line.input_length,
            });
        }
        if line.input_length == 0 {
            trace.skipped += 1;
            continue;
        }
        let unit_us = if line.chat_id.is_some() { 1e6 } else { 1e3 };
        let start = trace.ids.len();
        trace.ids.extend(&line.hash_ids);
        trace.requests.push(TraceRequest {
            at_us: micros(number, line.timestamp, unit_us)?,
            prompt_tokens: line.input_length,
            output_tokens: line.output_length,
            ids: start..trace.ids.len(),
        });
    }
    trace.block_tokens = fitting.first().copied().unwrap_or(0);
    Ok(trace)
}
