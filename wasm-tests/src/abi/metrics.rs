//! Metrics: process-global names behind ids of the VM.

use wasmtime::{Linker, Result};

use super::memory::{text, write};
use super::{ENV, Guest};
use crate::process::MetricKind;
use crate::state::VmState;
use crate::status::Status;

pub(super) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    linker.func_wrap(ENV, "proxy_define_metric", define)?;
    linker.func_wrap(ENV, "proxy_get_metric", get)?;
    linker.func_wrap(ENV, "proxy_record_metric", record)?;
    linker.func_wrap(ENV, "proxy_increment_metric", increment)?;
    Ok(())
}

fn define(mut guest: Guest<'_>, kind: u32, name: u32, name_size: u32, at: u32) -> Result<i32> {
    let name = text(&mut guest, name, name_size)?;
    if let Some(status) = guest.data().fault("proxy_define_metric", &name) {
        return Ok(status as i32);
    }
    let kind = match kind {
        0 => MetricKind::Counter,
        1 => MetricKind::Gauge,
        2 => MetricKind::Histogram,
        _ => return Ok(Status::BadArgument as i32),
    };
    let state = guest.data_mut();
    state.process.borrow_mut().define_metric(kind, &name);
    state.metric_names.push((kind, name));
    let id = u32::try_from(state.metric_names.len())?;
    write(&mut guest, at, &id.to_le_bytes())?;
    Ok(Status::Ok as i32)
}

fn find(state: &VmState, id: u32) -> Option<(MetricKind, &str)> {
    let (kind, name) = state.metric_names.get(id.checked_sub(1)? as usize)?;
    Some((*kind, name))
}

fn get(mut guest: Guest<'_>, id: u32, at: u32) -> Result<i32> {
    let state = guest.data();
    let Some((_, name)) = find(state, id) else {
        return Ok(Status::NotFound as i32);
    };
    let value = state.process.borrow().metric(name);
    write(&mut guest, at, &value.to_le_bytes())?;
    Ok(Status::Ok as i32)
}

#[expect(clippy::needless_pass_by_value, reason = "the linker's signature")]
fn record(guest: Guest<'_>, id: u32, value: u64) -> Result<i32> {
    let state = guest.data();
    let Some((kind, name)) = find(state, id) else {
        return Ok(Status::NotFound as i32);
    };
    let mut process = state.process.borrow_mut();
    if let Some(metric) = process.metrics.get_mut(name) {
        match kind {
            MetricKind::Counter => metric.value += i64::try_from(value)?,
            MetricKind::Gauge => metric.value = i64::try_from(value)?,
            MetricKind::Histogram => {
                metric.value += 1;
                metric.observations.push(value);
            }
        }
    }
    Ok(Status::Ok as i32)
}

#[expect(clippy::needless_pass_by_value, reason = "the linker's signature")]
fn increment(guest: Guest<'_>, id: u32, offset: i64) -> i32 {
    let state = guest.data();
    let Some((kind, name)) = find(state, id) else {
        return Status::NotFound as i32;
    };
    if kind == MetricKind::Histogram || (kind == MetricKind::Counter && offset < 0) {
        return Status::BadArgument as i32;
    }
    if let Some(metric) = state.process.borrow_mut().metrics.get_mut(name) {
        metric.value += offset;
    }
    Status::Ok as i32
}
