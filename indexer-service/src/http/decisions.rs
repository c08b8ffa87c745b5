//! `GET /api/v1/decisions`: decisions that gateways told in full.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Json;

use super::problem::Problem;
use super::{ANSWER_LIMIT, NO_ANSWER, Pages};
use crate::ingest::decisions::{DecisionsPage, MAX_DECISIONS, Wanted};

/// Decisions in an answer that says nothing of a limit.
const USUAL_DECISIONS: usize = 50;

/// Reads the part of an address after its question mark.
fn wanted(query: &str) -> Option<Wanted> {
    let mut wanted = Wanted {
        limit: USUAL_DECISIONS,
        ..Wanted::default()
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=')?;
        let value = decoded(value)?;
        match key {
            "limit" => {
                let limit = value.parse().ok();
                wanted.limit = limit.filter(|limit| (1..=MAX_DECISIONS).contains(limit))?;
            }
            "model" => wanted.model = Some(value),
            "endpoint" => wanted.endpoint = Some(value),
            _ => return None,
        }
    }
    Some(wanted)
}

/// Text in which some bytes may be written as `%` and two hexadecimal digits.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

pub(super) async fn decisions(
    State(pages): State<Pages>,
    address: Uri,
) -> Result<Json<DecisionsPage>, Problem> {
    let wanted = wanted(address.query().unwrap_or_default()).ok_or_else(|| {
        Problem::bad("a parameter can't be read")
            .hint("known are limit, 1 to 1024, model and endpoint")
    })?;
    match tokio::time::timeout(ANSWER_LIMIT, pages.ingest.decisions(wanted)).await {
        Ok(Some(page)) => Ok(Json(page)),
        Ok(None) => Err(Problem::unavailable("the index has stopped")),
        Err(_) => Err(Problem::unavailable(NO_ANSWER)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_few_and_in_range() {
        let all = wanted("limit=7&model=a%20b&endpoint=%5B::1%5D:8000%230").unwrap();
        assert_eq!(all.limit, 7);
        assert_eq!(all.model.as_deref(), Some("a b"));
        assert_eq!(all.endpoint.as_deref(), Some("[::1]:8000#0"));
        assert_eq!(wanted("").unwrap().limit, USUAL_DECISIONS);
        for bad in [
            "limit=0",
            "limit=1025",
            "limit=x",
            "limit",
            "page=1",
            "model=%2",
            "model=%zz",
            "model=%ff",
        ] {
            assert_eq!(wanted(bad), None, "{bad}");
        }
    }
}
