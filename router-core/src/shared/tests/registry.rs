//! VMs that see each other's load and messages.

use std::{cell::Cell, collections::BTreeSet};

use super::world::{Dice, Memory, World};
use crate::{
    load::{Ledger, RequestId, Usage},
    proto,
    shared::{
        SharedData, SharedError, Value, VmRegistry,
        record::Body,
        registry::{MAX_MESSAGE_BYTES, MAX_RECORD_AGE_MS, RECLAIM_MS, Received},
    },
    snapshot::EndpointKey,
};

const E: EndpointKey = EndpointKey(5);

struct Vm {
    registry: VmRegistry,
    ledger: Ledger,
    received: Received,
}

fn vms(count: u64) -> Vec<Vm> {
    let vm = |nonce| Vm {
        registry: VmRegistry::new(World::keys(), nonce),
        ledger: Ledger::default(),
        received: Vec::new(),
    };
    (1..=count).map(vm).collect()
}

fn tick(vm: &mut Vm, now_ms: u64, shared: &impl SharedData) {
    vm.received
        .extend(vm.registry.tick(now_ms, shared).unwrap());
    vm.registry.write(&vm.ledger, now_ms, shared).unwrap();
}

fn run(vms: &mut [Vm], times: std::ops::Range<u64>, shared: &impl SharedData) {
    for now_ms in times.step_by(10) {
        for vm in &mut *vms {
            tick(vm, now_ms, shared);
        }
    }
}

fn routed(request: u64) -> Body {
    Body::Routed(proto::Routed {
        request,
        rungs: vec![7; 800].into(),
        ..proto::Routed::default()
    })
}

fn others(vm: &Vm, now_ms: u64) -> u32 {
    vm.registry
        .usages(now_ms)
        .map(|(_, usage)| usage.in_flight)
        .sum()
}

#[test]
fn load_of_other_vms_is_seen_at_the_next_tick_and_own_load_is_not_counted_twice() {
    let memory = Memory::default();
    let mut vms = vms(3);
    run(&mut vms, 0..100, &memory);
    assert_eq!(
        vms.iter()
            .map(|vm| vm.registry.id().unwrap())
            .collect::<BTreeSet<_>>()
            .len(),
        3
    );
    vms[0].ledger.start(RequestId(1), E, 40, 1);
    vms[1].ledger.start(RequestId(1), E, 2, 1);
    for vm in &mut vms[..2] {
        vm.registry.touch();
        vm.registry.write(&vm.ledger, 100, &memory).unwrap();
    }
    run(&mut vms, 110..120, &memory);
    let sum = vms[2]
        .registry
        .usages(120)
        .fold(Usage::default(), |sum, (_, usage)| sum.plus(usage));
    assert_eq!(
        sum,
        Usage {
            in_flight: 2,
            queued_prefill_tokens: 42
        }
    );
    assert_eq!(others(&vms[0], 120), 1);
}

#[test]
fn a_vm_that_vanishes_counts_no_more_and_its_slot_is_reclaimed() {
    let memory = Memory::default();
    let mut vms = vms(2);
    vms[0].ledger.start(RequestId(1), E, 40, 1);
    run(&mut vms, 0..100, &memory);
    assert_eq!(others(&vms[1], 100), 1);
    let mut gone = vms.remove(0);
    run(&mut vms, 100..1_000, &memory);
    assert_eq!(others(&vms[0], 1_000), 1);
    assert_eq!(
        others(&vms[0], 100 + MAX_RECORD_AGE_MS + 10),
        0,
        "before the slot is reclaimed"
    );
    run(&mut vms, 1_000..200 + RECLAIM_MS, &memory);
    assert_eq!(
        memory
            .keys()
            .iter()
            .filter(|key| key.contains("/vm/"))
            .count(),
        1
    );
    // It was only stalled: it comes back by itself.
    tick(&mut gone, 3_000, &memory);
    tick(&mut gone, 3_010, &memory);
    run(&mut vms, 3_010..3_030, &memory);
    assert_eq!(others(&vms[0], 3_030), 1);
}

