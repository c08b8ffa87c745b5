//! One HTTP exchange: holds the request until its body is whole, has it decided, and watches the answer pass.

mod fields;
mod head;
mod orca;
mod route;
mod shell;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use prefixway_core::admission::{AtHead, Held, Refusal, Reply};
use prefixway_core::flow::Ticket;
use prefixway_core::lifecycle::{Input, Leg, Lifecycle, Output, Tail, is_readable};
use prefixway_core::mode::Mode;
use prefixway_core::snapshot::EndpointKey;
use prefixway_core::view::Said;
use proxy_wasm::types::Action;

use crate::config::HoldAt;
use crate::host::{self, Buffer, Headers, HostError, Map};
use crate::plugin::{Answer, Choice, Incoming, Judged, Plugin, Told};
use orca::Asked;

pub(crate) use route::{RouteSays, failure_mode};
pub(crate) use shell::HttpFilter;

/// Why a request went where it went, on the response; off by default.
pub(crate) const EXPLAIN: &str = "x-prefixway-decision";

/// What Envoy's access log says of an answer of ours.
const DETAILS: &str = "prefixway_refused";

/// One exchange.
pub(crate) struct Exchange {
    /// Itself, for those who let it go on when it has waited.
    me: Weak<RefCell<Self>>,
    context: u32,
    plugin: Rc<RefCell<Plugin>>,
    hold_at: HoldAt,
    /// Its number, while it has to be told when the body comes.
    watched: Option<u32>,
    tells_logs: bool,
    lifecycle: Lifecycle<EndpointKey>,
    /// What is held, as long as nothing is decided.
    held: Option<Held>,
    held_bytes: usize,
    /// Its place among those that wait for an endpoint.
    waits: Option<Ticket>,
    choice: Option<Rc<Choice>>,
    told: Told,
    /// What its headers say of how it is to be served.
    said: Said,
    /// Who asked the engine for its load.
    asked: Asked,
    /// End of the answer, where it can be read.
    tail: Option<Tail>,
    status: Option<u16>,
    is_whole: bool,
}

