//! Requests that wait until an endpoint takes them: how a VM hands out slots without another VM handing out the same ones.
//!
//! ```text
//!  park ─► Gate ─ hand_out: take the turn ─► read the other VMs' records ─► decide, book ─► write the record ─► give the turn back ─► Handed
//!            └─── expire, leave: out of the queue                                              └─ it had run out: all back as it was
//! ```
//!
//! What is booked counts as in flight from then on; [`RoutingView::commit`] tells others the rest once the request is sent.

use hashbrown::{HashMap, HashSet};

use super::{Chosen, Decision, RoutingView, choose::Prepared, decide::to_choices};
use crate::{
    admission::Limits,
    flow::{
        Arrival, Fair, FlowControl, Head, NoRoom, Pass, Patience, Queue, Ticket, Turn, Waiting,
    },
    load::RequestId,
    shared::{Keys, SharedData, SharedError},
    snapshot::EndpointKey,
};

/// Most requests that go on in one pass: resuming them must not hold up those that come.
const MAX_HANDED: usize = 64;

/// A waiting request, and what its VM needs to let it go on.
#[derive(Debug)]
pub struct Parked<C> {
    /// Its number.
    pub request: RequestId,
    /// What is asked for it; hashed once.
    pub prepared: Prepared,
    /// The caller's.
    pub context: C,
}

/// The requests that wait in a VM.
#[derive(Debug)]
pub struct Gate<C> {
    queue: Queue<Parked<C>>,
    patience: Patience,
}

impl<C> Default for Gate<C> {
    fn default() -> Self {
        Self {
            queue: Queue::default(),
            patience: Patience::default(),
        }
    }
}

/// A request that goes on.
#[derive(Debug)]
pub struct Handed<C> {
    /// Its number in the queue.
    pub ticket: Ticket,
    /// Its number; it is booked.
    pub request: RequestId,
    /// Where it goes.
    pub chosen: Chosen,
    /// How long it has waited.
    pub waited_ms: u64,
    /// The caller's.
    pub context: C,
}

impl<C> Gate<C> {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a request with a body of so many bytes may wait. One that comes to an empty queue may always try: it is not said that it has to.
    ///
    /// # Errors
    /// When there is no room.
    pub fn admits(&self, bytes: u64, flow: &FlowControl) -> Result<(), NoRoom> {
        if self.queue.is_empty() {
            return Ok(());
        }
        self.queue.admits(bytes, flow)
    }

    /// Whether a request of the same lane waits.
    pub fn has(&self, lane: u64) -> bool {
        self.queue.has(lane)
    }

    /// Has a request wait.
    pub fn park(&mut self, arrival: Arrival, flow: &FlowControl, parked: Parked<C>) -> Ticket {
        self.queue.push(arrival, flow.max_wait_ms, parked)
    }

    /// Takes a request out, and gives it with the time that it has waited; `None` when it waits no more.
    pub fn leave(&mut self, ticket: Ticket) -> Option<Parked<C>> {
        Some(self.queue.remove(ticket)?.request)
    }

    /// Takes all out, first come first.
    pub fn drain(&mut self) -> Vec<Parked<C>> {
        let mut all = self.queue.drain();
        all.sort_by_key(|(ticket, _)| *ticket);
        let requests = all.into_iter().map(|(_, waiting)| waiting.request);
        requests.collect()
    }

    /// Takes out one that has waited long enough, with its wait in ms.
    pub fn expire(&mut self, now_ms: u64) -> Option<(C, u64)> {
        let (_, waiting) = self.queue.expire(now_ms)?;
        let waited_ms = now_ms.saturating_sub(waiting.arrival.at_ms);
        Some((waiting.request.context, waited_ms))
    }
}

/// What handing out needs to remember.
#[derive(Debug)]
pub(super) struct Desk {
    turn: Turn,
    fair_key: String,
    /// Booked, and not committed yet.
    reserved: HashSet<RequestId>,
    /// By endpoint, sequences that went on since its engine's figures were read, and when that was.
    since_reading: HashMap<EndpointKey, (u64, u32)>,
}

impl Desk {
    pub(super) fn new(keys: &Keys, nonce: u64) -> Self {
        Self {
            turn: Turn::new(keys.turn(), nonce),
            fair_key: keys.fair(),
            reserved: HashSet::new(),
            since_reading: HashMap::new(),
        }
    }

    /// Whether a request was booked before; it is not any more.
    pub(super) fn take(&mut self, request: RequestId) -> bool {
        self.reserved.remove(&request)
    }
}

/// What a look for an endpoint came to.
enum Found {
    /// There is one, and the decision names it first; or there is none at all, or none that the request wants.
    Place(Box<Decision>),
    /// All slots, so many, are left for others.
    Spent(u32),
    /// None takes it now.
    Nothing,
}

