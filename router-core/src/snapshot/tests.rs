//! Publisher, replica and probe together, against a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    endpoint::{HolderId, Tier},
    hash::{ChunkHash, Seed, Space},
    index::{Changes, RungChange},
    proto::{self, down::Kind},
};

const MIB: usize = 1 << 20;

fn publisher(ring_deltas: usize) -> Publisher {
    Publisher::try_new(PublisherConfig {
        epoch: 9,
        seed: Seed(42),
        shard: "s0".into(),
        ring_deltas,
        max_bytes: 64 * MIB,
        thinning: Thinning::NONE,
    })
    .unwrap()
}

fn upsert(hash: u64, token_depth: u32, holders: &[u32]) -> RungChange {
    RungChange {
        hash,
        token_depth,
        holders: holders.iter().copied().map(HolderId).collect(),
    }
}

fn changes(upserts: Vec<RungChange>, removes: Vec<u64>) -> Changes {
    Changes { upserts, removes }
}

fn join(publisher: &mut Publisher, replica: &mut Replica) -> Update {
    let subscribe = replica.subscribe(&[], "g");
    let start = publisher.start(subscribe.have_epoch, subscribe.have_version);
    let mut last = replica.feed(start.hello).unwrap();
    for message in start.body {
        last = replica.feed(message).unwrap();
    }
    last
}

fn down(delta: proto::Delta) -> proto::Down {
    proto::Down {
        kind: Some(Kind::Delta(delta)),
    }
}

/// What every rung means: token depth and holders.
fn meaning(snapshot: &Snapshot) -> BTreeMap<u64, (u32, Vec<u32>)> {
    let meaning_of = |entry: Entry| {
        let bits = snapshot
            .sets
            .get(entry.set)
            .expect("every set in use is known");
        (
            entry.token_depth,
            sets::holders(bits).map(|holder| holder.0).collect(),
        )
    };
    snapshot
        .table
        .iter()
        .map(|entry| (entry.hash, meaning_of(entry)))
        .collect()
}

#[test]
fn base_then_deltas_then_resume() {
    let mut publisher = publisher(8);
    publisher
        .apply(&changes(
            vec![upsert(1, 16, &[0, 2]), upsert(u64::MAX, 32, &[1])],
            vec![],
        ))
        .unwrap();
    let mut replica = Replica::new(MIB, None);
    assert_eq!(join(&mut publisher, &mut replica), Update::Base);
    assert!(replica.is_live());
    assert_eq!(replica.seed(), Some(Seed(42)));
    for delta in publisher
        .apply(&changes(vec![upsert(7, 16, &[2, 0])], vec![1]))
        .unwrap()
    {
        assert!(matches!(
            replica.feed(down(delta)).unwrap(),
            Update::Delta(_)
        ));
    }
    let expected = BTreeMap::from([(7, (16, vec![0, 2])), (u64::MAX, (32, vec![1]))]);
    assert_eq!(meaning(replica.snapshot()), expected);
    // Nothing new is nothing to publish.
    assert_eq!(
        publisher
            .apply(&changes(vec![upsert(7, 16, &[2, 0])], vec![1]))
            .unwrap(),
        []
    );
    publisher
        .apply(&changes(vec![upsert(7, 48, &[])], vec![]))
        .unwrap();
    assert!(matches!(
        join(&mut publisher, &mut replica),
        Update::Delta(_)
    ));
    assert_eq!(meaning(replica.snapshot())[&7], (48, vec![]));
    assert_eq!(replica.snapshot().checksum(), publisher.checksum());
    assert_eq!(join(&mut publisher, &mut replica), Update::Resumed);
}

#[test]
fn a_gateway_that_lags_beyond_the_ring_gets_a_base() {
    let mut publisher = publisher(2);
    let mut replica = Replica::new(MIB, None);
    join(&mut publisher, &mut replica);
    for hash in 1..=3 {
        publisher
            .apply(&changes(vec![upsert(hash, 16, &[0])], vec![]))
            .unwrap();
    }
    assert_eq!(publisher.deltas_since(1), None);
    assert_eq!(publisher.deltas_since(2).unwrap().len(), 2);
    assert_eq!(publisher.deltas_since(5), None);
    assert_eq!(join(&mut publisher, &mut replica), Update::Base);
    assert_eq!(replica.snapshot().table.len(), 3);
}

