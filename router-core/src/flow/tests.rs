use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use proptest::prelude::*;

use super::*;
use crate::shared::{SharedData, SharedError, Value};

/// Shared data of a proxy.
#[derive(Default)]
struct Data(RefCell<HashMap<String, (Vec<u8>, u32)>>);

impl SharedData for Data {
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
        let map = self.0.borrow();
        let value = map.get(key).filter(|(bytes, _)| !bytes.is_empty());
        Ok(value.map(|(bytes, cas)| (bytes.clone(), Some(*cas))))
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
        let mut map = self.0.borrow_mut();
        let entry = map.entry(key.to_owned()).or_insert((Vec::new(), 0));
        if cas.is_some_and(|cas| cas != entry.1) {
            return Err(SharedError::CasMismatch);
        }
        *entry = (value.to_vec(), entry.1 + 1);
        Ok(())
    }
}

fn arrival(priority: i32, tenant: u64, tokens: u32, at_ms: u64) -> Arrival {
    Arrival {
        lane: 1,
        priority,
        tenant,
        tokens,
        units: 1,
        bytes: 10,
        at_ms,
    }
}

const SHARE: u32 = 10;

/// Serves one after the other from lines that never end; gives how many of each, and their tokens.
fn serve(lines: &[(i32, u64, u32)], count: usize) -> BTreeMap<(i32, u64), (u32, u64)> {
    let heads: Vec<Arrival> = lines
        .iter()
        .map(|&(priority, tenant, tokens)| arrival(priority, tenant, tokens, 0))
        .collect();
    let mut fair = Fair::default();
    let mut served: BTreeMap<(i32, u64), (u32, u64)> = BTreeMap::new();
    for _ in 0..count {
        let place = fair.next(&heads, SHARE).unwrap();
        fair.serve(&heads[place], &heads, SHARE);
        // As others read it.
        fair = Fair::from_bytes(&fair.to_bytes());
        let head = heads[place];
        let of = served.entry((head.priority, head.tenant)).or_default();
        of.0 += 1;
        of.1 += u64::from(head.tokens);
    }
    served
}

#[test]
fn tenants_get_equal_shares_of_tokens_whatever_the_size_of_their_requests() {
    let served = serve(&[(0, 1, 100), (0, 2, 1_000), (0, 3, 250)], 5_000);
    let tokens: Vec<u64> = served.values().map(|(_, tokens)| *tokens).collect();
    let (least, most) = (tokens.iter().min().unwrap(), tokens.iter().max().unwrap());
    assert!(most - least <= 2_000, "{tokens:?}");
}

#[test]
fn the_greatest_priority_goes_first_and_lower_ones_get_their_share_in_turns() {
    let served = serve(&[(9, 1, 100), (0, 1, 5_000), (-5, 1, 1)], 1_000);
    let count = |priority| served[&(priority, 1)].0;
    assert_eq!((count(9), count(0), count(-5)), (900, 50, 50));
    assert_eq!(serve(&[(0, 1, 1)], 10)[&(0, 1)].0, 10);
}

#[test]
fn a_tenant_that_was_away_gets_no_more_than_its_share_afterwards() {
    let mut fair = Fair::default();
    let alone = [arrival(0, 1, 100, 0)];
    for _ in 0..1_000 {
        fair.serve(&alone[0], &alone, SHARE);
    }
    let both = [arrival(0, 1, 100, 0), arrival(0, 2, 100, 5)];
    let mut second = 0;
    for _ in 0..100 {
        let place = fair.next(&both, SHARE).unwrap();
        fair.serve(&both[place], &both, SHARE);
        second += place;
    }
    assert!((49..=52).contains(&second), "{second}");
}

#[test]
fn shared_state_stays_bounded_and_what_can_not_be_read_is_none() {
    let mut fair = Fair::default();
    for tenant in 0..5_000 {
        let heads = [arrival(0, tenant, 100, 0)];
        fair.serve(&heads[0], &heads, SHARE);
        fair = Fair::from_bytes(&fair.to_bytes());
    }
    assert!(fair.to_bytes().len() <= 8 + 1_024 * 32);
    for bytes in [
        &b""[..],
        b"PWF0",
        b"PWF1\xff\xff\xff\xff",
        b"PWF1\x01\0\0\0xx",
    ] {
        assert_eq!(Fair::from_bytes(bytes), Fair::default());
    }
}

