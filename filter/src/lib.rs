//! Prefixway's proxy-wasm filter.
//!
//! ```text
//!  on_configure ─► config ─► plugin ◄── tick, gRPC messages ── root
//!                              ▲ │
//!            decide, finished  │ │ choice
//!                            http ──► routing headers
//! ```
//!
//! A trap resets every request of the VM, so nothing here may panic: host calls go through `host`, which turns every status into an error,
//! and whatever can't be decided passes untouched.

mod config;
mod explain;
mod host;
mod http;
mod metrics;
mod plugin;
mod root;
mod shared;
mod streams;

use log::{LevelFilter, Log, Metadata, Record};

/// Writes log lines to the host.
struct HostLog;

impl Log for HostLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            host::log(record.level(), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Called once for each VM, before anything else.
fn start() {
    if log::set_logger(&HostLog).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
    std::panic::set_hook(Box::new(|info| {
        host::log(
            log::Level::Error,
            &format!("the filter has trapped: {info}"),
        );
    }));
    proxy_wasm::set_root_context(|id| Box::new(root::RootFilter::new(id)));
}

/// The export that the host calls first.
mod entry {
    proxy_wasm::main! {{ super::start(); }}
}
