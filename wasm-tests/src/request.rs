//! Requests and responses, as a test writes them.

use crate::exchange::{Ending, Exchange, LocalReply, Phase, StreamId};
use crate::headers::Headers;
use crate::vm::Vm;

/// The ABI's "continue" action.
const CONTINUE: u32 = 0;

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exchange, for [`Vm::response`] and [`Vm::end`].
    pub id: StreamId,
    /// Whether the filter paused at the headers.
    pub paused: bool,
    /// Whether the request went on to the upstream.
    pub forwarded: bool,
    /// Request headers as the upstream gets them.
    pub headers: Headers,
    /// Request body as the upstream gets it.
    pub body: Vec<u8>,
    /// The filter's own reply, if it gave one.
    pub reply: Option<LocalReply>,
    /// What ended the VM, if it did.
    pub trap: Option<String>,
}

impl Outcome {
    /// The first value of a request header that went on.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }
}

/// A request under way.
#[derive(Debug)]
pub struct RequestBuilder<'a> {
    vm: &'a mut Vm,
    headers: Headers,
    properties: Vec<(String, String)>,
    chunks: Vec<Vec<u8>>,
}

impl<'a> RequestBuilder<'a> {
    pub(crate) fn new(vm: &'a mut Vm, headers: Headers) -> Self {
        Self {
            vm,
            headers,
            properties: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.add(name, value);
        self
    }

    /// Adds a property, with dots between the parts of its path.
    #[must_use]
    pub fn property(mut self, path: &str, value: &str) -> Self {
        self.properties.push((path.to_owned(), value.to_owned()));
        self
    }

    /// Adds one chunk of the body.
    #[must_use]
    pub fn chunk(mut self, chunk: impl AsRef<[u8]>) -> Self {
        self.chunks.push(chunk.as_ref().to_vec());
        self
    }

    /// A body that comes whole after the headers went on.
    pub(crate) fn late(vm: &'a mut Vm, id: StreamId, body: &str) -> Outcome {
        let mut flow = Flow {
            vm,
            id,
            chunks: Vec::new(),
            held: Vec::new(),
            passed: Vec::new(),
        };
        flow.pass_headers();
        flow.body(body.as_bytes().to_vec(), true);
        flow.outcome(true)
    }

    /// Sends everything and ends the request.
    pub fn end(self) -> Outcome {
        let ends = self.chunks.is_empty();
        let (flow, paused) = self.headers_only(ends);
        flow.finish(paused)
    }

    /// Sends everything and ends the request with trailers.
    pub fn end_with_trailers(self) -> Outcome {
        let (mut flow, paused) = self.headers_only(false);
        for chunk in std::mem::take(&mut flow.chunks) {
            flow.body(chunk, false);
        }
        flow.trailers();
        flow.outcome(paused)
    }

    /// Sends everything, but the client neither ends the body nor goes away.
    pub fn hang(self) -> Outcome {
        let (mut flow, paused) = self.headers_only(false);
        for chunk in std::mem::take(&mut flow.chunks) {
            flow.body(chunk, false);
        }
        flow.outcome(paused)
    }

    /// Sends the headers; of the body nothing is told, as by an Envoy that keeps it to itself while the headers are held.
    pub fn keep_body(self) -> Outcome {
        let (flow, paused) = self.headers_only(false);
        flow.outcome(paused)
    }

    fn headers_only(self, ends: bool) -> (Flow<'a>, bool) {
        let count = u32::try_from(self.headers.len()).unwrap_or(u32::MAX);
        let properties = self.properties.into_iter();
        let exchange = Exchange {
            request_headers: self.headers,
            properties: properties
                .map(|(path, value)| (path, value.into_bytes()))
                .collect(),
            ..Exchange::default()
        };
        let id = self.vm.open_exchange(exchange);
        let mut flow = Flow {
            vm: self.vm,
            id,
            chunks: self.chunks,
            held: Vec::new(),
            passed: Vec::new(),
        };
        let arguments = (id.0, count, u32::from(ends));
        let action = flow
            .vm
            .call::<_, u32>("proxy_on_request_headers", id.0, arguments);
        if action == Some(CONTINUE) {
            flow.pass_headers();
        }
        flow.vm.settle();
        (flow, action.is_some_and(|a| a != CONTINUE))
    }
}

/// A request after its headers.
struct Flow<'a> {
    vm: &'a mut Vm,
    id: StreamId,
    chunks: Vec<Vec<u8>>,
    held: Vec<u8>,
    passed: Vec<u8>,
}

