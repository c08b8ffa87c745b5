//! The subject as a wasm module in wasmtime, compiled as the test host compiles the filter.

use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use prefixway_bench_text::counting::Counts;
use prefixway_bench_text::subject::Phase;
use wasmtime::{
    Caller, Config, Engine as Compiler, Instance, Linker, Memory, Module, OptLevel, Result, Store,
    WasmParams, WasmResults, format_err,
};

use crate::engine::Engine;

/// An instance of the guest.
pub(crate) struct Wasmtime {
    store: Store<Instant>,
    instance: Instance,
    memory: Memory,
}

impl Wasmtime {
    /// Compiles and starts the guest.
    pub(crate) fn start(guest: &Path) -> anyhow::Result<Self> {
        Self::new(guest).map_err(foreign)
    }

    fn new(guest: &Path) -> Result<Self> {
        let mut config = Config::new();
        config.cranelift_opt_level(OptLevel::Speed);
        let compiler = Compiler::new(&config)?;
        let module = Module::from_file(&compiler, guest)?;
        let mut store = Store::new(&compiler, Instant::now());
        let mut linker: Linker<Instant> = Linker::new(&compiler);
        let clock = |caller: Caller<'_, Instant>| caller.data().elapsed().as_secs_f64() * 1e9;
        linker.func_wrap("env", "bench_now", clock)?;
        let instance = linker.instantiate(&mut store, &module)?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| format_err!("the guest exports no memory"))?;
        Ok(Self {
            store,
            instance,
            memory,
        })
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, parameters: P) -> Result<R> {
        let function = self
            .instance
            .get_typed_func::<P, R>(&mut self.store, name)?;
        function.call(&mut self.store, parameters)
    }

    fn give(&mut self, bytes: &[u8]) -> Result<()> {
        let place: u32 = self.call("reserve", u32::try_from(bytes.len())?)?;
        Ok(self.memory.write(&mut self.store, place as usize, bytes)?)
    }

    fn take(&mut self, profile: &[u8], body: &[u8]) -> Result<bool> {
        self.give(profile)?;
        self.call::<(), ()>("take_profile", ())?;
        self.give(body)?;
        Ok(self.call::<(), u32>("take_body", ())? == 1)
    }

    fn counts(&mut self, phase: Phase) -> Result<Counts> {
        self.call::<u32, ()>("count", phase as u32)?;
        let mut number = |name| -> Result<u64> {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count"
            )]
            Ok(self.call::<(), f64>(name, ())? as u64)
        };
        Ok(Counts {
            calls: number("counted_calls")?,
            bytes: number("counted_bytes")?,
            peak: number("counted_peak")?,
        })
    }
}

impl Engine for Wasmtime {
    fn name(&self) -> &'static str {
        "wasmtime"
    }

    fn load(&mut self, profile: &[u8], body: &[u8]) -> anyhow::Result<bool> {
        self.take(profile, body).map_err(foreign)
    }

    fn measure(&mut self, phase: Phase, rounds: u32) -> anyhow::Result<f64> {
        self.call("measure", (phase as u32, rounds))
            .map_err(foreign)
    }

    fn count(&mut self, phase: Phase) -> anyhow::Result<Counts> {
        self.counts(phase).map_err(foreign)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "maps errors")]
fn foreign(error: wasmtime::Error) -> anyhow::Error {
    anyhow!("{error:#}")
}
