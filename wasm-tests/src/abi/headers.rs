//! Header maps and metadata.

use wasmtime::{Linker, Result};

use super::memory::{give, read, text};
use super::{ENV, Guest};
use crate::exchange::Phase;
use crate::headers::Headers;
use crate::state::VmState;
use crate::status::Status;

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_get_header_map_pairs", pairs)?;
    linker.func_wrap(ENV, "proxy_set_header_map_pairs", set_pairs)?;
    linker.func_wrap(ENV, "proxy_get_header_map_value", value)?;
    linker.func_wrap(ENV, "proxy_remove_header_map_value", remove)?;
    linker.func_wrap(ENV, "proxy_replace_header_map_value", replace)?;
    linker.func_wrap(ENV, "proxy_add_header_map_value", add)?;
    Ok(())
}

/// The map of an ABI map type, where the phase has one. After headers went on, their map is gone until the log phase.
fn map(state: &mut VmState, kind: u32, write: bool) -> Option<&mut Headers> {
    match kind {
        0 => {
            let exchange = state.exchange()?;
            let legal = !exchange.forwarded || (exchange.phase == Phase::Log && !write);
            legal.then_some(&mut exchange.request_headers)
        }
        2 => {
            let exchange = state.exchange()?;
            let legal = match exchange.phase {
                Phase::Passing => false,
                Phase::ResponseHeaders => true,
                Phase::Log => !write,
            };
            legal.then_some(&mut exchange.response_headers)
        }
        4 if !write => Some(&mut state.grpc_metadata),
        6 if !write => state
            .callout_body
            .is_some()
            .then_some(&mut state.callout_headers),
        _ => None,
    }
}

fn pairs(mut guest: Guest<'_>, kind: u32, at: u32, size: u32) -> Result<i32> {
    let Some(bytes) = map(guest.data_mut(), kind, false).map(|m| m.to_abi()) else {
        return Ok(Status::BadArgument as i32);
    };
    give(&mut guest, &bytes, at, size)
}

fn set_pairs(mut guest: Guest<'_>, kind: u32, at: u32, size: u32) -> Result<i32> {
    let bytes = read(&mut guest, at, size)?;
    let Some(headers) = Headers::from_abi(&bytes) else {
        return Ok(Status::ParseFailure as i32);
    };
    let Some(map) = map(guest.data_mut(), kind, true) else {
        return Ok(Status::BadArgument as i32);
    };
    *map = headers;
    Ok(Status::Ok as i32)
}

fn value(
    mut guest: Guest<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    let Some(map) = map(guest.data_mut(), kind, false) else {
        return Ok(Status::BadArgument as i32);
    };
    match map.get(&name).map(str::to_owned) {
        Some(value) => give(&mut guest, value.as_bytes(), at, size),
        None => Ok(Status::NotFound as i32),
    }
}

fn remove(mut guest: Guest<'_>, kind: u32, name: u32, name_size: u32) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    Ok(edit(
        &mut guest,
        "proxy_remove_header_map_value",
        kind,
        &name,
        |m| {
            m.remove(&name);
        },
    ))
}

fn replace(
    mut guest: Guest<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    let value = text(&mut guest, at, size)?;
    Ok(edit(
        &mut guest,
        "proxy_replace_header_map_value",
        kind,
        &name,
        |m| {
            m.set(&name, &value);
        },
    ))
}

fn add(
    mut guest: Guest<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    let value = text(&mut guest, at, size)?;
    Ok(edit(
        &mut guest,
        "proxy_add_header_map_value",
        kind,
        &name,
        |m| {
            m.add(&name, &value);
        },
    ))
}

fn edit(
    guest: &mut Guest<'_>,
    call: &str,
    kind: u32,
    name: &str,
    change: impl FnOnce(&mut Headers),
) -> i32 {
    if let Some(status) = guest.data().fault(call, name) {
        return status as i32;
    }
    let Some(map) = map(guest.data_mut(), kind, true) else {
        return Status::BadArgument as i32;
    };
    change(map);
    Status::Ok as i32
}
