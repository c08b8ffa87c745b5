//! Error replies in vLLM's shape.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use thiserror::Error;

use crate::template::TemplateError;
use crate::tokenizer::TokenizerError;

/// Why a request gets no completion.
#[derive(Debug, Error)]
pub(super) enum ApiError {
    #[error("{0}")]
    Body(#[from] serde_json::Error),
    #[error("The model `{0}` does not exist.")]
    UnknownModel(String),
    #[error("{key} is out of range, it must be {allowed}")]
    OutOfRange {
        key: &'static str,
        allowed: &'static str,
    },
    #[error(
        "This model's maximum context length is {limit} tokens. However, your request has {prompt} input tokens and asks for {output} output tokens."
    )]
    TooLong {
        limit: usize,
        prompt: usize,
        output: usize,
    },
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("{0}")]
    Template(#[from] TemplateError),
    #[error("{0}")]
    Tokenizer(#[from] TokenizerError),
    #[error("the engine stopped before the reply was complete")]
    Stopped,
}

impl ApiError {
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::UnknownModel(_) => (StatusCode::NOT_FOUND, "NotFoundError"),
            Self::Stopped => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
            _ => (StatusCode::BAD_REQUEST, "BadRequestError"),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, kind) = self.status();
        let error = json!({"message": self.to_string(), "type": kind, "param": null, "code": status.as_u16()});
        (status, Json(json!({ "error": error }))).into_response()
    }
}
