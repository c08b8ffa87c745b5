//! What each VM says of its copy of the table.

use std::time::Duration;

use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat};
use prefixway_wasm_tests::{Indexer, Rig};

/// Version and checksum by VM, as told last.
fn told(rig: &mut Rig) -> Vec<(u64, u64)> {
    // Said once a second, and read by the leader once a second.
    rig.run(Duration::from_millis(2_100));
    let vms = rig.indexer.heard.copies.vms.iter();
    vms.map(|vm| (vm.version, vm.checksum)).collect()
}

#[test]
fn every_vm_tells_the_checksum_of_its_copy() {
    let audited = CONFIG.replace("\"explain\"", "\"audit\":true,\"explain\"");
    for config in [CONFIG, &audited] {
        let mut rig = Rig::with(config, Indexer::new(&ENGINES));
        for number in 0..3 {
            rig.indexer
                .store(&[number], &chat(&number.to_string(), 500));
            rig.indexer.store_random(1_000 * u64::from(number));
            let table = (rig.indexer.version(), rig.indexer.checksum());
            assert_eq!(told(&mut rig), [table; 3]);
        }
        let vms = rig.indexer.heard.copies.vms.clone();
        assert!(vms.iter().all(|vm| vm.epoch == 1 && vm.rungs > 2_000));
        assert!(vms.is_sorted_by(|one, next| one.vm < next.vm));
        rig.assert_healthy();
    }
}

#[test]
fn a_vm_that_is_gone_says_nothing_any_more() {
    let mut rig = Rig::new();
    rig.indexer.store(&[1], &chat("a", 500));
    assert_eq!(told(&mut rig).len(), 3);
    let vm = (0..3).find(|vm| Some(*vm) != rig.leader()).unwrap();
    rig.host.vm(vm).kill();
    rig.run(Duration::from_secs(3));
    assert_eq!(told(&mut rig).len(), 2);
    // One that comes in its place has another number, and the same table.
    rig.host.add_vm().unwrap();
    let table = (rig.indexer.version(), rig.indexer.checksum());
    assert_eq!(told(&mut rig), [table; 3]);
    let numbers = rig.indexer.heard.copies.vms.iter().map(|vm| vm.vm);
    assert!(numbers.max().unwrap() > 3);
}
