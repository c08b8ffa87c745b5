//! The gRPC streams of the shards that this VM leads.

use prefixway_core::proto::{Down, Up};
use prefixway_core::shared::Action;
use prost::Message;
use thiserror::Error;

use crate::host::{self, Buffer, HostError};

/// gRPC service.
const SERVICE: &str = "prefixway.v1.Snapshot";
/// gRPC method.
const METHOD: &str = "Watch";
/// What the indexer is asked as (`:authority`). Without it Envoy sends the cluster's name, and servers reset a stream whose authority is none:
/// Istio's names (`outbound|9701||host`) have bars in them.
const AUTHORITY: &str = "prefixway-indexer";
/// An indexer says something at least every second; a stream that is silent for so long is dead, whatever the connection says.
const SILENCE_MS: u64 = 10_000;

/// Why a stream can't go on.
#[derive(Debug, Error)]
pub(crate) enum StreamError {
    /// The host refused.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The message is none of the protocol's.
    #[error("message is malformed: {0}")]
    Malformed(#[from] prost::DecodeError),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    token: u32,
    heard_ms: u64,
}

/// One slot for each shard, with the stream's token while it is open.
#[derive(Debug)]
pub(crate) struct Streams {
    clusters: Vec<String>,
    open: Vec<Option<Open>>,
}

/// Envoy's `GrpcService` that names the cluster and the authority.
///
/// Protobuf wire format: field 1 (`envoy_grpc`), twice, since a reader merges the two; in it field 1 (`cluster_name`) and field 2
/// (`authority`). All lengths are below 128, so that the bytes are text; a longer cluster name goes alone, as the host also takes it.
fn grpc_service(cluster: &str) -> String {
    let field = |number: u8, text: &str| {
        let size = u8::try_from(text.len()).ok().filter(u8::is_ascii)?;
        let tag = char::from((number << 3) | 2);
        Some(format!("{tag}{}{text}", char::from(size)))
    };
    let part = |number: u8, text: &str| field(1, &field(number, text)?);
    match (part(1, cluster), part(2, AUTHORITY)) {
        (Some(cluster), Some(authority)) => cluster + &authority,
        _ => cluster.to_owned(),
    }
}

impl Streams {
    /// No stream is open.
    pub(crate) fn new(clusters: &[String]) -> Self {
        Self {
            clusters: clusters.to_vec(),
            open: vec![None; clusters.len()],
        }
    }

    /// The Envoy cluster of a shard.
    pub(crate) fn cluster(&self, shard: usize) -> Option<&str> {
        self.clusters.get(shard).map(String::as_str)
    }

    /// The shard of a stream.
    pub(crate) fn shard_of(&self, token: u32) -> Option<usize> {
        self.open
            .iter()
            .position(|open| open.is_some_and(|open| open.token == token))
    }

    /// Does what a shard asks for. After an error its stream is closed.
    pub(crate) fn act(
        &mut self,
        shard: usize,
        action: &Action,
        now_ms: u64,
    ) -> Result<(), HostError> {
        let result = match action {
            Action::Open(subscribe) => self.open(shard, subscribe, now_ms),
            Action::Send(message) => self.send(shard, message),
            Action::Close => {
                self.close(shard);
                Ok(())
            }
        };
        if result.is_err() {
            self.close(shard);
        }
        result
    }

    fn open(&mut self, shard: usize, subscribe: &Up, now_ms: u64) -> Result<(), HostError> {
        self.close(shard);
        let (Some(cluster), Some(slot)) = (self.clusters.get(shard), self.open.get_mut(shard))
        else {
            return Ok(());
        };
        let token = host::open_stream(&grpc_service(cluster), SERVICE, METHOD)?;
        *slot = Some(Open {
            token,
            heard_ms: now_ms,
        });
        host::send(token, &subscribe.encode_to_vec())
    }

    fn send(&self, shard: usize, message: &Up) -> Result<(), HostError> {
        let open = self.open.get(shard).copied().flatten();
        let open = open.ok_or(HostError::NotFound)?;
        host::send(open.token, &message.encode_to_vec())
    }

    /// Resets a shard's stream, if it is open.
    pub(crate) fn close(&mut self, shard: usize) {
        if let Some(open) = self.open.get_mut(shard).and_then(Option::take) {
            let _ = host::cancel_stream(open.token);
        }
    }

    /// Forgets a stream that the host says is closed; gives its shard.
    pub(crate) fn ended(&mut self, token: u32) -> Option<usize> {
        let shard = self.shard_of(token)?;
        if let Some(slot) = self.open.get_mut(shard) {
            *slot = None;
        }
        Some(shard)
    }

    /// Reads the message at hand of a shard's stream.
    pub(crate) fn read(
        &mut self,
        shard: usize,
        size: usize,
        now_ms: u64,
    ) -> Result<Down, StreamError> {
        if let Some(Some(open)) = self.open.get_mut(shard) {
            open.heard_ms = now_ms;
        }
        let bytes = host::buffer(Buffer::GrpcMessage, 0, size)?;
        Ok(Down::decode(bytes.as_slice())?)
    }

    /// Resets streams that have been silent too long; gives their shards.
    pub(crate) fn reset_silent(&mut self, now_ms: u64) -> Vec<usize> {
        let is_silent = |open: &Open| now_ms.saturating_sub(open.heard_ms) > SILENCE_MS;
        let silent: Vec<usize> = self
            .open
            .iter()
            .enumerate()
            .filter_map(|(shard, open)| open.as_ref().filter(|o| is_silent(o)).map(|_| shard))
            .collect();
        for shard in &silent {
            self.close(*shard);
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_two_parts_of_one_message() {
        let bytes = grpc_service("a|b").into_bytes();
        assert_eq!(bytes.get(..7), Some(&b"\x0a\x05\x0a\x03a|b"[..]));
        assert_eq!(bytes.get(7..11), Some(&b"\x0a\x13\x12\x11"[..]));
        assert_eq!(bytes.get(11..), Some(AUTHORITY.as_bytes()));
    }

    #[test]
    fn a_name_too_long_for_text_goes_alone() {
        let fits = "c".repeat(125);
        assert!(grpc_service(&fits).starts_with("\n\x7f\n\x7d"));
        let long = "c".repeat(126);
        assert_eq!(grpc_service(&long), long);
    }
}
