//! Plugins by name, and profiles made of them.
//!
//! | type | also | kind | parameters (default) |
//! |---|---|---|---|
//! | `label-selector` | `label-selector-filter`, `by-label-selector` | filter | `matchLabels`, `matchExpressions` |
//! | `by-label` | | filter | `label`, `validValues`, `allowsNoLabel` (false) |
//! | `accelerator` | | filter | `classes` |
//! | `utilization` | `utilization-filter`, `endpoint-attribute`, `endpoint-attribute-filter` | filter | `conditions`: `metric`, `minValue`, `maxValue`; `keepUnknown` (false) |
//! | `staleness` | | filter | `load` (true), `events` (false) |
//! | `prefix-cache-affinity` | `prefix-cache-affinity-filter` | filter | `affinityThreshold` (0.8), `explorationProbability` (0), `maxTTFTPenaltyMs` (18000) |
//! | `slo-headroom-tier` | `slo-headroom-tier-filter` | filter | `epsilonExploreNeg` (0.01) |
//! | `session-affinity` | `session-affinity-filter` | filter | |
//! | `context-length-aware` | | filter | `label` (llm-d.ai/context-length-range) |
//! | `prefix-cache` | `prefix-cache-scorer`, `precise-prefix-cache-scorer` | scorer | `matchLengthWeight` (0), `matchLengthScaleTokens` (8192) |
//! | `queue` | `queue-scorer` | scorer | |
//! | `running-requests` | `running-requests-size-scorer` | scorer | |
//! | `kv-cache-utilization` | `kv-cache-utilization-scorer` | scorer | |
//! | `load-aware` | `load-aware-scorer` | scorer | `threshold` (128) |
//! | `active-request` | `active-request-scorer` | scorer | `idleThreshold` (0), `maxBusyScore` (1) |
//! | `token-load` | `token-load-scorer` | scorer | `queueThresholdTokens` (4194304) |
//! | `no-hit-lru` | `no-hit-lru-scorer` | scorer | |
//! | `lora-affinity` | `lora-affinity-scorer` | scorer | |
//! | `session-affinity` | `session-affinity-scorer` | scorer | |
//! | `context-length-aware` | `context-length-aware-scorer` | scorer | `label` |
//! | `header-label-affinity` | `header-label-affinity-scorer` | scorer | `headerName`, `labelKey` |
//! | `topology-affinity` | `topology-affinity-scorer` | scorer | `host`, `rack`, `zone`, `region` |
//! | `latency` | `latency-scorer` | scorer | `ttftWeight` (0.8), `tpotWeight` (0.2), `headroomSelectionStrategy` (least) |
//! | `endpoint-attribute` | `endpoint-attribute-scorer` | scorer | `attribute`, `better` (lower), `fixedRange` |
//! | `expression` | | filter, scorer | `expression`, in CEL: see [`super::expression`] |
//! | `max-score`, `weighted-random`, `power-of-two`, `random` | the same with `-picker` | picker | |

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Attribute, Cost, DEFAULT_MAX_IMBALANCE, FetchCosts, Filter, Judge, LabelSelector, OnNone,
    Picker, Profile, Scorer, Selecting, Weighted, expression, filter, scorer,
};
use crate::proto;

/// Label with the range of prompt lengths that an endpoint is for.
pub const CONTEXT_LENGTH_LABEL: &str = "llm-d.ai/context-length-range";

/// Most plugins in a profile.
pub const MAX_PLUGINS: usize = 64;

type BuildFilter = fn(Value) -> Result<Box<dyn Filter>, Problem>;
type BuildScorer = fn(Value) -> Result<Box<dyn Scorer>, Problem>;

/// What is wrong with a plugin's parameters.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Problem(String);

impl Problem {
    /// A problem in words.
    pub fn new(words: &dyn core::fmt::Display) -> Self {
        Self(words.to_string())
    }
}

/// What is wrong with a policy's scheduling, and where.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ScheduleError {
    /// Path of the key, `profiles[0].scorers[2].type` for example.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// The profiles of a policy, at least one.
#[derive(Debug)]
pub struct Profiles {
    profiles: Vec<Profile>,
    pools: BTreeMap<String, usize>,
}

impl Default for Profiles {
    fn default() -> Self {
        Self::new(Profile::default())
    }
}

impl Profiles {
    fn new(profile: Profile) -> Self {
        Self {
            profiles: vec![profile],
            pools: BTreeMap::new(),
        }
    }

