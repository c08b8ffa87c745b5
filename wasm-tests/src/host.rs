//! One proxy process with its VMs.

use std::cell::{Ref, RefCell, RefMut};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use wasmtime::{Module, Result};

use crate::fault::Fault;
use crate::module::{built_module, sampled_module};
use crate::process::{LogLine, Process};
use crate::samples::{Classify, Sampler};
use crate::status::LogLevel;
use crate::vm::{Vm, Watched};

/// Time at which every host starts: 2026-01-01T00:00:00Z.
const START_NS: u64 = 1_767_225_600_000_000_000;
/// Step of [`Host::advance`].
const STEP: Duration = Duration::from_millis(5);

/// How to start a [`Host`].
#[derive(Debug)]
pub struct HostBuilder {
    configuration: String,
    vms: usize,
    module: Option<Module>,
    watched: Watched,
}

impl HostBuilder {
    /// Number of VMs: the main thread's and one for each worker. 3 without this.
    #[must_use]
    pub fn vms(mut self, vms: usize) -> Self {
        self.vms = vms;
        self
    }

    /// Runs another module than the built filter.
    #[must_use]
    pub fn module(mut self, module: Module) -> Self {
        self.module = Some(module);
        self
    }

    /// Counts host calls, for [`Vm::take_tally`].
    #[must_use]
    pub fn counted(mut self) -> Self {
        self.watched.is_counted = true;
        self
    }

    /// Samples where time goes, for [`Vm::take_samples`]; runs the built filter, a little slower.
    #[must_use]
    pub fn sampled(mut self, classify: Classify) -> Self {
        self.watched.sampled = Some(classify);
        self
    }

    /// Starts the VMs, the main thread's first.
    ///
    /// # Errors
    /// When the module is missing or invalid, or refuses its configuration.
    pub fn start(self) -> Result<Host> {
        let module = match self.module {
            Some(module) => module,
            None if self.watched.sampled.is_some() => sampled_module()?,
            None => built_module()?,
        };
        let process = Process::starting_at(START_NS);
        let mut host = Host {
            process: Rc::new(RefCell::new(process)),
            configuration: self.configuration,
            watched: self.watched,
            _sampler: self
                .watched
                .sampled
                .map(|_| Sampler::start(module.engine())),
            module,
            vms: Vec::new(),
            ticked_ns: Vec::new(),
        };
        for _ in 0..self.vms {
            host.add_vm()?;
        }
        Ok(host)
    }
}

/// One proxy process.
pub struct Host {
    process: Rc<RefCell<Process>>,
    configuration: String,
    module: Module,
    watched: Watched,
    _sampler: Option<Sampler>,
    vms: Vec<Vm>,
    ticked_ns: Vec<u64>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("vms", &self.vms)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// A host with three VMs that run the built filter with this plugin configuration.
    ///
    /// # Errors
    /// As [`HostBuilder::start`].
    pub fn new(configuration: &str) -> Result<Self> {
        Self::builder(configuration).start()
    }

    /// A host to adjust before it starts.
    pub fn builder(configuration: &str) -> HostBuilder {
        HostBuilder {
            configuration: configuration.to_owned(),
            vms: 3,
            module: None,
            watched: Watched::default(),
        }
    }

    /// Starts one more VM, as Envoy does for a worker or after a trap; gives its index.
    ///
    /// # Errors
    /// When the filter refuses its configuration.
    pub fn add_vm(&mut self) -> Result<usize> {
        let index = self.vms.len();
        let configuration = self.configuration.as_bytes();
        let vm = Vm::start(
            &self.module,
            index,
            Rc::clone(&self.process),
            configuration,
            self.watched,
        )?;
        self.vms.push(vm);
        self.ticked_ns.push(self.process.borrow().now_ns);
        Ok(index)
    }

    /// The VM with this index.
    ///
    /// # Panics
    /// When there is none.
    #[expect(clippy::expect_used, reason = "a test names a VM that it started")]
    pub fn vm(&mut self, index: usize) -> &mut Vm {
        self.vms.get_mut(index).expect("a VM with this index")
    }

    /// Number of VMs, dead ones too.
    pub fn vm_count(&self) -> usize {
        self.vms.len()
    }

    /// What the VMs share.
    pub fn process(&self) -> Ref<'_, Process> {
        self.process.borrow()
    }

    /// What the VMs share, to change it.
    pub fn process_mut(&self) -> RefMut<'_, Process> {
        self.process.borrow_mut()
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.process.borrow_mut().faults.push(fault);
    }

    /// Ends every fault.
    pub fn clear_faults(&self) {
        self.process.borrow_mut().faults.clear();
    }

    /// Sum, value or number of observations of a metric.
    pub fn metric(&self, name: &str) -> i64 {
        self.process.borrow().metric(name)
    }

    /// Lets time pass in steps of 5 ms; every VM ticks when its period is over.
    pub fn advance(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            left -= step;
            let now = {
                let mut process = self.process.borrow_mut();
                process.now_ns += u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
                process.now_ns
            };
            for (vm, ticked) in self.vms.iter_mut().zip(&mut self.ticked_ns) {
                let period = u64::from(vm.tick_period_ms()) * 1_000_000;
                if period > 0 && now - *ticked >= period {
                    *ticked = now;
                    vm.tick();
                }
            }
        }
    }

    /// All log lines, oldest first.
    pub fn logs(&self) -> Vec<LogLine> {
        self.process.borrow().logs.clone()
    }

    /// Traps of all VMs and log lines at error level or above: empty when all went well.
    pub fn complaints(&self) -> Vec<String> {
        let traps = self
            .vms
            .iter()
            .filter_map(|vm| vm.trap().map(str::to_owned));
        let process = self.process.borrow();
        let lines = process
            .logs
            .iter()
            .filter(|line| line.level >= LogLevel::Error)
            .map(|line| line.text.clone());
        traps.chain(lines).collect()
    }
}
