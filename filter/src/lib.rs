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
//!
//! **A filter with plugins of one's own** is a crate that depends on this one without its default features, and that says [`filter!`] with a
//! function that gives a registry (`examples/own-scorer`).
//!
//! Features: `module` (default) is the filter itself: the export that the host calls first, with the plugins that are built in. A
//! crate with an export of its own leaves it out.

mod config;
mod explain;
mod host;
mod http;
mod metrics;
mod plugin;
mod root;
mod shared;
mod streams;

use std::sync::OnceLock;

use log::{LevelFilter, Log, Metadata, Record};
use prefixway_core::schedule::Registry;

#[doc(hidden)]
pub use proxy_wasm as __proxy_wasm;

/// Gives the plugins by the name of their type.
pub type MakeRegistry = fn() -> Registry;

/// What [`start`] was told.
static REGISTRY: OnceLock<MakeRegistry> = OnceLock::new();

/// Makes the crate that says it a filter with the plugins of a registry: `prefixway_filter::filter!(registry);`, where `registry` is a
/// [`MakeRegistry`]. The crate is a `cdylib` and says it once.
#[macro_export]
macro_rules! filter {
    ($registry:expr) => {
        /// The export that the host calls first.
        #[cfg(target_arch = "wasm32")]
        mod entry {
            use super::*;

            $crate::__proxy_wasm::main! {{ $crate::start($registry); }}
        }
        #[cfg(not(target_arch = "wasm32"))]
        const _: $crate::MakeRegistry = $registry;
    };
}

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

/// Makes this VM a filter with the plugins of a registry. Called once for each VM, before anything else; [`filter!`] does.
pub fn start(registry: MakeRegistry) {
    // The first of a VM is the only one.
    let _ = REGISTRY.set(registry);
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

/// The plugins of this filter.
fn registry() -> Registry {
    REGISTRY.get().map_or_else(Registry::default, |make| make())
}

/// The export that the host calls first.
#[cfg(all(feature = "module", target_arch = "wasm32"))]
mod entry {
    use prefixway_core::schedule::Registry;

    proxy_wasm::main! {{ super::start(Registry::default); }}
}