impl Exchange {
    fn new(me: Weak<RefCell<Self>>, context: u32, plugin: Rc<RefCell<Plugin>>) -> Self {
        let settings = plugin
            .try_borrow()
            .map(|plugin| (plugin.hold_at(), plugin.tells_logs()));
        let (hold_at, tells_logs) = settings.unwrap_or((HoldAt::Headers, false));
        Self {
            me,
            context,
            plugin,
            hold_at,
            watched: None,
            tells_logs,
            lifecycle: Lifecycle::default(),
            held: None,
            held_bytes: 0,
            waits: None,
            choice: None,
            told: Told::default(),
            said: Said::default(),
            asked: Asked::No,
            tail: None,
            status: None,
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
    fn at_head(&mut self, end_of_stream: bool) -> Result<AtHead, HostError> {
        let headers = head::read()?;
        let settings = self.with(|plugin| {
            let is_off = plugin.is_off();
            (!is_off).then(|| (plugin.max_body_bytes(), plugin.names_routes()))
        });
        let Some((max_body_bytes, names_routes)) = settings.flatten() else {
            return Ok(AtHead::Pass);
        };
        let at_head = head::admit(&headers, end_of_stream, max_body_bytes);
        if at_head == AtHead::Pass {
            return Ok(at_head);
        }
        let says = route::read(names_routes);
        self.told.mode = self.with(|plugin| plugin.mode(&says)).unwrap_or(Mode::Off);
        self.told.route = says.name;
        match (self.told.mode, &at_head) {
            (Mode::Off, _) => return Ok(AtHead::Pass),
            (_, AtHead::Hold(_)) => self.prepare(&headers)?,
            _ => {}
        }
        Ok(at_head)
    }

    /// What has to be read and written while the headers are at hand.
    fn prepare(&mut self, headers: &Headers) -> Result<(), HostError> {
        let settings = self.with(|plugin| (plugin.said(headers), plugin.asks_load()));
        let (said, asks_load) = settings.unwrap_or_default();
        self.said = said;
        if asks_load {
            self.asked = orca::ask(headers)?;
        }
        Ok(())
    }

    /// Tells access logs something, where they are to be told.
    fn tell(&self, tell: impl FnOnce() -> Result<(), HostError>) {
        if self.tells_logs
            && let Err(error) = tell()
        {
            self.count_host_error(error);
        }
    }

    /// Refuses a request, or lets it pass where it is not for us to refuse it.
    fn refuse(&mut self, refusal: &Refusal) -> Action {
        self.tell(|| fields::reason(refusal.cause().as_str()));
        let mode = self.told.mode;
        match self.with(|plugin| plugin.refuse(refusal, mode)).flatten() {
            Some(reply) => self.answer(&reply),
            None => Action::Continue,
        }
    }

    /// Answers a request in the engine's place.
    fn answer(&mut self, reply: &Reply) -> Action {
        let headers: Vec<(&str, &str)> = reply
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_ref()))
            .collect();
        match host::reply(reply.status, &headers, &reply.body, DETAILS) {
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
        let mode = self.told.mode;
        let judged = match (self.held.take(), self.body()) {
            (Some(held), Ok(body)) => {
                let of = Incoming {
                    held: &held,
                    body: &body,
                    said: &self.said,
                    mode,
                    exchange: &self.me,
                    context: self.context,
                };
                self.with(|plugin| plugin.decide(&of, now_ns))
            }
            (held, Err(error)) => {
                self.count_host_error(error);
                self.with(|plugin| plugin.unread(held.as_ref(), mode))
            }
            (None, _) => None,
        };
        match judged {
            Some(Judged::Wait(ticket)) => {
                self.waits = Some(ticket);
                Action::Pause
            }
            judged => self.carry_out(judged, now_ns),
        }
    }

    /// The request has waited long enough, for better or worse: calls are made for it now.
    pub(crate) fn resume(&mut self, judged: Judged, now_ns: u64) {
        self.waits = None;
        if self.carry_out(Some(judged), now_ns) == Action::Continue
            && let Err(error) = host::continue_request()
        {
            self.count_host_error(error);
        }
    }

    /// Does what a request was judged to.
    fn carry_out(&mut self, judged: Option<Judged>, now_ns: u64) -> Action {
        match judged {
            Some(Judged::Go(choice)) => self.steer(choice, now_ns),
            Some(Judged::Reply(reply, reason)) => {
                self.tell(|| fields::reason(reason.as_str()));
                self.lifecycle.step(Input::Unrouted);
                self.answer(&reply)
            }
            Some(Judged::Pass(reason)) => {
                self.tell(|| fields::reason(reason.as_str()));
                self.lifecycle.step(Input::Unrouted);
                Action::Continue
            }
            Some(Judged::Wait(_)) | None => {
                self.lifecycle.step(Input::Unrouted);
                Action::Continue
            }
        }
    }

    /// Lets a request go on to its choice.
    fn steer(&mut self, choice: Rc<Choice>, decided_ns: u64) -> Action {
        let session = self.said.session.or(choice.session).unwrap_or(decided_ns);
        let (mode, arm) = (self.told.mode, self.told.mode.arm(session));
        let steers = mode.steers(session);
        if steers && let Err(error) = head::name_choice(&choice, self.hold_at) {
            self.count_host_error(error);
            self.with(|plugin| plugin.release(choice.request));
            self.lifecycle.step(Input::Unrouted);
            return Action::Continue;
        }
        self.told.arm = arm;
        self.told.is_steered = steers;
        self.told.decided_ms = decided_ns / 1_000_000;
        self.tell(|| {
            fields::reason(choice.reason().as_str())?;
            fields::choice(&choice, mode, arm)
        });
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
                self.with(|plugin| plugin.moved(choice, endpoint, host::now_ms()));
            }
            Output::Prefilled => {
                self.with(|plugin| plugin.first_byte(choice, host::now_ms()));
            }
            Output::Finish(finish) => {
                let usage = self.tail.as_ref().and_then(Tail::usage);
                let answer = Answer {
                    finish,
                    usage,
                    status: self.status,
                    told: &self.told,
                };
                self.with(|plugin| plugin.finished(choice, &answer, host::now_ms()));
            }
            Output::Nothing | Output::Pass | Output::Hold | Output::Decide | Output::Start(_) => {}
        }
    }

    fn end(&mut self) {
        // Clients close the connection when they have seen a stream's last event.
        let is_whole = self.is_whole || self.tail.as_ref().is_some_and(Tail::has_end_mark);
        let output = self.lifecycle.step(Input::Ended {
            complete: self.is_success() && is_whole,
        });
        self.apply(output);
    }

    fn is_success(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }

    /// Reads what the response's head says.
    fn watch_answer(&mut self, headers: &Headers) -> Result<(), HostError> {
        let status = headers.get(":status");
        self.status = status.and_then(|status| status.parse().ok());
        let is_encoded = headers.has("content-encoding");
        let content_type = headers.get("content-type");
        let is_readable = !is_encoded && content_type.is_none_or(is_readable);
        self.tail = (self.is_success() && is_readable).then(Tail::default);
        let mut server = self.choice.as_ref().map(|choice| choice.endpoint);
        if let Some(address) = host::property(&["upstream", "address"])? {
            let rank = self.choice.as_ref().and_then(|choice| choice.rank);
            let served = core::str::from_utf8(&address).ok();
            let endpoint = self.with(|plugin| plugin.endpoint(served?, rank)).flatten();
            if self.told.is_steered {
                let is_obeyed = endpoint.is_some() && endpoint == server;
                self.with(|plugin| plugin.obeyed(is_obeyed));
            }
            self.told.is_stranger = endpoint.is_none();
            server = endpoint;
            if let Some(endpoint) = endpoint {
                let output = self.lifecycle.step(Input::Served { endpoint });
                self.apply(output);
            }
        }
        if let (Some(report), Some(server)) = (self.told.report, server) {
            self.with(|plugin| plugin.reported(server, report, host::now_ms()));
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
        match &mut self.tail {
            Some(tail) => tail.take(size, |start, max| {
                host::buffer(Buffer::ResponseBody, start, max)
            }),
            None => Ok(()),
        }
    }

    /// A piece of the request's body came, or its trailers; gives whether the request is held still.
    fn is_held(&mut self) -> bool {
        let Some(context) = self.watched.take() else {
            return true;
        };
        let is_held = self
            .with(|plugin| plugin.body_came(context))
            .unwrap_or(true);
        if !is_held {
            self.held = None;
            self.lifecycle.step(Input::Unrouted);
        }
        is_held
    }

    /// The answer is whole: its end says how many tokens there were.
    fn answered(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
        if let Some(usage) = self
            .tail
            .as_ref()
            .filter(|_| is_whole)
            .and_then(Tail::usage)
        {
            self.tell(|| fields::usage(usage));
        }
    }
}

