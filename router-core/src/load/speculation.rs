//! Prefixes that endpoints are expected to hold soon, because a request with them was just sent there.
//!
//! Engines report blocks only once they are computed, so without this a burst of one new prefix is scattered over all endpoints.
//! Each request's rungs count for its endpoint until the table confirms them, an error cancels them, or they expire.

use std::collections::BTreeSet;

use hashbrown::{HashMap, hash_map::Entry as MapEntry};

use super::RequestId;
use crate::snapshot::{EndpointKey, Rung, probe::Expectation};

/// Most requests that are speculated on at once; beyond it the one that expires first is forgotten.
pub const MAX_REQUESTS: usize = 4096;

/// Life of an entry when the policy says nothing.
pub const DEFAULT_TTL_MS: u64 = 2_000;

/// Longest life of an entry.
pub const MAX_TTL_MS: u64 = 60_000;

/// Life of the entries of a request: `base + 2 * work / rate`, since its blocks are reported when the work before it and its own are
/// done; the estimate is doubled because it is one.
pub fn ttl_ms(
    base_ms: u64,
    queued_tokens: u64,
    uncached_tokens: u32,
    prefill_tokens_per_s: f64,
) -> u64 {
    let work_tokens = queued_tokens as f64 + f64::from(uncached_tokens);
    let work_ms = 2_000.0 * work_tokens / prefill_tokens_per_s.max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of a TTL"
    )]
    let work_ms = work_ms.clamp(0.0, MAX_TTL_MS as f64) as u64;
    base_ms.saturating_add(work_ms).min(MAX_TTL_MS)
}

/// Who sent the request: VM number and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Number of the VM in the proxy.
    pub vm: u32,
    /// Its request.
    pub request: RequestId,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    endpoint: EndpointKey,
    /// Prompts that still count on it.
    uses: u32,
    tokens: u32,
    /// The table said that the endpoint holds the rung, and no request was sent since.
    is_confirmed: bool,
}

/// Who is expected to hold a rung: mostly one, which takes no memory of its own.
#[derive(Clone, Debug)]
struct Holders {
    first: Expected,
    others: Vec<Expected>,
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = &Expected> {
        core::iter::once(&self.first).chain(&self.others)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Expected> {
        core::iter::once(&mut self.first).chain(&mut self.others)
    }

    fn of(&mut self, endpoint: EndpointKey) -> Option<&mut Expected> {
        self.iter_mut()
            .find(|expected| expected.endpoint == endpoint)
    }

    /// One prompt less counts on an endpoint; gives whether nobody is expected any more.
    fn release(&mut self, endpoint: EndpointKey) -> bool {
        let Some(expected) = self.of(endpoint) else {
            return false;
        };
        expected.uses = expected.uses.saturating_sub(1);
        if expected.uses > 0 {
            return false;
        }
        if self.first.endpoint != endpoint {
            self.others.retain(|expected| expected.endpoint != endpoint);
            return false;
        }
        if self.others.is_empty() {
            return true;
        }
        self.first = self.others.remove(0);
        false
    }
}

/// A prompt and where it was sent. The last hash of a chain stands for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    endpoint: EndpointKey,
    last: u64,
}

/// Requests of one prompt at one endpoint: its rungs are gone through once for all of them.
#[derive(Clone, Debug)]
struct Prompt {
    requests: u32,
    /// Hash and tokens.
    rungs: Box<[(u64, u32)]>,
    /// Confirmations there had been when its rungs were gone through last.
    confirmations: u64,
}

#[derive(Clone, Copy, Debug)]
struct Guess {
    sent: Sent,
    expiry_ms: u64,
}

/// Expected holders by rung.
#[derive(Clone, Debug, Default)]
pub struct Speculation {
    rungs: HashMap<u64, Holders>,
    prompts: HashMap<Sent, Prompt>,
    guesses: HashMap<Origin, Guess>,
    expiries: BTreeSet<(u64, Origin)>,
    confirmations: u64,
}

impl Speculation {
    /// Expects `endpoint` to hold the rungs until `expiry_ms`. The tokens of a rung are estimated by `bytes_per_token`. A second call
    /// for one origin changes nothing.
    pub fn add(
        &mut self,
        origin: Origin,
        endpoint: EndpointKey,
        rungs: &[Rung],
        bytes_per_token: f64,
        expiry_ms: u64,
    ) {
        if self.guesses.contains_key(&origin) {
            return;
        }
        let sent = Sent {
            endpoint,
            last: rungs.last().map_or(0, |rung| rung.hash),
        };
        self.guesses.insert(origin, Guess { sent, expiry_ms });
        self.expiries.insert((expiry_ms, origin));
        self.join(sent, || {
            let tokens = |rung: &Rung| tokens_of(rung.bytes(), bytes_per_token);
            rungs.iter().map(|rung| (rung.hash, tokens(rung))).collect()
        });
        if self.guesses.len() > MAX_REQUESTS
            && let Some(&(_, first)) = self.expiries.first()
        {
            self.cancel(first);
        }
    }

