//! Several VMs over one shared data.

mod foreign;
mod registry;
pub(crate) mod world;

use proptest::prelude::*;
use world::World;

use super::{
    Action, LEASE_MS, MAX_ITEMS_PER_TICK, RING_DELTAS, SharedData, SharedError, Value,
    sweeper::MAX_KEYS_PER_TICK,
};

/// Everybody ticks every 10 ms, with a change now and then.
fn run(world: &World, ticks: u64, publish_every: u64) {
    for tick in 0..ticks {
        world.now.set(world.now.get() + 10);
        if tick % publish_every == 0 {
            world.publish(12);
        }
        for vm in 0..world.vms.len() {
            world.tick(vm, 64);
        }
    }
}

fn versions(world: &World) -> Vec<(u64, u64)> {
    let of = |vm: &std::cell::RefCell<world::Vm>| {
        let vm = vm.borrow();
        (vm.member.snapshot().epoch, vm.member.snapshot().version)
    };
    world.vms.iter().map(of).collect()
}

#[test]
fn one_vm_leads_and_the_others_follow_through_splits_and_a_ring_that_wraps() {
    let world = World::new(4, 1);
    run(&world, 600, 2);
    assert_eq!(world.leaders().len(), 1);
    let newest = (
        world.publisher.borrow().epoch(),
        world.publisher.borrow().version(),
    );
    assert!(newest.1 > 4 * RING_DELTAS, "the ring wrapped");
    let leader = world.leaders()[0];
    let table_segments = world.vms[leader]
        .borrow()
        .member
        .snapshot()
        .table
        .segments()
        .len();
    assert!(table_segments > 2, "{table_segments} segments");
    assert!(world.vms[leader].borrow().member.snapshot().sets.pages() > 1);
    for (vm, (epoch, version)) in versions(&world).into_iter().enumerate() {
        assert_eq!(epoch, newest.0);
        assert!(
            newest.1 - version <= 3,
            "vm {vm} is at {version} of {}",
            newest.1
        );
        assert_eq!(
            world.vms[vm].borrow().member.resyncs(),
            0,
            "nobody had to start over"
        );
    }
    world.settle();
}

#[test]
fn a_late_vm_joins_while_the_ring_moves() {
    let world = World::new(3, 2);
    world.vms[2].borrow_mut().stalled_until = u64::MAX;
    run(&world, 400, 1);
    world.vms[2].borrow_mut().stalled_until = 0;
    let mut ticks = 0;
    while versions(&world)[2].0 == 0 {
        run(&world, 1, 1);
        ticks += 1;
        assert!(ticks < 100, "it does not get there");
    }
    assert!(ticks > 1, "work per tick is bounded");
    world.settle();
}

#[test]
fn the_lease_moves_when_the_leader_vanishes_and_the_next_goes_on_from_its_copy() {
    let world = World::new(3, 3);
    run(&world, 200, 2);
    let old = world.leaders()[0];
    let term = world.head().term;
    let before = versions(&world);
    world.vms[old].borrow_mut().stalled_until = u64::MAX;
    run(&world, 5 + LEASE_MS / 10, 1_000);
    run(&world, 60, 2);
    let head = world.head();
    assert!(head.term > term && head.is_complete);
    for (vm, version) in versions(&world)
        .into_iter()
        .enumerate()
        .filter(|&(vm, _)| vm != old)
    {
        assert_eq!(version.0, before[vm].0);
        assert!(version.1 > before[vm].1);
        assert_eq!(
            world.vms[vm].borrow().member.resyncs(),
            0,
            "followers go on with the new leader's ring"
        );
    }
    // The stalled one wakes up: it finds itself demoted, closes its stream and follows.
    world.vms[old].borrow_mut().stalled_until = 0;
    run(&world, 60, 2);
    assert_eq!(world.leaders().len(), 1);
    assert!(world.streams[old].borrow().is_none());
    world.settle();
}

#[test]
fn a_stalled_leader_that_wakes_up_mid_tick_cannot_harm() {
    // With interruptions between host calls and stalls at random, leaders are overtaken in the middle of what they write.
    let world = World::new(4, 4);
    world.is_torn.set(true);
    for round in 0..60 {
        run(&world, 15, 2);
        if let Some(&leader) = world.leaders().first() {
            world.vms[leader].borrow_mut().stalled_until =
                world.now.get() + LEASE_MS + 10 * (round % 7);
        }
        world.now.set(world.now.get() + LEASE_MS / 2);
    }
    world.settle();
}

#[test]
fn another_epoch_replaces_the_copy_under_a_new_term() {
    let world = World::new(3, 5);
    run(&world, 100, 2);
    let term = world.head().term;
    world.restart_indexer();
    run(&world, 100, 2);
    assert!(world.head().term > term);
    assert!(versions(&world).iter().all(|&(epoch, _)| epoch == 2));
    world.settle();
}