/// The host's callbacks.
impl Exchange {
    fn done(&mut self) {
        if let Some(context) = self.watched.take() {
            self.with(|plugin| plugin.hold_ended(context));
        }
        if let Some(ticket) = self.waits.take() {
            self.with(|plugin| plugin.leave(ticket));
        }
        self.end();
    }

    fn request_headers(&mut self, end_of_stream: bool) -> Action {
        let at_head = self.at_head(end_of_stream).unwrap_or_else(|error| {
            self.count_host_error(error);
            AtHead::Pass
        });
        if let AtHead::Hold(held) = at_head {
            self.held = Some(held);
        }
        let known = self.held.is_some();
        match (self.lifecycle.step(Input::Headers { known }), at_head) {
            (Output::Hold, _) if self.hold_at == HoldAt::Headers => {
                let (context, now_ms) = (self.context, host::now_ms());
                let watched = self.with(|plugin| plugin.hold(context, now_ms));
                self.watched = watched.unwrap_or(false).then_some(context);
                Action::Pause
            }
            (_, AtHead::Refuse(refusal)) => self.refuse(&refusal),
            _ => Action::Continue,
        }
    }

    fn request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if !self.is_held() {
            return Action::Continue;
        }
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

    fn request_trailers(&mut self) -> Action {
        if !self.is_held() {
            return Action::Continue;
        }
        match self.lifecycle.step(Input::Body { end: true }) {
            Output::Decide => self.decide(),
            _ => Action::Continue,
        }
    }

    fn response_headers(&mut self, end_of_stream: bool) {
        let is_in_flight = self.lifecycle.is_in_flight();
        if !is_in_flight && self.asked == Asked::No {
            return;
        }
        let headers = host::headers(Map::Response).unwrap_or_else(|error| {
            self.count_host_error(error);
            Headers::default()
        });
        match orca::answer(self.asked, &headers) {
            Ok(report) => self.told.report = report,
            Err(error) => self.count_host_error(error),
        }
        if is_in_flight {
            if let Err(error) = self.watch_answer(&headers) {
                self.count_host_error(error);
            }
            self.is_whole = end_of_stream;
        }
    }

    fn response_body(&mut self, size: usize, end_of_stream: bool) {
        if self.lifecycle.is_in_flight() {
            if let Err(error) = self.watch_piece(size) {
                self.count_host_error(error);
            }
            self.answered(end_of_stream);
        }
    }

    fn response_trailers(&mut self) {
        self.answered(true);
    }
}
