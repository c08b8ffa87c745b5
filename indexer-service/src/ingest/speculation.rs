//! What was credited for requests under way, so that their outcome can take it back or correct it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use prefixway_core::index::{DecisionId, SpeculationId};

/// Most requests remembered; past it the oldest can no longer be taken back.
const MAX_REQUESTS: usize = 1 << 16;

/// A request of a gateway.
type Key = (Arc<str>, u64);

/// Where a request went, and what was credited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Endpoint that was chosen.
    pub(super) endpoint: u32,
    /// Bytes of its prompts.
    pub(super) prompt_bytes: u64,
    pub(super) credit: Credit,
    /// Tokens of its prompts, estimated.
    pub(super) prompt_tokens: u32,
    /// Prompt tokens that waited there before it.
    pub(super) queued_tokens: u64,
    /// When it was sent, in ms since the service started.
    pub(super) at_ms: u64,
    /// Most tokens that the index can be held to: what it knew when the decision was told, without expectations.
    pub(super) claim: u32,
}

/// Credit for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// Until events confirm it.
    Speculation(SpeculationId),
    /// As long as the engine should hold it.
    Decision(DecisionId),
}

/// Requests under way, oldest first in `order`.
#[derive(Debug, Default)]
pub(super) struct Speculated {
    requests: HashMap<Key, (u64, Sent, u64)>,
    order: VecDeque<(Key, u64)>,
    next: u64,
}

impl Speculated {
    /// Remembers a request until `expires_ms`.
    pub(super) fn insert(&mut self, gateway: Arc<str>, request: u64, sent: Sent, expires_ms: u64) {
        if self.order.len() >= MAX_REQUESTS {
            self.forget_oldest();
        }
        self.next += 1;
        let key = (gateway, request);
        self.requests
            .insert(key.clone(), (self.next, sent, expires_ms));
        self.order.push_back((key, self.next));
    }

    /// What was credited for a request that has ended; `None` when there was nothing or it is too long ago.
    pub(super) fn remove(&mut self, gateway: Arc<str>, request: u64) -> Option<Sent> {
        let (_, sent, _) = self.requests.remove(&(gateway, request))?;
        Some(sent)
    }

    /// Forgets what has ended by time.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some((key, number)) = self.order.front() {
            let is_over = match self.requests.get(key) {
                Some((current, _, expires_ms)) => current != number || *expires_ms <= now_ms,
                None => true,
            };
            if !is_over {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((key, number)) = self.order.pop_front()
            && self
                .requests
                .get(&key)
                .is_some_and(|(current, _, _)| *current == number)
        {
            self.requests.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(id: u64) -> Sent {
        Sent {
            prompt_tokens: 0,
            queued_tokens: 0,
            at_ms: 0,
            endpoint: 0,
            prompt_bytes: 64,
            credit: Credit::Speculation(SpeculationId(id)),
            claim: 0,
        }
    }

    #[test]
    fn a_request_gives_its_credit_back_once_and_only_in_time() {
        let mut speculated = Speculated::default();
        let gateway: Arc<str> = "g".into();
        for request in 0..4 {
            speculated.insert(Arc::clone(&gateway), request, sent(request), 10 * request);
        }
        assert_eq!(speculated.remove(Arc::clone(&gateway), 2), Some(sent(2)));
        assert_eq!(speculated.remove(Arc::clone(&gateway), 2), None);
        // The same number again is another request.
        speculated.insert(Arc::clone(&gateway), 0, sent(9), 100);
        speculated.expire(10);
        assert_eq!(speculated.remove(Arc::clone(&gateway), 1), None);
        assert_eq!(speculated.remove(Arc::clone(&gateway), 0), Some(sent(9)));
        assert_eq!(speculated.remove(gateway, 3), Some(sent(3)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut speculated = Speculated::default();
        let gateway: Arc<str> = "g".into();
        for request in 0..=MAX_REQUESTS as u64 {
            speculated.insert(Arc::clone(&gateway), request, sent(request), u64::MAX);
        }
        assert_eq!(
            (speculated.requests.len(), speculated.order.len()),
            (MAX_REQUESTS, MAX_REQUESTS)
        );
        assert_eq!(speculated.remove(gateway, 0), None);
    }
}
