//! Refusing a request: why, and in which words.

use std::borrow::Cow;

use serde_json::json;

use crate::text::{BodyError, ErrorStyle};

/// Header that says why a request was dropped with which nothing is wrong; llm-d's.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";
/// Most names of served models in a message.
const MAX_NAMES: usize = 16;
/// Most characters of a client's own word in a message.
const MAX_QUOTED_CHARS: usize = 200;

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It has no body.
    Empty,
    /// Its body is no inference request.
    Body(BodyError),
    /// Its body is longer than is taken.
    TooLarge {
        /// What is taken.
        max_bytes: usize,
    },
    /// It names no model, and nothing says which is meant.
    ModelRequired {
        /// Names of the models that are served.
        served: Vec<String>,
    },
    /// It names a model that nobody serves.
    ModelNotFound {
        /// The name.
        model: String,
        /// Names of the models that are served.
        served: Vec<String>,
    },
    /// No endpoint may serve it now.
    NoEndpoint,
    /// Every endpoint that may serve it is full.
    Full {
        /// Seconds after which to try again.
        retry_after_s: u32,
    },
    /// It has waited for an endpoint for as long as requests may.
    QueueTimeout {
        /// For how long.
        waited_ms: u64,
        /// Seconds after which to try again.
        retry_after_s: u32,
    },
    /// No endpoint is expected to meet its target, and its objective says that it is refused then.
    TargetUnmet {
        /// Seconds after which to try again.
        retry_after_s: u32,
    },
    /// Nothing is known yet of how it is to be routed.
    NoSnapshot,
}

/// Kinds of faults, as metrics and logs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The body is no inference request.
    BadBody,
    /// The body is too long.
    TooLarge,
    /// No model is named, or none can be read, and nothing says which is meant.
    NoModel,
    /// The named model is not known.
    UnknownModel,
    /// No endpoint may serve the request.
    NoEndpoint,
    /// Every endpoint that may serve it is full.
    Full,
    /// It has waited for an endpoint for as long as requests may.
    QueueTimeout,
    /// No endpoint is expected to meet its target.
    TargetUnmet,
    /// Nothing is known yet of how to route.
    NoSnapshot,
}

impl Cause {
    /// Every cause, for defining metrics ahead of time.
    pub const ALL: [Self; 9] = [
        Self::BadBody,
        Self::TooLarge,
        Self::NoModel,
        Self::UnknownModel,
        Self::NoEndpoint,
        Self::Full,
        Self::QueueTimeout,
        Self::TargetUnmet,
        Self::NoSnapshot,
    ];

    /// Causes of requests that are dropped although nothing is wrong with them.
    pub const DROPS: [Self; 4] = [
        Self::NoEndpoint,
        Self::Full,
        Self::QueueTimeout,
        Self::TargetUnmet,
    ];

    /// Whether the request is at fault, and not the pool.
    pub fn is_of_client(self) -> bool {
        match self {
            Self::BadBody | Self::TooLarge | Self::NoModel | Self::UnknownModel => true,
            Self::NoEndpoint
            | Self::Full
            | Self::QueueTimeout
            | Self::TargetUnmet
            | Self::NoSnapshot => false,
        }
    }

    /// The cause as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadBody => "bad_body",
            Self::TooLarge => "too_large",
            Self::NoModel => "no_model",
            Self::UnknownModel => "unknown_model",
            Self::NoEndpoint => "no_endpoint",
            Self::Full => "full",
            Self::QueueTimeout => "queue_timeout",
            Self::TargetUnmet => "target_unmet",
            Self::NoSnapshot => "no_snapshot",
        }
    }

    pub(super) fn of_model(name: Option<&str>) -> Self {
        match name {
            None => Self::NoModel,
            Some(_) => Self::UnknownModel,
        }
    }
}

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    fault: Fault,
    style: ErrorStyle,
}

/// The answer to a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status; one of [`Refusal::STATUSES`].
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// A JSON object.
    pub body: Vec<u8>,
}

