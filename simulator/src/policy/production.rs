//! What gateways do: `router-core`'s ranking, from what they know.

use prefixway_core::load::EndpointLoad;
use prefixway_core::proto;
use prefixway_core::schedule::rates::{Learner, Observation};
use prefixway_core::schedule::{Candidate, DEFAULT_PREFILL_TOKENS_PER_S, Need, Profiles, Registry};
use prefixway_core::snapshot::{Credit, EndpointInfo, EndpointKey, Endpoints};

use super::history::History;
use super::{Asked, Choice, Chooser, CostOptions, Rates, Reply};
use crate::simulation::Setup;
use crate::workload::Workload;

pub(super) struct Production {
    endpoints: Vec<EndpointInfo>,
    places: hashbrown::HashMap<EndpointKey, usize>,
    profiles: Profiles,
    history: Option<History>,
    learner: Option<Learner>,
}

impl Production {
    /// The default cost.
    pub(super) fn cost(
        options: CostOptions,
        is_approximate: bool,
        setup: &Setup,
        work: &Workload,
    ) -> Self {
        Self::new(&cost(options), options.rates, is_approximate, setup, work)
    }

    /// llm-d's scorers and weights instead of a cost.
    pub(super) fn weighted(setup: &Setup, work: &Workload) -> Self {
        Self::new(&weights(), Rates::Configured, false, setup, work)
    }

    #[expect(
        clippy::expect_used,
        reason = "the policies are the ones below, and tests run them"
    )]
    fn new(
        policy: &proto::Policy,
        rates: Rates,
        is_approximate: bool,
        setup: &Setup,
        work: &Workload,
    ) -> Self {
        let infos = (0u32..)
            .zip(setup.endpoints())
            .map(|(id, class)| proto::Endpoint {
                id,
                address: format!("10.0.0.{id}:8000"),
                healthy: true,
                accelerator: if rates == Rates::Blind {
                    String::new()
                } else {
                    class.name.clone()
                },
                prefill_tokens_per_s: match rates {
                    Rates::Configured => class.prefill_tokens_per_s,
                    Rates::Blind => 0.0,
                    Rates::Learned => DEFAULT_PREFILL_TOKENS_PER_S,
                },
                block_size: work.block_tokens,
                ..proto::Endpoint::default()
            });
        let message = proto::Endpoints {
            revision: 1,
            endpoints: infos.collect(),
        };
        let endpoints = Endpoints::from_message(&message).list().to_vec();
        Self {
            places: endpoints.iter().map(|of| of.key).zip(0..).collect(),
            endpoints,
            profiles: Registry::default()
                .profiles(policy)
                .expect("a policy that can be used"),
            history: is_approximate.then(|| History::of_caches(setup, work)),
            learner: (rates == Rates::Learned).then(Learner::default),
        }
    }

    fn credit(&self, asked: &Asked<'_>, of: usize) -> Credit {
        match &self.history {
            None => Credit {
                by_tier: [asked.indexed[of], 0, 0],
                speculative: asked.expected[of],
            },
            Some(history) => {
                let blocks = history.blocks(asked.router, of, asked.chain);
                let most = asked.prompt_tokens.saturating_sub(1) / asked.work.block_tokens;
                Credit {
                    by_tier: [blocks.min(most) * asked.work.block_tokens, 0, 0],
                    speculative: 0,
                }
            }
        }
    }
}

/// The default cost, with other constants where the options have some.
fn cost(options: CostOptions) -> proto::Policy {
    proto::Policy {
        beta: options.beta,
        max_imbalance: options.max_imbalance,
        ..proto::Policy::default()
    }
}

/// Prefix 3, queue 2, KV use 2.
fn weights() -> proto::Policy {
    let scorers = [
        ("prefix-cache", 3.0),
        ("queue", 2.0),
        ("kv-cache-utilization", 2.0),
    ];
    let scorers = scorers.into_iter().map(|(name, weight)| proto::Plugin {
        r#type: name.to_owned(),
        weight: Some(weight),
        ..proto::Plugin::default()
    });
    proto::Policy {
        scheduling: Some(Box::new(proto::Scheduling {
            profiles: vec![proto::SchedulingProfile {
                name: "weighted".to_owned(),
                scorers: scorers.collect(),
                ..proto::SchedulingProfile::default()
            }],
            pools: Vec::new(),
        })),
        ..proto::Policy::default()
    }
}

impl Chooser for Production {
    fn wants_prefixes(&self) -> bool {
        self.history.is_none()
    }

    fn choose(&mut self, asked: &Asked<'_>) -> Choice {
        if let Some(learner) = &self.learner {
            for endpoint in &mut self.endpoints {
                endpoint.prefill_tokens_per_s = Some(learner.rate(
                    endpoint.key,
                    &endpoint.accelerator,
                    DEFAULT_PREFILL_TOKENS_PER_S,
                    asked.now_us / 1_000,
                ));
            }
        }
        for (endpoint, &is_there) in self.endpoints.iter_mut().zip(asked.is_there) {
            endpoint.healthy = is_there;
        }
        let candidates: Vec<Candidate<'_>> = self
            .endpoints
            .iter()
            .enumerate()
            .map(|(of, endpoint)| Candidate {
                endpoint,
                shard: 0,
                credit: self.credit(asked, of),
                load: EndpointLoad {
                    usage: asked.usages[of],
                    has_others: true,
                    engine: asked.figures[of],
                    reported: None,
                },
            })
            .collect();
        let need = Need {
            prompt_tokens: asked.prompt_tokens,
            ..Need::default()
        };
        let ranking = self
            .profiles
            .of_pool("")
            .rank(&candidates, &need, asked.seed);
        let Some(best) = ranking.first() else {
            return asked.blind(0);
        };
        let endpoint = self.places.get(&best.key).copied().unwrap_or(0);
        if let Some(history) = &mut self.history {
            history.sent(asked.router, endpoint, asked.chain);
        }
        Choice {
            endpoint,
            uncached_tokens: best.uncached_tokens,
        }
    }

    fn replied(&mut self, reply: &Reply) {
        let (Some(learner), Some(endpoint)) =
            (&mut self.learner, self.endpoints.get(reply.endpoint))
        else {
            return;
        };
        learner.observe(
            endpoint.key,
            &endpoint.accelerator,
            &Observation {
                now_ms: reply.now_us / 1_000,
                ttft_ms: reply.ttft_us / 1_000,
                uncached_tokens: reply.uncached_tokens,
                queued_tokens: reply.queued_tokens,
            },
        );
    }
}