impl Flow<'_> {
    fn exchange(&mut self) -> Option<&mut Exchange> {
        self.vm.store.data_mut().exchanges.get_mut(&self.id.0)
    }

    fn pass_headers(&mut self) {
        if let Some(exchange) = self.exchange() {
            exchange.forwarded = true;
        }
    }

    /// Whether nothing more is told to the filter: it has answered by itself, or its VM is gone.
    fn is_over(&mut self) -> bool {
        self.vm.trap().is_some() || self.exchange().is_none_or(|e| e.reply.is_some())
    }

    /// One data callback; paused data is held back and seen again with the next chunk.
    fn body(&mut self, chunk: Vec<u8>, last: bool) {
        if self.is_over() {
            return;
        }
        let mut data = std::mem::take(&mut self.held);
        data.extend(chunk);
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if let Some(exchange) = self.exchange() {
            exchange.request_body = Some(data);
        }
        let id = self.id.0;
        let arguments = (id, size, u32::from(last));
        let action = self
            .vm
            .call::<_, u32>("proxy_on_request_body", id, arguments);
        let data = self
            .exchange()
            .and_then(|e| e.request_body.take())
            .unwrap_or_default();
        let resumed = self.exchange().is_some_and(|e| e.resumed);
        if action == Some(CONTINUE) || resumed {
            self.pass_headers();
            self.passed.extend(data);
        } else {
            self.held = data;
        }
        self.vm.settle();
    }

    /// The trailers callback: what was held can still be read, and goes on with them.
    fn trailers(&mut self) {
        if self.is_over() {
            return;
        }
        let id = self.id.0;
        let held = std::mem::take(&mut self.held);
        if let Some(exchange) = self.exchange() {
            exchange.request_body = Some(held);
        }
        let action = self
            .vm
            .call::<_, u32>("proxy_on_request_trailers", id, (id, 1u32));
        let held = self
            .exchange()
            .and_then(|e| e.request_body.take())
            .unwrap_or_default();
        if action == Some(CONTINUE) {
            self.pass_headers();
            self.passed.extend(held);
        }
    }

    fn finish(mut self, paused: bool) -> Outcome {
        let chunks = std::mem::take(&mut self.chunks);
        let count = chunks.len();
        for (i, chunk) in chunks.into_iter().enumerate() {
            self.body(chunk, i + 1 == count);
        }
        self.outcome(paused)
    }

    fn outcome(mut self, paused: bool) -> Outcome {
        let trap = self.vm.trap().map(str::to_owned);
        let (id, body) = (self.id, std::mem::take(&mut self.passed));
        match self.exchange() {
            Some(exchange) => Outcome {
                id,
                paused,
                forwarded: exchange.forwarded && exchange.reply.is_none() && trap.is_none(),
                headers: exchange.request_headers.clone(),
                body,
                reply: exchange.reply.clone(),
                trap,
            },
            None => Outcome {
                id,
                paused,
                forwarded: false,
                headers: Headers::default(),
                body,
                reply: None,
                trap,
            },
        }
    }
}

/// A response under way.
#[derive(Debug)]
pub struct ResponseBuilder<'a> {
    vm: &'a mut Vm,
    id: StreamId,
    headers: Headers,
    upstream: Option<String>,
    chunks: Vec<Vec<u8>>,
}

impl<'a> ResponseBuilder<'a> {
    pub(crate) fn new(vm: &'a mut Vm, id: StreamId) -> Self {
        let headers = [(":status", "200")].into_iter().collect();
        Self {
            vm,
            id,
            headers,
            upstream: None,
            chunks: Vec::new(),
        }
    }

    /// Sets the status; 200 without it.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.headers.set(":status", &status.to_string());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.add(name, value);
        self
    }

    /// The endpoint that really served.
    #[must_use]
    pub fn upstream(mut self, address: &str) -> Self {
        self.upstream = Some(address.to_owned());
        self
    }

    /// Adds one chunk of the body.
    #[must_use]
    pub fn chunk(mut self, chunk: impl AsRef<[u8]>) -> Self {
        self.chunks.push(chunk.as_ref().to_vec());
        self
    }

    /// Sends everything, ends the response and the exchange; gives headers and body as the client gets them.
    pub fn end(self) -> (Headers, Vec<u8>) {
        self.send(Some(Ending::Complete))
    }

    /// Sends everything, then the exchange ends early.
    pub fn break_off(self, ending: Ending) -> (Headers, Vec<u8>) {
        self.send(Some(ending))
    }

    /// Sends everything and leaves the exchange open.
    pub fn hang(self) -> (Headers, Vec<u8>) {
        self.send(None)
    }

    fn send(mut self, ending: Option<Ending>) -> (Headers, Vec<u8>) {
        let id = self.id.0;
        let complete = ending == Some(Ending::Complete);
        let count = u32::try_from(self.headers.len()).unwrap_or(u32::MAX);
        let Some(exchange) = self.vm.store.data_mut().exchanges.get_mut(&id) else {
            return (Headers::default(), Vec::new());
        };
        exchange.response_headers = std::mem::take(&mut self.headers);
        exchange.phase = Phase::ResponseHeaders;
        if let Some(address) = self.upstream {
            let address = address.into_bytes();
            exchange
                .properties
                .insert("upstream.address".to_owned(), address);
        }
        let last = u32::from(complete && self.chunks.is_empty());
        self.vm
            .call::<_, u32>("proxy_on_response_headers", id, (id, count, last));
        let mut headers = Headers::default();
        if let Some(exchange) = self.vm.store.data_mut().exchanges.get_mut(&id) {
            exchange.phase = Phase::Passing;
            headers = exchange.response_headers.clone();
        }
        let mut body = Vec::new();
        if last == 0 {
            for chunk in std::mem::take(&mut self.chunks) {
                body.extend(Self::data(self.vm, id, chunk, false));
            }
            if complete {
                body.extend(Self::data(self.vm, id, Vec::new(), true));
            }
        }
        if let Some(ending) = ending {
            self.vm.end(self.id, ending);
        }
        (headers, body)
    }

    fn data(vm: &mut Vm, id: u32, chunk: Vec<u8>, last: bool) -> Vec<u8> {
        let size = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        if let Some(exchange) = vm.store.data_mut().exchanges.get_mut(&id) {
            exchange.response_body = Some(chunk);
        }
        let arguments = (id, size, u32::from(last));
        let action = vm.call::<_, u32>("proxy_on_response_body", id, arguments);
        let state = vm.store.data_mut();
        state.held_back += usize::from(action.is_some_and(|action| action != CONTINUE));
        state
            .exchanges
            .get_mut(&id)
            .and_then(|e| e.response_body.take())
            .unwrap_or_default()
    }
}