    /// The profile of a pool: its own, or the first.
    #[expect(
        clippy::indexing_slicing,
        reason = "there is at least one, and places come from the list"
    )]
    pub fn of_pool(&self, pool: &str) -> &Profile {
        &self.profiles[self.pools.get(pool).copied().unwrap_or(0)]
    }

    /// All, the one for requests that no other is named for first.
    pub fn list(&self) -> &[Profile] {
        &self.profiles
    }

    /// Request headers that any of them asks for, names in lower case, each once.
    pub fn headers(&self) -> Vec<String> {
        let mut names: Vec<String> = self.profiles.iter().flat_map(Profile::headers).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Plugins by the name of their type.
#[derive(Clone, Debug)]
pub struct Registry {
    filters: BTreeMap<&'static str, BuildFilter>,
    scorers: BTreeMap<&'static str, BuildScorer>,
}

impl Default for Registry {
    /// All that are built in.
    fn default() -> Self {
        let mut registry = Self {
            filters: BTreeMap::new(),
            scorers: BTreeMap::new(),
        };
        registry.add_filters();
        registry.add_scorers();
        registry
    }
}

/// Reads parameters; absent ones are an empty object.
///
/// # Errors
/// They do not have the shape.
pub fn parameters<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let value = match value {
        Value::Null => Value::Object(serde_json::Map::new()),
        value => value,
    };
    serde_json::from_value(value).map_err(|problem| Problem::new(&problem))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ByLabel {
    label: String,
    #[serde(default)]
    valid_values: Vec<String>,
    #[serde(default)]
    allows_no_label: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfContext {
    label: Option<String>,
    /// Whether it is a filter; that one is named by itself here.
    #[serde(default, rename = "enableFiltering")]
    _enable_filtering: bool,
}

impl OfContext {
    fn label(self) -> String {
        self.label
            .unwrap_or_else(|| CONTEXT_LENGTH_LABEL.to_owned())
    }
}

impl Registry {
    /// Adds a filter of one's own, or another one for a name.
    pub fn add_filter(&mut self, name: &'static str, build: BuildFilter) {
        self.filters.insert(name, build);
    }

    /// Adds a scorer of one's own, or another one for a name.
    pub fn add_scorer(&mut self, name: &'static str, build: BuildScorer) {
        self.scorers.insert(name, build);
    }

    fn add_filters(&mut self) {
        let mut add = |names: &[&'static str], build: BuildFilter| {
            for name in names {
                self.add_filter(name, build);
            }
        };
        add(
            &[
                "label-selector",
                "label-selector-filter",
                "by-label-selector",
            ],
            |value| {
                let selector: LabelSelector = parameters(value)?;
                selector.check().map_err(|problem| Problem::new(&problem))?;
                Ok(Box::new(filter::ByLabels(selector)))
            },
        );
        add(&["by-label"], |value| {
            let by: ByLabel = parameters(value)?;
            Ok(Box::new(filter::ByLabel {
                label: by.label,
                values: by.valid_values,
                allows_none: by.allows_no_label,
            }))
        });
        add(&["accelerator"], |value| {
            Ok(Box::new(parameters::<filter::ByAccelerator>(value)?))
        });
        add(
            &[
                "utilization",
                "utilization-filter",
                "endpoint-attribute",
                "endpoint-attribute-filter",
            ],
            |value| Ok(Box::new(parameters::<filter::WithinBounds>(value)?)),
        );
        add(&["staleness"], |value| {
            Ok(Box::new(parameters::<filter::Fresh>(value)?))
        });
        add(
            &["prefix-cache-affinity", "prefix-cache-affinity-filter"],
            |value| Ok(Box::new(parameters::<filter::PrefixAffinity>(value)?)),
        );
        add(
            &["slo-headroom-tier", "slo-headroom-tier-filter"],
            |value| Ok(Box::new(parameters::<filter::MeetsTargets>(value)?)),
        );
        add(&["session-affinity", "session-affinity-filter"], |value| {
            parameters::<Nothing>(value)?;
            Ok(Box::new(filter::PinnedToSession))
        });
        add(&["context-length-aware"], |value| {
            let label = parameters::<OfContext>(value)?.label();
            Ok(Box::new(filter::WithinContext(label)))
        });
        add(&["expression"], |value| {
            Ok(Box::new(expression::Keeping::try_new(parameters(value)?)?))
        });
    }

    fn add_scorers(&mut self) {
        let mut add = |names: &[&'static str], build: BuildScorer| {
            for name in names {
                self.add_scorer(name, build);
            }
        };
        add(
            &[
                "prefix-cache",
                "prefix-cache-scorer",
                "precise-prefix-cache-scorer",
            ],
            |value| Ok(Box::new(parameters::<scorer::PrefixCache>(value)?)),
        );
        add(&["queue", "queue-scorer"], |value| {
            parameters::<Nothing>(value)?;
            Ok(Box::new(scorer::FewerIsBetter(Attribute::WaitingQueue)))
        });
        add(
            &["running-requests", "running-requests-size-scorer"],
            |value| {
                parameters::<Nothing>(value)?;
                Ok(Box::new(scorer::FewerIsBetter(Attribute::RunningRequests)))
            },
        );
        add(
            &["kv-cache-utilization", "kv-cache-utilization-scorer"],
            |value| {
                parameters::<Nothing>(value)?;
                let rest = scorer::ByAttribute::rest(Attribute::KvCacheUtilization);
                Ok(Box::new(rest))
            },
        );
        add(&["load-aware", "load-aware-scorer"], |value| {
            Ok(Box::new(parameters::<scorer::LoadAware>(value)?))
        });
        add(&["active-request", "active-request-scorer"], |value| {
            Ok(Box::new(parameters::<scorer::ActiveRequests>(value)?))
        });
        add(&["token-load", "token-load-scorer"], |value| {
            Ok(Box::new(parameters::<scorer::TokenLoad>(value)?))
        });
        add(&["no-hit-lru", "no-hit-lru-scorer"], |value| {
            parameters::<Nothing>(value)?;
            Ok(Box::new(scorer::NoHitLru))
        });
        add(&["lora-affinity", "lora-affinity-scorer"], |value| {
            parameters::<Nothing>(value)?;
            Ok(Box::new(scorer::LoraAffinity))
        });
        add(&["session-affinity", "session-affinity-scorer"], |value| {
            parameters::<Nothing>(value)?;
            Ok(Box::new(scorer::SessionAffinity))
        });
        add(
            &["context-length-aware", "context-length-aware-scorer"],
            |value| {
                let label = parameters::<OfContext>(value)?.label();
                Ok(Box::new(scorer::ContextLength(label)))
            },
        );
        add(
            &["header-label-affinity", "header-label-affinity-scorer"],
            |value| Ok(Box::new(parameters::<scorer::HeaderLabel>(value)?)),
        );
        add(
            &["topology-affinity", "topology-affinity-scorer"],
            |value| Ok(Box::new(parameters::<scorer::Topology>(value)?)),
        );
        add(&["latency", "latency-scorer"], |value| {
            Ok(Box::new(parameters::<scorer::Latency>(value)?))
        });
        add(&["expression"], |value| {
            Ok(Box::new(expression::Scoring::try_new(parameters(value)?)?))
        });
        add(
            &["endpoint-attribute", "endpoint-attribute-scorer"],
            |value| Ok(Box::new(parameters::<scorer::ByAttribute>(value)?)),
        );
    }

    /// Names of all filters.
    pub fn filter_names(&self) -> impl Iterator<Item = &'static str> {
        self.filters.keys().copied()
    }

    /// Names of all scorers.
    pub fn scorer_names(&self) -> impl Iterator<Item = &'static str> {
        self.scorers.keys().copied()
    }

    /// The profiles of a policy; the default one where it has none.
    ///
    /// # Errors
    /// The first key that can't be used, with its path.
    pub fn profiles(&self, policy: &proto::Policy) -> Result<Profiles, ScheduleError> {
        let none = proto::Scheduling::default();
        let scheduling = policy.scheduling.as_deref().unwrap_or(&none);
        if *scheduling == none {
            let profile = Profile {
                judge: Judge::Cost(cost_of(policy, None)),
                max_imbalance: max_imbalance(policy, None),
                ..Profile::default()
            };
            return Ok(Profiles::new(profile));
        }
        if scheduling.profiles.is_empty() {
            return Err(ScheduleError {
                path: "profiles".to_owned(),
                problem: "pools name profiles, and there is none".to_owned(),
            });
        }
        let profiles = scheduling.profiles.iter().enumerate();
        let profiles = profiles
            .map(|(at, profile)| self.profile(policy, profile, &format!("profiles[{at}]")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut pools = BTreeMap::new();
        for of in &scheduling.pools {
            let mut all = profiles.iter();
            let place = all.position(|profile| profile.name == of.profile);
            let place = place.ok_or_else(|| ScheduleError {
                path: format!("pools.{}.profile", of.pool),
                problem: format!("no profile {:?}", of.profile),
            })?;
            pools.insert(of.pool.clone(), place);
        }
        Ok(Profiles { profiles, pools })
    }

    fn profile(
        &self,
        policy: &proto::Policy,
        profile: &proto::SchedulingProfile,
        path: &str,
    ) -> Result<Profile, ScheduleError> {
        let error = |key: &str, problem: String| ScheduleError {
            path: format!("{path}.{key}"),
            problem,
        };
        if profile.filters.len() + profile.scorers.len() > MAX_PLUGINS {
            let problem = format!("more than {MAX_PLUGINS} filters and scorers");
            return Err(error("scorers", problem));
        }
        let value = |plugin: &proto::Plugin, key: &str| {
            if plugin.parameters.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_str(&plugin.parameters)
                .map_err(|problem| error(&format!("{key}.parameters"), problem.to_string()))
        };
        let mut filters = Vec::with_capacity(profile.filters.len());
        for (at, plugin) in profile.filters.iter().enumerate() {
            let key = format!("filters[{at}]");
            let build = self.filters.get(plugin.r#type.as_str()).ok_or_else(|| {
                let known = self.filter_names().collect::<Vec<_>>().join(", ");
                let problem = format!("no filter {:?}; there are: {known}", plugin.r#type);
                error(&format!("{key}.type"), problem)
            })?;
            let built = build(value(plugin, &key)?)
                .map_err(|problem| error(&format!("{key}.parameters"), problem.to_string()))?;
            filters.push(Selecting {
                filter: built,
                on_none: if plugin.required {
                    OnNone::Refuse
                } else {
                    OnNone::Ignore
                },
            });
        }
        let mut scorers = Vec::with_capacity(profile.scorers.len());
        for (at, plugin) in profile.scorers.iter().enumerate() {
            let key = format!("scorers[{at}]");
            let build = self.scorers.get(plugin.r#type.as_str()).ok_or_else(|| {
                let known = self.scorer_names().collect::<Vec<_>>().join(", ");
                let problem = format!("no scorer {:?}; there are: {known}", plugin.r#type);
                error(&format!("{key}.type"), problem)
            })?;
            let built = build(value(plugin, &key)?)
                .map_err(|problem| error(&format!("{key}.parameters"), problem.to_string()))?;
            let weight = plugin.weight.unwrap_or(1.0);
            if !weight.is_finite() || weight < 0.0 {
                let problem = format!("{weight} is no weight: it is 0 or more");
                return Err(error(&format!("{key}.weight"), problem));
            }
            scorers.push(Weighted {
                scorer: built,
                weight,
            });
        }
        let judge = match (&profile.cost, scorers.is_empty()) {
            (Some(cost), _) => Judge::Cost(cost_of(policy, Some(cost))),
            (None, true) => Judge::Cost(cost_of(policy, None)),
            (None, false) => Judge::Scores,
        };
        let picker = picker(&profile.picker).ok_or_else(|| {
            let problem = format!(
                "no picker {:?}; there are: max-score, weighted-random, power-of-two, random",
                profile.picker
            );
            error("picker", problem)
        })?;
        Ok(Profile {
            name: profile.name.clone(),
            filters,
            judge,
            scorers,
            picker,
            max_imbalance: max_imbalance(policy, profile.max_imbalance),
        })
    }
}

fn picker(name: &str) -> Option<Picker> {
    Some(match name.strip_suffix("-picker").unwrap_or(name) {
        "" | "max-score" => Picker::MaxScore,
        "weighted-random" => Picker::WeightedRandom,
        "power-of-two" => Picker::PowerOfTwo,
        "random" => Picker::Random,
        _ => return None,
    })
}

fn max_imbalance(policy: &proto::Policy, own: Option<u32>) -> u32 {
    match own.unwrap_or(policy.max_imbalance) {
        0 => DEFAULT_MAX_IMBALANCE,
        sequences => sequences,
    }
}

/// The cost of a profile, with what the policy says for all of them.
fn cost_of(policy: &proto::Policy, cost: Option<&proto::Cost>) -> Cost {
    let default = Cost::default();
    let positive = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
    let own = cost.copied().unwrap_or_default();
    Cost {
        beta: positive(own.beta)
            .or(positive(Some(policy.beta)))
            .unwrap_or(default.beta),
        fetch: FetchCosts::of(policy),
        max_sequences: own.max_sequences.filter(|&sequences| sequences > 0),
        output_tokens: own.output_tokens.unwrap_or(default.output_tokens),
        decode_ms_per_token: positive(own.decode_ms_per_token)
            .unwrap_or(default.decode_ms_per_token),
        adapter_load_ms: own
            .adapter_load_ms
            .filter(|ms| ms.is_finite() && *ms >= 0.0)
            .unwrap_or(default.adapter_load_ms),
    }
}
