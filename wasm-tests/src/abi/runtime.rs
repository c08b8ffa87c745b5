//! Log, clock, ticks, contexts, properties and foreign functions.

use wasmtime::{Linker, Result};

use super::memory::{give, read, text, write};
use super::{ENV, Guest};
use crate::process::LogLine;
use crate::state::VmState;
use crate::status::{LogLevel, Status};

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_log", log)?;
    linker.func_wrap(ENV, "proxy_get_log_level", log_level)?;
    linker.func_wrap(ENV, "proxy_get_current_time_nanoseconds", current_time)?;
    linker.func_wrap(ENV, "proxy_set_tick_period_milliseconds", tick_period)?;
    linker.func_wrap(ENV, "proxy_set_effective_context", effective_context)?;
    linker.func_wrap(ENV, "proxy_done", || Status::Ok as i32)?;
    linker.func_wrap(ENV, "proxy_get_property", get_property)?;
    linker.func_wrap(ENV, "proxy_set_property", set_property)?;
    linker.func_wrap(ENV, "proxy_call_foreign_function", foreign_function)?;
    Ok(())
}

fn log(mut guest: Guest<'_>, level: u32, at: u32, size: u32) -> Result<i32> {
    let text = text(&mut guest, at, size)?;
    let state = guest.data();
    let line = LogLine {
        vm: state.index,
        level: LogLevel::from_abi(level),
        text,
    };
    state.process.borrow_mut().logs.push(line);
    Ok(Status::Ok as i32)
}

fn log_level(mut guest: Guest<'_>, at: u32) -> Result<i32> {
    write(&mut guest, at, &(LogLevel::Info as u32).to_le_bytes())?;
    Ok(Status::Ok as i32)
}

fn current_time(mut guest: Guest<'_>, at: u32) -> Result<i32> {
    // Time passes between two calls, if only a microsecond: no two VMs see the same.
    let now = {
        let mut process = guest.data().process.borrow_mut();
        process.now_ns += 1_000;
        process.now_ns
    };
    write(&mut guest, at, &now.to_le_bytes())?;
    Ok(Status::Ok as i32)
}

fn tick_period(mut guest: Guest<'_>, ms: u32) -> i32 {
    guest.data_mut().tick_ms = ms;
    Status::Ok as i32
}

fn effective_context(mut guest: Guest<'_>, context: u32) -> i32 {
    let state = guest.data_mut();
    if context == state.root || state.exchanges.contains_key(&context) {
        state.effective = context;
        Status::Ok as i32
    } else {
        Status::BadArgument as i32
    }
}

fn get_property(
    mut guest: Guest<'_>,
    path: u32,
    path_size: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let path = text(&mut guest, path, path_size)?.replace('\0', ".");
    if let Some(status) = guest.data().fault("proxy_get_property", &path) {
        return Ok(status as i32);
    }
    let value = guest
        .data_mut()
        .exchange()
        .and_then(|e| e.properties.get(&path).cloned());
    match value {
        Some(value) => give(&mut guest, &value, at, size),
        None => Ok(Status::NotFound as i32),
    }
}

fn set_property(
    mut guest: Guest<'_>,
    path: u32,
    path_size: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let path = text(&mut guest, path, path_size)?.replace('\0', ".");
    let value = read(&mut guest, at, size)?;
    let Some(exchange) = guest.data_mut().exchange() else {
        return Ok(Status::BadArgument as i32);
    };
    exchange.properties.insert(format!("wasm.{path}"), value);
    Ok(Status::Ok as i32)
}

fn foreign_function(
    mut guest: Guest<'_>,
    name: u32,
    name_size: u32,
    _arguments: u32,
    _arguments_size: u32,
    at: u32,
    size: u32,
) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    if let Some(status) = guest.data().fault("proxy_call_foreign_function", &name) {
        return Ok(status as i32);
    }
    if name != "clear_route_cache" {
        return Ok(Status::NotFound as i32);
    }
    if let Some(exchange) = guest.data_mut().exchange() {
        exchange.foreign_calls.push(name);
    }
    give(&mut guest, &[], at, size)
}
