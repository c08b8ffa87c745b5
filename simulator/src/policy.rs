//! Policies: how each of them chooses.
//!
//! | name | chooses |
//! |---|---|
//! | `prefixway` | what gateways do: [`prefixway_core::schedule::rank`] with events, expectations and shared load |
//! | `approximate` | the same without events: a router's own history, as large as the caches |
//! | `round_robin`, `random`, `least_request` | without prefixes; the last by exact requests in flight |
//! | `llm_d_minmax` | llm-d's scorers prefix, queue and KV use with weights 3:2:2, matched blocks scaled between least and most |
//! | `llm_d_ratio` | the same with matched blocks as a share of all |
//! | `weighted` | `llm_d_ratio` as a profile of this project's scheduler: a hot prefix spills |
//! | `gaie` | `llm_d_ratio` on a history of 31,250 blocks of 16 tokens, matches up to 4,096 tokens |
//! | `dynamo` | fewest prefill blocks and active blocks, as Dynamo's router by default |
//! | `oracle` | the cheapest by the engines' true state, with the best of `beta` 1, 2 and 4 |
//!
//! Options follow the name: `prefixway:beta=4`, `prefixway:max_imbalance=8:rates=learned`.

mod dynamo;
mod history;
mod oracle;
mod plain;
mod production;
mod weighted;

use std::fmt;
use std::str::FromStr;

use prefixway_core::load::{Figures, Usage};

use crate::engine::Engine;
use crate::simulation::Setup;
use crate::workload::Workload;

/// How the rate of an endpoint is known to the cost policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rates {
    /// By its class.
    #[default]
    Configured,
    /// Not at all: all are taken for equal.
    Blind,
    /// From nothing but replies, beginning with all equal.
    Learned,
}

/// Settings of the cost policy; 0 = the scheduler's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostOptions {
    /// Weight of uncached tokens.
    pub beta: f64,
    /// Sequences by which a hot prefix may make an endpoint busier.
    pub max_imbalance: u32,
    /// Rates.
    pub rates: Rates,
}

/// A policy to simulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// Any.
    Random,
    /// The one with the fewest requests in flight.
    LeastRequest,
    /// The cost of `router-core`, with events.
    Prefixway(CostOptions),
    /// The cost of `router-core`, from a router's own history.
    Approximate(CostOptions),
    /// llm-d's scorers, min-max over endpoints.
    LlmDMinMax,
    /// llm-d's scorers, ratio of the prompt.
    LlmDRatio,
    /// llm-d's scorers as a profile of `router-core`.
    Weighted,
    /// Gateway API Inference Extension's defaults.
    Gaie,
    /// Dynamo's cost.
    Dynamo,
    /// The true state, with the best `beta` for each seed.
    Oracle,
    /// The true state.
    OracleWith {
        /// Weight of uncached tokens.
        beta: f64,
    },
}

/// Weights of the greedy oracle.
pub const ORACLE_BETAS: [f64; 3] = [1.0, 2.0, 4.0];

impl Policy {
    /// The usual ones, worst knowledge first.
    pub const USUAL: [Self; 9] = [
        Self::RoundRobin,
        Self::Random,
        Self::LeastRequest,
        Self::Approximate(DEFAULT_COST),
        Self::LlmDMinMax,
        Self::LlmDRatio,
        Self::Dynamo,
        DEFAULT_POLICY,
        Self::Oracle,
    ];

    /// Names without options.
    pub const NAMES: [&'static str; 11] = [
        "round_robin",
        "random",
        "least_request",
        "approximate",
        "llm_d_minmax",
        "llm_d_ratio",
        "weighted",
        "gaie",
        "dynamo",
        "prefixway",
        "oracle",
    ];

    /// Policies of which this one takes the best.
    pub fn variants(self) -> Vec<Self> {
        match self {
            Self::Oracle => ORACLE_BETAS
                .into_iter()
                .map(|beta| Self::OracleWith { beta })
                .collect(),
            other => vec![other],
        }
    }

    pub(crate) fn chooser(self, setup: &Setup, work: &Workload) -> Box<dyn Chooser> {
        match self {
            Self::RoundRobin => Box::new(plain::RoundRobin::new(setup)),
            Self::Random => Box::new(plain::Random),
            Self::LeastRequest => Box::new(plain::LeastRequest),
            Self::Prefixway(options) => {
                Box::new(production::Production::cost(options, false, setup, work))
            }
            Self::Approximate(options) => {
                Box::new(production::Production::cost(options, true, setup, work))
            }
            Self::LlmDMinMax => {
                Box::new(weighted::Weighted::llm_d(weighted::Prefix::MinMax, setup))
            }
            Self::LlmDRatio => Box::new(weighted::Weighted::llm_d(weighted::Prefix::Ratio, setup)),
            Self::Weighted => Box::new(production::Production::weighted(setup, work)),
            Self::Gaie => Box::new(weighted::Weighted::gaie(setup, work)),
            Self::Dynamo => Box::new(dynamo::Dynamo::new(setup, work)),
            Self::Oracle => Box::new(oracle::Oracle { beta: 2.0 }),
            Self::OracleWith { beta } => Box::new(oracle::Oracle { beta }),
        }
    }
}

const DEFAULT_COST: CostOptions = CostOptions {
    beta: 0.0,
    max_imbalance: 0,
    rates: Rates::Configured,
};

