use super::oracle::{Oracle, OracleSource, OracleSpeculation};
use super::*;
use crate::event::encode::{EventSpec, StoredSpec, batch};
use crate::hash::{ChunkHash, Scope, Space};
use proptest::prelude::*;
use std::collections::BTreeMap;

mod bounded;
mod confirmed;
mod published;
mod random;

const SEED: Seed = Seed(0x5eed);
const MODEL: ModelId = ModelId(0);

fn scope(adapter: &str, salt: &str) -> ChunkHash {
    scope_in(Space::Text, adapter, salt)
}

fn scope_in(space: Space, adapter: &str, salt: &str) -> ChunkHash {
    Scope {
        space,
        profile: "m",
        revision: 1,
        adapter,
        salt,
    }
    .hash(SEED)
}

fn index(vocabulary: impl IntoIterator<Item: AsRef<[u8]>>) -> Index {
    let mut index = Index::new(IndexConfig {
        seed: SEED,
        max_bytes: usize::MAX,
    });
    index.add_model(MODEL, "m", 1, Some(vocabulary.into_iter().collect()));
    index
}

/// Holders of the `n`th incarnation made.
fn holders(n: u32) -> [HolderId; 3] {
    [0, 1, 2].map(|tier| HolderId(n * 3 + tier))
}

fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32], block_size: u32) -> EventSpec {
    EventSpec::Stored(StoredSpec {
        hashes: hashes.to_vec(),
        parent,
        tokens: tokens.to_vec(),
        block_size,
        medium: Some("GPU".to_owned()),
        ..StoredSpec::default()
    })
}

fn removed(hash: u64) -> EventSpec {
    EventSpec::Removed {
        hashes: vec![hash],
        medium: Some("GPU".to_owned()),
        group: None,
    }
}

/// A table as a gateway keeps it.
#[derive(Debug, Default)]
struct Table(BTreeMap<u64, RungChange>);

impl Table {
    fn take(&mut self, index: &mut Index) {
        let changes = index.take_changes();
        let mut named = std::collections::BTreeSet::new();
        for upsert in changes.upserts {
            assert!(named.insert(upsert.hash), "a rung is named once");
            self.0.insert(upsert.hash, upsert);
        }
        for hash in changes.removes {
            assert!(named.insert(hash), "a rung is named once");
            assert!(
                self.0.remove(&hash).is_some(),
                "only what was published is removed"
            );
        }
    }
}

fn all(index: &Index) -> BTreeMap<u64, RungChange> {
    index.all_rungs().map(|rung| (rung.hash, rung)).collect()
}