    /// Forgets what is expected of a request: it failed.
    pub fn cancel(&mut self, origin: Origin) {
        if let Some(guess) = self.guesses.remove(&origin) {
            self.expiries.remove(&(guess.expiry_ms, origin));
            self.leave(guess.sent);
        }
    }

    /// Another endpoint took the request: it is expected to hold what the first was, for as long.
    pub fn move_to(&mut self, origin: Origin, endpoint: EndpointKey) {
        let Some(guess) = self.guesses.get_mut(&origin) else {
            return;
        };
        let from = guess.sent;
        if from.endpoint == endpoint {
            return;
        }
        guess.sent.endpoint = endpoint;
        let to = guess.sent;
        if let Some(prompt) = self.prompts.get(&from) {
            let rungs = prompt.rungs.clone();
            self.join(to, || rungs);
            self.leave(from);
        }
    }

    /// One request more of a prompt.
    fn join(&mut self, sent: Sent, rungs: impl FnOnce() -> Box<[(u64, u32)]>) {
        let confirmations = self.confirmations;
        let prompt = match self.prompts.entry(sent) {
            MapEntry::Vacant(place) => {
                let prompt = place.insert(Prompt {
                    requests: 1,
                    rungs: rungs(),
                    confirmations,
                });
                for &(rung, tokens) in &prompt.rungs {
                    expect(&mut self.rungs, rung, sent.endpoint, tokens);
                }
                return;
            }
            MapEntry::Occupied(place) => place.into_mut(),
        };
        prompt.requests += 1;
        if prompt.confirmations == confirmations {
            return;
        }
        // What was confirmed before is expected again.
        prompt.confirmations = confirmations;
        for (rung, _) in &prompt.rungs {
            let holders = self.rungs.get_mut(rung);
            if let Some(expected) = holders.and_then(|holders| holders.of(sent.endpoint)) {
                expected.is_confirmed = false;
            }
        }
    }

    /// One request less of a prompt.
    fn leave(&mut self, sent: Sent) {
        let MapEntry::Occupied(mut place) = self.prompts.entry(sent) else {
            return;
        };
        place.get_mut().requests -= 1;
        if place.get().requests > 0 {
            return;
        }
        for (rung, _) in &place.remove().rungs {
            if let MapEntry::Occupied(mut holders) = self.rungs.entry(*rung)
                && holders.get_mut().release(sent.endpoint)
            {
                holders.remove();
            }
        }
    }

    /// Forgets what has expired.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some(&(expiry_ms, origin)) = self.expiries.first() {
            if expiry_ms > now_ms {
                return;
            }
            self.cancel(origin);
        }
    }

    /// The table says who holds a rung: those endpoints are no longer only expected to, so that a later eviction counts at once.
    pub fn confirm(&mut self, rung: u64, is_holder: impl Fn(EndpointKey) -> bool) {
        let holders = self.rungs.get_mut(&rung).into_iter();
        for expected in holders.flat_map(Holders::iter_mut) {
            if !expected.is_confirmed && is_holder(expected.endpoint) {
                expected.is_confirmed = true;
                self.confirmations += 1;
            }
        }
    }

    /// Requests that are speculated on.
    pub fn len(&self) -> usize {
        self.guesses.len()
    }

    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.guesses.is_empty()
    }
}

impl Expectation for Speculation {
    fn expected(&self, _place: usize, rung: u64, found: &mut dyn FnMut(EndpointKey, u32)) -> bool {
        let Some(holders) = self.rungs.get(&rung) else {
            return false;
        };
        let mut any = false;
        for expected in holders.iter().filter(|expected| !expected.is_confirmed) {
            found(expected.endpoint, expected.tokens);
            any = true;
        }
        any
    }
}

/// One prompt more counts on an endpoint for a rung.
fn expect(rungs: &mut HashMap<u64, Holders>, rung: u64, endpoint: EndpointKey, tokens: u32) {
    let new = Expected {
        endpoint,
        uses: 1,
        tokens,
        is_confirmed: false,
    };
    let holders = match rungs.entry(rung) {
        MapEntry::Vacant(place) => {
            place.insert(Holders {
                first: new,
                others: Vec::new(),
            });
            return;
        }
        MapEntry::Occupied(place) => place.into_mut(),
    };
    match holders.of(endpoint) {
        Some(expected) => {
            expected.uses += 1;
            expected.is_confirmed = false;
            expected.tokens = expected.tokens.max(tokens);
        }
        None => holders.others.push(new),
    }
}