#[test]
fn a_turn_is_one_vms_at_a_time_and_runs_out() {
    let data = Data::default();
    let [one, two] = [1, 2].map(|nonce| Turn::new("turn".to_owned(), nonce));
    let taken = one.take(1_000, &data).unwrap().unwrap();
    assert!(two.take(1_000, &data).unwrap().is_none());
    assert!(one.give(&taken, &data).unwrap());
    let taken = two.take(1_001, &data).unwrap().unwrap();
    // It has died, or hangs.
    assert!(one.take(1_001 + TURN_MS - 1, &data).unwrap().is_none());
    let taken_over = one.take(1_001 + TURN_MS, &data).unwrap().unwrap();
    assert!(
        !two.give(&taken, &data).unwrap(),
        "what it did does not stand"
    );
    assert!(one.give(&taken_over, &data).unwrap());
}

#[test]
fn queues_are_bounded_and_what_leaves_frees_its_room() {
    let limits = FlowControl {
        max_waiting: 2,
        max_waiting_bytes: 25,
        max_wait_ms: 100,
        lowest_share_percent: SHARE,
    };
    let mut queue = Queue::default();
    let first = queue.push(arrival(0, 1, 1, 0), 100, "a");
    let second = queue.push(arrival(0, 1, 1, 5), 100, "b");
    assert_eq!(queue.admits(1, &limits), Err(NoRoom));
    assert_eq!(queue.after(first).unwrap().0, second);
    assert_eq!(queue.remove(first).unwrap().request, "a");
    assert!(queue.remove(first).is_none());
    assert_eq!(queue.admits(15, &limits), Ok(()));
    assert_eq!(queue.admits(16, &limits), Err(NoRoom));
    assert!(queue.expire(104).is_none());
    let (ticket, waiting) = queue.expire(105).unwrap();
    queue.restore(ticket, waiting);
    assert_eq!((queue.len(), queue.bytes()), (1, 10));
    assert!(queue.has(1) && !queue.has(2));
    assert_eq!(queue.expire(105).unwrap().0, second);
    assert!(queue.is_empty() && queue.heads().next().is_none());
}

/// A worker with its requests.
#[derive(Default)]
struct Vm {
    queue: Queue<u64>,
    patience: Patience,
    heads: Vec<Head>,
    in_flight: u32,
    is_dead: bool,
}

/// A proxy whose workers share one endpoint.
struct Proxy {
    vms: Vec<Vm>,
    fair: Vec<u8>,
    data: Data,
    slots: u32,
    now_ms: u64,
    next: u64,
    /// Requests in the order in which they went on: worker, priority, tenant, number, wait.
    served: Vec<(usize, i32, u64, u64, u64)>,
}

impl Proxy {
    fn new(vms: usize, slots: u32) -> Self {
        Self {
            vms: (0..vms).map(|_| Vm::default()).collect(),
            fair: Vec::new(),
            data: Data::default(),
            slots,
            now_ms: 1_000,
            next: 0,
            served: Vec::new(),
        }
    }

    fn come(&mut self, vm: usize, priority: i32, tenant: u64, tokens: u32) {
        if !self.vms[vm].is_dead {
            let arrival = arrival(priority, tenant, tokens, self.now_ms);
            self.vms[vm].queue.push(arrival, 1 << 40, self.next);
            self.next += 1;
        }
    }

    fn in_flight(&self) -> u32 {
        self.vms.iter().map(|vm| vm.in_flight).sum()
    }

