//! What becomes of a request before an endpoint is looked for.
//!
//! ```text
//!  headers ─ at_head ─► Pass      no inference call: goes on untouched and counts nowhere
//!                 ├───► Refuse    too long by its own word
//!                 └───► Hold
//!  body ──── judge ───► Route     with its model, as far as the body can be read
//!                 ├───► Pass      something is amiss, but too little is known to say so
//!                 └───► Refuse    engines would refuse it too, or nobody serves its model
//!  decision ─ place ───► Refuse    no endpoint may serve it, all that may are full, or its target can't be met and it wants none then
//! ```
//!
//! Refusing saves an engine's time and gives all engines' clients the same words; what is refused is never what an engine might
//! accept. Bodies are judged by what Python's reader takes, since that is what engines read them with. A caller may let a refused
//! request pass instead: shadow mode and [`reject_bad_requests`](crate::proto::Policy::reject_bad_requests) do.

mod body;
mod capacity;
mod objective;
mod refusal;

use std::borrow::Cow;

pub use body::LoadOnly;
pub use capacity::{DEFAULT_RETRY_AFTER_S, FailureMode, Limits};
pub use objective::{Objective, Objectives, Target, WhenMissed};
pub use refusal::{Cause, Fault, Refusal, Reply};

use crate::proto::ModelProfile;
use crate::text::{self, Api, BodyError, BodyFormat, Request};

/// What the headers of a request say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// `:method`.
    pub method: &'a str,
    /// `:path`, with the query.
    pub path: &'a str,
    /// `content-type`.
    pub content_type: Option<&'a str>,
    /// `content-encoding`.
    pub content_encoding: Option<&'a str>,
    /// `content-length`.
    pub content_length: Option<&'a str>,
    /// Whether no body follows.
    pub ends: bool,
}

/// What to do with a request at its headers.
#[derive(Clone, Debug, PartialEq)]
pub enum AtHead {
    /// Let it go on, untouched and uncounted.
    Pass,
    /// Wait for its body.
    Hold(Held),
    /// Refuse it.
    Refuse(Refusal),
}

/// A request that waits for its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    api: Api,
    coding: body::Coding,
    /// Whether the body is said to be what the API reads: only then is it refused when it isn't.
    is_declared: bool,
    max_body_bytes: usize,
}

/// A model and what of it is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served<'a> {
    /// The base model's profile.
    pub profile: &'a ModelProfile,
    /// The adapter, when it is one.
    pub adapter: Option<&'a str>,
}

/// What a request's `model` means.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<'a> {
    /// A model that is served.
    Served(Served<'a>),
    /// None of those that are served: the name is unknown, or there is none and nothing says which model is meant.
    NotServed {
        /// Names of those that are.
        names: Vec<&'a str>,
    },
    /// Not all models are known, so this may be one of the others.
    Unsure,
}

/// What to do with a request whose body is whole.
#[derive(Clone, Debug)]
pub enum Verdict<'a> {
    /// Choose an endpoint.
    Route(Route<'a>),
    /// Let it go on to whatever the proxy falls back on.
    Pass(Cause),
    /// Refuse it.
    Refuse(Refusal),
}

/// A request to choose an endpoint for.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// The API it was sent to.
    pub api: Api,
    /// What is read of its body, or why nothing is.
    pub request: Result<Request<'a>, LoadOnly>,
    /// The model that it means.
    pub served: Served<'a>,
}

impl Route<'_> {
    /// Sequences that the engine will run for it, from 1 to [`text::MAX_LOAD_UNITS`].
    pub fn load_units(&self) -> u32 {
        self.request
            .as_ref()
            .map_or(1, |request| request.load_units)
    }

    /// Whether its API leaves cached tokens out of its usage only where there were none, or where the engine never tells them: of the others
    /// nothing follows from what is left out.
    pub fn counts_cached(&self) -> bool {
        matches!(self.api, Api::Chat | Api::Completions)
    }

    /// Whether its answer is streamed.
    pub fn is_streamed(&self) -> bool {
        self.request.as_ref().is_ok_and(|request| request.stream)
    }
}