#[test]
fn gap_wrong_checksum_and_wrong_seed_stop_the_replica() {
    let mut publisher = publisher(8);
    let mut replica = Replica::new(MIB, None);
    join(&mut publisher, &mut replica);
    publisher
        .apply(&changes(vec![upsert(1, 16, &[0])], vec![]))
        .unwrap();
    let second = publisher
        .apply(&changes(vec![upsert(2, 16, &[0])], vec![]))
        .unwrap()
        .remove(0);
    assert_eq!(
        replica.feed(down(second.clone())),
        Err(ReplicaError::Gap { have: 1, got: 3 })
    );
    assert_eq!(
        replica.feed(down(second)),
        Err(ReplicaError::Unexpected {
            kind: "before hello"
        })
    );
    let subscribe = replica.subscribe(&[], "g");
    assert_eq!(
        (subscribe.have_epoch, subscribe.have_version),
        (0, 0),
        "a copy in doubt is not resumed from"
    );
    join(&mut publisher, &mut replica);
    let mut bad = publisher
        .apply(&changes(vec![upsert(3, 16, &[0])], vec![]))
        .unwrap()
        .remove(0);
    bad.checksum ^= 1;
    assert_eq!(
        replica.feed(down(bad)),
        Err(ReplicaError::Checksum { version: 4 })
    );

    let mut other = Replica::new(MIB, Some(Seed(43)));
    other.subscribe(&[], "g");
    assert_eq!(
        other.feed(publisher.start(0, 0).hello),
        Err(ReplicaError::Seed)
    );
}

#[test]
fn a_base_with_a_missing_segment_or_set_is_refused() {
    let mut publisher = publisher(8);
    let many = (1..200_000u64).map(|key| {
        upsert(
            key.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            16,
            &[key as u32 % 5],
        )
    });
    publisher.apply(&changes(many.collect(), vec![])).unwrap();
    let start = publisher.start(0, 0);
    let segments = start
        .body
        .iter()
        .filter(|message| matches!(message.kind, Some(Kind::Segment(_))))
        .count();
    assert!(segments >= 4, "{segments}");
    for left_out in 0..start.body.len() {
        let mut replica = Replica::new(64 * MIB, None);
        replica.subscribe(&[], "g");
        replica.feed(start.hello.clone()).unwrap();
        let messages = start
            .body
            .iter()
            .enumerate()
            .filter(|&(at, _)| at != left_out);
        let result = messages
            .map(|(_, message)| replica.feed(message.clone()))
            .find(Result::is_err);
        assert!(
            result.is_some() || left_out + 1 == start.body.len(),
            "without message {left_out}"
        );
        assert!(!replica.is_live());
    }
}

#[test]
fn gateways_that_come_one_after_the_other_share_a_base_and_are_current_all_the_same() {
    let mut publisher = publisher(8);
    let mut bases = Vec::new();
    for hash in 1..=20 {
        publisher
            .apply(&changes(vec![upsert(hash, 16, &[hash as u32 % 3])], vec![]))
            .unwrap();
        let start = publisher.start(0, 0);
        let Some(Kind::Hello(hello)) = &start.hello.kind else {
            panic!("hello comes first")
        };
        bases.push(hello.version);
        let mut replica = Replica::new(MIB, None);
        join(&mut publisher, &mut replica);
        assert!(replica.is_live());
        assert_eq!(
            (replica.snapshot().version, replica.snapshot().table.len()),
            (publisher.version(), hash as usize)
        );
        assert_eq!(replica.snapshot().checksum(), publisher.checksum());
    }
    bases.dedup();
    assert_eq!(bases, [2, 7, 12, 17], "one for half a ring");
}

#[test]
fn the_old_copy_is_used_until_the_new_one_is_whole() {
    let mut old = publisher(0);
    old.apply(&changes(vec![upsert(1, 16, &[0])], vec![]))
        .unwrap();
    let mut replica = Replica::new(MIB, None);
    join(&mut old, &mut replica);
    old.apply(&changes(vec![upsert(2, 16, &[0])], vec![]))
        .unwrap();
    replica.subscribe(&[], "g");
    let start = old.start(0, 0);
    replica.feed(start.hello).unwrap();
    let done = start.body.len() - 1;
    for (at, message) in start.body.into_iter().enumerate() {
        assert_eq!(replica.snapshot().table.len(), 1);
        assert_eq!(replica.feed(message).unwrap() == Update::Base, at == done);
    }
    assert_eq!(replica.snapshot().table.len(), 2);
}

