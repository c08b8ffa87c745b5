//! One run: arrivals, engines and routers in the order of time.
//!
//! ```text
//!  arrival ─► router: knowledge ─► policy ─► engine's queue ─► prefill ends ─► first token ─► answer ends
//!                 ▲                   │ expectation, account        │ events        │ account       │ account
//!                 └───────────────────┴─────────────────────────────┴───────────────┴───────────────┘
//! ```
//!
//! Time is whole microseconds; what happens at the same time happens in the order in which it was planned, so that a run depends on its arguments alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prefixway_core::load::{DEFAULT_MAX_FIGURES_AGE_MS, Figures, Usage};

use crate::block_pool::Private;
use crate::engine::{EndpointClass, Engine, FIRST_TOKEN_US};
use crate::knowledge::{Freshness, Knowledge, MAX_ENDPOINTS};
use crate::policy::{Asked, Chooser, Policy, Reply};
use crate::rng::{Rng, mix};
use crate::workload::Workload;

/// What is simulated, but for trace, load, policy and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Endpoints.
    pub classes: Vec<EndpointClass>,
    /// Routers, each with an account of its own; requests come to any of them.
    pub replicas: u32,
    /// What they are told, and when.
    pub freshness: Freshness,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            classes: vec![EndpointClass::default()],
            replicas: 1,
            freshness: Freshness::default(),
        }
    }
}

/// Why a setup can't be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// No endpoint, or more than the index has bits.
    #[error("{0} endpoints: 1 to {MAX_ENDPOINTS} can be simulated")]
    Endpoints(usize),
    /// No router, or too many.
    #[error("{0} replicas: 1 to 256 can be simulated")]
    Replicas(u32),
    /// An engine that never finishes anything, or a number that is none.
    #[error("class {name}: {what} must be above 0")]
    Class {
        /// The class.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Nobody is there at the start.
    #[error("no endpoint is there from the start")]
    NobodyThere,
}

impl Setup {
    /// Endpoints, each with its class.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointClass> {
        self.classes
            .iter()
            .flat_map(|class| std::iter::repeat_n(class, class.count as usize))
    }

    /// Checks that it can be simulated.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn check(&self) -> Result<(), SetupError> {
        let count = self.endpoints().count();
        if !(1..=MAX_ENDPOINTS).contains(&count) {
            return Err(SetupError::Endpoints(count));
        }
        if !(1..=256).contains(&self.replicas) {
            return Err(SetupError::Replicas(self.replicas));
        }
        for class in &self.classes {
            let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
            let wrong = [
                (is_rate(class.prefill_tokens_per_s), "the prefill rate"),
                (is_rate(class.decode_ms_per_token), "the time per token"),
                (class.slots > 0, "the number of slots"),
                (class.cache_tokens > 0, "the cache"),
            ];
            if let Some((_, what)) = wrong.into_iter().find(|(is_good, _)| !is_good) {
                let name = class.name.clone();
                return Err(SetupError::Class { name, what });
            }
        }
        if self.endpoints().all(|class| class.joins_us > 0) {
            return Err(SetupError::NobodyThere);
        }
        Ok(())
    }
}

/// What is so before the first request.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// By endpoint: blocks of the first request's prompt that it holds.
    pub held_blocks: Vec<u32>,
    /// By endpoint: the engine's figures, which are never read again; `None`: never read at all. Empty: figures are as usual.
    pub frozen_figures: Vec<Option<Figures>>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Endpoint that served it.
    pub endpoint: u32,
    /// When it was sent there.
    pub sent_us: u64,
    /// Time to first token.
    pub ttft_us: u64,
    /// Tokens found in the cache.
    pub cached_tokens: u32,
    /// Tokens that its router thought were to be computed for it.
    pub uncached_tokens: u32,
    /// Tokens that its router thought to wait there when it was sent.
    pub queued_tokens: u64,
    /// How many times it was finished: once, in the end.
    pub finished: u32,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    /// By request, in the order of arrival.
    pub served: Vec<Served>,
    /// Prefilled tokens by endpoint.
    pub prefilled_tokens: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    PrefillEnds { endpoint: usize },
    FirstToken { request: u32 },
    Finished { request: u32 },
}

#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    endpoint: usize,
    router: u32,
}

