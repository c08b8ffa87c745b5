//! gRPC streams.

use prost::Message;
use wasmtime::{Linker, Result};

use super::memory::{give, read, text, write};
use super::{ENV, Guest};
use crate::grpc::{GrpcStream, StreamToken};
use crate::headers::Headers;
use crate::state::VmState;
use crate::status::Status;

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_grpc_stream", open)?;
    linker.func_wrap(ENV, "proxy_grpc_send", send)?;
    linker.func_wrap(ENV, "proxy_grpc_cancel", cancel)?;
    linker.func_wrap(ENV, "proxy_grpc_close", close)?;
    linker.func_wrap(ENV, "proxy_get_status", status)?;
    Ok(())
}

/// `envoy.config.core.v3.GrpcService`, as far as the filter uses it.
#[derive(Clone, PartialEq, prost::Message)]
struct GrpcService {
    #[prost(message, optional, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(string, tag = "2")]
    authority: String,
}

/// Cluster and authority of a stream: from a `GrpcService`, else both the text itself, as Envoy has it.
fn target(text: String) -> (String, String) {
    match GrpcService::decode(text.as_bytes()) {
        Ok(GrpcService {
            envoy_grpc: Some(grpc),
        }) => (grpc.cluster_name, grpc.authority),
        _ => (text.clone(), text),
    }
}

#[expect(clippy::too_many_arguments, reason = "the ABI's signature")]
fn open(
    mut guest: Guest<'_>,
    cluster: u32,
    cluster_size: u32,
    service: u32,
    service_size: u32,
    method: u32,
    method_size: u32,
    metadata: u32,
    metadata_size: u32,
    token_at: u32,
) -> Result<i32> {
    let (cluster, authority) = target(text(&mut guest, cluster, cluster_size)?);
    if let Some(status) = guest.data().fault("proxy_grpc_stream", &cluster) {
        return Ok(status as i32);
    }
    let service = text(&mut guest, service, service_size)?;
    let method = text(&mut guest, method, method_size)?;
    let bytes = read(&mut guest, metadata, metadata_size)?;
    let Some(metadata) = Headers::from_abi(&bytes) else {
        return Ok(Status::ParseFailure as i32);
    };
    let state = guest.data_mut();
    let token = StreamToken(state.take_token());
    let stream = GrpcStream {
        cluster,
        authority,
        path: format!("/{service}/{method}"),
        metadata,
        context: state.effective,
        ..GrpcStream::default()
    };
    state.streams.insert(token, stream);
    state.opened.push(token);
    write(&mut guest, token_at, &token.0.to_le_bytes())?;
    Ok(Status::Ok as i32)
}

fn send(mut guest: Guest<'_>, token: u32, at: u32, size: u32, end: u32) -> Result<i32> {
    if let Some(status) = guest.data().fault("proxy_grpc_send", "") {
        return Ok(status as i32);
    }
    let message = read(&mut guest, at, size)?;
    match guest.data_mut().streams.get_mut(&StreamToken(token)) {
        Some(stream) if !stream.closed && !stream.half_closed => {
            stream.sent.push(message);
            stream.half_closed = end != 0;
            Ok(Status::Ok as i32)
        }
        _ => Ok(Status::NotFound as i32),
    }
}

fn cancel(mut guest: Guest<'_>, token: u32) -> i32 {
    match guest.data_mut().streams.get_mut(&StreamToken(token)) {
        Some(stream) if !stream.closed => {
            stream.closed = true;
            Status::Ok as i32
        }
        _ => Status::NotFound as i32,
    }
}

fn close(mut guest: Guest<'_>, token: u32) -> i32 {
    match guest.data_mut().streams.get_mut(&StreamToken(token)) {
        Some(stream) if !stream.closed => {
            stream.half_closed = true;
            Status::Ok as i32
        }
        _ => Status::NotFound as i32,
    }
}

fn status(mut guest: Guest<'_>, code_at: u32, at: u32, size: u32) -> Result<i32> {
    let (code, message) = guest.data().grpc_status.clone();
    write(&mut guest, code_at, &code.to_le_bytes())?;
    give(&mut guest, message.as_bytes(), at, size)
}
