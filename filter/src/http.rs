//! One HTTP exchange: holds the request until its body is whole, has it decided, and watches the answer pass.

mod head;

use std::cell::RefCell;
use std::rc::Rc;

use prefixway_core::admission::{AtHead, Held, Refusal, Reply};
use prefixway_core::lifecycle::{Input, Leg, Lifecycle, Output, TAIL_BYTES, Tail};
use prefixway_core::snapshot::EndpointKey;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::{HoldAt, Mode};
use crate::host::{self, Buffer, HostError, Map};
use crate::metrics::Reason;
use crate::plugin::{Answer, Choice, Judged, Plugin, Told};

/// Why a request went where it went, on the response; off by default.
pub(crate) const EXPLAIN: &str = "x-prefixway-decision";

/// What Envoy's access log says of an answer of ours.
const DETAILS: &str = "prefixway_refused";

/// One exchange.
pub(crate) struct HttpFilter {
    plugin: Rc<RefCell<Plugin>>,
    hold_at: HoldAt,
    lifecycle: Lifecycle<EndpointKey>,
    /// What is held, as long as nothing is decided.
    held: Option<Held>,
    held_bytes: usize,
    choice: Option<Rc<Choice>>,
    told: Told,
    /// End of the answer, where it can be read.
    tail: Option<Tail>,
    is_success: bool,
    is_whole: bool,
}

impl HttpFilter {
    pub(crate) fn new(plugin: Rc<RefCell<Plugin>>) -> Self {
        let hold_at = plugin
            .try_borrow()
            .map_or(HoldAt::Headers, |plugin| plugin.hold_at());
        Self {
            plugin,
            hold_at,
            lifecycle: Lifecycle::default(),
            held: None,
            held_bytes: 0,
            choice: None,
            told: Told::default(),
            tail: None,
            is_success: false,
            is_whole: false,
        }
    }

    /// Works with the plugin's state. Callbacks don't nest, so it is always free; if it were not, the request would pass.
    fn with<T>(&self, work: impl FnOnce(&mut Plugin) -> T) -> Option<T> {
        self.plugin
            .try_borrow_mut()
            .ok()
            .map(|mut plugin| work(&mut plugin))
    }

    fn count_host_error(&self, error: HostError) {
        self.with(|plugin| plugin.host_error(error));
    }

    /// What the headers make of a request. Headers that a client may not send are gone after this.
    fn at_head(&self, end_of_stream: bool) -> Result<AtHead, HostError> {
        head::remove_routing_headers()?;
        let settings = self.with(|plugin| (plugin.mode(), plugin.max_body_bytes()));
        match settings {
            Some((Mode::On | Mode::Shadow, max_body_bytes)) => {
                head::admit(end_of_stream, max_body_bytes)
            }
            Some((Mode::Off, _)) | None => Ok(AtHead::Pass),
        }
    }

    /// Refuses a request, or lets it pass where it is not for us to refuse it.
    fn refuse(&mut self, refusal: &Refusal) -> Action {
        match self.with(|plugin| plugin.refuse(refusal)).flatten() {
            Some(reply) => self.answer(&reply),
            None => Action::Continue,
        }
    }

    /// Answers a request in the engine's place.
    fn answer(&mut self, reply: &Reply) -> Action {
        match host::reply(reply.status, &reply.headers, &reply.body, DETAILS) {
            Ok(()) => Action::Pause,
            Err(error) => {
                self.count_host_error(error);
                Action::Continue
            }
        }
    }

    /// The held body.
    fn body(&self) -> Result<Vec<u8>, HostError> {
        match self.held_bytes {
            // There is no buffer where nothing came.
            0 => Ok(Vec::new()),
            bytes => host::buffer(Buffer::RequestBody, 0, bytes),
        }
    }

    /// Judges the request by its whole body, and lets it go on or answers it.
    fn decide(&mut self) -> Action {
        let now_ns = host::now_ns();
        let judged = match (self.held.take(), self.body()) {
            (Some(held), Ok(body)) => self.with(|plugin| plugin.decide(&held, &body, now_ns)),
            (_, Err(error)) => {
                self.count_host_error(error);
                self.with(|plugin| plugin.metrics().decided(Reason::HostError));
                None
            }
            (None, _) => None,
        };
        match judged {
            Some(Judged::Go(choice)) => self.steer(Rc::new(choice), now_ns),
            Some(Judged::Reply(reply)) => {
                self.lifecycle.step(Input::Unrouted);
                self.answer(&reply)
            }
            Some(Judged::Pass) | None => {
                self.lifecycle.step(Input::Unrouted);
                Action::Continue
            }
        }
    }