/// Runs a policy on a workload at a load: times are divided by `load`.
pub fn run(work: &Workload, setup: &Setup, policy: Policy, load: f64) -> Run {
    run_from(work, setup, policy, load, &Start::default())
}

/// Runs from a given start.
pub fn run_from(work: &Workload, setup: &Setup, policy: Policy, load: f64, start: &Start) -> Run {
    let mut simulation = Simulation::new(work, setup, policy, load);
    simulation.begin(start);
    simulation.play();
    Run {
        prefilled_tokens: simulation
            .engines
            .iter()
            .map(|of| of.prefilled_tokens)
            .collect(),
        served: simulation.served,
    }
}

struct Simulation<'a> {
    work: &'a Workload,
    replicas: u32,
    load: f64,
    joins_us: Vec<u64>,
    engines: Vec<Engine>,
    private: Vec<Private>,
    knowledge: Knowledge,
    chooser: Box<dyn Chooser>,
    steps: BinaryHeap<Reverse<(u64, u64, Step)>>,
    planned: u64,
    served: Vec<Served>,
    flights: Vec<Flight>,
    rng: Rng,
    // Scratch of one decision.
    indexed: Vec<u32>,
    expected: Vec<u32>,
    usages: Vec<Usage>,
    is_there: Vec<bool>,
}

impl<'a> Simulation<'a> {
    fn new(work: &'a Workload, setup: &Setup, policy: Policy, load: f64) -> Self {
        let classes: Vec<EndpointClass> = setup.endpoints().cloned().collect();
        let (endpoints, requests) = (classes.len(), work.arrivals.len());
        let nodes = work.nodes();
        Self {
            work,
            replicas: setup.replicas,
            load,
            joins_us: classes.iter().map(|class| class.joins_us).collect(),
            engines: classes
                .into_iter()
                .map(|class| Engine::new(class, work.block_tokens, nodes))
                .collect(),
            private: vec![Private::NONE; requests],
            knowledge: Knowledge::new(setup.freshness, setup.replicas as usize, endpoints, nodes),
            chooser: policy.chooser(setup, work),
            steps: BinaryHeap::new(),
            planned: 0,
            served: vec![Served::default(); requests],
            flights: vec![Flight::default(); requests],
            rng: Rng::new(work.seed, 0x5EED),
            indexed: vec![0; endpoints],
            expected: vec![0; endpoints],
            usages: vec![Usage::default(); endpoints],
            is_there: vec![true; endpoints],
        }
    }

    fn begin(&mut self, start: &Start) {
        for (endpoint, &blocks) in start.held_blocks.iter().enumerate() {
            let held = &self.work.chain(0)[..blocks as usize];
            self.engines[endpoint].preload(held);
            self.knowledge.preload(endpoint, held);
        }
        if !start.frozen_figures.is_empty() {
            let max_age = DEFAULT_MAX_FIGURES_AGE_MS;
            self.knowledge.freeze(
                start
                    .frozen_figures
                    .iter()
                    .map(|of| of.filter(|of| of.age_ms <= max_age)),
            );
        }
    }

    fn play(&mut self) {
        for request in 0..self.work.arrivals.len() as u32 {
            let at_us = self.work.arrivals[request as usize].at_us as f64 / self.load;
            let at_us = at_us as u64;
            self.play_until(at_us);
            self.knowledge.advance(at_us, &self.engines);
            self.arrive(request, at_us);
        }
        self.play_until(u64::MAX);
    }

    fn play_until(&mut self, end_us: u64) {
        while let Some(Reverse((at_us, ..))) = self.steps.peek()
            && *at_us <= end_us
            && let Some(Reverse((now_us, _, step))) = self.steps.pop()
        {
            self.knowledge.advance(now_us, &self.engines);
            match step {
                Step::PrefillEnds { endpoint } => {
                    if let Some(request) = self.engines[endpoint].end_prefill() {
                        self.plan(now_us + FIRST_TOKEN_US, Step::FirstToken { request });
                    }
                    self.start(endpoint, now_us);
                }
                Step::FirstToken { request } => self.first_token(request, now_us),
                Step::Finished { request } => self.finish(request, now_us),
            }
        }
    }

