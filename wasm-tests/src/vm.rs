//! One VM: a wasm instance, its calls and its streams.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use wasmtime::{
    Instance, Linker, Module, Result, Store, StoreLimitsBuilder, WasmParams, WasmResults, bail,
};

use crate::abi;
use crate::exchange::{Ending, Exchange, Phase, StreamId};
use crate::grpc::{GrpcStream, StreamToken};
use crate::headers::Headers;
use crate::process::Process;
use crate::request::{Outcome, RequestBuilder, ResponseBuilder};
use crate::samples::{self, Classify, Samples};
use crate::state::VmState;
use crate::tally::{self, Tally};

/// Context id of the plugin's root context.
const ROOT: u32 = 1;
/// Memory that Envoy allows a VM.
const MEMORY_BYTES: usize = 1 << 30;

/// How a VM is looked at while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) is_counted: bool,
    pub(crate) sampled: Option<Classify>,
}

/// One wasm instance with its root context.
pub struct Vm {
    pub(crate) store: Store<VmState>,
    instance: Instance,
    next_context: u32,
    trap: Option<String>,
}

impl fmt::Debug for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm")
            .field("index", &self.store.data().index)
            .field("trap", &self.trap)
            .finish_non_exhaustive()
    }
}

impl Vm {
    /// Instantiates the module and runs its start-up callbacks.
    pub(crate) fn start(
        module: &Module,
        index: usize,
        process: Rc<RefCell<Process>>,
        configuration: &[u8],
        watched: Watched,
    ) -> Result<Self> {
        let mut store = Store::new(module.engine(), VmState::new(index, process, configuration));
        store.data_mut().limits = StoreLimitsBuilder::new().memory_size(MEMORY_BYTES).build();
        store.limiter(|state| &mut state.limits);
        let mut linker = Linker::new(module.engine());
        abi::link(&mut linker)?;
        if let Some(classify) = watched.sampled {
            samples::watch(&mut store, classify);
        }
        if watched.is_counted {
            tally::wrap(&mut linker, &mut store)?;
            store.data_mut().tally = Some(Tally::default());
        }
        linker.define_unknown_imports_as_traps(module)?;
        let instance = linker.instantiate(&mut store, module)?;
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        let allocate = ["proxy_on_memory_allocate", "malloc"]
            .iter()
            .find_map(|name| instance.get_typed_func(&mut store, name).ok());
        store.data_mut().allocate = allocate;
        let mut vm = Self {
            store,
            instance,
            next_context: ROOT + 1,
            trap: None,
        };
        vm.call::<(), ()>("_initialize", ROOT, ());
        vm.store.data_mut().root = ROOT;
        vm.call::<(u32, u32), ()>("proxy_on_context_create", ROOT, (ROOT, 0));
        let size = u32::try_from(configuration.len())?;
        let started = vm.call::<(u32, u32), u32>("proxy_on_vm_start", ROOT, (ROOT, 0));
        let configured = vm.call::<(u32, u32), u32>("proxy_on_configure", ROOT, (ROOT, size));
        if started == Some(0) || configured == Some(0) {
            bail!("the filter refused its configuration");
        }
        vm.settle();
        Ok(vm)
    }