#[test]
fn messages_reach_every_other_vm_once_and_in_order() {
    let memory = Memory::default();
    let mut vms = vms(3);
    run(&mut vms, 0..50, &memory);
    let mut sent = 0;
    for now_ms in (50..900).step_by(5) {
        for _ in 0..(now_ms / 5) % 3 {
            vms[0].registry.send(0, E, routed(sent), now_ms);
            sent += 1;
        }
        let place = usize::try_from(now_ms / 5 % 3).unwrap();
        tick(&mut vms[place], now_ms, &memory);
        tick(&mut vms[0], now_ms, &memory);
    }
    run(&mut vms, 900..950, &memory);
    let id = vms[0].registry.id().unwrap();
    for vm in &vms[1..] {
        let requests: Vec<u64> = vm
            .received
            .iter()
            .map(|(from, message)| match &message.body {
                Body::Routed(routed) if *from == id && message.endpoint == E => routed.request,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(requests, (0..sent).collect::<Vec<_>>());
    }
    assert!(vms[0].received.is_empty());
}

#[test]
fn a_record_is_bounded_and_written_at_most_every_five_ms() {
    let memory = Memory::default();
    let mut vms = vms(1);
    run(&mut vms, 0..50, &memory);
    let key = World::keys().vm(vms[0].registry.id().unwrap());
    let bytes = || memory.get(&key).unwrap().unwrap().0;
    for request in 0..200 {
        vms[0].registry.send(0, E, routed(request), 100);
        let vm = &mut vms[0];
        vm.registry
            .write(&vm.ledger, 100 + request / 60, &memory)
            .unwrap();
    }
    let first = bytes();
    assert!(first.len() < 2_000, "one write only");
    let vm = &mut vms[0];
    vm.registry.write(&vm.ledger, 105, &memory).unwrap();
    assert!(bytes().len() > MAX_MESSAGE_BYTES - 2_000 && bytes().len() < MAX_MESSAGE_BYTES + 100);
    run(&mut vms, 1_200..1_400, &memory);
    assert!(bytes().len() < 100, "old messages leave");
}

#[test]
fn foreign_bytes_in_the_list_and_records_are_survived() {
    let memory = Memory::default();
    memory.set(&World::keys().vms(), &[0xFF; 50], None).unwrap();
    memory.set(&World::keys().vm_counter(), b"x", None).unwrap();
    memory
        .set(&World::keys().vm(u32::MAX), b"PWV1junk", None)
        .unwrap();
    let mut vms = vms(2);
    vms[0].ledger.start(RequestId(1), E, 40, 1);
    run(&mut vms, 0..3_000, &memory);
    assert_eq!(others(&vms[1], 3_000), 1);
}

/// All VMs register at once, each interrupted between any two host calls.
#[test]
fn racing_vms_end_up_with_different_ids_and_all_in_the_list() {
    struct Racing<'a> {
        memory: &'a Memory,
        vms: &'a [std::cell::RefCell<Vm>],
        dice: &'a Dice,
        depth: &'a Cell<u32>,
        now_ms: u64,
    }
    impl Racing<'_> {
        fn disturb(&self) {
            if self.depth.get() > 3 || self.dice.below(2) == 0 {
                return;
            }
            self.depth.set(self.depth.get() + 1);
            let place = self.dice.below(self.vms.len() as u64) as usize;
            if let Ok(mut vm) = self.vms[place].try_borrow_mut() {
                tick(&mut vm, self.now_ms, self);
            }
            self.depth.set(self.depth.get() - 1);
        }
    }
    impl SharedData for Racing<'_> {
        fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
            self.disturb();
            self.memory.get(key)
        }
        fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
            self.disturb();
            self.memory.set(key, value, cas)
        }
    }
    for seed in 0..200 {
        let memory = Memory::default();
        let cells: Vec<_> = vms(6).into_iter().map(std::cell::RefCell::new).collect();
        let (dice, depth) = (Dice::new(seed), Cell::new(0));
        for step in 0..40 {
            let now_ms = 10 * step;
            for vm in &cells {
                let racing = Racing {
                    memory: &memory,
                    vms: &cells,
                    dice: &dice,
                    depth: &depth,
                    now_ms,
                };
                if let Ok(mut vm) = vm.try_borrow_mut() {
                    // The first ticks are torn, the later ones show what came of it.
                    if step < 10 {
                        tick(&mut vm, now_ms, &racing);
                    } else {
                        tick(&mut vm, now_ms, &memory);
                    }
                }
            }
        }
        let mut vms: Vec<Vm> = cells
            .into_iter()
            .map(std::cell::RefCell::into_inner)
            .collect();
        let ids: BTreeSet<_> = vms.iter().map(|vm| vm.registry.id().unwrap()).collect();
        assert_eq!(ids.len(), 6, "seed {seed}");
        for vm in &mut vms {
            vm.ledger.start(RequestId(1), E, 1, 1);
            vm.registry.touch();
        }
        run(&mut vms, 400..420, &memory);
        for vm in &vms {
            assert_eq!(others(vm, 420), 5, "seed {seed}");
        }
    }
}
