//! Which rungs a table keeps when it may not become as large as the index.
//!
//! Of all rungs one in 2^level is kept, and their hashes tell which: so the index, tables and prompts agree without a word about any single
//! one, and a prompt is found less exactly instead of not at all.

/// How few rungs are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thinning(u8);

impl Thinning {
    /// All rungs are kept.
    pub const NONE: Self = Self(0);
    /// The most: one rung in 64, a step of a few thousand tokens in a long prompt.
    pub const MOST: Self = Self(6);

    /// From a message; more than the most is none that a table could have.
    pub fn from_level(level: u32) -> Option<Self> {
        let level = u8::try_from(level).ok().map(Self)?;
        (level <= Self::MOST).then_some(level)
    }

    /// One rung in 2^level is kept.
    pub fn level(self) -> u32 {
        u32::from(self.0)
    }

    /// Half as many rungs; `None` when no fewer can be kept.
    pub fn more(self) -> Option<Self> {
        (self < Self::MOST).then_some(Self(self.0 + 1))
    }

    /// Twice as many rungs; `None` when all are kept.
    pub fn less(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// Whether the rung of this hash is kept. Low bits: neither a segment nor a place in one follows from them.
    pub fn keeps(self, hash: u64) -> bool {
        hash.trailing_zeros() >= self.level()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        endpoint::HolderId,
        hash::{ChunkHash, Seed},
        index::{Changes, RungChange},
        proto,
        snapshot::{
            Endpoints, Match, PromptHashes, Publisher, PublisherConfig, Replica, Rung, Snapshot,
            Update, probe::matched_in,
        },
    };

    fn endpoints() -> Endpoints {
        let endpoint = |id: u32| proto::Endpoint {
            id,
            address: format!("10.0.0.{id}:80"),
            block_size: 1,
            holders: vec![proto::Holder {
                id,
                tier: "gpu".into(),
            }],
            ..proto::Endpoint::default()
        };
        Endpoints::from_message(&proto::Endpoints {
            revision: 1,
            endpoints: (0..3).map(endpoint).collect(),
        })
    }

    /// What a gateway receives of a prompt's rungs, of which each endpoint holds so many.
    fn received(rungs: &[Rung], held: [usize; 3], thinning: Thinning) -> Snapshot {
        let mut publisher = Publisher::try_new(PublisherConfig {
            epoch: 1,
            seed: Seed(1),
            shard: String::new(),
            ring_deltas: 8,
            max_bytes: 1 << 24,
            thinning,
        })
        .unwrap();
        let holders = |place: usize| -> Vec<HolderId> {
            let holds = (0u32..).zip(held).filter(|&(_, rungs)| place < rungs);
            holds.map(|(id, _)| HolderId(id)).collect()
        };
        let known = rungs.iter().enumerate().map(|(place, rung)| RungChange {
            hash: rung.hash,
            token_depth: rung.chunks * 16,
            holders: holders(place).into_iter().collect(),
        });
        let upserts: Vec<RungChange> = known.filter(|rung| !rung.holders.is_empty()).collect();
        let (first, rest) = upserts.split_at(upserts.len() / 2);
        let changes = |upserts: &[RungChange]| Changes {
            upserts: upserts.to_vec(),
            removes: Vec::new(),
        };
        // Half comes with the base, half with deltas.
        publisher.apply(&changes(first)).unwrap();
        let mut replica = Replica::new(1 << 24, None);
        let subscribe = replica.subscribe(&[], "g");
        let start = publisher.start(subscribe.have_epoch, subscribe.have_version);
        for message in core::iter::once(start.hello).chain(start.body) {
            replica.feed(message).unwrap();
        }
        for delta in publisher.apply(&changes(rest)).unwrap() {
            let kind = Some(proto::down::Kind::Delta(delta));
            let update = replica.feed(proto::Down { kind }).unwrap();
            assert!(matches!(update, Update::Delta(_)));
        }
        replica.into_snapshot()
    }

    fn prompt() -> PromptHashes {
        let text: Vec<u8> = (0u32..3_000).flat_map(u32::to_le_bytes).collect();
        PromptHashes::new(ChunkHash(5), &text, Seed(1), usize::MAX)
    }

    fn tokens(found: &Match) -> Vec<u32> {
        let credits = found.credits.iter();
        credits.map(|credit| credit.tokens()).collect()
    }

    proptest! {
        #[test]
        fn an_endpoint_is_credited_with_its_deepest_rung_that_is_kept(held: [u8; 3], level in 0u32..=6) {
            let (prompt, thinning) = (prompt(), Thinning::from_level(level).unwrap());
            let held = held.map(usize::from);
            let snapshot = received(&prompt.rungs, held, thinning);
            prop_assert_eq!(snapshot.table.thinning(), thinning);
            let expected: Vec<u32> = held
                .iter()
                .map(|&rungs| {
                    let rungs = prompt.rungs.iter().take(rungs);
                    let mut kept = rungs.filter(|rung| thinning.keeps(rung.hash));
                    kept.next_back().map_or(0, |rung| rung.chunks * 16)
                })
                .collect();
            let found = matched_in(&snapshot, &endpoints(), &(), &prompt.rungs);
            prop_assert_eq!(tokens(&found), expected);
        }
    }

    #[test]
    fn a_table_that_keeps_fewer_rungs_than_can_be_is_refused() {
        let mut replica = Replica::new(1 << 20, None);
        replica.subscribe(&[], "g");
        let hello = proto::Hello {
            epoch: 1,
            version: 1,
            seed: 1,
            seed_check: Seed(1).check(),
            thinning: 7,
            ..proto::Hello::default()
        };
        let kind = Some(proto::down::Kind::Hello(hello));
        assert!(replica.feed(proto::Down { kind }).is_err());
    }

    #[test]
    fn each_level_keeps_half_of_what_the_one_before_keeps() {
        let mut thinning = Thinning::NONE;
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let kept = |thinning: Thinning| (1..=64_000).map(hash).filter(move |&h| thinning.keeps(h));
        assert_eq!(kept(thinning).count(), 64_000);
        while let Some(more) = thinning.more() {
            assert!(kept(more).all(|hash| thinning.keeps(hash)));
            let expected = 64_000usize >> more.level();
            assert!(kept(more).count().abs_diff(expected) < 100);
            assert_eq!(more.less(), Some(thinning));
            assert_eq!(Thinning::from_level(more.level()), Some(more));
            thinning = more;
        }
        assert_eq!((thinning, Thinning::NONE.less()), (Thinning::MOST, None));
        assert_eq!(Thinning::from_level(7), None);
        assert_eq!(Thinning::from_level(256), None);
    }
}
