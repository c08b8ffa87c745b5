//! Which indexer shard an endpoint belongs to.
//!
//! Rendezvous hashing over the shards' names: each name has a weight for the endpoint, the greatest wins. So every replica finds the
//! same owner from the same list, in whatever order it is written, and a shard that is added takes only what it then owns.
//!
//! `weight = XXH3-64( len name as u64 LE || name || address, seed 0 )`

use xxhash_rust::xxh3::Xxh3Default;

/// The name of the shard that owns an endpoint; `None` where there are no names.
///
/// `address` is as Envoy spells it. Data-parallel ranks behind one address have one owner, since health, load and calibration are the
/// address's.
pub fn owner<'n>(names: impl IntoIterator<Item = &'n str>, address: &str) -> Option<&'n str> {
    names
        .into_iter()
        .max_by_key(|name| (weight(name, address), *name))
}

fn weight(name: &str, address: &str) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(address.as_bytes());
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENDPOINTS: usize = 2_000;

    fn addresses(network: u8) -> Vec<String> {
        (0..ENDPOINTS)
            .map(|i| format!("10.{network}.{}.{}:8000", i / 250, i % 250))
            .collect()
    }

    fn owned<'n>(names: &[&'n str], address: &str) -> &'n str {
        owner(names.iter().copied(), address).unwrap()
    }

    #[test]
    fn golden_owners() {
        let names = ["prefixway-0", "prefixway-1", "prefixway-2"];
        let owners: Vec<&str> = ["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::12]:8000"]
            .iter()
            .map(|address| owned(&names, address))
            .collect();
        assert_eq!(owners, ["prefixway-2", "prefixway-0", "prefixway-1"]);
        assert_eq!(owner([], "10.0.0.1:8000"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_new_shard_takes_its_share_and_nothing_else_moves(
            names in prop::collection::hash_set("[a-z0-9-]{1,12}", 2..9),
            network in any::<u8>(),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (added, before) = names.split_last().unwrap();
            let mut moved = 0usize;
            for address in addresses(network) {
                let (old, new) = (owned(before, &address), owned(&names, &address));
                prop_assert!(old == new || new == *added, "{} went from {} to {}", address, old, new);
                moved += usize::from(old != new);
                // The order of the list is of no matter.
                let reversed = owner(names.iter().rev().copied(), &address);
                prop_assert_eq!(reversed, Some(new));
            }
            // Five standard deviations of a fair share.
            let share = 1.0 / names.len() as f64;
            let (mean, deviation) = (ENDPOINTS as f64 * share, (ENDPOINTS as f64 * share * (1.0 - share)).sqrt());
            prop_assert!((moved as f64 - mean).abs() < 5.0 * deviation, "{} of {} moved, {} expected", moved, ENDPOINTS, mean);
        }
    }
}
