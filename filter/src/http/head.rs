//! Request headers: what they say, which of them a client may not send, and what we write there.

use prefixway_core::admission::{self, AtHead, Head};
use prefixway_core::text::Api;

use crate::config::HoldAt;
use crate::host::{self, HostError, Map};
use crate::plugin::Choice;

/// Where Envoy's override-host policy looks: addresses, best first.
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Rank of a data-parallel engine.
const RANK: &str = "x-data-parallel-rank";
/// The same two as filter state (`wasm.` before the name), where requests are held at their body.
const DESTINATION_STATE: &str = "prefixway_destination";
const RANK_STATE: &str = "prefixway_rank";

/// Headers that name an endpoint. They never count when a client sends them.
const ROUTING_HEADERS: [&str; 6] = [
    DESTINATION,
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-data-parallel-host-port",
    RANK,
    "x-envoy-original-dst-host",
];

/// Removes what only a gateway may say.
pub(super) fn remove_routing_headers() -> Result<(), HostError> {
    ROUTING_HEADERS
        .iter()
        .try_for_each(|name| host::remove_header(Map::Request, name))
}

/// Reads the headers as far as they matter. Most requests that are no inference calls are told by one or two of them.
pub(super) fn admit(ends: bool, max_body_bytes: usize) -> Result<AtHead, HostError> {
    let header = |name| host::header(Map::Request, name);
    let Some(method) = header(":method")?.filter(|method| method == "POST") else {
        return Ok(AtHead::Pass);
    };
    let known = |path: &String| Api::from_path(path).is_some();
    let Some(path) = header(":path")?.filter(known) else {
        return Ok(AtHead::Pass);
    };
    let (content_type, content_encoding, content_length) = (
        header("content-type")?,
        header("content-encoding")?,
        header("content-length")?,
    );
    let head = Head {
        method: &method,
        path: &path,
        content_type: content_type.as_deref(),
        content_encoding: content_encoding.as_deref(),
        content_length: content_length.as_deref(),
        ends,
    };
    Ok(admission::at_head(&head, max_body_bytes))
}

/// Names the choice to Envoy: in headers while they are held, in filter state once they have gone on.
pub(super) fn name_choice(choice: &Choice, hold_at: HoldAt) -> Result<(), HostError> {
    if hold_at == HoldAt::Body {
        if let Some(rank) = choice.rank {
            host::set_property(RANK_STATE, &rank.to_string())?;
        }
        return host::set_property(DESTINATION_STATE, &choice.destinations);
    }
    if let Some(rank) = choice.rank {
        host::set_header(Map::Request, RANK, &rank.to_string())?;
    }
    host::set_header(Map::Request, DESTINATION, &choice.destinations)
}
