//! The engine's load, asked for with a request and taken from its answer.

use prefixway_core::load::orca;

use crate::host::{self, Headers, HostError, Map};

/// Who asked the engine for its load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nobody.
    #[default]
    No,
    /// We did: the client does not get the answer.
    ByUs,
    /// The client did, in whatever form.
    ByClient,
}

/// Asks the engine for its load, unless the client does.
pub(super) fn ask(headers: &Headers) -> Result<Asked, HostError> {
    if headers.has(orca::REQUEST_HEADER) {
        return Ok(Asked::ByClient);
    }
    host::set_header(Map::Request, orca::REQUEST_HEADER, orca::FORMAT)?;
    Ok(Asked::ByUs)
}

/// Takes what the engine says.
pub(super) fn answer(asked: Asked, headers: &Headers) -> Result<Option<orca::Report>, HostError> {
    if asked == Asked::No {
        return Ok(None);
    }
    let value = headers.get(orca::RESPONSE_HEADER);
    if asked == Asked::ByUs {
        host::remove_header(Map::Response, orca::RESPONSE_HEADER)?;
    }
    Ok(value.and_then(orca::read))
}
