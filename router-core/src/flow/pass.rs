//! One pass through all that wait, under a turn: what goes on here, and what is left for other VMs.

use hashbrown::{HashMap, HashSet};

use super::{Arrival, Fair, Head, Queue, Ticket};

/// Time for which a slot is left for another VM's request that does not take it: its endpoints may be other ones, or its VM may be dead.
const PATIENCE_MS: u64 = 60;

/// Requests of a lane that find no endpoint before the lane is done with in this pass: each of them costs a decision.
const MAX_MISSES: u32 = 8;

/// Slots that were left for others and not taken: by VM, lane, priority and tenant, for which request and since when.
#[derive(Debug, Default)]
pub struct Patience {
    left: HashMap<(u32, u64, i32, u64), (u64, u64)>,
}

fn key(vm: u32, head: &Head) -> (u32, u64, i32, u64) {
    let of = &head.arrival;
    (vm, of.lane, of.priority, of.tenant)
}

impl Patience {
    /// Whether slots have been left for this request for long enough.
    fn is_over(&self, vm: u32, head: &Head, now_ms: u64) -> bool {
        let left = self.left.get(&key(vm, head));
        left.is_some_and(|(number, since_ms)| {
            *number == head.number && now_ms.saturating_sub(*since_ms) > PATIENCE_MS
        })
    }

    /// A slot is left for this request.
    fn leave(&mut self, vm: u32, head: &Head, now_ms: u64) {
        let left = self
            .left
            .entry(key(vm, head))
            .or_insert((head.number, now_ms));
        if left.0 != head.number {
            *left = (head.number, now_ms);
        }
    }

    /// Forgets those that wait no more.
    fn keep(&mut self, others: &[(u32, Head)]) {
        self.left
            .retain(|kept, _| others.iter().any(|(vm, head)| key(*vm, head) == *kept));
    }
}

/// A request of this VM that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its number.
    pub ticket: Ticket,
    /// What its place depends on.
    pub arrival: Arrival,
    /// Slots of its lane that are left for other VMs' requests, which were next before it.
    pub left: u32,
}

#[derive(Clone, Copy, Debug)]
struct Contender {
    /// `None`: of another VM.
    ticket: Option<Ticket>,
    vm: u32,
    head: Head,
}

/// A pass.
#[derive(Debug)]
pub struct Pass {
    /// As it is shared: with what this VM hands out.
    fair: Fair,
    /// The same with what is left for others.
    ahead: Fair,
    contenders: Vec<Contender>,
    left: HashMap<u64, u32>,
    /// Those that were before the last pick of their lane.
    before: Vec<(u32, Head)>,
    /// Those for which all that is free is left.
    left_for: Vec<(u32, Head)>,
    misses: HashMap<u64, u32>,
    done: HashSet<u64>,
    share_percent: u32,
}

impl Pass {
    /// A pass over what waits here and, by their records, in other VMs.
    pub fn new<T>(
        fair: Fair,
        own: &Queue<T>,
        others: &[(u32, Head)],
        patience: &mut Patience,
        share_percent: u32,
        now_ms: u64,
    ) -> Self {
        patience.keep(others);
        let own = own.heads().map(|(ticket, head)| Contender {
            ticket: Some(ticket),
            vm: 0,
            head,
        });
        let mut contenders: Vec<Contender> = own.collect();
        let lanes: HashSet<u64> = contenders.iter().map(|of| of.head.arrival.lane).collect();
        // Who waits for nothing of ours is of no matter.
        let others = others
            .iter()
            .filter(|(_, head)| lanes.contains(&head.arrival.lane));
        for &(vm, head) in others {
            if head.waiting > 0 && !patience.is_over(vm, &head, now_ms) {
                contenders.push(Contender {
                    ticket: None,
                    vm,
                    head,
                });
            }
        }
        Self {
            ahead: fair.clone(),
            fair,
            contenders,
            left: HashMap::new(),
            before: Vec::new(),
            left_for: Vec::new(),
            misses: HashMap::new(),
            done: HashSet::new(),
            share_percent,
        }
    }

