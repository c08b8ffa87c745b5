//! Host-side state of one VM.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use wasmtime::{Memory, StoreLimits, TypedFunc};

use crate::exchange::Exchange;
use crate::grpc::{GrpcStream, StreamToken};
use crate::headers::Headers;
use crate::process::{MetricKind, Process};
use crate::samples::Samples;
use crate::status::Status;
use crate::tally::Tally;

/// An HTTP callout that waits for its answer.
#[derive(Debug)]
pub(crate) struct Callout {
    pub(crate) cluster: String,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

/// What the VM's host calls work on.
pub(crate) struct VmState {
    pub(crate) index: usize,
    pub(crate) process: Rc<RefCell<Process>>,
    pub(crate) limits: StoreLimits,
    pub(crate) memory: Option<Memory>,
    pub(crate) allocate: Option<TypedFunc<u32, u32>>,
    pub(crate) root: u32,
    pub(crate) effective: u32,
    pub(crate) tick_ms: u32,
    pub(crate) plugin_configuration: Vec<u8>,
    pub(crate) exchanges: BTreeMap<u32, Exchange>,
    pub(crate) streams: BTreeMap<StreamToken, GrpcStream>,
    pub(crate) opened: Vec<StreamToken>,
    pub(crate) callouts: BTreeMap<u32, Callout>,
    pub(crate) next_token: u32,
    pub(crate) metric_names: Vec<(MetricKind, String)>,
    pub(crate) grpc_message: Option<Vec<u8>>,
    pub(crate) grpc_metadata: Headers,
    pub(crate) grpc_status: (u32, String),
    pub(crate) callout_headers: Headers,
    pub(crate) callout_body: Option<Vec<u8>>,
    pub(crate) queues: HashMap<String, u32>,
    pub(crate) held_back: usize,
    /// Where host calls are counted, in a VM that was started for that.
    pub(crate) tally: Option<Tally>,
    /// Where time went, in a VM that was started for that.
    pub(crate) samples: Samples,
}

impl VmState {
    pub(crate) fn new(index: usize, process: Rc<RefCell<Process>>, configuration: &[u8]) -> Self {
        Self {
            index,
            process,
            limits: StoreLimits::default(),
            memory: None,
            allocate: None,
            root: 0,
            effective: 0,
            tick_ms: 0,
            plugin_configuration: configuration.to_vec(),
            exchanges: BTreeMap::new(),
            streams: BTreeMap::new(),
            opened: Vec::new(),
            callouts: BTreeMap::new(),
            next_token: 1,
            metric_names: Vec::new(),
            grpc_message: None,
            grpc_metadata: Headers::default(),
            grpc_status: (0, String::new()),
            callout_headers: Headers::default(),
            callout_body: None,
            queues: HashMap::new(),
            held_back: 0,
            tally: None,
            samples: Samples::new(),
        }
    }

    pub(crate) fn fault(&self, call: &str, key: &str) -> Option<Status> {
        self.process.borrow_mut().fault(self.index, call, key)
    }

    pub(crate) fn exchange(&mut self) -> Option<&mut Exchange> {
        self.exchanges.get_mut(&self.effective)
    }

    pub(crate) fn take_token(&mut self) -> u32 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }
}