/// The product's own, with its defaults.
pub const DEFAULT_POLICY: Policy = Policy::Prefixway(DEFAULT_COST);

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, options) = match self {
            Self::RoundRobin => ("round_robin", None),
            Self::Random => ("random", None),
            Self::LeastRequest => ("least_request", None),
            Self::Prefixway(options) => ("prefixway", Some(options)),
            Self::Approximate(options) => ("approximate", Some(options)),
            Self::LlmDMinMax => ("llm_d_minmax", None),
            Self::LlmDRatio => ("llm_d_ratio", None),
            Self::Weighted => ("weighted", None),
            Self::Gaie => ("gaie", None),
            Self::Dynamo => ("dynamo", None),
            Self::Oracle => ("oracle", None),
            Self::OracleWith { beta } => return write!(f, "oracle:beta={beta}"),
        };
        f.write_str(name)?;
        let Some(options) = options else {
            return Ok(());
        };
        if options.beta > 0.0 {
            write!(f, ":beta={}", options.beta)?;
        }
        if options.max_imbalance > 0 {
            write!(f, ":max_imbalance={}", options.max_imbalance)?;
        }
        match options.rates {
            Rates::Configured => Ok(()),
            Rates::Blind => f.write_str(":rates=blind"),
            Rates::Learned => f.write_str(":rates=learned"),
        }
    }
}

/// Why a policy's name is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy is called so.
    #[error("no policy is called {0:?}")]
    Unknown(String),
    /// An option that the policy does not have, or a value that it does not take.
    #[error("policy {policy} takes no option {option:?}")]
    Option {
        /// The policy.
        policy: String,
        /// The option as written.
        option: String,
    },
}

impl PolicyError {
    /// What the user can do.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown(_) => format!("policies are {}", Policy::NAMES.join(", ")),
            Self::Option { .. } => {
                "prefixway and approximate take beta=N, max_imbalance=N and rates=configured|blind|learned, oracle takes beta=N".to_owned()
            }
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut policy = match name {
            "round_robin" => Self::RoundRobin,
            "random" => Self::Random,
            "least_request" => Self::LeastRequest,
            "approximate" => Self::Approximate(DEFAULT_COST),
            "llm_d_minmax" => Self::LlmDMinMax,
            "llm_d_ratio" => Self::LlmDRatio,
            "weighted" => Self::Weighted,
            "gaie" => Self::Gaie,
            "dynamo" => Self::Dynamo,
            "prefixway" => DEFAULT_POLICY,
            "oracle" => Self::Oracle,
            other => return Err(PolicyError::Unknown(other.to_owned())),
        };
        for option in parts {
            policy = policy.with(option).ok_or_else(|| PolicyError::Option {
                policy: name.to_owned(),
                option: option.to_owned(),
            })?;
        }
        Ok(policy)
    }
}

impl Policy {
    fn with(self, option: &str) -> Option<Self> {
        let (key, value) = option.split_once('=')?;
        let beta = || {
            value
                .parse()
                .ok()
                .filter(|beta: &f64| beta.is_finite() && *beta > 0.0)
        };
        match self {
            Self::Prefixway(options) => Some(Self::Prefixway(options.with(key, value)?)),
            Self::Approximate(options) => Some(Self::Approximate(options.with(key, value)?)),
            Self::Oracle if key == "beta" => Some(Self::OracleWith { beta: beta()? }),
            _ => None,
        }
    }
}

impl CostOptions {
    fn with(mut self, key: &str, value: &str) -> Option<Self> {
        match key {
            "beta" => {
                let beta = value.parse().ok();
                self.beta = beta.filter(|beta: &f64| beta.is_finite() && *beta > 0.0)?;
            }
            "max_imbalance" => self.max_imbalance = value.parse().ok().filter(|&of| of > 0)?,
            "rates" => {
                self.rates = match value {
                    "configured" => Rates::Configured,
                    "blind" => Rates::Blind,
                    "learned" => Rates::Learned,
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(self)
    }
}

/// A request to choose for, with what its router knows.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) request: u32,
    pub(crate) router: u32,
    pub(crate) now_us: u64,
    pub(crate) prompt_tokens: u32,
    pub(crate) chain: &'a [u32],
    /// A number for this decision alone.
    pub(crate) seed: u64,
    /// By endpoint: tokens that the index says it holds.
    pub(crate) indexed: &'a [u32],
    /// By endpoint: tokens that it is expected to hold.
    pub(crate) expected: &'a [u32],
    /// By endpoint: work in flight.
    pub(crate) usages: &'a [Usage],
    /// By endpoint: the engine's own figures.
    pub(crate) figures: &'a [Option<Figures>],
    /// By endpoint: whether it has joined.
    pub(crate) is_there: &'a [bool],
    /// The truth, for the oracle.
    pub(crate) engines: &'a [Engine],
    pub(crate) work: &'a Workload,
}

/// A choice, and what was thought about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) endpoint: usize,
    /// Tokens that it will have to compute, as thought.
    pub(crate) uncached_tokens: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) endpoint: usize,
    pub(crate) now_us: u64,
    pub(crate) ttft_us: u64,
    pub(crate) uncached_tokens: u32,
    /// Tokens that waited there when it was sent, as thought.
    pub(crate) queued_tokens: u64,
}

/// A policy at work.
pub(crate) trait Chooser {
    /// Whether it wants to know what caches hold.
    fn wants_prefixes(&self) -> bool {
        false
    }

    fn choose(&mut self, asked: &Asked<'_>) -> Choice;

    fn replied(&mut self, _reply: &Reply) {}

    fn finished(&mut self, _request: u32, _endpoint: usize, _work: &Workload) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in Policy::NAMES {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        for name in [
            "prefixway:beta=4:max_imbalance=8:rates=learned",
            "oracle:beta=2",
            "approximate:rates=blind",
        ] {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        for name in [
            "",
            "prefixway:beta=0",
            "prefixway:beta=nan",
            "random:beta=1",
            "prefixway:gamma=1",
            "oracle:beta",
        ] {
            let error = name.parse::<Policy>().unwrap_err();
            assert!(!error.hint().is_empty());
        }
    }
}