#[test]
fn large_changes_become_several_deltas_and_set_ids_are_reused() {
    let mut publisher = publisher(64);
    let mut replica = Replica::new(64 * MIB, None);
    join(&mut publisher, &mut replica);
    for round in 0..5u32 {
        let upserts: Vec<_> = (1..20_000u64)
            .map(|key| upsert(key << 40, round, &[round * 7, key as u32 % 50]))
            .collect();
        let deltas = publisher.apply(&changes(upserts, vec![])).unwrap();
        assert_eq!(deltas.len(), 3);
        for delta in deltas {
            replica.feed(down(delta)).unwrap();
        }
    }
    assert_eq!(publisher.sets().len(), 50);
    assert!(
        publisher.sets().pages() * sets::PAGE_SETS < 200,
        "ids are reused"
    );
    for delta in publisher
        .apply(&changes(
            vec![],
            (1..20_000u64).map(|key| key << 40).collect(),
        ))
        .unwrap()
    {
        replica.feed(down(delta)).unwrap();
    }
    assert!(
        publisher.sets().is_empty()
            && replica.snapshot().sets.is_empty()
            && replica.snapshot().table.is_empty()
    );
}

fn endpoints(holders: &[&[(u32, &str)]], block_size: u32) -> Endpoints {
    let endpoint = |(place, holders): (usize, &&[(u32, &str)])| proto::Endpoint {
        id: place as u32,
        address: format!("10.0.0.{place}:80"),
        block_size,
        holders: holders
            .iter()
            .map(|&(id, tier)| proto::Holder {
                id,
                tier: tier.into(),
            })
            .collect(),
        ..proto::Endpoint::default()
    };
    let endpoints = holders.iter().enumerate().map(endpoint).collect();
    Endpoints::from_message(&proto::Endpoints {
        revision: 1,
        endpoints,
    })
}

fn probe(rungs: &[RungChange], endpoints: &Endpoints, prompt: &PromptHashes) -> Match {
    let mut publisher = publisher(0);
    publisher.apply(&changes(rungs.to_vec(), vec![])).unwrap();
    matched(
        publisher.table(),
        publisher.sets(),
        endpoints,
        &(),
        &prompt.rungs,
    )
}

fn prompt(chunks: usize) -> PromptHashes {
    let text: Vec<u8> = (0..chunks * 64 + 10)
        .map(|at| b'a' + (at % 23) as u8)
        .collect();
    PromptHashes::new(ChunkHash(5), &text, Seed(42), usize::MAX)
}

#[test]
fn probing_goes_on_past_a_set_that_lacks_a_holder_and_stops_at_an_absent_rung() {
    let prompt = prompt(6);
    let hash = |chunks: usize| prompt.rungs[chunks - 1].hash;
    let endpoints = endpoints(
        &[&[(0, "gpu"), (3, "cpu")], &[(1, "gpu")], &[(2, "gpu")]],
        16,
    );
    let result = probe(
        &[
            upsert(hash(1), 16, &[0, 1, 2, 9]),
            upsert(hash(2), 35, &[]),
            upsert(hash(3), 55, &[0, 3]),
            upsert(hash(4), 70, &[3]),
            // Rung 5 is absent.
            upsert(hash(6), 100, &[1]),
        ],
        &endpoints,
        &prompt,
    );
    assert_eq!(
        result.credits[0].by_tier,
        [48, 64, 0],
        "floored to whole blocks"
    );
    assert_eq!(
        (result.credits[0].tokens(), result.credits[0].tier()),
        (64, Some(Tier::Cpu))
    );
    assert_eq!(result.credits[1].by_tier, [16, 0, 0]);
    assert_eq!(result.credits[2].tier(), Some(Tier::Gpu));
    assert_eq!((result.bytes, result.tokens), (4 * 64, 70));
}

#[test]
fn a_dead_holder_has_no_credit() {
    let prompt = prompt(2);
    let rungs = [
        upsert(prompt.rungs[0].hash, 16, &[0, 1]),
        upsert(prompt.rungs[1].hash, 32, &[0, 1]),
    ];
    let result = probe(
        &rungs,
        &endpoints(&[&[(5, "gpu")], &[(1, "gpu")]], 16),
        &prompt,
    );
    assert_eq!(
        result
            .credits
            .iter()
            .map(|credit| credit.tokens())
            .collect::<Vec<_>>(),
        [0, 32]
    );
}