/// Tokens of so many bytes, by estimate.
pub(crate) fn tokens_of(bytes: u64, bytes_per_token: f64) -> u32 {
    let tokens = bytes as f64 / bytes_per_token.max(0.25);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to u32"
    )]
    let tokens = tokens.clamp(0.0, f64::from(u32::MAX)) as u32;
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointKey = EndpointKey(1);
    const B: EndpointKey = EndpointKey(2);

    fn origin(request: u64) -> Origin {
        Origin {
            vm: 0,
            request: RequestId(request),
        }
    }

    fn rungs(hashes: &[u64]) -> Vec<Rung> {
        (1..)
            .zip(hashes)
            .map(|(chunks, &hash)| Rung { chunks, hash })
            .collect()
    }

    fn expected(speculation: &Speculation, rung: u64) -> Vec<(EndpointKey, u32)> {
        let mut all = Vec::new();
        let any = speculation.expected(0, rung, &mut |key, tokens| all.push((key, tokens)));
        assert_eq!(any, !all.is_empty());
        all
    }

    #[test]
    fn shared_rungs_live_until_the_last_request_is_over() {
        let mut speculation = Speculation::default();
        speculation.add(origin(1), A, &rungs(&[10, 11]), 4.0, 100);
        speculation.add(origin(2), A, &rungs(&[10, 12]), 4.0, 200);
        speculation.add(origin(2), B, &rungs(&[10]), 4.0, 200);
        speculation.add(origin(3), B, &rungs(&[10]), 4.0, 300);
        assert_eq!(expected(&speculation, 10), [(A, 16), (B, 16)]);
        assert_eq!(expected(&speculation, 12), [(A, 32)]);
        speculation.expire(100);
        assert_eq!(expected(&speculation, 11), []);
        assert_eq!(expected(&speculation, 10), [(A, 16), (B, 16)]);
        speculation.cancel(origin(2));
        assert_eq!(expected(&speculation, 10), [(B, 16)]);
        speculation.expire(300);
        assert!(
            speculation.is_empty()
                && speculation.rungs.is_empty()
                && speculation.prompts.is_empty()
                && speculation.expiries.is_empty()
        );
    }

    #[test]
    fn a_request_that_moved_counts_where_it_went() {
        let mut speculation = Speculation::default();
        speculation.add(origin(1), A, &rungs(&[10, 11]), 4.0, 100);
        speculation.add(origin(2), A, &rungs(&[10]), 4.0, 100);
        speculation.move_to(origin(1), B);
        speculation.move_to(origin(1), B);
        speculation.move_to(origin(9), B);
        assert_eq!(expected(&speculation, 10), [(A, 16), (B, 16)]);
        assert_eq!(expected(&speculation, 11), [(B, 32)]);
        speculation.cancel(origin(1));
        assert_eq!(expected(&speculation, 10), [(A, 16)]);
        speculation.expire(100);
        assert!(speculation.is_empty() && speculation.rungs.is_empty());
    }

    #[test]
    fn confirmed_rungs_are_no_longer_expected() {
        let mut speculation = Speculation::default();
        speculation.add(origin(1), A, &rungs(&[10, 11]), 4.0, 100);
        speculation.confirm(10, |key| key == A);
        speculation.confirm(11, |key| key == B);
        assert_eq!(expected(&speculation, 10), []);
        assert_eq!(expected(&speculation, 11), [(A, 32)]);
        speculation.add(origin(2), A, &rungs(&[10]), 4.0, 100);
        speculation.cancel(origin(1));
        assert_eq!(
            expected(&speculation, 10),
            [(A, 16)],
            "a later request counts by itself"
        );
        speculation.cancel(origin(2));
        assert!(speculation.rungs.is_empty());
    }

    #[test]
    fn memory_is_bounded_by_forgetting_what_expires_first() {
        let mut speculation = Speculation::default();
        for request in 0..MAX_REQUESTS as u64 + 10 {
            speculation.add(origin(request), A, &rungs(&[request]), 4.0, 1_000 + request);
        }
        assert_eq!(speculation.len(), MAX_REQUESTS);
        assert_eq!(expected(&speculation, 9), []);
        assert_eq!(expected(&speculation, 10), [(A, 16)]);
    }

    #[test]
    fn ttl_grows_with_the_work_and_is_bounded() {
        assert_eq!(ttl_ms(2_000, 0, 0, 8_000.0), 2_000);
        assert_eq!(ttl_ms(2_000, 8_000, 4_000, 8_000.0), 5_000);
        assert_eq!(ttl_ms(2_000, u64::MAX, 0, 0.0), MAX_TTL_MS);
        assert_eq!(ttl_ms(2_000, 0, 1, f64::NAN), 4_000);
    }
}
