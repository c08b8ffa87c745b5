//! Children that are not in their parent's next slot.

use hashbrown::{HashMap, HashSet};

/// Parent → children. Most parents with such children have one: a chain that goes on in another page.
#[derive(Debug, Default)]
pub(super) struct Branches {
    first: HashMap<u32, u32>,
    others: HashMap<u32, HashSet<u32>>,
    children: usize,
}

impl Branches {
    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        const PER_FIRST: usize = size_of::<(u32, u32)>() + 4;
        const PER_SET: usize = size_of::<(u32, HashSet<u32>)>() + 32;
        self.first.len() * PER_FIRST
            + self.others.len() * PER_SET
            + (self.children - self.first.len()) * 8
    }

    pub(super) fn insert(&mut self, parent: u32, child: u32) {
        self.children += 1;
        if let Some(first) = self.first.insert(parent, child) {
            self.others.entry(parent).or_default().insert(first);
        }
    }

    /// Takes a child away; whether it was the last one.
    pub(super) fn remove(&mut self, parent: u32, child: u32) -> bool {
        let Some(first) = self.first.get_mut(&parent) else {
            debug_assert!(false, "child of a parent without branches");
            return true;
        };
        self.children -= 1;
        let Some(others) = self.others.get_mut(&parent) else {
            self.first.remove(&parent);
            return true;
        };
        if *first == child
            && let Some(&other) = others.iter().next()
        {
            *first = other;
            others.remove(&other);
        } else {
            others.remove(&child);
        }
        if others.is_empty() {
            self.others.remove(&parent);
        }
        false
    }

    /// Children of `parent`, in no order.
    pub(super) fn of(&self, parent: u32) -> impl Iterator<Item = u32> {
        let others = self.others.get(&parent).into_iter().flatten();
        self.first.get(&parent).into_iter().chain(others).copied()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_come_and_go() {
        let mut branches = Branches::default();
        for child in 0..40 {
            branches.insert(child % 2, child);
        }
        let mut of_one: Vec<u32> = branches.of(1).collect();
        of_one.sort_unstable();
        assert_eq!(of_one, (1..40).step_by(2).collect::<Vec<_>>());
        assert_eq!(branches.of(7).count(), 0);
        for child in 0..40 {
            assert_eq!(branches.remove(child % 2, child), child >= 38);
        }
        assert_eq!(branches.bytes(), 0);
    }
}
