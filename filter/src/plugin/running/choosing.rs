//! From a whole body to a choice of endpoints.

use prefixway_core::admission::{Held, Refusal, Route, Verdict};
use prefixway_core::load::RequestId;
use prefixway_core::mode::{session_of, session_of_prompt};
use prefixway_core::snapshot::EndpointKey;
use prefixway_core::view::{Chosen, NoText, Said};

use super::Running;
use crate::explain::explain;
use crate::metrics::Reason;

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
}

impl Running {
    /// Judges a request by its whole body, and chooses an endpoint for it.
    pub(crate) fn decide(&mut self, of: &Incoming<'_>, now_ns: u64, explained: bool) -> Fate {
        let opened = of.held.open(of.body);
        let opened = opened.as_ref().map(AsRef::as_ref).map_err(|why| *why);
        let now_ms = now_ns / 1_000_000;
        match of
            .held
            .judge(opened, |model| self.view.lookup(model, now_ms))
        {
            Verdict::Route(route) => {
                let mut fate = self.choose(of, &route, now_ns, explained);
                if let Fate::Go(choice) = &mut fate {
                    choice.request = RequestId(self.next_request);
                    self.next_request += 1;
                }
                fate
            }
            Verdict::Pass(cause) => Fate::Pass(Reason::Amiss(cause)),
            Verdict::Refuse(refusal) => Fate::Refuse(refusal),
        }
    }

    /// Chooses an endpoint; the choice has no number yet.
    fn choose(&self, of: &Incoming<'_>, route: &Route<'_>, now_ns: u64, explained: bool) -> Fate {
        let (prompters, view) = (&self.prompters, &self.view);
        let (body_bytes, wishes) = (of.body.len() as u64, of.said.wishes());
        let Some(chosen) = view.choose(prompters, route, body_bytes, wishes, now_ns) else {
            return Fate::Pass(Reason::NoSnapshot);
        };
        let is_current = view.knows_models(now_ns / 1_000_000);
        if let Some(refusal) = of.held.place(&chosen.decision, &view.limits(), is_current) {
            return Fate::Refuse(refusal);
        }
        let choices = &chosen.decision.choices;
        let Some(best) = choices.first() else {
            return Fate::Pass(Reason::View(chosen.decision.reason));
        };
        let user = route.request.as_ref().ok();
        let user = user.and_then(|request| request.user.as_deref());
        let addresses: Vec<&str> = choices.iter().map(|c| c.address.as_str()).collect();
        Fate::Go(Box::new(Choice {
            request: RequestId(0),
            endpoint: best.key,
            rank: best.rank,
            destinations: addresses.join(","),
            explanation: explained.then(|| explain(&chosen)),
            is_streamed: route.is_streamed(),
            counts_cached: route.counts_cached(),
            model: route.served.profile.id.clone(),
            session: user
                .map(session_of)
                .or_else(|| session_of_prompt(&chosen.prompts)),
            chosen,
        }))
    }
}