    /// Calls an export in a context; `None` when it is not there or the VM has trapped, now or before.
    pub(crate) fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        name: &str,
        context: u32,
        arguments: P,
    ) -> Option<R> {
        if self.trap.is_some() {
            return None;
        }
        let function = self
            .instance
            .get_typed_func::<P, R>(&mut self.store, name)
            .ok()?;
        let state = self.store.data_mut();
        state.effective = context;
        if let Some(tally) = &mut state.tally {
            tally.enter(name);
        }
        let start = Instant::now();
        let result = function.call(&mut self.store, arguments);
        if let Some(tally) = &mut self.store.data_mut().tally {
            tally.leave(start.elapsed());
        }
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                self.trap = Some(format!("{name}: {error:#}"));
                None
            }
        }
    }

    /// Closes streams that the process refuses, as Envoy does right after the call that opened them.
    pub(crate) fn settle(&mut self) {
        for token in std::mem::take(&mut self.store.data_mut().opened) {
            if self.store.data().process.borrow().refuse_streams {
                self.close_stream(token, 14, "upstream connect error");
            }
        }
    }

    /// Number of this VM in its host.
    pub fn index(&self) -> usize {
        self.store.data().index
    }

    /// What ended the VM, or `None` while it is alive.
    pub fn trap(&self) -> Option<&str> {
        self.trap.as_deref()
    }

    /// Ends the plugin as the host does when its configuration is replaced or the proxy stops: done, delete. The VM serves no more.
    pub fn finish(&mut self) {
        self.call::<u32, u32>("proxy_on_done", ROOT, ROOT);
        self.call::<u32, ()>("proxy_on_delete", ROOT, ROOT);
        self.store.data_mut().tick_ms = 0;
    }

    /// Tells the filter that an exchange is over, and does not forget it: a second telling may follow.
    pub fn report_end(&mut self, id: StreamId) {
        self.call::<u32, ()>("proxy_on_log", id.0, id.0);
        self.call::<u32, u32>("proxy_on_done", id.0, id.0);
    }

    /// Pieces of answers that the filter held back so far.
    pub fn held_back(&self) -> usize {
        self.store.data().held_back
    }

    /// Ends the VM as a trap does: nothing runs in it any more and no ending is reported.
    pub fn kill(&mut self) {
        self.trap = Some("killed by the test".to_owned());
    }

    /// Tick period that the filter asked for, 0 = none.
    pub fn tick_period_ms(&self) -> u32 {
        self.store.data().tick_ms
    }

    /// Takes what was counted since the last time; nothing in a VM that was not started for that ([`HostBuilder::counted`]).
    ///
    /// [`HostBuilder::counted`]: crate::HostBuilder::counted
    pub fn take_tally(&mut self) -> Tally {
        let tally = self.store.data_mut().tally.as_mut();
        tally.map(std::mem::take).unwrap_or_default()
    }

    /// Takes what was sampled since the last time; nothing in a VM that was not started for that ([`HostBuilder::sampled`]).
    ///
    /// [`HostBuilder::sampled`]: crate::HostBuilder::sampled
    pub fn take_samples(&mut self) -> Samples {
        std::mem::take(&mut self.store.data_mut().samples)
    }

    /// Bytes of wasm memory in use.
    pub fn memory_bytes(&mut self) -> usize {
        match self.store.data().memory {
            Some(memory) => memory.data_size(&self.store),
            None => 0,
        }
    }

    /// Lowers the memory that the VM may have from now on.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.store.data_mut().limits = StoreLimitsBuilder::new().memory_size(bytes).build();
    }

    /// Runs the tick callback once.
    pub fn tick(&mut self) {
        self.call::<u32, ()>("proxy_on_tick", ROOT, ROOT);
        self.settle();
    }

    /// Starts a request with these headers.
    pub fn request<'a>(&'a mut self, headers: &[(&str, &str)]) -> RequestBuilder<'a> {
        RequestBuilder::new(self, headers.iter().copied().collect())
    }

    /// Whether the filter has let a held request go on.
    pub fn is_resumed(&self, id: StreamId) -> bool {
        let exchanges = &self.store.data().exchanges;
        exchanges
            .get(&id.0)
            .is_some_and(|exchange| exchange.resumed)
    }

    /// What has become of a request that the filter held, by now.
    pub fn outcome(&self, id: StreamId) -> Option<Outcome> {
        let exchange = self.store.data().exchanges.get(&id.0)?;
        Some(Outcome {
            id,
            paused: true,
            forwarded: (exchange.forwarded || exchange.resumed) && exchange.reply.is_none(),
            headers: exchange.request_headers.clone(),
            body: Vec::new(),
            reply: exchange.reply.clone(),
            trap: self.trap.clone(),
        })
    }

    /// Tells the whole body of a request whose headers went on before; gives what became of it.
    pub fn late_body(&mut self, id: StreamId, body: &str) -> Outcome {
        RequestBuilder::late(self, id, body)
    }

    /// A property of an exchange as text, with dots between the parts of its path.
    pub fn property(&self, id: StreamId, path: &str) -> Option<String> {
        let exchange = self.store.data().exchanges.get(&id.0)?;
        let value = exchange.properties.get(path)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Starts the response of a forwarded request.
    pub fn response(&mut self, id: StreamId) -> ResponseBuilder<'_> {
        ResponseBuilder::new(self, id)
    }

    /// Ends an exchange: log, done, delete.
    pub fn end(&mut self, id: StreamId, ending: Ending) {
        let Some(exchange) = self.store.data_mut().exchanges.get_mut(&id.0) else {
            return;
        };
        exchange.phase = Phase::Log;
        exchange.request_body = None;
        exchange.response_body = None;
        exchange.properties.insert(
            "response.flags".to_owned(),
            ending.flags().to_le_bytes().to_vec(),
        );
        self.call::<u32, ()>("proxy_on_log", id.0, id.0);
        self.call::<u32, u32>("proxy_on_done", id.0, id.0);
        self.call::<u32, ()>("proxy_on_delete", id.0, id.0);
        self.store.data_mut().exchanges.remove(&id.0);
    }

    pub(crate) fn open_exchange(&mut self, exchange: Exchange) -> StreamId {
        let id = self.next_context;
        self.next_context += 1;
        self.store.data_mut().exchanges.insert(id, exchange);
        self.call::<(u32, u32), ()>("proxy_on_context_create", id, (id, ROOT));
        StreamId(id)
    }

    /// Tokens of the streams that are open, oldest first.
    pub fn streams(&self) -> Vec<StreamToken> {
        let streams = &self.store.data().streams;
        streams
            .iter()
            .filter_map(|(token, s)| (!s.closed).then_some(*token))
            .collect()
    }

    /// One stream, open or closed.
    pub fn stream(&self, token: StreamToken) -> Option<&GrpcStream> {
        self.store.data().streams.get(&token)
    }

    /// Takes the messages that the filter sent on a stream.
    pub fn take_sent(&mut self, token: StreamToken) -> Vec<Vec<u8>> {
        match self.store.data_mut().streams.get_mut(&token) {
            Some(stream) => std::mem::take(&mut stream.sent),
            None => Vec::new(),
        }
    }

    /// The context that opened a stream which is still open.
    fn open_stream(&self, token: StreamToken) -> Option<u32> {
        self.stream(token)
            .and_then(|s| (!s.closed).then_some(s.context))
    }

    /// Delivers the server's initial metadata; nothing happens when the stream is closed.
    pub fn deliver_metadata(&mut self, token: StreamToken, metadata: &[(&str, &str)]) {
        let Some(context) = self.open_stream(token) else {
            return;
        };
        self.store.data_mut().grpc_metadata = metadata.iter().copied().collect();
        let count = u32::try_from(metadata.len()).unwrap_or(u32::MAX);
        let arguments = (context, token.0, count);
        self.call::<_, ()>("proxy_on_grpc_receive_initial_metadata", context, arguments);
        self.store.data_mut().grpc_metadata = Headers::default();
        self.settle();
    }

    /// Delivers one message of the server; nothing happens when the stream is closed.
    pub fn deliver(&mut self, token: StreamToken, message: &[u8]) {
        let Some(context) = self.open_stream(token) else {
            return;
        };
        self.store.data_mut().grpc_message = Some(message.to_vec());
        let size = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let arguments = (context, token.0, size);
        self.call::<_, ()>("proxy_on_grpc_receive", context, arguments);
        self.store.data_mut().grpc_message = None;
        self.settle();
    }

    /// Closes a stream from the server's side.
    pub fn close_stream(&mut self, token: StreamToken, status: u32, message: &str) {
        let state = self.store.data_mut();
        match state.streams.get_mut(&token) {
            Some(stream) if !stream.closed => stream.closed = true,
            _ => return,
        }
        state.grpc_status = (status, message.to_owned());
        self.call::<_, ()>("proxy_on_grpc_close", ROOT, (ROOT, token.0, status));
        self.settle();
    }

    /// HTTP callouts that wait: token, cluster, headers and body.
    pub fn callouts(&self) -> Vec<(u32, &str, &Headers, &[u8])> {
        let callouts = &self.store.data().callouts;
        callouts
            .iter()
            .map(|(token, c)| (*token, c.cluster.as_str(), &c.headers, c.body.as_slice()))
            .collect()
    }

    /// Answers a callout; no headers at all means that it failed.
    pub fn answer_callout(&mut self, token: u32, headers: &[(&str, &str)], body: &[u8]) {
        let state = self.store.data_mut();
        if state.callouts.remove(&token).is_none() {
            return;
        }
        state.callout_headers = headers.iter().copied().collect();
        state.callout_body = (!headers.is_empty()).then(|| body.to_vec());
        let count = u32::try_from(headers.len()).unwrap_or(u32::MAX);
        let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let arguments = (ROOT, token, count, size, 0u32);
        self.call::<_, ()>("proxy_on_http_call_response", ROOT, arguments);
        self.store.data_mut().callout_body = None;
        self.settle();
    }
}
