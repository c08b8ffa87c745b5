//! What all exchanges of one VM share: configuration, the routing view, prompters and streams.
//!
//! ```text
//!  Fresh ── first tick: names the gateway ──► Naming ── next tick: reads the name that won ──► Running
//! ```
//!
//! Nothing is set up when the plugin is configured, because Envoy also configures a VM that only proves the configuration and goes away.

mod running;

use std::rc::Rc;

pub(crate) use running::{Answer, Choice, Fate, Running, Told};

use prefixway_core::admission::{Held, Refusal, Reply};
use prefixway_core::proto::Policy;
use prefixway_core::shared::{SharedData, SharedError};
use prefixway_core::snapshot::EndpointKey;
use prefixway_core::view::{NoText, ViewConfig};

use crate::config::{Config, HoldAt, Mode};
use crate::host::{self, HostError};
use crate::metrics::{Metrics, Reason};
use crate::shared::HostData;

/// Key of the gateway's name, the same for all plugins and VMs of a proxy in one scope.
const GATEWAY_KEY: &str = "pw/1/gateway";

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Judged {
    /// Name the choice and let it go on.
    Go(Choice),
    /// Let it go on as it is.
    Pass,
    /// Answer it.
    Reply(Reply),
}

#[derive(Debug)]
enum State {
    Fresh { nonce: u64 },
    Naming { nonce: u64 },
    Running(Box<Running>),
}

/// One configured plugin in one VM.
#[derive(Debug)]
pub(crate) struct Plugin {
    config: Config,
    metrics: Metrics,
    data: HostData,
    state: State,
}

impl Plugin {
    /// A plugin with nothing but its configuration.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            metrics: Metrics::define(),
            data: HostData::new(&config.scope),
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

    fn policy(&self) -> Option<&Policy> {
        match &self.state {
            State::Running(running) => running.policy(),
            State::Fresh { .. } | State::Naming { .. } => None,
        }
    }

    /// The mode that configuration and policy allow.
    pub(crate) fn mode(&self) -> Mode {
        let policy = self
            .policy()
            .and_then(|policy| Mode::from_name(&policy.mode));
        self.config.mode.and(policy.unwrap_or(Mode::On))
    }

    /// Whether both configuration and policy allow the explain header.
    fn may_explain(&self) -> bool {
        self.config.explain && self.policy().is_some_and(|policy| policy.explain)
    }

    /// Where requests are held.
    pub(crate) fn hold_at(&self) -> HoldAt {
        self.config.hold_at
    }

    /// Longest request body that is read.
    pub(crate) fn max_body_bytes(&self) -> usize {
        match self.policy().map(|policy| policy.max_body_bytes as usize) {
            None | Some(0) => self.config.max_body_bytes,
            Some(bytes) => bytes.min(self.config.max_body_bytes),
        }
    }

    /// Judges a request by its whole body, and chooses an endpoint for it.
    pub(crate) fn decide(&mut self, held: &Held, body: &[u8], now_ns: u64) -> Judged {
        let explain = self.may_explain();
        let fate = match &mut self.state {
            State::Running(running) => {
                running.settle(&self.metrics);
                running.decide(held, body, now_ns, explain)
            }
            State::Fresh { .. } | State::Naming { .. } => Fate::Pass(Reason::NoSnapshot),
        };
        match fate {
            Fate::Go(choice) => {
                self.count(&choice);
                Judged::Go(*choice)
            }
            // Without a policy nothing is known that could be amiss with a model.
            Fate::Pass(Reason::Amiss(_)) if self.policy().is_none() => {
                self.metrics.decided(Reason::NoSnapshot);
                Judged::Pass
            }
            Fate::Pass(reason) => {
                self.metrics.decided(reason);
                Judged::Pass
            }
            Fate::Refuse(refusal) => match self.refuse(&refusal) {
                Some(reply) => Judged::Reply(reply),
                None => Judged::Pass,
            },
        }
    }

    fn count(&self, choice: &Choice) {
        let reason = match choice.chosen.no_text {
            Some(NoText::Unread(why)) => Reason::Unread(why),
            Some(NoText::Unscorable(why)) => {
                self.metrics.unscorable(why);
                Reason::View(choice.chosen.decision.reason)
            }
            None => Reason::View(choice.chosen.decision.reason),
        };
        self.metrics.decided(reason);
    }

    /// Counts a request that is to be refused, and gives the answer. `None`: it has to pass, because the filter doesn't steer, the engines
    /// are to answer, or nothing is known yet of how things are to be.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Option<Reply> {
        self.metrics.decided(Reason::Amiss(refusal.cause()));
        let policy = self.policy()?;
        let may_refuse = self.mode() == Mode::On && policy.reject_bad_requests.unwrap_or(true);
        may_refuse.then(|| {
            let reply = refusal.reply();
            self.metrics.rejected(reply.status);
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
            State::Fresh { .. } | State::Naming { .. } => None,
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
        match &self.state {
            State::Running(running) => running.endpoint(address, rank),
            State::Fresh { .. } | State::Naming { .. } => None,
        }
    }

    /// Another endpoint serves the request than was chosen.
    pub(crate) fn moved(&mut self, choice: &Choice, endpoint: EndpointKey) {
        if let Some((running, _)) = self.running() {
            running.moved(choice, endpoint);
        }
    }

    /// The first byte of the answer came.
    pub(crate) fn first_byte(&mut self, choice: &Choice, now_ms: u64) {
        if let Some((running, _)) = self.running() {
            running.first_byte(choice, now_ms);
        }
    }

    /// The exchange is over.
    pub(crate) fn finished(&mut self, choice: &Choice, answer: &Answer, now_ms: u64) {
        if let Some((running, metrics)) = self.running() {
            running.finished(choice, answer, now_ms, metrics);
        }
    }

    /// Periodic work; bounded.
    pub(crate) fn tick(&mut self, now_ms: u64) {
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
                    };
                    self.state = State::Running(Box::new(Running::new(&view, self.data.clone())));
                }
                Ok(None) => self.state = State::Fresh { nonce: *nonce },
                Err(_) => self.metrics.host_errors.count(),
            },
            State::Running(running) => {
                running.settle(&self.metrics);
                running.tick(now_ms, &self.metrics);
            }
        }
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
