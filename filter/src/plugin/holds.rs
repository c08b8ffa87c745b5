//! Whether requests that are held at their headers can be: only the configuration says so, and it may be wrong.
//!
//! ```text
//!               a piece of a held request's body comes
//!   Unproven ──────────────────────────────────────────────► Right
//!      │  a request is held for a second: it is let go,
//!      │  and its body is there at once, twice in a row
//!      └───────────────────────────────────────────────────► Wrong: requests are held at their body from now on
//! ```
//!
//! An Envoy without `allow_on_headers_stop_iteration` keeps the body to itself while the headers are held, for ever. A client that is slow
//! with its body looks the same at first, but its body is not there at once when the request is let go.

use std::collections::BTreeMap;

/// Time that a request is held, as long as it is not known whether its body can come.
const HOLD_LIMIT_MS: u64 = 1_000;
/// Requests let go in one tick.
const MAX_RELEASES: usize = 256;
/// Requests whose body was there at once that prove the configuration wrong.
const PROOFS: u32 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unproven,
    Right,
    Wrong,
}

/// What a piece of a body means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The request is still held.
    Held,
    /// It was let go before.
    Late,
    /// It was let go before, and by now it is certain that it could not have been held.
    Proof,
}

/// Requests that are held at their headers.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    state: State,
    /// By context, since when.
    held: BTreeMap<u32, u64>,
    /// Let go and without a body since, by context: in which tick.
    released: BTreeMap<u32, u64>,
    ticks: u64,
    proofs: u32,
}

impl Holds {
    /// Whether requests can't be held at their headers.
    pub(crate) fn is_wrong(&self) -> bool {
        self.state == State::Wrong
    }

    /// A request is held; gives whether it has to be watched.
    pub(crate) fn hold(&mut self, context: u32, now_ms: u64) -> bool {
        let is_watched = self.state != State::Right;
        if is_watched {
            self.held.insert(context, now_ms);
        }
        is_watched
    }

    /// A piece of the body of a watched request came, or its trailers.
    pub(crate) fn came(&mut self, context: u32) -> Came {
        if self.held.remove(&context).is_some() {
            if self.state == State::Unproven {
                self.state = State::Right;
            }
            return Came::Held;
        }
        match self.released.remove(&context) {
            // Nothing was ever let go: it has been right all the time.
            None => Came::Held,
            Some(tick) if tick == self.ticks && self.state == State::Unproven => {
                self.proofs += 1;
                if self.proofs < PROOFS {
                    return Came::Late;
                }
                self.state = State::Wrong;
                Came::Proof
            }
            Some(_) => Came::Late,
        }
    }

    /// A watched request is over.
    pub(crate) fn ended(&mut self, context: u32) {
        self.held.remove(&context);
        self.released.remove(&context);
    }

    /// Requests to let go now, oldest first.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<u32> {
        self.ticks += 1;
        if self.state == State::Right {
            self.held.clear();
            return Vec::new();
        }
        let is_due =
            |since_ms: u64| self.is_wrong() || now_ms.saturating_sub(since_ms) >= HOLD_LIMIT_MS;
        let mut due: Vec<(u64, u32)> = self
            .held
            .iter()
            .filter(|&(_, &since_ms)| is_due(since_ms))
            .map(|(&context, &since_ms)| (since_ms, context))
            .collect();
        due.sort_unstable();
        due.truncate(MAX_RELEASES);
        for (_, context) in &due {
            self.held.remove(context);
            self.released.insert(*context, self.ticks);
        }
        due.into_iter().map(|(_, context)| context).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_comes_proves_it_right_and_nothing_is_let_go_any_more() {
        let mut holds = Holds::default();
        assert!(holds.hold(1, 0) && holds.hold(2, 0));
        assert!(holds.tick(HOLD_LIMIT_MS - 1).is_empty());
        assert_eq!(holds.came(2), Came::Held);
        assert!(holds.tick(10 * HOLD_LIMIT_MS).is_empty());
        assert!(!holds.hold(3, 0) && !holds.is_wrong());
        assert_eq!(holds.came(1), Came::Held);
    }

    #[test]
    fn bodies_that_were_there_all_the_time_prove_it_wrong() {
        let mut holds = Holds::default();
        for context in 1..=4 {
            holds.hold(context, u64::from(context));
        }
        assert_eq!(holds.tick(HOLD_LIMIT_MS + 2), [1, 2]);
        assert_eq!(holds.came(1), Came::Late);
        assert!(!holds.is_wrong());
        assert_eq!(holds.came(2), Came::Proof);
        assert!(holds.is_wrong());
        assert_eq!(holds.tick(HOLD_LIMIT_MS + 2), [3, 4], "no use to wait");
        assert_eq!(holds.came(3), Came::Late);
        holds.ended(4);
        assert_eq!(holds.came(4), Came::Held);
    }

    #[test]
    fn a_slow_client_is_let_go_and_proves_nothing() {
        let mut holds = Holds::default();
        for context in 1..10 {
            holds.hold(context, 0);
        }
        assert_eq!(holds.tick(HOLD_LIMIT_MS).len(), 9);
        holds.tick(HOLD_LIMIT_MS + 10);
        for context in 1..10 {
            assert_eq!(holds.came(context), Came::Late);
        }
        assert!(!holds.is_wrong());
        assert!(holds.hold(11, 0), "still unproven");
    }
}
