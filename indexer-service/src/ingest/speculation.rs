//! Speculations by the request that made them, so that its outcome can take them back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use prefixway_core::index::SpeculationId;

/// Most requests remembered; past it the oldest can no longer be cancelled and end by time.
const MAX_REQUESTS: usize = 1 << 16;

/// A request of a gateway.
type Key = (Arc<str>, u64);

/// Speculations under way, oldest first in `order`.
#[derive(Debug, Default)]
pub(super) struct Speculated {
    ids: HashMap<Key, (SpeculationId, u64)>,
    order: VecDeque<(Key, SpeculationId)>,
}

impl Speculated {
    pub(super) fn insert(
        &mut self,
        gateway: Arc<str>,
        request: u64,
        id: SpeculationId,
        expires_ms: u64,
    ) {
        if self.order.len() >= MAX_REQUESTS {
            self.forget_oldest();
        }
        self.ids
            .insert((Arc::clone(&gateway), request), (id, expires_ms));
        self.order.push_back(((gateway, request), id));
    }

    /// The speculation of a request that has ended; `None` when it had none or it is too long ago.
    pub(super) fn remove(&mut self, gateway: Arc<str>, request: u64) -> Option<SpeculationId> {
        self.ids.remove(&(gateway, request)).map(|(id, _)| id)
    }

    /// Forgets what has ended by time.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some((key, id)) = self.order.front() {
            let is_over = match self.ids.get(key) {
                Some((current, expires_ms)) => current != id || *expires_ms <= now_ms,
                None => true,
            };
            if !is_over {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((key, id)) = self.order.pop_front()
            && self
                .ids
                .get(&key)
                .is_some_and(|(current, _)| *current == id)
        {
            self.ids.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gives_its_speculation_back_once_and_only_in_time() {
        let mut speculated = Speculated::default();
        let gateway: Arc<str> = "g".into();
        for request in 0..4 {
            speculated.insert(
                Arc::clone(&gateway),
                request,
                SpeculationId(request),
                10 * request,
            );
        }
        assert_eq!(
            speculated.remove(Arc::clone(&gateway), 2),
            Some(SpeculationId(2))
        );
        assert_eq!(speculated.remove(Arc::clone(&gateway), 2), None);
        speculated.expire(10);
        assert_eq!(speculated.remove(Arc::clone(&gateway), 1), None);
        assert_eq!(speculated.remove(gateway, 3), Some(SpeculationId(3)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut speculated = Speculated::default();
        let gateway: Arc<str> = "g".into();
        for request in 0..=MAX_REQUESTS as u64 {
            speculated.insert(
                Arc::clone(&gateway),
                request,
                SpeculationId(request),
                u64::MAX,
            );
        }
        assert_eq!(
            (speculated.ids.len(), speculated.order.len()),
            (MAX_REQUESTS, MAX_REQUESTS)
        );
        assert_eq!(speculated.remove(gateway, 0), None);
    }
}
