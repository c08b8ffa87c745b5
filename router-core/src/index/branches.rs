//! Children that are not in their parent's next slot.

use hashbrown::{HashMap, HashSet};

/// Children kept in a list; more are kept in a set.
const FEW: usize = 16;

#[derive(Debug)]
enum Children {
    Few(Vec<u32>),
    Many(HashSet<u32>),
}

/// Parent → children. Only parents with such children are there.
#[derive(Debug, Default)]
pub(super) struct Branches {
    by_parent: HashMap<u32, Children>,
    children: usize,
}

impl Branches {
    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.by_parent.len() * (size_of::<(u32, Children)>() + 8) + self.children * 8
    }

    pub(super) fn insert(&mut self, parent: u32, child: u32) {
        self.children += 1;
        let children = self
            .by_parent
            .entry(parent)
            .or_insert_with(|| Children::Few(Vec::with_capacity(1)));
        match children {
            Children::Few(few) if few.len() < FEW => few.push(child),
            Children::Few(few) => {
                *children = Children::Many(few.drain(..).chain([child]).collect());
            }
            Children::Many(many) => {
                many.insert(child);
            }
        }
    }

    /// Takes a child away; whether it was the last one.
    pub(super) fn remove(&mut self, parent: u32, child: u32) -> bool {
        let Some(children) = self.by_parent.get_mut(&parent) else {
            debug_assert!(false, "child of a parent without branches");
            return true;
        };
        self.children -= 1;
        let is_last = match children {
            Children::Few(few) => {
                few.retain(|&other| other != child);
                few.is_empty()
            }
            Children::Many(many) => {
                many.remove(&child);
                many.is_empty()
            }
        };
        if is_last {
            self.by_parent.remove(&parent);
        }
        is_last
    }

    /// Children of `parent`, in no order.
    pub(super) fn of(&self, parent: u32) -> impl Iterator<Item = u32> {
        let (few, many) = match self.by_parent.get(&parent) {
            Some(Children::Few(few)) => (few.as_slice(), None),
            Some(Children::Many(many)) => (&[][..], Some(many)),
            None => (&[][..], None),
        };
        few.iter().chain(many.into_iter().flatten()).copied()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_come_and_go_beyond_what_a_list_holds() {
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
