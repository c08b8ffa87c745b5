//! Captured requests with the token ids of their prompts.

use hashbrown::HashMap;
use serde::Deserialize;

use super::{Trace, TraceError, TraceRequest, lines, micros};
use crate::rng::mix;

/// Tokens of a block.
const BLOCK: usize = 16;

#[derive(Deserialize)]
struct Line {
    prompt_token_ids: Option<Vec<u32>>,
    t_start: Option<f64>,
    usage: Option<Usage>,
    output_token_ids: Option<Vec<u32>>,
    body: Option<Body>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: Option<u32>,
}

/// What of a body separates prompts of equal tokens.
#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    cache_salt: Option<String>,
}

pub(super) fn read(name: &str, text: &str) -> Result<Trace, TraceError> {
    let mut trace = Trace {
        name: name.to_owned(),
        block_tokens: BLOCK as u32,
        requests: Vec::new(),
        ids: Vec::new(),
        skipped: 0,
    };
    let mut scopes: HashMap<(Option<String>, Option<String>), u64> = HashMap::new();
    for (number, line) in lines(text) {
        let line: Line = serde_json::from_str(line).map_err(|source| TraceError::Line {
            line: number,
            source,
        })?;
        let (Some(tokens), Some(t_start)) = (line.prompt_token_ids, line.t_start) else {
            trace.skipped += 1;
            continue;
        };
        if tokens.is_empty() {
            trace.skipped += 1;
            continue;
        }
        let body = line.body.map(|body| (body.model, body.cache_salt));
        let count = scopes.len() as u64;
        let scope = *scopes.entry(body.unwrap_or_default()).or_insert(count);
        let start = trace.ids.len();
        let mut hash = mix(scope + 1);
        for block in tokens.chunks(BLOCK) {
            for token in block {
                hash = mix(hash ^ u64::from(*token).wrapping_add(0x9E37_79B9_7F4A_7C15));
            }
            trace.ids.push(hash);
        }
        let counted = line.usage.and_then(|usage| usage.completion_tokens);
        let listed = line.output_token_ids.map(|ids| ids.len() as u32);
        trace.requests.push(TraceRequest {
            at_us: micros(number, t_start, 1e6)?,
            prompt_tokens: tokens.len() as u32,
            output_tokens: counted.or(listed).unwrap_or(1),
            ids: start..trace.ids.len(),
        });
    }
    Ok(trace)
}
