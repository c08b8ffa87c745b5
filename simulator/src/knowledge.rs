//! What routers know: of caches by events, of load by their own account and by what they tell one another.
//!
//! ```text
//!  engines ── events, some time later ──► index: who holds which block
//!  a decision ──► expectation: its blocks, until events confirm them or its time is over
//!  engines ── figures, at each scrape ──► waiting, running, KV usage
//!  own requests ── at once ──► account ── at each exchange ──► the other routers
//! ```

use std::collections::VecDeque;

use prefixway_core::load::speculation::{DEFAULT_TTL_MS, ttl_ms};
use prefixway_core::load::{Figures, Usage};

use crate::engine::{BlockChange, Engine, FIRST_TOKEN_US};
use crate::workload::{Workload, shared_blocks};

/// Most endpoints: the index keeps one bit for each.
pub const MAX_ENDPOINTS: usize = 64;

/// After its events are due a decision is expected no longer.
const CONFIRMED_US: u64 = 100_000;

/// How routers tell one another what they have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Never.
    Never,
    /// Each so many microseconds; 0 = at once.
    Every(u64),
}

/// What routers are told, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Freshness {
    /// From an event at the engine to the router's index.
    pub event_delay_us: u64,
    /// Age of all accounts of requests in flight, the router's own too.
    pub load_delay_us: u64,
    /// Time between two reads of the engines' own figures.
    pub scrape_us: u64,
    /// Exchange between routers.
    pub sharing: Sharing,
}

