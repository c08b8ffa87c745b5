//! State of one HTTP exchange inside the host.

use std::collections::BTreeMap;

use crate::headers::Headers;

/// Number of an HTTP exchange; it is the context id the filter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// A reply that the filter sent by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    /// HTTP status.
    pub status: u32,
    /// Headers the filter added.
    pub headers: Headers,
    /// Body.
    pub body: Vec<u8>,
}

/// How an exchange ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response ended.
    Complete,
    /// The client went away.
    ClientAbort,
    /// The upstream connection broke.
    UpstreamReset,
}

impl Ending {
    /// Envoy's `response.flags` for it.
    pub(crate) fn flags(self) -> u64 {
        match self {
            Self::Complete => 0,
            Self::ClientAbort => 0x4000,
            Self::UpstreamReset => 0x20,
        }
    }
}

/// What may be read and written besides the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    #[default]
    Passing,
    /// Response headers.
    ResponseHeaders,
    /// All headers, to read.
    Log,
}

#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) request_headers: Headers,
    /// Buffered or current request body; `None` outside a body callback.
    pub(crate) request_body: Option<Vec<u8>>,
    /// Whether the request headers went on; until then they are the filter's.
    pub(crate) forwarded: bool,
    pub(crate) response_headers: Headers,
    pub(crate) response_body: Option<Vec<u8>>,
    pub(crate) properties: BTreeMap<String, Vec<u8>>,
    pub(crate) reply: Option<LocalReply>,
    /// The filter called continue for the request.
    pub(crate) resumed: bool,
    pub(crate) phase: Phase,
    pub(crate) foreign_calls: Vec<String>,
}