#[test]
fn expected_rungs_carry_the_walk_on() {
    struct Expect(Vec<(u64, EndpointKey, u32)>);
    impl probe::Expectation for Expect {
        fn expected(
            &self,
            _place: usize,
            rung: u64,
            found: &mut dyn FnMut(EndpointKey, u32),
        ) -> bool {
            let hits: Vec<_> = self.0.iter().filter(|hit| hit.0 == rung).collect();
            for hit in &hits {
                found(hit.1, hit.2);
            }
            !hits.is_empty()
        }
    }
    let prompt = prompt(4);
    let endpoints = endpoints(&[&[(0, "gpu")], &[(1, "gpu")]], 16);
    let mut publisher = publisher(0);
    publisher
        .apply(&changes(
            vec![upsert(prompt.rungs[0].hash, 16, &[0])],
            vec![],
        ))
        .unwrap();
    let key = endpoints.list()[1].key;
    let expect = Expect(vec![
        (prompt.rungs[1].hash, key, 40),
        (prompt.rungs[3].hash, key, 80),
    ]);
    let result = matched(
        publisher.table(),
        publisher.sets(),
        &endpoints,
        &expect,
        &prompt.rungs,
    );
    assert_eq!(
        result.credits[1],
        Credit {
            by_tier: [0; 3],
            speculative: 32
        }
    );
    assert_eq!(result.credits[0].tokens(), 16);
    assert_eq!(result.bytes, 64, "the table's own match");
}

#[test]
fn long_prompts_are_probed_at_rungs_only() {
    let prompt = prompt(300);
    let depths: Vec<u32> = prompt.rungs.iter().map(|rung| rung.chunks).collect();
    assert_eq!(
        depths,
        crate::rung::rungs(Space::Text, 300).collect::<Vec<_>>()
    );
    assert_eq!(prompt.bytes, 300 * 64 + 10);
    let limited = PromptHashes::new(ChunkHash(5), &[b'x'; 1000], Seed(1), 128);
    assert_eq!((limited.rungs.len(), limited.bytes), (2, 1000));
}

type Op = (Vec<(u64, u32, Vec<u32>)>, Vec<u64>, bool);

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let hash = || (1u64..60).prop_map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let holders = prop::collection::vec(0u32..12, 0..4);
    let upserts = prop::collection::vec((hash(), 0u32..5, holders), 0..12);
    prop::collection::vec(
        (upserts, prop::collection::vec(hash(), 0..8), any::<bool>()),
        1..30,
    )
}

proptest! {
    #[test]
    fn every_replica_equals_a_map(ops in ops()) {
        let mut publisher = publisher(5);
        let mut model: BTreeMap<u64, (u32, Vec<u32>)> = BTreeMap::new();
        let mut steady = Replica::new(MIB, None);
        let mut rejoining = Replica::new(MIB, None);
        join(&mut publisher, &mut steady);
        for (upserts, removes, rejoin) in ops {
            let upserts: BTreeMap<u64, (u32, Vec<u32>)> = upserts.into_iter().map(|(hash, depth, mut holders)| {
                holders.sort_unstable();
                holders.dedup();
                (hash, (depth, holders))
            }).collect();
            let removes: Vec<u64> = removes.into_iter().filter(|hash| !upserts.contains_key(hash)).collect();
            for hash in &removes {
                model.remove(hash);
            }
            model.extend(upserts.clone());
            let upserts = upserts.iter().map(|(&hash, (depth, holders))| upsert(hash, *depth, holders)).collect();
            for delta in publisher.apply(&changes(upserts, removes)).unwrap() {
                steady.feed(down(delta)).unwrap();
            }
            if rejoin {
                join(&mut publisher, &mut rejoining);
                prop_assert_eq!(&meaning(rejoining.snapshot()), &model);
            }
            prop_assert_eq!(&meaning(steady.snapshot()), &model);
            prop_assert_eq!([steady.snapshot().checksum(), steady.snapshot().recounted_checksum()], [publisher.checksum(); 2]);
            let used: std::collections::BTreeSet<_> = model.values().map(|(_, holders)| holders).filter(|holders| !holders.is_empty()).collect();
            prop_assert_eq!(publisher.sets().len(), used.len(), "no set is leaked");
        }
    }
}
