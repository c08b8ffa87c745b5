//! Numbers of holders, and when they may be given out again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use prefixway_core::endpoint::HolderId;
use prefixway_core::snapshot::MAX_HOLDERS;

/// A gateway's copy of the table may still name a holder for as long as prefix knowledge counts (`max_age`), and this much longer is waited
/// before its number means somebody else.
const MARGIN: Duration = Duration::from_mins(1);

/// One incarnation's holders, by tier.
pub(super) type Triple = [HolderId; 3];

/// Gives out holder ids. A dead incarnation's ids come back after a time in which every copy that names them has been replaced or has grown
/// too old to count; so they stay few, however often engines restart.
#[derive(Debug)]
pub(super) struct HolderIds {
    next: u32,
    retired: VecDeque<(Instant, Triple)>,
    quarantine: Duration,
}

impl HolderIds {
    pub(super) fn new(max_age: Duration) -> Self {
        Self {
            next: 0,
            retired: VecDeque::new(),
            quarantine: max_age + MARGIN,
        }
    }

    /// Prefix knowledge counts for so long from now on. Less does not end a quarantine earlier: a gateway may not know of it yet.
    pub(super) fn set_max_age(&mut self, max_age: Duration) {
        self.quarantine = self.quarantine.max(max_age + MARGIN);
    }

    /// Ids for a new incarnation. When no other is left, the one longest in quarantine.
    pub(super) fn take(&mut self, now: Instant) -> Triple {
        let quarantine = self.quarantine;
        let is_full = self.next + 3 > MAX_HOLDERS;
        let is_free = |retired: &mut (Instant, Triple)| {
            is_full || now.saturating_duration_since(retired.0) >= quarantine
        };
        if let Some((_, triple)) = self.retired.pop_front_if(is_free) {
            return triple;
        }
        let first = self.next;
        self.next += 3;
        [0, 1, 2].map(|tier| HolderId(first + tier))
    }

    /// Takes the ids of a dead incarnation back.
    pub(super) fn retire(&mut self, triple: Triple, now: Instant) {
        self.retired.push_back((now, triple));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_after_quarantine() {
        let mut ids = HolderIds::new(Duration::from_secs(5));
        let mut now = Instant::now();
        let mut live = ids.take(now);
        for _ in 0..100_000 {
            now += Duration::from_secs(1);
            let fresh = ids.take(now);
            assert_ne!(fresh, live);
            ids.retire(live, now);
            live = fresh;
        }
        assert!(ids.next <= 3 * 67, "{}", ids.next);
    }

    #[test]
    fn a_storm_of_restarts_never_reaches_ids_that_gateways_ignore() {
        let mut ids = HolderIds::new(Duration::ZERO);
        let now = Instant::now();
        for _ in 0..50_000 {
            let triple = ids.take(now);
            assert!(triple.iter().all(|holder| holder.0 < MAX_HOLDERS));
            ids.retire(triple, now);
        }
    }
}
