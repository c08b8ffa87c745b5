//! Where the time inside a module goes, by looking at its stack again and again.
//!
//! The module is compiled with checks at each function and loop, which a thread lets fire every so often; what is found there is given a name
//! by whoever asked. Time inside host calls is not seen.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::{Engine, Store, UpdateDeadline, WasmBacktrace};

use crate::state::VmState;

/// Time between two looks.
const PERIOD: Duration = Duration::from_micros(200);

/// Names a place by the functions on the stack (mangled), innermost first.
pub type Classify = fn(&[&str]) -> &'static str;

/// How often each place was found.
pub type Samples = BTreeMap<&'static str, u64>;

/// Lets looks happen as long as it lives.
pub(crate) struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

impl Sampler {
    pub(crate) fn start(engine: &Engine) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (engine, until) = (engine.clone(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                std::thread::sleep(PERIOD);
                engine.increment_epoch();
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Has the store's module looked at; its engine has to have epoch interruption.
pub(crate) fn watch(store: &mut Store<VmState>, classify: Classify) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |mut store| {
        let stack = WasmBacktrace::force_capture(&store);
        let frames = stack.frames().iter();
        let names: Vec<&str> = frames.filter_map(|frame| frame.func_name()).collect();
        *store
            .data_mut()
            .samples
            .entry(classify(&names))
            .or_default() += 1;
        Ok(UpdateDeadline::Continue(1))
    });
}
