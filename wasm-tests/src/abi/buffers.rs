//! Bodies, messages and configuration.

use wasmtime::{Linker, Result};

use super::memory::{give, read};
use super::{ENV, Guest};
use crate::state::VmState;
use crate::status::Status;

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_get_buffer_bytes", get)?;
    linker.func_wrap(ENV, "proxy_set_buffer_bytes", set)?;
    Ok(())
}

/// The buffer of an ABI buffer type, where the phase has one.
fn buffer(state: &mut VmState, kind: u32) -> Option<&mut Vec<u8>> {
    match kind {
        0 => state.exchange()?.request_body.as_mut(),
        1 => state.exchange()?.response_body.as_mut(),
        4 => state.callout_body.as_mut(),
        5 => state.grpc_message.as_mut(),
        7 => Some(&mut state.plugin_configuration),
        _ => None,
    }
}

fn get(mut guest: Guest<'_>, kind: u32, start: u32, max: u32, at: u32, size: u32) -> Result<i32> {
    if let Some(status) = guest.data().fault("proxy_get_buffer_bytes", "") {
        return Ok(status as i32);
    }
    let Some(bytes) = buffer(guest.data_mut(), kind) else {
        return Ok(Status::NotFound as i32);
    };
    let (Some(end), from) = (start.checked_add(max), start as usize) else {
        return Ok(Status::BadArgument as i32);
    };
    let Some(part) = bytes.get(from..bytes.len().min(end as usize)) else {
        return Ok(Status::BadArgument as i32);
    };
    let part = part.to_vec();
    if part.is_empty() {
        return Ok(Status::Ok as i32);
    }
    give(&mut guest, &part, at, size)
}

fn set(
    mut guest: Guest<'_>,
    kind: u32,
    start: u32,
    length: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let value = read(&mut guest, at, size)?;
    let Some(bytes) = buffer(guest.data_mut(), kind) else {
        return Ok(Status::BadArgument as i32);
    };
    let from = bytes.len().min(start as usize);
    let to = bytes.len().min(from.saturating_add(length as usize));
    bytes.splice(from..to, value);
    Ok(Status::Ok as i32)
}
