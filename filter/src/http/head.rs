//! Request headers: what they say, which of them a client may not send, and what we write there.

use prefixway_core::admission::{self, AtHead, Head};

use crate::config::HoldAt;
use crate::host::{self, Headers, HostError, Map};
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

/// Reads the headers, and removes what only a gateway may say.
pub(super) fn read() -> Result<Headers, HostError> {
    let remove = |name: &&str| host::remove_header(Map::Request, name);
    match host::headers(Map::Request) {
        Ok(headers) => {
            let mut sent = ROUTING_HEADERS.iter().filter(|name| headers.has(name));
            sent.try_for_each(remove)?;
            Ok(headers)
        }
        Err(error) => {
            // Whatever they are.
            ROUTING_HEADERS.iter().try_for_each(remove)?;
            Err(error)
        }
    }
}

/// What the headers say, as far as they matter.
pub(super) fn admit(headers: &Headers, ends: bool, max_body_bytes: usize) -> AtHead {
    let (Some(method), Some(path)) = (headers.get(":method"), headers.get(":path")) else {
        return AtHead::Pass;
    };
    let head = Head {
        method,
        path,
        content_type: headers.get("content-type"),
        content_encoding: headers.get("content-encoding"),
        content_length: headers.get("content-length"),
        ends,
    };
    admission::at_head(&head, max_body_bytes)
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