/// One kind of answer.
struct Kind {
    status: u16,
    /// In vLLM's manner.
    open_ai: &'static str,
    /// In Anthropic's.
    anthropic: &'static str,
}

const BAD_REQUEST: Kind = Kind {
    status: 400,
    open_ai: "BadRequestError",
    anthropic: "invalid_request_error",
};
const NOT_FOUND: Kind = Kind {
    status: 404,
    open_ai: "NotFoundError",
    anthropic: "not_found_error",
};
const TOO_LARGE: Kind = Kind {
    status: 413,
    open_ai: "RequestTooLargeError",
    anthropic: "request_too_large",
};
const TOO_MANY: Kind = Kind {
    status: 429,
    open_ai: "TooManyRequestsError",
    anthropic: "rate_limit_error",
};
const UNAVAILABLE: Kind = Kind {
    status: 503,
    open_ai: "ServiceUnavailableError",
    anthropic: "overloaded_error",
};

impl Refusal {
    /// Every status that a reply has, for defining metrics ahead of time.
    pub const STATUSES: [u16; 5] = [
        BAD_REQUEST.status,
        NOT_FOUND.status,
        TOO_LARGE.status,
        TOO_MANY.status,
        UNAVAILABLE.status,
    ];

    pub(super) fn new(fault: Fault, style: ErrorStyle) -> Self {
        Self { fault, style }
    }

    /// What is wrong.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// What is wrong, for metrics.
    pub fn cause(&self) -> Cause {
        match &self.fault {
            Fault::Empty | Fault::Body(_) => Cause::BadBody,
            Fault::TooLarge { .. } => Cause::TooLarge,
            Fault::ModelRequired { .. } => Cause::NoModel,
            Fault::ModelNotFound { .. } => Cause::UnknownModel,
            Fault::NoEndpoint => Cause::NoEndpoint,
            Fault::Full { .. } => Cause::Full,
            Fault::QueueTimeout { .. } => Cause::QueueTimeout,
            Fault::TargetUnmet { .. } => Cause::TargetUnmet,
            Fault::NoSnapshot => Cause::NoSnapshot,
        }
    }

    /// The answer, in the words of the request's API.
    ///
    /// `{"error": {"message", "type", "param", "code"}}`, or `{"type": "error", "error": {"type", "message"}}` for Anthropic's. Types are those
    /// of vLLM and Anthropic; codes are ours and don't change.
    pub fn reply(&self) -> Reply {
        let kind = self.kind();
        let message = self.message();
        let body = match self.style {
            ErrorStyle::OpenAi => json!({"error": {
                "message": message, "type": kind.open_ai, "param": self.param(), "code": self.code(),
            }}),
            ErrorStyle::Anthropic => json!({
                "type": "error", "error": {"type": kind.anthropic, "message": message},
            }),
        };
        let mut headers = vec![("content-type", Cow::Borrowed("application/json"))];
        if let Fault::Full { retry_after_s }
        | Fault::QueueTimeout { retry_after_s, .. }
        | Fault::TargetUnmet { retry_after_s } = &self.fault
        {
            headers.push(("retry-after", Cow::Owned(retry_after_s.to_string())));
        }
        if let Some(reason) = self.dropped_reason() {
            headers.push((DROPPED_REASON, Cow::Borrowed(reason)));
        }
        Reply {
            status: kind.status,
            headers,
            body: body.to_string().into_bytes(),
        }
    }

    /// Why a request was dropped with which nothing is wrong, in llm-d's words.
    fn dropped_reason(&self) -> Option<&'static str> {
        match &self.fault {
            Fault::NoEndpoint => Some("rejected-no-endpoints"),
            Fault::Full { .. } | Fault::TargetUnmet { .. } => Some("rejected-saturated"),
            Fault::QueueTimeout { .. } => Some("rejected-ttl-expired"),
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        match &self.fault {
            Fault::Empty | Fault::Body(_) | Fault::ModelRequired { .. } => BAD_REQUEST,
            Fault::ModelNotFound { .. } => NOT_FOUND,
            Fault::TooLarge { .. } => TOO_LARGE,
            Fault::Full { .. } | Fault::QueueTimeout { .. } | Fault::TargetUnmet { .. } => TOO_MANY,
            Fault::NoEndpoint | Fault::NoSnapshot => UNAVAILABLE,
        }
    }