impl RoutingView {
    /// How requests wait, by the policy; `None` where they don't.
    pub fn flow_control(&self) -> Option<FlowControl> {
        self.policies().next().and_then(FlowControl::of)
    }

    /// Requests that wait in all VMs of this proxy.
    pub fn waiting(&self, now_ms: u64) -> u32 {
        self.vms.waiting(now_ms)
    }

    /// Gives up a booking whose request is not sent.
    pub fn release(&mut self, request: RequestId) {
        if self.desk.take(request) {
            self.ledger.finish(request);
            self.vms.touch();
        }
    }

    /// Tells the other VMs who waits here; to be called when that has changed.
    pub fn tell_waiting<C>(&mut self, gate: &Gate<C>) {
        let heads = gate.queue.heads().map(|(_, head)| head);
        let count = u32::try_from(gate.queue.len()).unwrap_or(u32::MAX);
        self.vms.set_waiting(count, heads);
    }

    /// Lets requests go on as far as endpoints take them. `None`: another VM has the turn, or this one has no number yet; a later tick does it.
    ///
    /// # Errors
    /// When the host fails; then nothing has gone on.
    pub fn hand_out<C>(
        &mut self,
        gate: &mut Gate<C>,
        now_ns: u64,
        shared: &impl SharedData,
    ) -> Result<Option<Vec<Handed<C>>>, SharedError> {
        let now_ms = now_ns / 1_000_000;
        let Some(flow) = self.flow_control().filter(|_| !gate.is_empty()) else {
            return Ok(Some(Vec::new()));
        };
        if self.vms.id().is_none() {
            return Ok(None);
        }
        let Some(taken) = self.desk.turn.take(now_ms, shared)? else {
            return Ok(None);
        };
        let result = self.hand_out_in_turn(gate, &flow, now_ns, shared);
        let stands = self.desk.turn.give(&taken, shared);
        match (result, stands) {
            (Ok(handed), Ok(true)) => Ok(Some(
                handed
                    .into_iter()
                    .map(|handed| handed.made(now_ms))
                    .collect(),
            )),
            (Ok(handed), stands) => {
                // Another VM may have given the same slots away.
                self.take_back(gate, handed, now_ms, shared);
                stands.map(|_| None)
            }
            (Err(error), _) => Err(error),
        }
    }

    fn hand_out_in_turn<C>(
        &mut self,
        gate: &mut Gate<C>,
        flow: &FlowControl,
        now_ns: u64,
        shared: &impl SharedData,
    ) -> Result<Vec<Granted<C>>, SharedError> {
        let now_ms = now_ns / 1_000_000;
        self.look_at_vms(now_ms, shared)?;
        let fair = shared.get(&self.desk.fair_key)?;
        let fair = Fair::from_bytes(fair.as_ref().map_or(&[][..], |(bytes, _)| bytes));
        let others: Vec<(u32, Head)> = self.vms.heads(now_ms).collect();
        let share = flow.lowest_share_percent;
        let patience = &mut gate.patience;
        let mut pass = Pass::new(fair, &gate.queue, &others, patience, share, now_ms);
        let is_crowded = gate.queue.len() > 1 || !others.is_empty();
        let mut granted: Vec<Granted<C>> = Vec::new();
        while let Some(pick) = pass.pick() {
            let Some(waiting) = gate.queue.get(pick.ticket) else {
                pass.missed(&pick);
                continue;
            };
            let waited_ms = now_ms.saturating_sub(waiting.arrival.at_ms);
            let is_paced = is_crowded || waited_ms > 0;
            let prepared = &waiting.request.prepared;
            let request = waiting.request.request;
            let decision = match self.find(prepared, pick.left, waited_ms, is_paced, now_ns) {
                Found::Place(decision) => decision,
                Found::Spent(free) => {
                    pass.spent(&pick, free);
                    continue;
                }
                Found::Nothing => {
                    pass.missed(&pick);
                    continue;
                }
            };
            let next = gate.queue.after(pick.ticket);
            if decision.target.is_some_and(|target| target.refuses())
                || !self.book(request, &decision, now_ms)
            {
                // Whoever it is given to sees that there is no place for it.
                pass.gone(&pick, next);
            } else {
                pass.placed(&pick, next);
            }
            if let Some(waiting) = gate.queue.remove(pick.ticket) {
                granted.push(Granted {
                    ticket: pick.ticket,
                    waiting,
                    decision,
                });
            }
            if granted.len() >= MAX_HANDED {
                break;
            }
        }
        let fair = pass.finish(&mut gate.patience, now_ms);
        self.tell_waiting(gate);
        if granted.is_empty() {
            return Ok(granted);
        }
        let written = self
            .vms
            .write_now(&self.ledger, now_ms, shared)
            .and_then(|()| shared.set(&self.desk.fair_key, &fair.to_bytes(), None));
        match written {
            Ok(()) => Ok(granted),
            Err(error) => {
                self.take_back(gate, granted, now_ms, shared);
                Err(error)
            }
        }
    }

