//! One HTTP exchange: holds the request until its body is whole, has it decided, and watches the answer pass.

use std::cell::RefCell;
use std::rc::Rc;

use prefixway_core::lifecycle::{Input, Leg, Lifecycle, Output, TAIL_BYTES, Tail};
use prefixway_core::snapshot::EndpointKey;
use prefixway_core::text::Api;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::{HoldAt, Mode};
use crate::host::{self, Buffer, HostError, Map};
use crate::metrics::Reason;
use crate::plugin::{Answer, Choice, Plugin};

/// Where Envoy's override-host policy looks: addresses, best first.
pub(crate) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Rank of a data-parallel engine.
pub(crate) const RANK: &str = "x-data-parallel-rank";
/// The same two as filter state (`wasm.` before the name), where requests are held at their body.
const DESTINATION_STATE: &str = "prefixway_destination";
const RANK_STATE: &str = "prefixway_rank";
/// Why a request went where it went, on the response; off by default.
pub(crate) const EXPLAIN: &str = "x-prefixway-decision";

/// Headers that name an endpoint. They never count when a client sends them.
const ROUTING_HEADERS: [&str; 5] = [
    DESTINATION,
    "x-prefiller-host-port",
    "x-data-parallel-host-port",
    RANK,
    "x-envoy-original-dst-host",
];

/// One exchange.
pub(crate) struct HttpFilter {
    plugin: Rc<RefCell<Plugin>>,
    hold_at: HoldAt,
    lifecycle: Lifecycle<EndpointKey>,
    api: Option<Api>,
    held_bytes: usize,
    choice: Option<Rc<Choice>>,
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
            api: None,
            held_bytes: 0,
            choice: None,
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

    /// The API of a request that can be routed: POST on a known path with a body.
    fn routable(&self, end_of_stream: bool) -> Result<Option<Api>, HostError> {
        let mode = self.with(|plugin| plugin.mode());
        if end_of_stream || mode.is_none_or(|mode| mode == Mode::Off) {
            return Ok(None);
        }
        if host::header(Map::Request, ":method")?.as_deref() != Some("POST") {
            return Ok(None);
        }
        let path = host::header(Map::Request, ":path")?;
        let Some(api) = path.as_deref().and_then(Api::from_path) else {
            return Ok(None);
        };
        // A compressed body is not read.
        let encoded = host::header(Map::Request, "content-encoding")?;
        let is_plain = |coding: &str| coding.is_empty() || coding.eq_ignore_ascii_case("identity");
        Ok(encoded.is_none_or(|e| is_plain(e.trim())).then_some(api))
    }

    fn remove_routing_headers() -> Result<(), HostError> {
        ROUTING_HEADERS
            .iter()
            .try_for_each(|name| host::remove_header(Map::Request, name))
    }

    /// Chooses an endpoint and lets the request go on.
    fn decide(&mut self) -> Action {
        let now_ns = host::now_ns();
        let chosen = match (
            self.api,
            host::buffer(Buffer::RequestBody, 0, self.held_bytes),
        ) {
            (Some(api), Ok(body)) => self
                .with(|plugin| plugin.decide(api, &body, now_ns))
                .flatten(),
            (_, Err(error)) => {
                self.count_host_error(error);
                self.with(|plugin| plugin.metrics().decided(Reason::HostError));
                None
            }
            (None, _) => None,
        };
        let Some(choice) = chosen.map(Rc::new) else {
            self.lifecycle.step(Input::Unrouted);
            return Action::Continue;
        };
        let steer = self.with(|plugin| plugin.mode()) == Some(Mode::On);
        if steer && let Err(error) = self.name_choice(&choice) {
            self.count_host_error(error);
            self.lifecycle.step(Input::Unrouted);
            return Action::Continue;
        }
        let leg = Leg {
            endpoint: choice.endpoint,
            sent_ms: host::now_ms(),
        };
        if let Output::Start(leg) = self.lifecycle.step(Input::Routed(leg)) {
            self.with(|plugin| {
                plugin.started(Rc::clone(&choice), steer, leg.sent_ms);
                let us = host::now_ns().saturating_sub(now_ns) / 1000;
                plugin.metrics().decision_us.record(us);
            });
        }
        self.choice = Some(choice);
        Action::Continue
    }

    /// Names the choice to Envoy: in headers while they are held, in filter state once they have gone on.
    fn name_choice(&self, choice: &Choice) -> Result<(), HostError> {
        if self.hold_at == HoldAt::Body {
            if let Some(rank) = choice.rank {
                host::set_property(RANK_STATE, &rank.to_string())?;
            }
            return host::set_property(DESTINATION_STATE, &choice.destinations);
        }
        if let Some(rank) = choice.rank {
            host::set_header(Map::Request, RANK, &rank.to_string())?;
        }
        host::set_header(Map::Request, DESTINATION, &choice.destinations)
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
                let answer = Answer { finish, usage };
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
        let result = Self::remove_routing_headers().and_then(|()| self.routable(end_of_stream));
        self.api = result.unwrap_or_else(|error| {
            self.count_host_error(error);
            None
        });
        let known = self.api.is_some();
        match self.lifecycle.step(Input::Headers { known }) {
            Output::Hold if self.hold_at == HoldAt::Headers => Action::Pause,
            _ => Action::Continue,
        }
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.held_bytes = size;
        let limit = self.with(|plugin| plugin.max_body_bytes());
        if self.api.is_some() && limit.is_none_or(|limit| size > limit) {
            if self.lifecycle.step(Input::Unrouted) == Output::Pass {
                self.with(|plugin| plugin.metrics().decided(Reason::TooLarge));
            }
            return Action::Continue;
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
