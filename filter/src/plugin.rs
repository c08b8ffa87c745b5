//! What all exchanges of one VM share: configuration, the routing view, prompters and streams.
//!
//! ```text
//!  Fresh ── first tick: names the gateway ──► Naming ── next tick: reads the name that won ──► Running
//! ```
//!
//! Nothing is set up when the plugin is configured, because Envoy also configures a VM that only proves the configuration and goes away.

mod holds;
mod running;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

pub(crate) use holds::Came;
pub(crate) use running::{Answer, Choice, Fate, Incoming, Running, Told};

use prefixway_core::admission::{FailureMode, Held, Refusal, Reply};
use prefixway_core::flow::Ticket;
use prefixway_core::load::{RequestId, orca};
use prefixway_core::mode::Mode;
use prefixway_core::proto::Policy;
use prefixway_core::shared::{SharedData, SharedError};
use prefixway_core::snapshot::EndpointKey;
use prefixway_core::view::{NoText, Said, ViewConfig};

use crate::config::{Config, HoldAt};
use crate::host::{self, Headers, HostError};
use crate::http::{self, Exchange, RouteSays};
use crate::metrics::{Dropped, Metrics, Reason};
use crate::shared::HostData;
use holds::Holds;

/// Key of the gateway's name, the same for all plugins and VMs of a proxy in one scope.
const GATEWAY_KEY: &str = "pw/1/gateway";

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Judged {
    /// Name the choice and let it go on.
    Go(Rc<Choice>),
    /// Let it go on as it is.
    Pass(Reason),
    /// Answer it.
    Reply(Reply, Reason),
    /// Hold it until it is resumed.
    Wait(Ticket),
}

/// A request that has waited and does so no more.
#[derive(Debug)]
pub(crate) struct Resumed {
    /// The exchange.
    pub(crate) exchange: Weak<RefCell<Exchange>>,
    /// Its number.
    pub(crate) context: u32,
    /// What to do with it.
    pub(crate) judged: Judged,
}

#[derive(Debug)]
enum State {
    Fresh {
        nonce: u64,
    },
    Naming {
        nonce: u64,
    },
    Running(Box<Running>),
    /// The host is done with the plugin: nothing is told to others any more.
    Ended,
}

/// One configured plugin in one VM.
#[derive(Debug)]
pub(crate) struct Plugin {
    config: Config,
    metrics: Metrics,
    data: HostData,
    holds: Holds,
    state: State,
}

