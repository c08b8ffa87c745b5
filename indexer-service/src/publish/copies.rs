//! What the VMs of a gateway have of the published table, by their own account.

use std::time::{Duration, Instant};

use prefixway_core::proto;
use prefixway_core::snapshot::Publisher;

/// Most VMs of a gateway that are kept; Envoy has one for each worker.
const MAX_VMS: usize = 1024;

/// What one VM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Number of the VM within its gateway.
    pub vm: u32,
    /// Version line; 0 = it has no copy.
    pub epoch: u64,
    /// Version.
    pub version: u64,
    /// Checksum.
    pub checksum: u64,
    /// Entries.
    pub rungs: u64,
    /// Whether the checksum is not that of its version.
    pub is_different: bool,
    at: Instant,
}

impl Told {
    /// Time since the VM said so.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }

    /// What the copy is beside the table as it is published now: same, behind or different.
    pub fn state(&self, publisher: &Publisher) -> State {
        if self.is_different {
            State::Different
        } else if (self.epoch, self.version) == (publisher.epoch(), publisher.version()) {
            State::Same
        } else {
            State::Behind
        }
    }
}

/// What a copy is beside the published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The same.
    Same,
    /// An older version, another version line, or nothing.
    Behind,
    /// Not what was published as this version.
    Different,
}

impl State {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Same, Self::Behind, Self::Different];

    /// Its name in API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Behind => "behind",
            Self::Different => "different",
        }
    }
}

/// What all VMs of a gateway have.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    vms: Vec<Told>,
}

impl Copies {
    /// By VM.
    pub fn vms(&self) -> &[Told] {
        &self.vms
    }

    /// Takes what is told now; gives the VMs whose copy has become different from what was published.
    pub(super) fn take(
        &mut self,
        copies: &proto::Copies,
        publisher: &Publisher,
        now: Instant,
    ) -> Vec<Told> {
        let told = |copy: &proto::VmCopy| {
            let published = publisher
                .checksum_at(copy.version)
                .filter(|_| copy.epoch == publisher.epoch());
            let age = Duration::from_millis(copy.age_ms.into());
            Told {
                vm: copy.vm,
                epoch: copy.epoch,
                version: copy.version,
                checksum: copy.checksum,
                rungs: copy.rungs,
                is_different: published.is_some_and(|published| published != copy.checksum),
                at: now.checked_sub(age).unwrap_or(now),
            }
        };
        let vms: Vec<Told> = copies.vms.iter().take(MAX_VMS).map(told).collect();
        let was_different = |vm: u32| self.vms.iter().any(|old| old.vm == vm && old.is_different);
        let odd = vms
            .iter()
            .filter(|told| told.is_different && !was_different(told.vm));
        let odd = odd.copied().collect();
        self.vms = vms;
        odd
    }
}

#[cfg(test)]
mod tests {
    use prefixway_core::endpoint::HolderId;
    use prefixway_core::hash::Seed;
    use prefixway_core::index::{Changes, RungChange};
    use prefixway_core::snapshot::PublisherConfig;

    use super::*;

    fn publisher() -> Publisher {
        let mut publisher = Publisher::try_new(PublisherConfig {
            epoch: 7,
            seed: Seed(1),
            shard: String::new(),
            ring_deltas: 2,
            max_bytes: 1 << 20,
            thinning: prefixway_core::snapshot::Thinning::NONE,
        })
        .unwrap();
        for hash in 1..=4 {
            let upserts = vec![RungChange {
                hash,
                holders: vec![HolderId(0)],
                token_depth: 16,
            }];
            let changes = Changes {
                upserts,
                removes: Vec::new(),
            };
            publisher.apply(&changes).unwrap();
        }
        publisher
    }

    #[test]
    fn a_copy_is_held_against_what_was_published_as_its_version() {
        let publisher = publisher();
        let now = Instant::now();
        let (newest, sum) = (publisher.version(), publisher.checksum());
        let earlier = publisher.checksum_at(newest - 1).unwrap();
        assert_eq!(publisher.checksum_at(newest - 2), None);
        let cases = [
            (7, newest, sum, State::Same),
            (7, newest, sum ^ 1, State::Different),
            (7, newest - 1, earlier, State::Behind),
            (7, newest - 1, sum, State::Different),
            // Of what is no longer kept nothing can be said.
            (7, newest - 2, 5, State::Behind),
            (7, newest + 1, 5, State::Behind),
            (6, newest, 5, State::Behind),
            (0, 0, 0, State::Behind),
        ];
        for (epoch, version, checksum, state) in cases {
            let copy = proto::VmCopy {
                vm: 3,
                epoch,
                version,
                checksum,
                rungs: 4,
                age_ms: 20,
            };
            let told = proto::Copies { vms: vec![copy] };
            let mut copies = Copies::default();
            let odd = copies.take(&told, &publisher, now).len();
            assert_eq!(odd, usize::from(state == State::Different));
            // It is said once.
            assert_eq!(copies.take(&told, &publisher, now), []);
            let [vm] = copies.vms() else { panic!() };
            assert_eq!(vm.state(&publisher), state, "{copy:?}");
            assert_eq!(vm.age(now), Duration::from_millis(20));
        }
    }
}