/// Looks at a request's headers. Bodies of more than `max_body_bytes` are refused.
pub fn at_head(head: &Head<'_>, max_body_bytes: usize) -> AtHead {
    let api = Api::from_path(head.path).filter(|_| head.method == "POST");
    let Some(api) = api else {
        return AtHead::Pass;
    };
    let held = Held {
        api,
        coding: body::coding(head.content_encoding),
        is_declared: body::is_declared(api, head.content_type),
        max_body_bytes,
    };
    let length: Option<u64> = head
        .content_length
        .and_then(|text| text.trim().parse().ok());
    if head.ends {
        match api.body_format() {
            BodyFormat::Json => AtHead::Refuse(held.refuse(Fault::Empty)),
            BodyFormat::Form => AtHead::Pass,
        }
    } else if length.is_some_and(|bytes| bytes > max_body_bytes as u64) {
        AtHead::Refuse(held.too_large())
    } else {
        AtHead::Hold(held)
    }
}

impl Held {
    /// The API that the request was sent to.
    pub fn api(&self) -> Api {
        self.api
    }

    /// The refusal for a body that has turned out longer than is taken.
    pub fn too_large(&self) -> Refusal {
        let max_bytes = self.max_body_bytes;
        self.refuse(Fault::TooLarge { max_bytes })
    }

    /// Whether a body of so many bytes, whole or not, is too long.
    pub fn is_too_large(&self, bytes: usize) -> bool {
        bytes > self.max_body_bytes
    }

    /// The body as it was before it was encoded for transport. What goes upstream stays as it is.
    ///
    /// # Errors
    /// Why it can't be read; the request can still be judged.
    pub fn open<'b>(&self, coded: &'b [u8]) -> Result<Cow<'b, [u8]>, LoadOnly> {
        body::open(self.coding, coded, self.max_body_bytes)
    }

    /// Judges a request by its opened body.
    pub fn judge<'a>(
        &self,
        body: Result<&'a [u8], LoadOnly>,
        lookup: impl FnOnce(Option<&str>) -> Lookup<'a>,
    ) -> Verdict<'a> {
        let parsed = match body.map(|body| (body, text::parse(self.api, body))) {
            Err(why) => Err(why),
            Ok((_, Ok(request))) => Ok(request),
            Ok((body, Err(error))) => match body::other_charset(body, &error) {
                Some(why) => Err(why),
                None if body.is_empty() => return self.amiss(Fault::Empty),
                None => return self.amiss(Fault::Body(error)),
            },
        };
        let name = parsed.as_ref().ok().and_then(|request| {
            let name = request.model.as_deref();
            name.filter(|name| !name.is_empty())
        });
        match lookup(name) {
            Lookup::Served(served) => Verdict::Route(Route {
                api: self.api,
                request: parsed,
                served,
            }),
            Lookup::Unsure => Verdict::Pass(Cause::of_model(name)),
            // What could not be read may well name a model.
            Lookup::NotServed { .. } if parsed.is_err() => Verdict::Pass(Cause::NoModel),
            Lookup::NotServed { names } => {
                let served = names.into_iter().map(str::to_owned).collect();
                let fault = match name {
                    None => Fault::ModelRequired { served },
                    Some(name) => Fault::ModelNotFound {
                        model: name.to_owned(),
                        served,
                    },
                };
                Verdict::Refuse(self.refuse(fault))
            }
        }
    }

    /// The verdict on a body that is not what the API reads.
    fn amiss(&self, fault: Fault) -> Verdict<'static> {
        let refusal = self.refuse(fault);
        // A wrong `model` is in a body that was read.
        let is_read = matches!(refusal.fault(), Fault::Body(BodyError::ModelType));
        if self.is_declared || is_read {
            Verdict::Refuse(refusal)
        } else {
            Verdict::Pass(refusal.cause())
        }
    }

    fn refuse(&self, fault: Fault) -> Refusal {
        Refusal::new(fault, self.api.error_style())
    }
}

#[cfg(test)]
mod tests;