impl Plugin {
    /// A plugin with nothing but its configuration.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            metrics: Metrics::define(),
            data: HostData::new(&config.scope),
            holds: Holds::default(),
            state: State::Fresh {
                nonce: host::now_ns(),
            },
            config,
        }
    }

    /// The plugin's metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts and logs a host call that failed.
    pub(crate) fn host_error(&self, error: HostError) {
        self.metrics.host_errors.count();
        log::debug!("host call failed: {error}");
    }

    /// The plugin at work, as it is.
    fn at_work(&self) -> Option<&Running> {
        match &self.state {
            State::Running(running) => Some(running),
            State::Fresh { .. } | State::Naming { .. } | State::Ended => None,
        }
    }

    fn policy(&self) -> Option<&Policy> {
        self.at_work()?.policy()
    }

    /// Whether nothing is done for any route.
    pub(crate) fn is_off(&self) -> bool {
        let is_off = |policy: &Policy| {
            policy.routes.is_empty() && Mode::of_policy(policy, None) == Mode::Off
        };
        self.config.mode == Mode::Off || self.policy().is_some_and(is_off)
    }

    /// Whether the policy has modes for single routes.
    pub(crate) fn names_routes(&self) -> bool {
        self.policy()
            .is_some_and(|policy| !policy.routes.is_empty())
    }

    /// The mode that configuration, route and policy allow.
    pub(crate) fn mode(&self, route: &RouteSays) -> Mode {
        let policy = self.policy();
        let of_policy = policy.map(|policy| Mode::of_policy(policy, route.name.as_deref()));
        let own = self.config.mode.and(route.mode);
        own.and(of_policy.unwrap_or(Mode::On))
    }

    /// What a request's headers say of how it is to be served.
    pub(crate) fn said(&self, headers: &Headers) -> Said {
        let running = self.at_work();
        running.map_or_else(Said::default, |running| running.said(headers))
    }

    /// Whether engines are asked for their load with each request.
    pub(crate) fn asks_load(&self) -> bool {
        self.policy().is_some_and(|policy| policy.orca)
    }

    /// Whether access logs are told of decisions.
    pub(crate) fn tells_logs(&self) -> bool {
        self.config.access_log
    }

    /// Whether both configuration and policy allow the explain header.
    fn may_explain(&self) -> bool {
        self.config.explain && self.policy().is_some_and(|policy| policy.explain)
    }

    /// Where requests are held.
    pub(crate) fn hold_at(&self) -> HoldAt {
        if self.holds.is_wrong() {
            HoldAt::Body
        } else {
            self.config.hold_at
        }
    }

    /// A request is held at its headers; gives whether it has to be watched.
    pub(crate) fn hold(&mut self, context: u32, now_ms: u64) -> bool {
        self.holds.hold(context, now_ms)
    }

    /// A piece of the body of a watched request came; gives whether the request is held still.
    pub(crate) fn body_came(&mut self, context: u32) -> bool {
        let came = self.holds.came(context);
        if came == Came::Held {
            return true;
        }
        self.metrics.decided(Reason::NotHeld);
        if came == Came::Proof {
            self.metrics.wrong_hold_vms.adjust(1);
            log::error!(
                "hold_at is \"headers\", but bodies don't come while headers are held here: set allow_on_headers_stop_iteration on the \
                 plugin (Envoy 1.35 or later), or hold_at \"body\" with the filters buffer and header_mutation behind this one; \
                 requests are held at their body from now on"
            );
        }
        false
    }

    /// A watched request is over.
    pub(crate) fn hold_ended(&mut self, context: u32) {
        self.holds.ended(context);
    }

    /// Longest request body that is read.
    pub(crate) fn max_body_bytes(&self) -> usize {
        match self.policy().map(|policy| policy.max_body_bytes as usize) {
            None | Some(0) => self.config.max_body_bytes,
            Some(bytes) => bytes.min(self.config.max_body_bytes),
        }
    }

    /// Judges a request by its whole body, and chooses an endpoint for it.
    pub(crate) fn decide(&mut self, of: &Incoming<'_>, now_ns: u64) -> Judged {
        let explain = self.may_explain();
        let fate = match self.running() {
            Some((running, metrics)) => running.decide(of, now_ns, explain, metrics),
            None => Fate::Pass(Reason::NoSnapshot),
        };
        self.judge(fate, of.held, of.mode)
    }

    /// Requests that have waited and do so no more.
    pub(crate) fn resume(&mut self, now_ns: u64) -> Vec<Resumed> {
        let resumed = match self.running() {
            Some((running, metrics)) => running.resume(now_ns, metrics),
            None => Vec::new(),
        };
        let judged = resumed.into_iter().map(|(of, fate)| Resumed {
            judged: self.judge(fate, &of.held, of.mode),
            exchange: of.exchange,
            context: of.context,
        });
        judged.collect()
    }

    /// The client of a waiting request has left.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if let Some((running, metrics)) = self.running() {
            running.leave(ticket, metrics);
        }
    }

    /// What was booked for a request that is not sent.
    pub(crate) fn release(&mut self, request: RequestId) {
        if let Some((running, _)) = self.running() {
            running.release(request);
        }
    }

    /// What to do with a request, by its fate.
    fn judge(&self, fate: Fate, held: &Held, mode: Mode) -> Judged {
        match fate {
            Fate::Wait(ticket) => Judged::Wait(ticket),
            Fate::Go(choice) => {
                self.count(&choice);
                Judged::Go(Rc::from(choice))
            }
            Fate::Pass(reason) => {
                // Without a policy nothing is known that could be amiss with a model.
                let is_unsaid = matches!(reason, Reason::Amiss(_)) && self.policy().is_none();
                if is_unsaid || reason == Reason::NoSnapshot {
                    return self.unknown(held, Reason::NoSnapshot, mode);
                }
                self.metrics.decided(reason);
                Judged::Pass(reason)
            }
            Fate::Refuse(refusal) => {
                let reason = Reason::of(refusal.cause());
                match self.refuse(&refusal, mode) {
                    Some(reply) => Judged::Reply(reply, reason),
                    None => Judged::Pass(reason),
                }
            }
        }
    }

    /// Judges a request whose body the host does not give.
    pub(crate) fn unread(&self, held: Option<&Held>, mode: Mode) -> Judged {
        if let Some(held) = held {
            return self.unknown(held, Reason::HostError, mode);
        }
        self.metrics.decided(Reason::HostError);
        Judged::Pass(Reason::HostError)
    }

    /// What becomes of a request that nothing is known for.
    fn unknown(&self, held: &Held, reason: Reason, mode: Mode) -> Judged {
        self.metrics.decided(reason);
        let of_policy = || FailureMode::from_name(&self.policy()?.failure_mode);
        let told = http::failure_mode().or_else(of_policy);
        match told.unwrap_or(self.config.failure_mode) {
            FailureMode::Closed if mode == Mode::On => {
                let reply = held.unknown().reply();
                self.metrics.rejected(reply.status);
                Judged::Reply(reply, reason)
            }
            FailureMode::Closed | FailureMode::Open => Judged::Pass(reason),
        }
    }

    fn count(&self, choice: &Choice) {
        if let Some(NoText::Unscorable(why)) = choice.chosen.no_text {
            self.metrics.unscorable(why);
        }
        self.metrics.decided(choice.reason());
    }

    /// Counts a request that is to be refused, and gives the answer. `None`: it has to pass, because the filter doesn't steer, the engines
    /// are to answer, or nothing is known yet of how things are to be.
    pub(crate) fn refuse(&self, refusal: &Refusal, mode: Mode) -> Option<Reply> {
        self.metrics.decided(Reason::of(refusal.cause()));
        let policy = self.policy()?;
        // Whoever is at fault: where engines are to answer bad requests, there is still none to send others to.
        let is_wanted =
            !refusal.cause().is_of_client() || policy.reject_bad_requests.unwrap_or(true);
        let may_refuse = mode == Mode::On && is_wanted;
        may_refuse.then(|| {
            let reply = refusal.reply();
            self.metrics.rejected(reply.status);
            self.metrics.dropped(Dropped::Refused(refusal.cause()));
            reply
        })
    }

    /// The plugin at work, with everything counted that has gone on.
    fn running(&mut self) -> Option<(&mut Running, &Metrics)> {
        match &mut self.state {
            State::Running(running) => {
                running.settle(&self.metrics);
                Some((running, &self.metrics))
            }
            State::Fresh { .. } | State::Naming { .. } | State::Ended => None,
        }
    }

    /// A decision was carried out: the request counts as load from now on. Only a steered one tells where its prompt will be cached.
    pub(crate) fn started(&mut self, choice: Rc<Choice>, is_steered: bool, now_ms: u64) {
        if let State::Running(running) = &mut self.state {
            running.started(choice, is_steered, now_ms);
        }
    }

    /// The endpoint with this address, of this rank if there is such a one.
    pub(crate) fn endpoint(&self, address: &str, rank: Option<u32>) -> Option<EndpointKey> {
        self.at_work()?.endpoint(address, rank)
    }

    /// Another endpoint serves the request than was chosen.
    pub(crate) fn moved(&mut self, choice: &Choice, endpoint: EndpointKey, now_ms: u64) {
        if let Some((running, _)) = self.running() {
            running.moved(choice, endpoint, now_ms);
        }
    }

    /// The host is done with the plugin: what it holds among the other VMs is given up at once.
    pub(crate) fn end(&mut self, now_ms: u64) {
        if let Some((running, metrics)) = self.running() {
            running.end(now_ms, metrics);
        }
        self.state = State::Ended;
    }

    /// A steered request is answered, by the first choice or not.
    pub(crate) fn obeyed(&mut self, is_obeyed: bool) {
        if let Some((running, metrics)) = self.running() {
            running.obeyed(is_obeyed, metrics);
        }
    }

    /// An engine said how busy it is.
    pub(crate) fn reported(&mut self, endpoint: EndpointKey, report: orca::Report, now_ms: u64) {
        if let Some((running, _)) = self.running() {
            running.reported(endpoint, report, now_ms);
        }
    }

    /// The first byte of the answer came.
    pub(crate) fn first_byte(&mut self, choice: &Choice, now_ms: u64) {
        if let Some((running, _)) = self.running() {
            running.first_byte(choice, now_ms);
        }
    }

    /// The exchange is over.
    pub(crate) fn finished(&mut self, choice: &Choice, answer: &Answer<'_>, now_ms: u64) {
        if let Some((running, metrics)) = self.running() {
            running.finished(choice, answer, now_ms, metrics);
        }
    }

    /// Periodic work; bounded. Gives the contexts of held requests that have to be let go.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<u32> {
        let released = self.holds.tick(now_ms);
        let count = u32::try_from(released.len()).unwrap_or(u32::MAX);
        self.metrics.hold_timeouts.add(count);
        match &mut self.state {
            State::Fresh { nonce } => {
                // The times of configuration and of the first tick together differ from VM to VM.
                let nonce = nonce.rotate_left(24) ^ host::now_ns();
                match name_gateway(&self.data, nonce) {
                    Ok(()) => self.state = State::Naming { nonce },
                    Err(_) => self.metrics.host_errors.count(),
                }
            }
            State::Naming { nonce } => match self.data.get(GATEWAY_KEY) {
                Ok(Some((name, _))) => {
                    let view = ViewConfig {
                        indexers: self.config.indexers.clone(),
                        pools: self.config.pools.clone(),
                        gateway: String::from_utf8_lossy(&name).into_owned(),
                        nonce: *nonce,
                        max_bytes: self.config.max_vm_bytes,
                        registry: crate::registry(),
                    };
                    let running = Running::new(&view, self.data.clone(), self.config.audit);
                    self.state = State::Running(Box::new(running));
                }
                Ok(None) => self.state = State::Fresh { nonce: *nonce },
                Err(_) => self.metrics.host_errors.count(),
            },
            State::Running(running) => {
                running.settle(&self.metrics);
                running.tick(now_ms, &self.metrics);
            }
            State::Ended => {}
        }
        released
    }

    /// A message came on a stream.
    pub(crate) fn message(&mut self, token: u32, size: usize, now_ms: u64) {
        if let Some((running, metrics)) = self.running() {
            running.message(token, size, now_ms, metrics);
        }
    }

    /// A stream ended.
    pub(crate) fn stream_ended(&mut self, token: u32, status: u32, now_ms: u64) {
        if let Some((running, metrics)) = self.running() {
            running.stream_ended(token, status, now_ms, metrics);
        }
    }
}

/// Names the gateway where nobody did. VMs may write at once; the last one's name is what all of them read one tick later.
fn name_gateway(data: &HostData, nonce: u64) -> Result<(), SharedError> {
    match data.get(GATEWAY_KEY)? {
        Some(_) => Ok(()),
        None => data.set(GATEWAY_KEY, format!("{nonce:016x}").as_bytes(), None),
    }
}
