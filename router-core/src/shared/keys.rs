//! Names of the keys.

use xxhash_rust::xxh3::Xxh3Default;

/// Keys of one scope: one set of indexer clusters and pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    base: String,
}

impl Keys {
    /// Keys for the indexers (clusters, in order) and pools of a plugin configuration. Plugins that differ in them don't see each other.
    ///
    /// The scope is XXH3-64, seed 0, over the texts, each as length (u64 LE) and bytes, and u64 LE `number of indexers` before all.
    pub fn new(indexers: &[String], pools: &[String]) -> Self {
        let mut hasher = Xxh3Default::new();
        hasher.update(&(indexers.len() as u64).to_le_bytes());
        for text in indexers.iter().chain(pools) {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Self {
            base: format!("pw/1/{:016x}", hasher.digest()),
        }
    }

    /// Counter of VM ids.
    pub fn vm_counter(&self) -> String {
        format!("{}/vm-counter", self.base)
    }

    /// List of VMs.
    pub fn vms(&self) -> String {
        format!("{}/vms", self.base)
    }

    /// Record of a VM.
    pub fn vm(&self, id: u32) -> String {
        format!("{}/vm/{id}", self.base)
    }

    /// What a VM says of its copies.
    pub fn copies(&self, id: u32) -> String {
        format!("{}/copies/{id}", self.base)
    }

    /// The turn to hand out slots.
    pub fn turn(&self) -> String {
        format!("{}/turn", self.base)
    }

    /// What was handed out, as far as it matters for what comes next.
    pub fn fair(&self) -> String {
        format!("{}/fair", self.base)
    }

    /// Keys of a shard, by its place among the indexers.
    pub fn shard(&self, number: usize) -> ShardKeys {
        ShardKeys {
            base: format!("{}/{number}", self.base),
        }
    }
}

/// Keys of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardKeys {
    base: String,
}

impl ShardKeys {
    /// The head.
    pub fn head(&self) -> String {
        format!("{}/head", self.base)
    }

    /// `meta`, `policy`, `endpoints` or `load` of a term.
    pub fn of_term(&self, term: u64, name: &str) -> String {
        format!("{}/{term:016x}/{name}", self.base)
    }

    /// Image of a segment.
    pub fn segment(&self, term: u64, number: usize) -> String {
        format!("{}/{term:016x}/seg/{number}", self.base)
    }

    /// Image of a page of sets.
    pub fn page(&self, term: u64, number: usize) -> String {
        format!("{}/{term:016x}/sets/{number}", self.base)
    }

    /// Place in the ring.
    pub fn delta(&self, term: u64, place: u64) -> String {
        format!("{}/{term:016x}/delta/{place}", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_keys_and_scopes_that_do_not_run_into_each_other() {
        let keys = |indexers: &[&str], pools: &[&str]| {
            let owned = |texts: &[&str]| {
                texts
                    .iter()
                    .map(|&text| text.to_owned())
                    .collect::<Vec<_>>()
            };
            Keys::new(&owned(indexers), &owned(pools))
        };
        let one = keys(&["prefixway_indexer"], &["default"]);
        assert_eq!(one.vms(), "pw/1/49fa24ed9d089c9d/vms");
        assert_eq!(one.vm(3), "pw/1/49fa24ed9d089c9d/vm/3");
        assert_eq!(one.copies(3), "pw/1/49fa24ed9d089c9d/copies/3");
        assert_eq!(one.turn(), "pw/1/49fa24ed9d089c9d/turn");
        assert_eq!(one.fair(), "pw/1/49fa24ed9d089c9d/fair");
        let shard = one.shard(0);
        assert_eq!(shard.head(), "pw/1/49fa24ed9d089c9d/0/head");
        assert_eq!(
            shard.segment(0x10, 2),
            "pw/1/49fa24ed9d089c9d/0/0000000000000010/seg/2"
        );
        assert_eq!(
            shard.of_term(1, "meta"),
            "pw/1/49fa24ed9d089c9d/0/0000000000000001/meta"
        );
        let all = [
            one,
            keys(&["prefixway_indexer", "default"], &[]),
            keys(&["a"], &["b"]),
            keys(&["ab"], &[]),
            keys(&[], &["ab"]),
        ];
        for (at, keys) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(keys));
        }
    }
}