impl Default for Freshness {
    fn default() -> Self {
        Self {
            event_delay_us: 50_000,
            load_delay_us: 0,
            scrape_us: 50_000,
            sharing: Sharing::Every(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    request: u32,
    router: u32,
    made_us: u64,
    expires_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    at_us: u64,
    endpoint: usize,
    sequences: i64,
    tokens: i64,
}

/// Sums of work; differences while it is told late.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    sequences: i64,
    tokens: i64,
}

impl Account {
    fn add(&mut self, sequences: i64, tokens: i64) {
        self.sequences += sequences;
        self.tokens += tokens;
    }

    fn usage(self) -> Usage {
        Usage {
            in_flight: u32::try_from(self.sequences).unwrap_or(0),
            queued_prefill_tokens: u64::try_from(self.tokens).unwrap_or(0),
        }
    }
}

/// Knowledge of all routers.
#[derive(Debug)]
pub(crate) struct Knowledge {
    freshness: Freshness,
    endpoints: usize,
    /// By block: the endpoints that hold it.
    index: Vec<u64>,
    /// By endpoint.
    expected: Vec<Vec<Expected>>,
    /// By router and endpoint: what it has in flight.
    own: Vec<Account>,
    /// The same at the newest exchange.
    told: Vec<Account>,
    /// By endpoint: all routers together, now and at the newest exchange.
    all: Vec<Account>,
    all_told: Vec<Account>,
    /// By endpoint: all routers together, `load_delay_us` ago.
    old: Vec<Account>,
    changes: VecDeque<Change>,
    exchanged_us: u64,
    scraped_us: u64,
    /// By endpoint; `None`: never read, or too old to count.
    pub(crate) figures: Vec<Option<Figures>>,
    is_frozen: bool,
}

impl Knowledge {
    pub(crate) fn new(
        freshness: Freshness,
        routers: usize,
        endpoints: usize,
        nodes: usize,
    ) -> Self {
        let accounts = |count: usize| vec![Account::default(); count];
        Self {
            freshness,
            endpoints,
            index: vec![0; nodes],
            expected: vec![Vec::new(); endpoints],
            own: accounts(routers * endpoints),
            told: accounts(routers * endpoints),
            all: accounts(endpoints),
            all_told: accounts(endpoints),
            old: accounts(endpoints),
            changes: VecDeque::new(),
            exchanged_us: 0,
            scraped_us: 0,
            figures: vec![Some(Figures::default()); endpoints],
            is_frozen: false,
        }
    }

    /// Sets the engines' figures, for good.
    pub(crate) fn freeze(&mut self, figures: impl Iterator<Item = Option<Figures>>) {
        self.is_frozen = true;
        self.figures = figures.collect();
    }

    /// Blocks are known to be at an endpoint before anything happens.
    pub(crate) fn preload(&mut self, endpoint: usize, chain: &[u32]) {
        for &node in chain {
            self.index[node as usize] |= 1 << endpoint;
        }
    }

    /// Lets time pass: exchanges and scrapes that lie before `now_us` are done with what is so until then.
    pub(crate) fn advance(&mut self, now_us: u64, engines: &[Engine]) {
        if let Sharing::Every(period_us @ 1..) = self.freshness.sharing
            && now_us / period_us != self.exchanged_us / period_us
        {
            self.told.clone_from(&self.own);
            self.all_told.clone_from(&self.all);
            self.exchanged_us = now_us - now_us % period_us;
        }
        let scrape_us = self.freshness.scrape_us.max(1);
        if !self.is_frozen && now_us / scrape_us != self.scraped_us / scrape_us {
            self.scraped_us = now_us - now_us % scrape_us;
            for (figures, engine) in self.figures.iter_mut().zip(engines) {
                *figures = Some(Figures {
                    running: engine.running(),
                    waiting: engine.waiting(),
                    kv_usage_ratio: engine.kv_usage_ratio(),
                    others: 0,
                    age_ms: 0,
                });
            }
        }
    }

    /// Takes events that have arrived.
    pub(crate) fn take_events(&mut self, now_us: u64, engines: &mut [Engine], work: &Workload) {
        for (engine, bit) in engines.iter_mut().zip(0u32..) {
            let mask = 1u64 << bit;
            while let Some(event) = engine.events.front()
                && event.due_us + self.freshness.event_delay_us <= now_us
            {
                match event.change {
                    BlockChange::Removed(node) => self.index[node as usize] &= !mask,
                    BlockChange::Stored { from, to } => {
                        for &node in work.blocks(from, to) {
                            self.index[node as usize] |= mask;
                        }
                    }
                }
                engine.events.pop_front();
            }
        }
    }

    /// Of each endpoint, how many of the first blocks of a prompt the index says it holds.
    pub(crate) fn indexed(&self, chain: &[u32], depths: &mut [u32]) {
        let mut alive = u64::MAX >> (64 - self.endpoints as u32);
        depths.fill(chain.len() as u32);
        for (&node, depth) in chain.iter().zip(0u32..) {
            let mut lost = alive & !self.index[node as usize];
            alive &= !lost;
            while lost != 0 {
                depths[lost.trailing_zeros() as usize] = depth;
                lost &= lost - 1;
            }
            if alive == 0 {
                return;
            }
        }
    }

    /// Of each endpoint, how many of the first blocks of a prompt it is expected to hold soon, as far as a router knows.
    pub(crate) fn expected(
        &mut self,
        chain: &[u32],
        router: u32,
        now_us: u64,
        work: &Workload,
        depths: &mut [u32],
    ) {
        let told_us = match self.freshness.sharing {
            Sharing::Never => None,
            Sharing::Every(0) => Some(now_us),
            Sharing::Every(_) => Some(self.exchanged_us),
        };
        for (list, depth) in self.expected.iter_mut().zip(depths) {
            list.retain(|of| of.expires_us > now_us);
            let known = list
                .iter()
                .filter(|of| of.router == router || told_us.is_some_and(|at| of.made_us <= at));
            *depth = known
                .map(|of| shared_blocks(chain, work.chain(of.request)) as u32)
                .max()
                .unwrap_or(0);
        }
    }

    /// A request's blocks are expected of an endpoint.
    pub(crate) fn expect(
        &mut self,
        request: u32,
        router: u32,
        endpoint: usize,
        now_us: u64,
        work_tokens: (u64, u32),
        rate: f64,
    ) {
        let (queued_tokens, uncached_tokens) = work_tokens;
        let life_ms = ttl_ms(DEFAULT_TTL_MS, queued_tokens, uncached_tokens, rate);
        self.expected[endpoint].push(Expected {
            request,
            router,
            made_us: now_us,
            expires_us: now_us + 1_000 * life_ms,
        });
    }

    /// A request's blocks are all announced.
    pub(crate) fn confirm(&mut self, request: u32, endpoint: usize, first_token_us: u64) {
        let announced_us = first_token_us - FIRST_TOKEN_US.min(first_token_us);
        let until_us = announced_us + self.freshness.event_delay_us + CONFIRMED_US;
        if let Some(of) = self.expected[endpoint]
            .iter_mut()
            .find(|of| of.request == request)
        {
            of.expires_us = of.expires_us.min(until_us);
        }
    }

    /// Something changed in what a router has in flight.
    pub(crate) fn account(
        &mut self,
        router: u32,
        endpoint: usize,
        now_us: u64,
        sequences: i64,
        tokens: i64,
    ) {
        self.own[router as usize * self.endpoints + endpoint].add(sequences, tokens);
        self.all[endpoint].add(sequences, tokens);
        if self.freshness.load_delay_us > 0 {
            self.changes.push_back(Change {
                at_us: now_us,
                endpoint,
                sequences,
                tokens,
            });
        }
    }

    /// Work in flight at each endpoint, as far as a router knows.
    pub(crate) fn usages(&mut self, router: u32, now_us: u64, usages: &mut [Usage]) {
        if self.freshness.load_delay_us > 0 {
            while let Some(change) = self.changes.front()
                && change.at_us + self.freshness.load_delay_us <= now_us
            {
                self.old[change.endpoint].add(change.sequences, change.tokens);
                self.changes.pop_front();
            }
            for (usage, old) in usages.iter_mut().zip(&self.old) {
                *usage = old.usage();
            }
            return;
        }
        let from = router as usize * self.endpoints;
        for (endpoint, usage) in usages.iter_mut().enumerate() {
            let own = self.own[from + endpoint];
            let mut seen = own;
            match self.freshness.sharing {
                Sharing::Never => {}
                Sharing::Every(0) => seen = self.all[endpoint],
                Sharing::Every(_) => {
                    let (told, all) = (self.told[from + endpoint], self.all_told[endpoint]);
                    seen.add(all.sequences - told.sequences, all.tokens - told.tokens);
                }
            }
            *usage = seen.usage();
        }
    }
}
