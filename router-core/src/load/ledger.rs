//! This VM's own requests: each counts up exactly once and down exactly once, with as many units as the engine runs sequences for it.
//!
//! ```text
//!  start ─► prefilling (in flight, tokens queued) ─ prefilled ─► decoding (in flight) ─ finish ─► gone
//!                                └────────────────────────── finish ───────────────────────────────┘
//! ```

use hashbrown::HashMap;

use super::Usage;
use crate::snapshot::EndpointKey;

/// Number of a request, unique within a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Clone, Copy, Debug)]
struct Flight {
    endpoint: EndpointKey,
    queued_tokens: u32,
    units: u32,
}

impl Flight {
    fn usage(self) -> Usage {
        Usage {
            in_flight: self.units,
            queued_prefill_tokens: u64::from(self.queued_tokens),
        }
    }
}

/// Requests in flight of one VM.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    flights: HashMap<RequestId, Flight>,
    totals: HashMap<EndpointKey, Usage>,
}

impl Ledger {
    /// A request was sent to an endpoint that has to prefill `queued_tokens` for it and runs `units` sequences, at least one. Gives
    /// `false`, and changes nothing, when the request is in flight already.
    pub fn start(
        &mut self,
        request: RequestId,
        endpoint: EndpointKey,
        queued_tokens: u32,
        units: u32,
    ) -> bool {
        if self.flights.contains_key(&request) {
            return false;
        }
        let flight = Flight {
            endpoint,
            queued_tokens,
            units: units.max(1),
        };
        self.flights.insert(request, flight);
        self.add(flight);
        true
    }

    /// The first token came: nothing is queued for the request any more.
    pub fn prefilled(&mut self, request: RequestId) {
        self.change(request, |flight| flight.queued_tokens = 0);
    }

    /// Another endpoint turned out to serve the request, which has to prefill `queued_tokens` for it unless that is over.
    pub fn served_by(&mut self, request: RequestId, endpoint: EndpointKey, queued_tokens: u32) {
        self.change(request, |flight| {
            flight.endpoint = endpoint;
            if flight.queued_tokens > 0 {
                flight.queued_tokens = queued_tokens;
            }
        });
    }

    /// The request ended. Gives its endpoint, or `None` when it was not in flight.
    pub fn finish(&mut self, request: RequestId) -> Option<EndpointKey> {
        let flight = self.flights.remove(&request)?;
        self.subtract(flight);
        Some(flight.endpoint)
    }

    /// What is in flight to an endpoint.
    pub fn usage(&self, endpoint: EndpointKey) -> Usage {
        self.totals.get(&endpoint).copied().unwrap_or_default()
    }

    /// All endpoints with something in flight.
    pub fn usages(&self) -> impl Iterator<Item = (EndpointKey, Usage)> {
        self.totals.iter().map(|(&key, &usage)| (key, usage))
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    fn change(&mut self, request: RequestId, change: impl FnOnce(&mut Flight)) {
        if let Some(flight) = self.flights.get_mut(&request) {
            let before = *flight;
            change(flight);
            let after = *flight;
            self.subtract(before);
            self.add(after);
        }
    }

    fn add(&mut self, flight: Flight) {
        let total = self.totals.entry(flight.endpoint).or_default();
        *total = total.plus(flight.usage());
    }

    fn subtract(&mut self, flight: Flight) {
        if let Some(total) = self.totals.get_mut(&flight.endpoint) {
            total.in_flight = total.in_flight.saturating_sub(flight.units);
            total.queued_prefill_tokens = total
                .queued_prefill_tokens
                .saturating_sub(u64::from(flight.queued_tokens));
            if total.is_zero() {
                self.totals.remove(&flight.endpoint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn totals_equal_a_recount_whatever_is_called(calls in prop::collection::vec((0u8..4, 0u64..6, 0u64..3, 0u32..100, 0u32..5), 0..200)) {
            let mut ledger = Ledger::default();
            let mut model: BTreeMap<u64, (u64, u32, u32)> = BTreeMap::new();
            for (call, request, endpoint, tokens, units) in calls {
                let id = RequestId(request);
                match call {
                    0 => {
                        let is_new = !model.contains_key(&request);
                        prop_assert_eq!(ledger.start(id, EndpointKey(endpoint), tokens, units), is_new);
                        model.entry(request).or_insert((endpoint, tokens, units.max(1)));
                    }
                    1 => {
                        ledger.prefilled(id);
                        model.entry(request).and_modify(|flight| flight.1 = 0);
                    }
                    2 => {
                        ledger.served_by(id, EndpointKey(endpoint), tokens);
                        model.entry(request).and_modify(|flight| {
                            flight.0 = endpoint;
                            flight.1 = if flight.1 > 0 { tokens } else { 0 };
                        });
                    }
                    _ => prop_assert_eq!(ledger.finish(id), model.remove(&request).map(|flight| EndpointKey(flight.0))),
                }
                for endpoint in 0..3 {
                    let mine = || model.values().filter(|flight| flight.0 == endpoint);
                    let usage = ledger.usage(EndpointKey(endpoint));
                    prop_assert_eq!(usage.in_flight, mine().map(|flight| flight.2).sum::<u32>());
                    prop_assert_eq!(usage.queued_prefill_tokens, mine().map(|flight| u64::from(flight.1)).sum::<u64>());
                }
                prop_assert_eq!(ledger.len(), model.len());
                prop_assert_eq!(ledger.usages().count(), ledger.usages().filter(|(_, usage)| !usage.is_zero()).count());
            }
        }
    }
}
