//! Answers that say what went wrong, and what to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

use crate::ingest::query::Unanswered;

/// Seconds after which a question may be asked again.
const RETRY_AFTER_S: &str = "1";

/// An answer that is none.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    status: StatusCode,
    error: String,
    hint: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            hint: None,
        }
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(super) fn unavailable(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    pub(super) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

impl From<Unanswered> for Problem {
    fn from(why: Unanswered) -> Self {
        let problem = Self::unavailable(why.to_string());
        match why {
            Unanswered::Full => problem.hint("ask again in a second"),
            Unanswered::Stopped => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({"error": self.error});
        if let (Some(hint), Some(fields)) = (self.hint, body.as_object_mut()) {
            fields.insert("hint".to_owned(), hint.into());
        }
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let value = HeaderValue::from_static(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}
