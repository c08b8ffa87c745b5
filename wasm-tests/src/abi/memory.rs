//! Bytes in and out of the guest.

use wasmtime::{Result, bail};

use super::Guest;
use crate::status::Status;

/// Copies a guest range.
pub(super) fn read(guest: &mut Guest<'_>, at: u32, size: u32) -> Result<Vec<u8>> {
    let Some(memory) = guest.data().memory else {
        bail!("the module exports no memory");
    };
    let (at, size) = (at as usize, size as usize);
    match memory.data(&mut *guest).get(at..at.saturating_add(size)) {
        Some(bytes) => {
            let bytes = bytes.to_vec();
            if let Some(tally) = &mut guest.data_mut().tally {
                tally.read(bytes.len());
            }
            Ok(bytes)
        }
        None => bail!("guest range {at}+{size} is out of bounds"),
    }
}

/// Copies a guest range as text; bytes that are no UTF-8 become U+FFFD.
pub(super) fn text(guest: &mut Guest<'_>, at: u32, size: u32) -> Result<String> {
    Ok(String::from_utf8_lossy(&read(guest, at, size)?).into_owned())
}

/// Writes bytes at a guest address.
pub(super) fn write(guest: &mut Guest<'_>, at: u32, bytes: &[u8]) -> Result<()> {
    let Some(memory) = guest.data().memory else {
        bail!("the module exports no memory");
    };
    memory.write(&mut *guest, at as usize, bytes)?;
    Ok(())
}

/// Hands bytes over in memory that the guest allocates; nothing is allocated for empty bytes, as in Envoy.
pub(super) fn give(guest: &mut Guest<'_>, bytes: &[u8], at: u32, size: u32) -> Result<i32> {
    if let Some(tally) = &mut guest.data_mut().tally {
        tally.given(bytes.len());
    }
    let mut address = 0;
    if !bytes.is_empty() {
        let Some(allocate) = guest.data().allocate.clone() else {
            bail!("the module exports no allocator");
        };
        address = allocate.call(&mut *guest, u32::try_from(bytes.len())?)?;
        write(guest, address, bytes)?;
    }
    write(guest, at, &address.to_le_bytes())?;
    write(guest, size, &u32::try_from(bytes.len())?.to_le_bytes())?;
    Ok(Status::Ok as i32)
}