    /// Reads the others' records, so that the load is that of now.
    fn look_at_vms(&mut self, now_ms: u64, shared: &impl SharedData) -> Result<(), SharedError> {
        for (vm, message) in self.vms.tick(now_ms, shared)? {
            self.receive(vm, message);
        }
        self.load.set_vms(self.vms.usages(now_ms));
        Ok(())
    }

    /// Looks for an endpoint that takes a request. `left`: slots that are left for others.
    fn find(
        &self,
        prepared: &Prepared,
        left: u32,
        waited_ms: u64,
        is_paced: bool,
        now_ns: u64,
    ) -> Found {
        let mut decision = self.decide_prepared(prepared, now_ns);
        if decision.ranking.is_empty() {
            return Found::Place(Box::new(decision));
        }
        let limits = self.limits();
        let now_ms = now_ns / 1_000_000;
        let room = |key: EndpointKey| -> u32 {
            self.room(key, &limits, is_paced, now_ms)
                .unwrap_or(u32::MAX)
        };
        let rooms: HashMap<EndpointKey, u32> = decision
            .ranking
            .iter()
            .map(|of| (of.key, if of.is_full { 0 } else { room(of.key) }))
            .collect();
        let has_room = |key: &EndpointKey| rooms.get(key).is_some_and(|room| *room > 0);
        let total = rooms
            .values()
            .fold(0u32, |sum, room| sum.saturating_add(*room));
        if total == 0 {
            return Found::Nothing;
        }
        if total <= left {
            return Found::Spent(total);
        }
        if decision
            .target
            .is_some_and(|target| target.waits(waited_ms))
        {
            return Found::Nothing;
        }
        decision.ranking.retain(|of| has_room(&of.key));
        decision.choices = to_choices(&decision.ranking);
        Found::Place(Box::new(decision))
    }

    /// Sequences that an endpoint takes before it is full; `None`: no bound says how many.
    fn room(&self, key: EndpointKey, limits: &Limits, is_paced: bool, now_ms: u64) -> Option<u32> {
        let load = self.load.of(key, &self.ledger, now_ms);
        let slots = limits
            .max_in_flight
            .map(|bound| bound.saturating_sub(load.in_flight()));
        // While others wait, whatever goes on may have to wait in the engine, and its figures don't show that before they are read again.
        let places = limits.max_waiting.filter(|_| is_paced).zip(load.engine);
        let places = places.map(|(bound, figures)| {
            let reading_ms = now_ms.saturating_sub(figures.age_ms);
            let since = self.desk.since_reading.get(&key);
            let since = since.filter(|(of, _)| *of == reading_ms);
            let waiting = load.waiting().unwrap_or(0);
            bound.saturating_sub(waiting.saturating_add(since.map_or(0, |(_, units)| *units)))
        });
        match (slots, places) {
            (Some(slots), Some(places)) => Some(slots.min(places)),
            (slots, places) => slots.or(places),
        }
    }

    /// Books the first choice; `false` where there is none.
    fn book(&mut self, request: RequestId, decision: &Decision, now_ms: u64) -> bool {
        let (Some(choice), Some(best)) = (decision.choices.first(), decision.ranking.first())
        else {
            return false;
        };
        let (tokens, units) = (best.uncached_tokens, decision.load_units);
        if !self.ledger.start(request, choice.key, tokens, units) {
            return false;
        }
        self.desk.reserved.insert(request);
        let load = self.load.of(choice.key, &self.ledger, now_ms);
        if let Some(figures) = load.engine {
            let reading_ms = now_ms.saturating_sub(figures.age_ms);
            let since = self.desk.since_reading.entry(choice.key).or_default();
            if since.0 != reading_ms {
                *since = (reading_ms, 0);
            }
            since.1 = since.1.saturating_add(units);
        }
        true
    }

    fn take_back<C>(
        &mut self,
        gate: &mut Gate<C>,
        granted: Vec<Granted<C>>,
        now_ms: u64,
        shared: &impl SharedData,
    ) {
        for of in granted.into_iter().rev() {
            self.release(of.waiting.request.request);
            gate.queue.restore(of.ticket, of.waiting);
        }
        self.tell_waiting(gate);
        // What fails here is written by the next tick.
        let _ = self.vms.write_now(&self.ledger, now_ms, shared);
    }
}

/// A request that has been given a slot, while the turn runs.
struct Granted<C> {
    ticket: Ticket,
    waiting: Waiting<Parked<C>>,
    decision: Box<Decision>,
}

impl<C> Granted<C> {
    fn made(self, now_ms: u64) -> Handed<C> {
        let Waiting {
            arrival, request, ..
        } = self.waiting;
        Handed {
            ticket: self.ticket,
            request: request.request,
            chosen: request.prepared.chosen(*self.decision),
            waited_ms: now_ms.saturating_sub(arrival.at_ms),
            context: request.context,
        }
    }
}
