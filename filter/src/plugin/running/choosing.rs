//! From a whole body to a choice of endpoints.

use std::cell::RefCell;
use std::rc::Weak;

use prefixway_core::admission::{Held, Refusal, Route, Verdict};
use prefixway_core::flow::Ticket;
use prefixway_core::load::RequestId;
use prefixway_core::mode::{Mode, session_of, session_of_prompt};
use prefixway_core::snapshot::{EndpointKey, PromptHashes};
use prefixway_core::view::{Chosen, NoText, Said};

use super::Running;
use crate::explain::explain;
use crate::http::Exchange;
use crate::metrics::{Metrics, Reason};

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The request's number in this VM.
    pub(crate) request: RequestId,
    /// What was decided, and by what; there is at least one endpoint.
    pub(crate) chosen: Chosen,
    /// Best endpoint.
    pub(crate) endpoint: EndpointKey,
    /// Its rank, for the header.
    pub(crate) rank: Option<u32>,
    /// Addresses to try, best first, separated by commas.
    pub(crate) destinations: String,
    /// Whether the answer is streamed: only then its first byte tells when prefill ended.
    pub(crate) is_streamed: bool,
    /// Whether cached tokens that are left out of the answer's usage can be said to be none.
    pub(crate) counts_cached: bool,
    /// For the response header, when that is allowed.
    pub(crate) explanation: Option<String>,
    /// Profile id of the model.
    pub(crate) model: String,
    /// Key of the session by the body: its `user`, or how its prompt begins.
    pub(crate) session: Option<u64>,
}

impl Choice {
    /// What decided.
    pub(crate) fn reason(&self) -> Reason {
        match self.chosen.no_text {
            Some(NoText::Unread(why)) => Reason::Unread(why),
            Some(NoText::Unscorable(_)) | None => Reason::View(self.chosen.decision.reason),
        }
    }
}

/// A request whose body is whole.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    /// What its headers make of it.
    pub(crate) held: &'a Held,
    /// Its body, as it came.
    pub(crate) body: &'a [u8],
    /// What its headers say of how it is to be served.
    pub(crate) said: &'a Said,
    /// What is done with decisions for it.
    pub(crate) mode: Mode,
    /// The exchange, to let it go on when it has waited.
    pub(crate) exchange: &'a Weak<RefCell<Exchange>>,
    /// Its number.
    pub(crate) context: u32,
}

/// What of a request matters once it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    is_streamed: bool,
    counts_cached: bool,
    model: String,
    /// Key of its session.
    pub(super) session: Option<u64>,
    is_explained: bool,
}

impl Traits {
    pub(super) fn of(route: &Route<'_>, prompts: &[PromptHashes], is_explained: bool) -> Self {
        let user = route.request.as_ref().ok();
        let user = user.and_then(|request| request.user.as_deref());
        Self {
            is_streamed: route.is_streamed(),
            counts_cached: route.counts_cached(),
            model: route.served.profile.id.clone(),
            session: user.map(session_of).or_else(|| session_of_prompt(prompts)),
            is_explained,
        }
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It goes to the chosen endpoint.
    Go(Box<Choice>),
    /// It passes, to whatever the proxy falls back on.
    Pass(Reason),
    /// It is refused, unless it has to pass.
    Refuse(Refusal),
    /// It waits for an endpoint.
    Wait(Ticket),
}

impl Running {
    /// Judges a request by its whole body, and chooses an endpoint for it.
    pub(crate) fn decide(
        &mut self,
        of: &Incoming<'_>,
        now_ns: u64,
        is_explained: bool,
        metrics: &Metrics,
    ) -> Fate {
        let opened = of.held.open(of.body);
        let opened = opened.as_ref().map(AsRef::as_ref).map_err(|why| *why);
        let now_ms = now_ns / 1_000_000;
        let route = match of
            .held
            .judge(opened, |model| self.view.lookup(model, now_ms))
        {
            Verdict::Route(route) => route,
            Verdict::Pass(cause) => return Fate::Pass(Reason::Amiss(cause)),
            Verdict::Refuse(refusal) => return Fate::Refuse(refusal),
        };
        let (prompters, view) = (&self.prompters, &self.view);
        let bytes = of.body.len() as u64;
        let request = RequestId(self.next_request);
        if let Some(flow) = view.flow_control() {
            let Some(prepared) = view.prepare(prompters, &route, bytes, of.said.clone(), now_ns)
            else {
                return Fate::Pass(Reason::NoSnapshot);
            };
            let traits = Traits::of(&route, prepared.prompts(), is_explained);
            self.next_request += 1;
            return self.admit(of, prepared, traits, request, &flow, now_ns, metrics);
        }
        let chosen = view.choose(prompters, &route, bytes, of.said.wishes(), now_ns);
        let Some(chosen) = chosen else {
            return Fate::Pass(Reason::NoSnapshot);
        };
        let traits = Traits::of(&route, &chosen.prompts, is_explained);
        let fate = self.settle_fate(of.held, chosen, traits, request, now_ns / 1_000_000);
        if let Fate::Go(_) = fate {
            self.next_request += 1;
        }
        fate
    }

    /// What becomes of a request of this number by its decision.
    pub(super) fn settle_fate(
        &self,
        held: &Held,
        chosen: Chosen,
        traits: Traits,
        request: RequestId,
        now_ms: u64,
    ) -> Fate {
        let is_current = self.view.knows_models(now_ms);
        if let Some(refusal) = held.place(&chosen.decision, &self.view.limits(), is_current) {
            return Fate::Refuse(refusal);
        }
        let choices = &chosen.decision.choices;
        let Some(best) = choices.first() else {
            return Fate::Pass(Reason::View(chosen.decision.reason));
        };
        let addresses: Vec<&str> = choices.iter().map(|c| c.address.as_str()).collect();
        Fate::Go(Box::new(Choice {
            request,
            endpoint: best.key,
            rank: best.rank,
            destinations: addresses.join(","),
            explanation: traits.is_explained.then(|| explain(&chosen)),
            is_streamed: traits.is_streamed,
            counts_cached: traits.counts_cached,
            model: traits.model,
            session: traits.session,
            chosen,
        }))
    }
}