    /// The next request of this VM; what others' requests that are before it need is left for them. `None`: the pass is over.
    pub fn pick(&mut self) -> Option<Pick> {
        loop {
            let mine =
                |of: &&Contender| of.ticket.is_some() && !self.done.contains(&of.head.arrival.lane);
            let lane = self.contenders.iter().find(mine)?.head.arrival.lane;
            let places: Vec<usize> = (0..self.contenders.len())
                .filter(|place| {
                    let of = self.contenders.get(*place);
                    of.is_some_and(|of| of.head.arrival.lane == lane)
                })
                .collect();
            let heads = self.heads(&places);
            let next = self.ahead.next(&heads, self.share_percent);
            let place = next.and_then(|next| places.get(next).copied());
            let Some(contender) = place.and_then(|place| self.contenders.get(place)).copied()
            else {
                self.done.insert(lane);
                continue;
            };
            let arrival = contender.head.arrival;
            if let Some(ticket) = contender.ticket {
                let left = self.left.get(&lane).copied().unwrap_or(0);
                return Some(Pick {
                    ticket,
                    arrival,
                    left,
                });
            }
            self.ahead.serve(&arrival, &heads, self.share_percent);
            let left = self.left.entry(lane).or_default();
            *left = left.saturating_add(arrival.units.max(1));
            self.before.push((contender.vm, contender.head));
            self.forget(contender.vm, &arrival);
        }
    }

    fn heads(&self, places: &[usize]) -> Vec<Arrival> {
        let of = places
            .iter()
            .filter_map(|place| self.contenders.get(*place));
        of.map(|of| of.head.arrival).collect()
    }

    /// One less of another VM's requests.
    fn forget(&mut self, vm: u32, arrival: &Arrival) {
        let is_it =
            |of: &Contender| of.ticket.is_none() && of.vm == vm && of.head.arrival == *arrival;
        for of in self.contenders.iter_mut().filter(|of| is_it(of)) {
            of.head.waiting = of.head.waiting.saturating_sub(1);
            // Those behind it came later; when, is not known here.
            of.head.arrival.at_ms = u64::MAX;
        }
        self.contenders
            .retain(|of| of.ticket.is_some() || of.head.waiting > 0);
    }

    /// The pick was given a slot; `next` is the one that waits behind it.
    pub fn placed(&mut self, pick: &Pick, next: Option<(Ticket, Head)>) {
        let lane = pick.arrival.lane;
        let of_lane = self.contenders.iter().map(|of| of.head.arrival);
        let heads: Vec<Arrival> = of_lane.filter(|head| head.lane == lane).collect();
        self.ahead.serve(&pick.arrival, &heads, self.share_percent);
        self.fair.serve(&pick.arrival, &heads, self.share_percent);
        self.gone(pick, next);
    }

    /// The pick went without a slot; `next` as for [`Self::placed`].
    pub fn gone(&mut self, pick: &Pick, next: Option<(Ticket, Head)>) {
        let mut own = self.contenders.iter_mut();
        let own = own.find(|of| of.ticket == Some(pick.ticket));
        match (own, next) {
            (Some(own), Some((ticket, head))) => {
                own.ticket = Some(ticket);
                own.head = head;
            }
            _ => self.drop(pick),
        }
    }

    /// No endpoint takes the pick: those of other tenants may go to other endpoints.
    pub fn missed(&mut self, pick: &Pick) {
        self.drop(pick);
        let misses = self.misses.entry(pick.arrival.lane).or_default();
        *misses += 1;
        if *misses >= MAX_MISSES {
            self.done.insert(pick.arrival.lane);
        }
    }

    /// All `free` slots are left for others: the lane is done with.
    pub fn spent(&mut self, pick: &Pick, free: u32) {
        let lane = pick.arrival.lane;
        self.done.insert(lane);
        let mut free = free;
        for of in self.before.iter().filter(|of| of.1.arrival.lane == lane) {
            if free == 0 {
                break;
            }
            free = free.saturating_sub(of.1.arrival.units.max(1));
            self.left_for.push(*of);
        }
    }

    fn drop(&mut self, pick: &Pick) {
        self.contenders.retain(|of| of.ticket != Some(pick.ticket));
    }

    /// Ends the pass; gives what was handed out, for all.
    pub fn finish(self, patience: &mut Patience, now_ms: u64) -> Fair {
        for (vm, head) in &self.left_for {
            patience.leave(*vm, head, now_ms);
        }
        self.fair
    }
}
