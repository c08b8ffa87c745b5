//! Host calls counted by name and by the callback that made them.
//!
//! Counting goes through a wrapper around every host function, so that a VM that isn't counted pays nothing for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wasmtime::{AsContextMut, Func, Linker, Result};

use crate::abi::ENV;
use crate::state::VmState;

/// Calls of one name within one callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many there were.
    pub count: u64,
    /// Bytes that the host read from the module: keys, names and values.
    pub bytes_read: u64,
    /// Bytes that the host handed over in memory that it had the module allocate.
    pub bytes_given: u64,
    /// Time in the emulator.
    pub time: Duration,
}

/// What a VM asked of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By callback and host call, both as the ABI names them, without `proxy_`.
    pub calls: BTreeMap<(String, String), Calls>,
    /// How often each callback ran, and how long.
    pub callbacks: BTreeMap<String, (u64, Duration)>,
    callback: String,
    call: String,
}

impl Tally {
    /// Calls of all names in all callbacks that `in_callback` takes.
    pub fn count(&self, in_callback: impl Fn(&str) -> bool) -> u64 {
        let calls = self.calls.iter();
        calls
            .filter(|((callback, _), _)| in_callback(callback))
            .map(|(_, calls)| calls.count)
            .sum()
    }

    /// Calls of a name in all callbacks together.
    pub fn of(&self, call: &str) -> Calls {
        let calls = self.calls.iter().filter(|((_, name), _)| name == call);
        calls.fold(Calls::default(), |sum, (_, calls)| Calls {
            count: sum.count + calls.count,
            bytes_read: sum.bytes_read + calls.bytes_read,
            bytes_given: sum.bytes_given + calls.bytes_given,
            time: sum.time + calls.time,
        })
    }

    pub(crate) fn enter(&mut self, callback: &str) {
        short(callback).clone_into(&mut self.callback);
    }

    pub(crate) fn leave(&mut self, time: Duration) {
        let (runs, sum) = self.callbacks.entry(self.callback.clone()).or_default();
        *runs += 1;
        *sum += time;
    }

    /// Time in the module itself, host calls aside.
    pub fn module_time(&self) -> Duration {
        let callbacks: Duration = self.callbacks.values().map(|(_, time)| *time).sum();
        let calls: Duration = self.calls.values().map(|calls| calls.time).sum();
        callbacks.saturating_sub(calls)
    }

    fn begin(&mut self, call: &str) {
        call.clone_into(&mut self.call);
        self.now().count += 1;
    }

    fn now(&mut self) -> &mut Calls {
        let key = (self.callback.clone(), self.call.clone());
        self.calls.entry(key).or_default()
    }

    pub(crate) fn read(&mut self, bytes: usize) {
        self.now().bytes_read += bytes as u64;
    }

    pub(crate) fn given(&mut self, bytes: usize) {
        self.now().bytes_given += bytes as u64;
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("proxy_").unwrap_or(name)
}

/// Puts the counting wrapper around every host function that is linked so far.
pub(crate) fn wrap(
    linker: &mut Linker<VmState>,
    mut store: impl AsContextMut<Data = VmState>,
) -> Result<()> {
    let functions: Vec<(String, Func)> = linker
        .iter(&mut store)
        .filter(|(module, _, _)| *module == ENV)
        .filter_map(|(_, name, item)| Some((name.to_owned(), item.into_func()?)))
        .collect();
    linker.allow_shadowing(true);
    for (name, inner) in functions {
        let kind = inner.ty(&store);
        let call = short(&name).to_owned();
        let counted = Func::new(&mut store, kind, move |mut guest, parameters, results| {
            if let Some(tally) = &mut guest.data_mut().tally {
                tally.begin(&call);
            }
            let start = Instant::now();
            let result = inner.call(&mut guest, parameters, results);
            if let Some(tally) = &mut guest.data_mut().tally {
                tally.now().time += start.elapsed();
            }
            result
        });
        linker.define(&store, ENV, &name, counted)?;
    }
    linker.allow_shadowing(false);
    Ok(())
}
