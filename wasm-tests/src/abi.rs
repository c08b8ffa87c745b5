//! The host calls (`env.proxy_*`), one file for each subject.

mod buffers;
mod grpc;
mod headers;
mod http;
mod memory;
mod metrics;
mod runtime;
mod shared;

use wasmtime::{Caller, Linker, Result};

use crate::state::VmState;

pub(crate) type Guest<'a> = Caller<'a, VmState>;

/// Name of the import module.
pub(crate) const ENV: &str = "env";

/// Defines every host call.
pub(crate) fn link(linker: &mut Linker<VmState>) -> Result<()> {
    runtime::link(linker)?;
    buffers::link(linker)?;
    headers::link(linker)?;
    http::link(linker)?;
    shared::link(linker)?;
    metrics::link(linker)?;
    grpc::link(linker)
}
