//! Shared data and queues.

use wasmtime::{Linker, Result};

use super::memory::{give, read, text, write};
use super::{ENV, Guest};
use crate::state::VmState;
use crate::status::Status;

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_get_shared_data", get)?;
    linker.func_wrap(ENV, "proxy_set_shared_data", set)?;
    linker.func_wrap(ENV, "proxy_register_shared_queue", register_queue)?;
    Ok(())
}

fn get(
    mut guest: Guest<'_>,
    key: u32,
    key_size: u32,
    at: u32,
    size: u32,
    cas_at: u32,
) -> Result<i32> {
    let key = text(&mut guest, key, key_size)?;
    if let Some(status) = guest.data().fault("proxy_get_shared_data", &key) {
        return Ok(status as i32);
    }
    let process = guest.data().process.clone();
    let process = process.borrow();
    let Some((value, cas)) = process.shared(&key) else {
        return Ok(Status::NotFound as i32);
    };
    write(&mut guest, cas_at, &cas.to_le_bytes())?;
    give(&mut guest, value, at, size)
}

fn set(mut guest: Guest<'_>, key: u32, key_size: u32, at: u32, size: u32, cas: u32) -> Result<i32> {
    let key = text(&mut guest, key, key_size)?;
    if let Some(status) = guest.data().fault("proxy_set_shared_data", &key) {
        return Ok(status as i32);
    }
    let value = read(&mut guest, at, size)?;
    let mut process = guest.data().process.borrow_mut();
    Ok(process.set_shared(&key, &value, cas) as i32)
}

fn register_queue(mut guest: Guest<'_>, name: u32, name_size: u32, at: u32) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    let queues = &mut guest.data_mut().queues;
    let next = u32::try_from(queues.len())? + 1;
    let id = *queues.entry(name).or_insert(next);
    write(&mut guest, at, &id.to_le_bytes())?;
    Ok(Status::Ok as i32)
}