    /// Lets a request go on to its choice.
    fn steer(&mut self, choice: Rc<Choice>, decided_ns: u64) -> Action {
        let steers = self.with(|plugin| plugin.mode()) == Some(Mode::On);
        if steers && let Err(error) = head::name_choice(&choice, self.hold_at) {
            self.count_host_error(error);
            self.lifecycle.step(Input::Unrouted);
            return Action::Continue;
        }
        self.told.is_steered = steers;
        let leg = Leg {
            endpoint: choice.endpoint,
            sent_ms: host::now_ms(),
        };
        if let Output::Start(leg) = self.lifecycle.step(Input::Routed(leg)) {
            self.with(|plugin| {
                plugin.started(Rc::clone(&choice), steers, leg.sent_ms);
                let us = host::now_ns().saturating_sub(decided_ns) / 1000;
                plugin.metrics().decision_us.record(us);
            });
        }
        self.choice = Some(choice);
        Action::Continue
    }

    fn apply(&mut self, output: Output<EndpointKey>) {
        let Some(choice) = &self.choice else {
            return;
        };
        match output {
            Output::Move(endpoint) => {
                self.with(|plugin| plugin.moved(choice, endpoint));
            }
            Output::Prefilled => {
                self.with(|plugin| plugin.first_byte(choice, host::now_ms()));
            }
            Output::Finish(finish) => {
                let usage = self.tail.as_ref().and_then(Tail::usage);
                let answer = Answer {
                    finish,
                    usage,
                    told: self.told,
                };
                self.with(|plugin| plugin.finished(choice, &answer, host::now_ms()));
            }
            Output::Nothing | Output::Pass | Output::Hold | Output::Decide | Output::Start(_) => {}
        }
    }

    fn end(&mut self) {
        let output = self.lifecycle.step(Input::Ended {
            complete: self.is_success && self.is_whole,
        });
        self.apply(output);
    }

    /// Reads what the response's head says.
    fn watch_answer(&mut self) -> Result<(), HostError> {
        let status = host::header(Map::Response, ":status")?;
        self.is_success = status.is_some_and(|status| status.starts_with('2'));
        let encoded = host::header(Map::Response, "content-encoding")?.is_some();
        self.tail = (self.is_success && !encoded).then(Tail::default);
        if let Some(address) = host::property(&["upstream", "address"])? {
            let rank = self.choice.as_ref().and_then(|choice| choice.rank);
            let served = core::str::from_utf8(&address).ok();
            let endpoint = self.with(|plugin| plugin.endpoint(served?, rank)).flatten();
            self.told.is_stranger = endpoint.is_none();
            if let Some(endpoint) = endpoint {
                let output = self.lifecycle.step(Input::Served { endpoint });
                self.apply(output);
            }
        }
        match self.choice.as_ref().and_then(|c| c.explanation.as_deref()) {
            Some(explanation) => host::set_header(Map::Response, EXPLAIN, explanation),
            None => Ok(()),
        }
    }

    /// Keeps the end of the answer, and notes its first byte.
    fn watch_piece(&mut self, size: usize) -> Result<(), HostError> {
        if size == 0 {
            return Ok(());
        }
        if !self.lifecycle.is_answering() {
            let output = self.lifecycle.step(Input::FirstByte {
                now_ms: host::now_ms(),
            });
            self.apply(output);
        }
        if let Some(tail) = &mut self.tail {
            let kept = size.min(TAIL_BYTES);
            tail.push(&host::buffer(Buffer::ResponseBody, size - kept, kept)?);
        }
        Ok(())
    }
}

impl Context for HttpFilter {
    fn on_done(&mut self) -> bool {
        self.end();
        true
    }
}

impl HttpContext for HttpFilter {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        let at_head = self.at_head(end_of_stream).unwrap_or_else(|error| {
            self.count_host_error(error);
            AtHead::Pass
        });
        if let AtHead::Hold(held) = at_head {
            self.held = Some(held);
        }
        let known = self.held.is_some();
        match (self.lifecycle.step(Input::Headers { known }), at_head) {
            (Output::Hold, _) if self.hold_at == HoldAt::Headers => Action::Pause,
            (_, AtHead::Refuse(refusal)) => self.refuse(&refusal),
            _ => Action::Continue,
        }
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.held_bytes = size;
        if let Some(held) = self.held.filter(|held| held.is_too_large(size)) {
            self.held = None;
            self.lifecycle.step(Input::Unrouted);
            return self.refuse(&held.too_large());
        }
        match self.lifecycle.step(Input::Body { end: end_of_stream }) {
            Output::Decide => self.decide(),
            Output::Hold => Action::Pause,
            _ => Action::Continue,
        }
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        match self.lifecycle.step(Input::Body { end: true }) {
            Output::Decide => self.decide(),
            _ => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if self.lifecycle.is_in_flight() {
            if let Err(error) = self.watch_answer() {
                self.count_host_error(error);
            }
            self.is_whole = end_of_stream;
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.lifecycle.is_in_flight() {
            if let Err(error) = self.watch_piece(size) {
                self.count_host_error(error);
            }
            self.is_whole = end_of_stream;
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        self.is_whole = true;
        Action::Continue
    }

    fn on_log(&mut self) {
        self.end();
    }
}
