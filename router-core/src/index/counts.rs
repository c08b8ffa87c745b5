//! A small sorted multiset in eight bytes: key → how often.

use super::slab::Slab;

/// Key of a set with several keys.
const SEVERAL: u32 = u32::MAX;

/// Keys with counts above zero, none of them `u32::MAX`. One key is kept in place, several in [`Lists`].
///
/// ```text
///  { key: -,       count: 0 }         no key
///  { key: k,       count: n }         k, n times
///  { key: SEVERAL, count: number } ─► [(key, count), ...] ascending
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    key: u32,
    count: u32,
}

/// The sets with several keys.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: Slab<Vec<(u32, u32)>>,
    pairs: usize,
}

impl Lists {
    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.lists.len() * size_of::<Vec<(u32, u32)>>() + self.pairs * size_of::<(u32, u32)>()
    }
}

impl Counts {
    /// Counts `key` once more; whether it is new.
    #[inline]
    pub(super) fn add(&mut self, key: u32, lists: &mut Lists) -> bool {
        self.add_many(key, 1, lists)
    }

    /// Counts `key` `more` times more, at least once; whether it is new.
    pub(super) fn add_many(&mut self, key: u32, more: u32, lists: &mut Lists) -> bool {
        if self.key == SEVERAL {
            let pairs = &mut lists.lists[self.count];
            match pairs.binary_search_by_key(&key, |pair| pair.0) {
                Ok(at) => {
                    if let Some(pair) = pairs.get_mut(at) {
                        pair.1 += more;
                    }
                    false
                }
                Err(at) => {
                    pairs.insert(at, (key, more));
                    lists.pairs += 1;
                    true
                }
            }
        } else if self.count == 0 {
            *self = Self { key, count: more };
            true
        } else if self.key == key {
            self.count += more;
            false
        } else {
            let mut pairs = vec![(self.key, self.count), (key, more)];
            pairs.sort_unstable();
            lists.pairs += 2;
            *self = Self {
                key: SEVERAL,
                count: lists.lists.insert(pairs),
            };
            true
        }
    }

    /// Counts `key` once less; whether it is gone. A key that is not there stays away.
    pub(super) fn remove(&mut self, key: u32, lists: &mut Lists) -> bool {
        if self.key != SEVERAL {
            let is_there = self.key == key && self.count > 0;
            debug_assert!(is_there, "removed a key that was not counted");
            self.count -= u32::from(is_there);
            return is_there && self.count == 0;
        }
        let number = self.count;
        let pairs = &mut lists.lists[number];
        let Ok(at) = pairs.binary_search_by_key(&key, |pair| pair.0) else {
            debug_assert!(false, "removed a key that was not counted");
            return false;
        };
        let Some(pair) = pairs.get_mut(at) else {
            return false;
        };
        pair.1 -= 1;
        let gone = pair.1 == 0;
        if gone {
            pairs.remove(at);
            lists.pairs -= 1;
            if let [(key, count)] = *pairs.as_slice() {
                *self = Self { key, count };
                lists.pairs -= 1;
                lists.lists[number] = Vec::new();
                lists.lists.free(number);
            }
        }
        gone
    }

    pub(super) fn contains(self, key: u32, lists: &Lists) -> bool {
        self.pairs(lists)
            .binary_search_by_key(&key, |pair| pair.0)
            .is_ok()
            || (self.key == key && self.count > 0)
    }

    /// Number of keys.
    pub(super) fn len(self, lists: &Lists) -> usize {
        if self.key == SEVERAL {
            self.pairs(lists).len()
        } else {
            usize::from(self.count > 0)
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.key != SEVERAL && self.count == 0
    }

    pub(super) fn max(self, lists: &Lists) -> Option<u32> {
        let several = self.pairs(lists).last().map(|pair| pair.0);
        several.or_else(|| (!self.is_empty()).then_some(self.key))
    }

    fn pairs(self, lists: &Lists) -> &[(u32, u32)] {
        if self.key == SEVERAL {
            &lists.lists[self.count]
        } else {
            &[]
        }
    }

    /// Keys in ascending order.
    pub(super) fn keys(self, lists: &Lists) -> impl Iterator<Item = u32> {
        let one = (self.key != SEVERAL && self.count > 0).then_some(self.key);
        one.into_iter()
            .chain(self.pairs(lists).iter().map(|pair| pair.0))
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
            let mut lists = Lists::default();
            let mut counts = Counts::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (key, add) in operations {
                if add {
                    prop_assert_eq!(counts.add(key, &mut lists), !model.contains_key(&key));
                    *model.entry(key).or_default() += 1;
                } else if let Some(count) = model.get_mut(&key) {
                    *count -= 1;
                    let gone = *count == 0;
                    if gone {
                        model.remove(&key);
                    }
                    prop_assert_eq!(counts.remove(key, &mut lists), gone);
                }
                prop_assert_eq!(counts.keys(&lists).collect::<Vec<_>>(), model.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(counts.max(&lists), model.keys().last().copied());
                prop_assert_eq!(counts.is_empty(), model.is_empty());
                prop_assert_eq!(counts.len(&lists), model.len());
                prop_assert_eq!(lists.bytes() > 0, model.len() > 1);
            }
        }
    }
}