#[test]
fn a_vm_that_lags_beyond_the_ring_keeps_its_copy_until_it_has_another() {
    let world = World::new(2, 6);
    run(&world, 100, 2);
    let follower = 1 - world.leaders()[0];
    world.vms[follower].borrow_mut().stalled_until = u64::MAX;
    let old = versions(&world)[follower];
    run(&world, 200, 1);
    world.vms[follower].borrow_mut().stalled_until = 0;
    world.now.set(world.now.get() + 10);
    world.tick(follower, 0);
    assert_eq!(versions(&world)[follower], old);
    run(&world, 60, 1);
    assert!(versions(&world)[follower].1 > old.1 + RING_DELTAS);
    world.settle();
}

/// Runs something once, just before the head is written.
struct BeforeHead<'a, F: Fn()> {
    memory: &'a world::Memory,
    run: F,
    has_run: std::cell::Cell<bool>,
}

impl<F: Fn()> SharedData for BeforeHead<'_, F> {
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
        self.memory.get(key)
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
        if key.ends_with("/head") && !self.has_run.replace(true) {
            (self.run)();
        }
        self.memory.set(key, value, cas)
    }
}

#[test]
fn a_leader_that_stalls_between_reading_and_writing_the_head_is_demoted() {
    let world = World::new(2, 8);
    run(&world, 100, 2);
    let old = world.leaders()[0];
    let stalled = BeforeHead {
        memory: &world.memory,
        run: || {
            world.now.set(world.now.get() + LEASE_MS + 300);
            for _ in 0..20 {
                world.now.set(world.now.get() + 10);
                world.tick(1 - old, 64);
            }
        },
        has_run: std::cell::Cell::new(false),
    };
    let woken = world.now.get() + 300;
    let (_, actions) = world.vms[old]
        .borrow_mut()
        .member
        .tick(woken, &stalled)
        .unwrap();
    assert!(stalled.has_run.get());
    assert_eq!(actions, [Action::Close]);
    assert_eq!(world.leaders(), [1 - old]);
    *world.streams[old].borrow_mut() = None;
    world.settle();
}

#[test]
fn host_calls_per_tick_are_bounded() {
    struct Counting<'a>(&'a world::Memory, std::cell::Cell<usize>);
    impl SharedData for Counting<'_> {
        fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
            self.1
                .set(self.1.get() + usize::from(key.contains("/seg/") || key.contains("/sets/")));
            self.0.get(key)
        }
        fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
            self.1.set(
                self.1.get()
                    + usize::from(
                        !value.is_empty() && (key.contains("/seg/") || key.contains("/sets/")),
                    ),
            );
            self.0.set(key, value, cas)
        }
    }
    let world = World::new(2, 7);
    run(&world, 300, 1);
    for vm in 0..2 {
        for _ in 0..200 {
            world.now.set(world.now.get() + 10);
            world.publish(12);
            let mut place = world.vms[vm].borrow_mut();
            let inbox = world.streams[vm].borrow_mut().as_mut().map(std::mem::take);
            for message in inbox.into_iter().flatten() {
                place.member.on_message(message, world.now.get()).unwrap();
            }
            let counting = Counting(&world.memory, std::cell::Cell::new(0));
            place.member.tick(world.now.get(), &counting).unwrap();
            assert!(
                counting.1.get() <= MAX_ITEMS_PER_TICK + MAX_KEYS_PER_TICK,
                "{}",
                counting.1.get()
            );
        }
    }
}

/// Lets the VMs live through 500 random events, then quiet down; the world checks every copy in every tick.
fn live(seed: u64, vms: usize, torn: bool) {
    let world = World::new(vms, seed);
    world.is_torn.set(torn);
    for _ in 0..500 {
        let vm = world.dice.below(vms as u64) as usize;
        match world.dice.below(200) {
            0 => world.trap(vm),
            1 => world.restart_indexer(),
            2..=4 => world.break_stream(vm),
            5..=6 => {
                world.vms[vm].borrow_mut().stalled_until =
                    world.now.get() + world.dice.below(4_000);
            }
            7..=8 => world.now.set(world.now.get() + world.dice.below(2_000)),
            9..=60 => world.publish(40),
            _ => {
                world.now.set(world.now.get() + world.dice.below(12));
                world.tick(vm, world.dice.below(30) as usize);
            }
        }
    }
    world.settle();
}

/// It had published two pages; its successor had emptied the first when it published the second again.
#[test]
fn a_leader_deposed_in_the_middle_of_a_tick_leaves_no_key_behind() {
    live(10_993_908_584_361_946_509, 3, true);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, each copy that a VM can see is exactly what was published under its epoch and version, and once it is quiet
    /// everybody has the newest.
    #[test]
    fn every_copy_equals_what_was_published(seed in any::<u64>(), vms in 2usize..5, torn in any::<bool>()) {
        live(seed, vms, torn);
    }
}
