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

#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) request_headers: Headers,
    /// Whether request headers are still with the filter.
    pub(crate) request_open: bool,
    /// Buffered or current request body; `None` outside a body callback.
    pub(crate) request_body: Option<Vec<u8>>,
    /// Headers and body as they went on, once they did.
    pub(crate) forwarded: bool,
    pub(crate) response_headers: Headers,
    pub(crate) response_open: bool,
    pub(crate) response_body: Option<Vec<u8>>,
    pub(crate) properties: BTreeMap<String, Vec<u8>>,
    pub(crate) reply: Option<LocalReply>,
    /// The filter called continue for the request.
    pub(crate) resumed: bool,
    /// Log phase: header maps can be read again.
    pub(crate) logging: bool,
    pub(crate) foreign_calls: Vec<String>,
}
