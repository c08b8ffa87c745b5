//! `GET /api/v1/shared`: the prefixes that are shared most.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Json;
use prefixway_core::hash::Space;
use prefixway_core::index::SharedScan;
use prefixway_core::rung::rungs;
use serde_json::{Value, json};

use super::Pages;
use super::problem::Problem;
use crate::ingest::query::{Query, SharedView};

/// Most prefixes in an answer.
const MAX_PREFIXES: usize = 100;
/// Bytes of a chunk.
const CHUNK_BYTES: u64 = prefixway_core::hash::CHUNK_BYTES as u64;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    limit: usize,
    min_holders: usize,
}

impl Wanted {
    /// Reads the part of an address after its question mark.
    fn read(query: &str) -> Option<Self> {
        let mut wanted = Self {
            limit: 20,
            min_holders: 2,
        };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value: usize = value.parse().ok().filter(|&value| value > 0)?;
            match key {
                "limit" if value <= MAX_PREFIXES => wanted.limit = value,
                "min_holders" => wanted.min_holders = value,
                _ => return None,
            }
        }
        Some(wanted)
    }
}

pub(super) async fn shared(
    State(pages): State<Pages>,
    address: Uri,
) -> Result<Json<Value>, Problem> {
    let wanted = Wanted::read(address.query().unwrap_or_default()).ok_or_else(|| {
        Problem::bad("a parameter can't be read")
            .hint("known are limit, 1 to 100, and min_holders, at least 1")
    })?;
    let scan = SharedScan::new(wanted.limit, wanted.min_holders);
    let found = pages.ask(|reply| Query::Shared { scan, reply }).await?;
    let found = found.ok_or_else(|| {
        Problem::unavailable("another search is under way").hint("ask again in a second")
    })?;
    let prefixes: Vec<Value> = found.iter().map(prefix).collect();
    Ok(Json(json!({"prefixes": prefixes})))
}

fn prefix(found: &SharedView) -> Value {
    let prefix = &found.prefix;
    let depth = usize::try_from(prefix.rungs)
        .ok()
        .and_then(|rungs| rungs.checked_sub(1));
    let bytes = depth
        .and_then(|place| rungs(Space::Text, u32::MAX).nth(place))
        .map(|chunks| u64::from(chunks) * CHUNK_BYTES);
    json!({
        "hash": format!("{:016x}", prefix.hash),
        "tokens": prefix.tokens,
        "bytes": bytes,
        "models": found.models,
        "endpoints": found.endpoints,
        "worth_tokens": u64::from(prefix.tokens) * found.endpoints.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_bounded() {
        let wanted = |limit, min_holders| Some(Wanted { limit, min_holders });
        assert_eq!(Wanted::read(""), wanted(20, 2));
        assert_eq!(Wanted::read("limit=100&min_holders=7"), wanted(100, 7));
        for bad in ["limit=0", "limit=101", "limit=-1", "min_holders=x", "n=1"] {
            assert_eq!(Wanted::read(bad), None, "{bad}");
        }
    }
}
