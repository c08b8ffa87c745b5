//! Continuing, local replies and HTTP callouts.

use wasmtime::{Linker, Result};

use super::memory::{read, text, write};
use super::{ENV, Guest};
use crate::exchange::LocalReply;
use crate::headers::Headers;
use crate::state::{Callout, VmState};
use crate::status::Status;

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_continue_stream", continue_stream)?;
    linker.func_wrap(ENV, "proxy_close_stream", |_: Guest<'_>, _: u32| {
        Status::Ok as i32
    })?;
    linker.func_wrap(ENV, "proxy_send_local_response", local_response)?;
    linker.func_wrap(ENV, "proxy_http_call", http_call)?;
    Ok(())
}

fn continue_stream(mut guest: Guest<'_>, kind: u32) -> i32 {
    let Some(exchange) = guest.data_mut().exchange() else {
        return Status::BadArgument as i32;
    };
    if kind == 0 {
        exchange.resumed = true;
    }
    Status::Ok as i32
}

#[expect(clippy::too_many_arguments, reason = "the ABI's signature")]
fn local_response(
    mut guest: Guest<'_>,
    status: u32,
    _details: u32,
    _details_size: u32,
    body: u32,
    body_size: u32,
    headers: u32,
    headers_size: u32,
    _grpc_status: i32,
) -> Result<i32> {
    if let Some(status) = guest.data().fault("proxy_send_local_response", "") {
        return Ok(status as i32);
    }
    let body = read(&mut guest, body, body_size)?;
    let bytes = read(&mut guest, headers, headers_size)?;
    let Some(headers) = Headers::from_abi(&bytes) else {
        return Ok(Status::ParseFailure as i32);
    };
    let Some(exchange) = guest.data_mut().exchange() else {
        return Ok(Status::BadArgument as i32);
    };
    exchange.reply = Some(LocalReply {
        status,
        headers,
        body,
    });
    Ok(Status::Ok as i32)
}

#[expect(clippy::too_many_arguments, reason = "the ABI's signature")]
fn http_call(
    mut guest: Guest<'_>,
    cluster: u32,
    cluster_size: u32,
    headers: u32,
    headers_size: u32,
    body: u32,
    body_size: u32,
    _trailers: u32,
    _trailers_size: u32,
    _timeout_ms: u32,
    token_at: u32,
) -> Result<i32> {
    let cluster = text(&mut guest, cluster, cluster_size)?;
    if let Some(status) = guest.data().fault("proxy_http_call", &cluster) {
        return Ok(status as i32);
    }
    let bytes = read(&mut guest, headers, headers_size)?;
    let body = read(&mut guest, body, body_size)?;
    let complete = |h: &Headers| {
        [":authority", ":path", ":method"]
            .iter()
            .all(|n| h.get(n).is_some())
    };
    let Some(headers) = Headers::from_abi(&bytes).filter(complete) else {
        return Ok(Status::BadArgument as i32);
    };
    let token = guest.data_mut().take_token();
    write(&mut guest, token_at, &token.to_le_bytes())?;
    let callout = Callout {
        cluster,
        headers,
        body,
    };
    guest.data_mut().callouts.insert(token, callout);
    Ok(Status::Ok as i32)
}
