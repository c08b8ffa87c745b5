//! Bytes of anybody's making: everything in shared data can be overwritten by another plugin.

use proptest::prelude::*;

use super::world::{Memory, World};
use crate::{
    proto,
    shared::{Head, Member, MemberConfig, Meta, ShardInfo, SharedData, VmRecord, reader::Reader},
    snapshot::{Replica, Segment, Sets, Snapshot},
};
use prost::Message as _;

/// Arbitrary bytes, or real ones with a few changed.
fn bytes(real: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let cut = any::<prop::sample::Index>();
    let changed = (changes, cut, any::<bool>()).prop_map(move |(changes, cut, is_cut)| {
        let mut bytes = real.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    });
    prop_oneof![changed, prop::collection::vec(any::<u8>(), 0..200)]
}

fn real() -> (Memory, u64) {
    let world = World::new(1, 9);
    for _ in 0..80 {
        world.now.set(world.now.get() + 10);
        world.publish(30);
        world.tick(0, 64);
    }
    let term = world.head().term.0;
    (world.memory, term)
}

fn value(memory: &Memory, key: &str) -> Vec<u8> {
    memory.get(key).unwrap().unwrap().0
}

#[test]
fn every_parser_survives_foreign_bytes() {
    let (memory, term) = real();
    let keys = World::keys().shard(0);
    let mut record = VmRecord {
        id: 1,
        ..VmRecord::default()
    };
    record.usages.push((
        crate::snapshot::EndpointKey(1),
        crate::load::Usage::default(),
    ));
    let real = [
        value(&memory, &keys.head()),
        value(&memory, &keys.of_term(term, "meta")),
        value(&memory, &keys.segment(term, 0)),
        value(&memory, &keys.page(term, 0)),
        value(&memory, &keys.delta(term, 3)),
        record.to_bytes(),
    ];
    for real in real {
        proptest!(|(bytes in bytes(real))| {
            let _ = Head::from_bytes(&bytes);
            if let Some(meta) = Meta::from_bytes(&bytes) {
                let _ = meta.segment_of(1 << 63);
            }
            let _ = VmRecord::from_bytes(&bytes, 0);
            if let Ok(mut segment) = Segment::try_from_image(bytes.clone()) {
                for hash in segment.iter().map(|entry| entry.hash).collect::<Vec<_>>() {
                    segment.remove(hash);
                }
                let _ = segment.split();
            }
            let _ = Sets::default().load_page(0, &bytes);
            if let Ok(delta) = proto::Delta::decode(bytes.as_slice()) {
                let mut snapshot = Snapshot { version: delta.version.wrapping_sub(1), ..Snapshot::empty() };
                let _ = snapshot.apply(&delta);
            }
            if let Ok(down) = proto::Down::decode(bytes.as_slice()) {
                let _ = Replica::new(1 << 16, None).feed(down);
            }
        });
    }
}

#[test]
fn a_reader_over_foreign_values_never_panics_and_recovers_when_they_are_right_again() {
    let keys = World::keys().shard(0);
    proptest!(ProptestConfig::with_cases(40), |(junk in prop::collection::vec((any::<prop::sample::Index>(), bytes(vec![0; 64])), 1..5))| {
        let (memory, _) = real();
        let all = memory.keys();
        let head = Head::from_bytes(&value(&memory, &keys.head())).unwrap();
        let mut saved = Vec::new();
        for (at, bytes) in junk {
            let key = &all[at.index(all.len())];
            // A key drawn before may be empty now, which reads as absent.
            let old = memory.get(key).unwrap().map_or_else(Vec::new, |(bytes, _)| bytes);
            saved.push((key.clone(), old));
            memory.set(key, &bytes, None).unwrap();
        }
        let mut reader = Reader::new(keys.clone(), Snapshot::empty(), 1 << 24);
        let mut info = ShardInfo::default();
        for _ in 0..30 {
            reader.tick(&head, &mut info, &memory).unwrap();
        }
        let mut member = Member::new(MemberConfig { keys: keys.clone(), nonce: 5, gateway: String::new(), pools: vec![], max_bytes: 1 << 24 });
        for step in 0..30 {
            member.tick(2_000_000 + step * 10, &memory).unwrap();
        }
        for (key, bytes) in saved.into_iter().rev() {
            memory.set(&key, &bytes, None).unwrap();
        }
    });
}

#[test]
fn versions_at_the_end_of_their_range_do_not_overflow() {
    let mut snapshot = Snapshot {
        epoch: 1,
        version: u64::MAX,
        ..Snapshot::empty()
    };
    assert!(
        snapshot
            .apply(&proto::Delta {
                version: 0,
                ..proto::Delta::default()
            })
            .is_err()
    );
    let mut replica = Replica::new(1 << 16, None);
    let hello = proto::Hello {
        epoch: 1,
        version: u64::MAX,
        seed_check: crate::hash::Seed(0).check(),
        ..proto::Hello::default()
    };
    let down = |kind| proto::Down { kind: Some(kind) };
    replica.feed(down(proto::down::Kind::Hello(hello))).unwrap();
    replica
        .feed(down(proto::down::Kind::Segment(proto::Segment {
            version: u64::MAX,
            ..proto::Segment::default()
        })))
        .unwrap();
    let done = proto::BaseDone {
        version: u64::MAX,
        ..proto::BaseDone::default()
    };
    replica
        .feed(down(proto::down::Kind::BaseDone(done)))
        .unwrap();
    assert!(
        replica
            .feed(down(proto::down::Kind::Delta(proto::Delta::default())))
            .is_err()
    );
}