    /// As `RoutingView::hand_out` does, with one endpoint.
    fn tick(&mut self, at: usize) {
        if self.vms[at].is_dead {
            return;
        }
        let turn = Turn::new("turn".to_owned(), at as u64 + 1);
        let Some(taken) = turn.take(self.now_ms, &self.data).unwrap() else {
            return;
        };
        let others: Vec<(u32, Head)> = (0u32..)
            .zip(&self.vms)
            .filter(|(number, vm)| *number as usize != at && !vm.is_dead)
            .flat_map(|(number, vm)| vm.heads.iter().map(move |head| (number, *head)))
            .collect();
        let free = self.slots - self.in_flight();
        let (now_ms, served) = (self.now_ms, &mut self.served);
        let vm = &mut self.vms[at];
        let fair = Fair::from_bytes(&self.fair);
        let mut pass = Pass::new(fair, &vm.queue, &others, &mut vm.patience, SHARE, now_ms);
        let mut booked = 0;
        while let Some(pick) = pass.pick() {
            if free - booked == 0 {
                pass.missed(&pick);
            } else if free - booked <= pick.left {
                pass.spent(&pick, free - booked);
            } else {
                booked += 1;
                let next = vm.queue.after(pick.ticket);
                pass.placed(&pick, next);
                let waiting = vm.queue.remove(pick.ticket).unwrap();
                let Arrival {
                    priority,
                    tenant,
                    at_ms,
                    ..
                } = waiting.arrival;
                served.push((at, priority, tenant, waiting.request, now_ms - at_ms));
            }
        }
        vm.in_flight += booked;
        vm.heads = vm.queue.heads().map(|(_, head)| head).collect();
        self.fair = pass.finish(&mut vm.patience, now_ms).to_bytes();
        assert!(turn.give(&taken, &self.data).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn never_over_capacity_first_come_first_within_a_tenant_and_nobody_starves(
        steps in prop::collection::vec((0u8..6, 0usize..3, 0i32..3, 0u64..3, 1u32..500), 50..400),
        slots in 1u32..5,
    ) {
        let mut proxy = Proxy::new(3, slots);
        for (step, vm, priority, tenant, tokens) in steps {
            proxy.now_ms += 3;
            match step {
                0..=2 => proxy.come(vm, priority, tenant, tokens),
                3 => proxy.vms[vm].in_flight = proxy.vms[vm].in_flight.saturating_sub(1),
                4 if proxy.vms.iter().filter(|vm| vm.is_dead).count() < 2 && tokens < 5 => {
                    // With the turn in its hands.
                    let turn = Turn::new("turn".to_owned(), vm as u64 + 1);
                    let taken = turn.take(proxy.now_ms, &proxy.data).unwrap();
                    prop_assert!(taken.is_some() || proxy.vms.iter().any(|vm| vm.is_dead));
                    proxy.vms[vm].is_dead = true;
                    proxy.vms[vm].in_flight = 0;
                }
                _ => proxy.tick(vm),
            }
            prop_assert!(proxy.in_flight() <= slots);
        }
        // Nothing more comes: all that waits in living workers goes on in the end.
        for round in 0..4_000u64 {
            proxy.now_ms += 5;
            for vm in 0..3 {
                proxy.tick(vm);
                proxy.vms[vm].in_flight = proxy.vms[vm].in_flight.saturating_sub(1);
            }
            prop_assert!(proxy.in_flight() <= slots);
            if proxy.vms.iter().all(|vm| vm.is_dead || vm.queue.is_empty()) {
                break;
            }
            prop_assert!(round < 3_999);
        }
        let mut last: BTreeMap<(usize, i32, u64), u64> = BTreeMap::new();
        for &(vm, priority, tenant, number, _) in &proxy.served {
            if let Some(before) = last.insert((vm, priority, tenant), number) {
                prop_assert!(before < number, "first come, first served");
            }
        }
    }
}

#[test]
fn workers_share_slots_by_what_waits_and_one_request_is_not_lost_beside_hundreds() {
    let mut proxy = Proxy::new(2, 1);
    for _ in 0..300 {
        proxy.come(0, 0, 1, 100);
    }
    let mut waits = Vec::new();
    for round in 0..200 {
        proxy.now_ms += 10;
        if round % 20 == 0 {
            proxy.come(1, 0, 2, 100);
        }
        for vm in 0..2 {
            proxy.vms[vm].in_flight = 0;
            proxy.tick(vm);
        }
        let new = proxy.served.iter().filter(|of| of.0 == 1);
        waits = new.map(|of| of.4).collect();
    }
    assert_eq!(waits.len(), 10);
    assert!(waits.iter().all(|wait| *wait <= 30), "{waits:?}");
    // The first worker has not had to do without.
    assert!(proxy.served.len() >= 180, "{}", proxy.served.len());
}

#[test]
fn a_slot_is_not_left_for_long_to_a_worker_that_does_not_take_it() {
    let mut proxy = Proxy::new(2, 1);
    proxy.come(1, 9, 1, 100);
    proxy.vms[1].heads = proxy.vms[1].queue.heads().map(|(_, head)| head).collect();
    proxy.come(0, 0, 1, 100);
    proxy.tick(0);
    assert!(proxy.served.is_empty(), "it is the other's");
    for _ in 0..7 {
        proxy.now_ms += 10;
        proxy.tick(0);
    }
    assert_eq!(proxy.served.len(), 1);
}
