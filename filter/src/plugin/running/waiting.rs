//! Requests that wait for an endpoint, where the policy has flow control.
//!
//! ```text
//!  admit ─► a slot is booked at once ─► Go
//!    └────► Gate ── tick: resume ─► Go, or a refusal when it took too long
//!                └─ leave
//! ```

use std::cell::RefCell;
use std::rc::Weak;

use prefixway_core::admission::Held;
use prefixway_core::flow::{FlowControl, Ticket};
use prefixway_core::load::RequestId;
use prefixway_core::mode::Mode;
use prefixway_core::view::{Handed, Parked, Prepared};

use super::Running;
use super::choosing::{Fate, Incoming, Traits};
use crate::http::Exchange;
use crate::metrics::{Dropped, Metrics};

/// What a waiting request needs to go on.
#[derive(Debug)]
pub(crate) struct Paused {
    /// The exchange.
    pub(crate) exchange: Weak<RefCell<Exchange>>,
    /// Its number.
    pub(crate) context: u32,
    /// What its headers make of it.
    pub(crate) held: Held,
    /// What is done with decisions for it.
    pub(crate) mode: Mode,
    traits: Traits,
}

impl Running {
    /// Lets a request go on at once where an endpoint takes it and none waits that came before it; otherwise it waits.
    #[expect(
        clippy::too_many_arguments,
        reason = "what is known of a request, and what it needs"
    )]
    pub(super) fn admit(
        &mut self,
        of: &Incoming<'_>,
        prepared: Prepared,
        mut traits: Traits,
        request: RequestId,
        flow: &FlowControl,
        now_ns: u64,
        metrics: &Metrics,
    ) -> Fate {
        let now_ms = now_ns / 1_000_000;
        let session = of.said.session.or(traits.session).unwrap_or(now_ns);
        traits.session = Some(session);
        if !of.mode.steers(session) {
            // Where it goes is not ours to say, so it makes no sense to hold it up.
            let decision = self.view.decide_prepared(&prepared, now_ns);
            let chosen = prepared.chosen(decision);
            return self.settle_fate(of.held, chosen, traits, request, now_ms);
        }
        let bytes = of.body.len() as u64;
        if self.gate.admits(bytes, flow).is_err() {
            return Fate::Refuse(of.held.full(&self.view.limits()));
        }
        let arrival = prepared.arrival(bytes, now_ms);
        let is_first = !self.gate.has(arrival.lane);
        let context = Paused {
            exchange: Weak::clone(of.exchange),
            context: of.context,
            held: *of.held,
            mode: of.mode,
            traits,
        };
        let parked = Parked {
            request,
            prepared,
            context,
        };
        let ticket = self.gate.park(arrival, flow, parked);
        if is_first {
            self.hand_out(now_ns, metrics);
            let place = self.handed.iter().position(|of| of.ticket == ticket);
            if let Some(handed) = place.map(|place| self.handed.swap_remove(place)) {
                return self.go_on(handed, now_ms).1;
            }
        }
        if bytes > flow.max_waiting_bytes {
            self.gate.leave(ticket);
            return Fate::Refuse(of.held.full(&self.view.limits()));
        }
        self.view.tell_waiting(&self.gate);
        Fate::Wait(ticket)
    }

    /// Gives slots to those that are next; they go on with the next tick.
    fn hand_out(&mut self, now_ns: u64, metrics: &Metrics) {
        match self.view.hand_out(&mut self.gate, now_ns, &self.data) {
            Ok(handed) => self.handed.extend(handed.into_iter().flatten()),
            Err(error) => {
                metrics.host_errors.count();
                log::debug!("shared data: {error}");
            }
        }
    }

    /// Requests that wait no more, with what becomes of them.
    pub(crate) fn resume(&mut self, now_ns: u64, metrics: &Metrics) -> Vec<(Paused, Fate)> {
        if self.gate.is_empty() && self.handed.is_empty() {
            return Vec::new();
        }
        let now_ms = now_ns / 1_000_000;
        let mut resumed = Vec::new();
        if self.view.flow_control().is_none() {
            // The policy has changed: nobody waits any more.
            for parked in self.gate.drain() {
                let decision = self.view.decide_prepared(&parked.prepared, now_ns);
                let chosen = parked.prepared.chosen(decision);
                let Paused { held, traits, .. } = &parked.context;
                let fate = self.settle_fate(held, chosen, traits.clone(), parked.request, now_ms);
                resumed.push((parked.context, fate));
            }
        }
        self.hand_out(now_ns, metrics);
        for handed in core::mem::take(&mut self.handed) {
            metrics.wait_ms.record(handed.waited_ms);
            resumed.push(self.go_on(handed, now_ms));
        }
        let limits = self.view.limits();
        while let Some((paused, waited_ms)) = self.gate.expire(now_ms) {
            metrics.wait_ms.record(waited_ms);
            let fate = Fate::Refuse(paused.held.timed_out(&limits, waited_ms));
            resumed.push((paused, fate));
        }
        self.view.tell_waiting(&self.gate);
        resumed
    }

    /// What becomes of a request that was given a slot.
    fn go_on(&mut self, handed: Handed<Paused>, now_ms: u64) -> (Paused, Fate) {
        let Handed {
            request,
            chosen,
            context,
            ..
        } = handed;
        let traits = context.traits.clone();
        let fate = self.settle_fate(&context.held, chosen, traits, request, now_ms);
        if !matches!(fate, Fate::Go(_)) {
            self.view.release(request);
        }
        (context, fate)
    }

    /// The client of a waiting request has left.
    pub(crate) fn leave(&mut self, ticket: Ticket, metrics: &Metrics) {
        if self.gate.leave(ticket).is_some() {
            metrics.dropped(Dropped::ClientGone);
        } else if let Some(place) = self.handed.iter().position(|of| of.ticket == ticket) {
            let handed = self.handed.swap_remove(place);
            self.view.release(handed.request);
            metrics.dropped(Dropped::ClientGone);
        }
        self.view.tell_waiting(&self.gate);
    }

    /// Gives up what was booked for a request that is not sent.
    pub(crate) fn release(&mut self, request: RequestId) {
        self.view.release(request);
    }
}