    fn plan(&mut self, at_us: u64, step: Step) {
        self.planned += 1;
        self.steps.push(Reverse((at_us, self.planned, step)));
    }

    fn arrive(&mut self, request: u32, now_us: u64) {
        let router = self.rng.below(self.replicas);
        let seed = mix(self.rng.draw());
        let of = self.work.arrivals[request as usize];
        let chain = self.work.chain(request);
        let block_tokens = self.work.block_tokens;
        if self.chooser.wants_prefixes() {
            self.knowledge
                .take_events(now_us, &mut self.engines, self.work);
            self.knowledge.indexed(chain, &mut self.indexed);
            self.knowledge
                .expected(chain, router, now_us, self.work, &mut self.expected);
            // At least the last token of a prompt is computed.
            let most = of.prompt_tokens.saturating_sub(1) / block_tokens;
            for blocks in self.indexed.iter_mut().chain(&mut self.expected) {
                *blocks = (*blocks).min(most) * block_tokens;
            }
        }
        self.knowledge.usages(router, now_us, &mut self.usages);
        for (is_there, joins_us) in self.is_there.iter_mut().zip(&self.joins_us) {
            *is_there = *joins_us <= now_us;
        }
        let choice = self.chooser.choose(&Asked {
            request,
            router,
            now_us,
            prompt_tokens: of.prompt_tokens,
            chain,
            seed,
            indexed: &self.indexed,
            expected: &self.expected,
            usages: &self.usages,
            figures: &self.knowledge.figures,
            is_there: &self.is_there,
            engines: &self.engines,
            work: self.work,
        });
        let endpoint = choice.endpoint;
        let uncached_tokens = choice.uncached_tokens;
        let queued_tokens = self.usages[endpoint].queued_prefill_tokens;
        self.flights[request as usize] = Flight { endpoint, router };
        self.served[request as usize] = Served {
            endpoint: endpoint as u32,
            sent_us: now_us,
            uncached_tokens,
            queued_tokens,
            ..Served::default()
        };
        let rate = self.engines[endpoint].class.prefill_tokens_per_s;
        if self.chooser.wants_prefixes() {
            let tokens = (queued_tokens, uncached_tokens);
            self.knowledge
                .expect(request, router, endpoint, now_us, tokens, rate);
        }
        self.knowledge
            .account(router, endpoint, now_us, 1, i64::from(uncached_tokens));
        self.engines[endpoint].enqueue(request, uncached_tokens);
        self.start(endpoint, now_us);
    }

    fn start(&mut self, endpoint: usize, now_us: u64) {
        let engine = &mut self.engines[endpoint];
        let Some(started) = engine.start(now_us, self.work, &mut self.private) else {
            return;
        };
        self.served[started.request as usize].cached_tokens = started.cached_tokens;
        self.plan(started.ends_us, Step::PrefillEnds { endpoint });
    }

    fn first_token(&mut self, request: u32, now_us: u64) {
        let of = self.work.arrivals[request as usize];
        let flight = self.flights[request as usize];
        let served = &mut self.served[request as usize];
        served.ttft_us = now_us - served.sent_us;
        let reply = Reply {
            endpoint: flight.endpoint,
            now_us,
            ttft_us: served.ttft_us,
            uncached_tokens: served.uncached_tokens,
            queued_tokens: served.queued_tokens,
        };
        let tokens = -i64::from(served.uncached_tokens);
        self.knowledge
            .account(flight.router, flight.endpoint, now_us, 0, tokens);
        self.knowledge.confirm(request, flight.endpoint, now_us);
        self.chooser.replied(&reply);
        let class = &self.engines[flight.endpoint].class;
        let decode_ms = f64::from(of.output_tokens - 1) * class.decode_ms_per_token;
        self.plan(
            now_us + (1_000.0 * decode_ms) as u64,
            Step::Finished { request },
        );
    }

    fn finish(&mut self, request: u32, now_us: u64) {
        let Flight {
            endpoint, router, ..
        } = self.flights[request as usize];
        self.served[request as usize].finished += 1;
        self.knowledge.account(router, endpoint, now_us, -1, 0);
        self.chooser.finished(request, endpoint, self.work);
        let private = self.private[request as usize];
        self.engines[endpoint].finish(request, self.work, private);
        self.start(endpoint, now_us);
    }
}
