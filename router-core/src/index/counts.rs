//! A small sorted multiset: key → how often.

/// Keys with counts above zero, sorted. One key is kept in place.
#[derive(Debug, Default)]
pub(super) enum Counts {
    #[default]
    Empty,
    One {
        key: u32,
        count: u32,
    },
    #[expect(
        clippy::box_collection,
        reason = "most sets have one key; the box keeps a rung at half the size"
    )]
    Many(Box<Vec<(u32, u32)>>),
}

impl Counts {
    /// Counts `key` once more; whether it is new.
    pub(super) fn add(&mut self, key: u32) -> bool {
        match self {
            Self::Empty => {
                *self = Self::One { key, count: 1 };
                true
            }
            Self::One { key: only, count } if *only == key => {
                *count += 1;
                false
            }
            Self::One { key: only, count } => {
                let mut pairs = vec![(*only, *count), (key, 1)];
                pairs.sort_unstable();
                *self = Self::Many(Box::new(pairs));
                true
            }
            Self::Many(pairs) => match pairs.binary_search_by_key(&key, |pair| pair.0) {
                Ok(at) => {
                    if let Some(pair) = pairs.get_mut(at) {
                        pair.1 += 1;
                    }
                    false
                }
                Err(at) => {
                    pairs.insert(at, (key, 1));
                    true
                }
            },
        }
    }

    /// Counts `key` once less; whether it is gone. A key that is not there stays away.
    pub(super) fn remove(&mut self, key: u32) -> bool {
        match self {
            Self::One { key: only, count } if *only == key => {
                *count -= 1;
                let gone = *count == 0;
                if gone {
                    *self = Self::Empty;
                }
                gone
            }
            Self::Many(pairs) => {
                let Ok(at) = pairs.binary_search_by_key(&key, |pair| pair.0) else {
                    return false;
                };
                let Some(pair) = pairs.get_mut(at) else {
                    return false;
                };
                pair.1 -= 1;
                let gone = pair.1 == 0;
                if gone {
                    pairs.remove(at);
                    if let [(key, count)] = *pairs.as_slice() {
                        *self = Self::One { key, count };
                    }
                }
                gone
            }
            Self::Empty | Self::One { .. } => {
                debug_assert!(false, "removed a key that was not counted");
                false
            }
        }
    }

    pub(super) fn contains(&self, key: u32) -> bool {
        match self {
            Self::Empty => false,
            Self::One { key: only, .. } => *only == key,
            Self::Many(pairs) => pairs.binary_search_by_key(&key, |pair| pair.0).is_ok(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(super) fn max(&self) -> Option<u32> {
        match self {
            Self::Empty => None,
            Self::One { key, .. } => Some(*key),
            Self::Many(pairs) => pairs.last().map(|pair| pair.0),
        }
    }

    /// Keys in ascending order.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::Empty => (None, &[][..]),
            Self::One { key, .. } => (Some(*key), &[][..]),
            Self::Many(pairs) => (None, pairs.as_slice()),
        };
        one.into_iter().chain(many.iter().map(|pair| pair.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn counts_behave_like_a_map(operations in prop::collection::vec((0u32..6, any::<bool>()), 0..200)) {
            let mut counts = Counts::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (key, add) in operations {
                if add {
                    prop_assert_eq!(counts.add(key), !model.contains_key(&key));
                    *model.entry(key).or_default() += 1;
                } else if let Some(count) = model.get_mut(&key) {
                    *count -= 1;
                    let gone = *count == 0;
                    if gone {
                        model.remove(&key);
                    }
                    prop_assert_eq!(counts.remove(key), gone);
                }
                prop_assert_eq!(counts.keys().collect::<Vec<_>>(), model.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(counts.max(), model.keys().last().copied());
                prop_assert_eq!(counts.is_empty(), model.is_empty());
            }
        }
    }
}