    fn param(&self) -> Option<&'static str> {
        match &self.fault {
            Fault::Body(error) => error.param(),
            Fault::ModelRequired { .. } | Fault::ModelNotFound { .. } => Some("model"),
            Fault::Empty
            | Fault::TooLarge { .. }
            | Fault::NoEndpoint
            | Fault::Full { .. }
            | Fault::QueueTimeout { .. }
            | Fault::TargetUnmet { .. }
            | Fault::NoSnapshot => None,
        }
    }

    fn code(&self) -> &'static str {
        match &self.fault {
            Fault::Empty => "body_required",
            Fault::Body(BodyError::ModelType) => "model_invalid",
            Fault::Body(_) => "body_invalid",
            Fault::TooLarge { .. } => "body_too_large",
            Fault::ModelRequired { .. } => "model_required",
            Fault::ModelNotFound { .. } => "model_not_found",
            Fault::NoEndpoint => "no_endpoint",
            Fault::Full { .. } => "pool_full",
            Fault::QueueTimeout { .. } => "queue_timeout",
            Fault::TargetUnmet { .. } => "target_unmet",
            Fault::NoSnapshot => "no_snapshot",
        }
    }

    /// Cause and remedy.
    fn message(&self) -> String {
        match &self.fault {
            Fault::Empty => "The request has no body. Send a JSON object.".to_owned(),
            Fault::Body(BodyError::ModelType) => {
                "`model` is not a string. Send the name of one model as a string.".to_owned()
            }
            Fault::Body(BodyError::Utf8 { at }) => {
                format!("The body is not UTF-8 from byte {at} on. Send JSON in UTF-8.")
            }
            Fault::Body(BodyError::NotObject) => {
                "The body is JSON, but not an object. Send a JSON object.".to_owned()
            }
            Fault::Body(BodyError::Json(error)) => {
                format!("The body is not valid JSON: {error}. Send one complete JSON object.")
            }
            Fault::TooLarge { max_bytes } => format!(
                "The body is longer than {max_bytes} bytes, which is the most that this gateway takes. Send a shorter one, for example with media by URL instead of inline."
            ),
            Fault::ModelRequired { served } => format!(
                "The request names no model, and more than one is served. Set `model` to one of: {}.",
                list(served)
            ),
            Fault::ModelNotFound { model, served } => format!(
                "The model `{}` does not exist. Set `model` to one of: {}.",
                cut(model),
                list(served)
            ),
            Fault::NoEndpoint => {
                "No endpoint can serve the request now: none of its model is up. Try again later."
                    .to_owned()
            }
            Fault::Full { retry_after_s } => format!(
                "Every endpoint that can serve the request is full. Try again in {retry_after_s} s."
            ),
            Fault::QueueTimeout {
                waited_ms,
                retry_after_s,
            } => format!(
                "The request has waited for {waited_ms} ms, and every endpoint that can serve it is still full. Try again in {retry_after_s} s."
            ),
            Fault::TargetUnmet { retry_after_s } => format!(
                "No endpoint is expected to answer within the request's target. Try again in {retry_after_s} s, or with a later target."
            ),
            Fault::NoSnapshot => {
                "The gateway does not know its endpoints yet. Try again in a moment.".to_owned()
            }
        }
    }
}

fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_QUOTED_CHARS);
    end.and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

fn list(names: &[String]) -> String {
    let mut shown: Vec<&str> = names.iter().take(MAX_NAMES).map(|name| cut(name)).collect();
    if names.len() > MAX_NAMES {
        shown.push("...");
    }
    shown.join(", ")
}
