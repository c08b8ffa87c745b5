//! Scheduling profiles of the policy: the file's shape, and what of it gateways are told.

use std::collections::BTreeMap;

use prefixway_core::proto;
use prefixway_core::schedule::Registry;
use serde::Deserialize;

use super::expression;

/// A profile, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    name: String,
    #[serde(default)]
    filters: Vec<RawFilter>,
    cost: Option<RawCost>,
    #[serde(default)]
    scorers: Vec<RawScorer>,
    #[serde(default)]
    picker: String,
    max_imbalance: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFilter {
    r#type: String,
    parameters: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    required: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScorer {
    r#type: String,
    parameters: Option<serde_json::Map<String, serde_json::Value>>,
    weight: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCost {
    beta: Option<f64>,
    max_sequences: Option<u32>,
    output_tokens: Option<u32>,
    decode_ms_per_token: Option<f64>,
}

/// What a pool has of its own, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPool {
    profile: String,
}

/// Profiles and which pool has which, as gateways are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduling {
    /// The first is for requests that no other is named for; empty: the default cost.
    pub profiles: Vec<proto::SchedulingProfile>,
    /// Pools with another one.
    pub pools: Vec<proto::PoolProfile>,
}

/// What is wrong with a key.
pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) reason: String,
}

/// Checks profiles by making them as a gateway does.
pub(super) fn check(
    raw: &[RawProfile],
    pools: &BTreeMap<String, RawPool>,
    known_pools: &[&str],
    wrong: &mut Vec<Wrong>,
) -> Scheduling {
    let profiles = raw.iter().enumerate();
    let scheduling = Scheduling {
        profiles: profiles
            .map(|(at, raw)| profile(raw, &format!("policy.profiles[{at}]"), wrong))
            .collect(),
        pools: pools
            .iter()
            .map(|(pool, of)| proto::PoolProfile {
                pool: pool.clone(),
                profile: of.profile.clone(),
            })
            .collect(),
    };
    let policy = proto::Policy {
        profiles: scheduling.profiles.clone(),
        pool_profiles: scheduling.pools.clone(),
        ..proto::Policy::default()
    };
    if wrong.is_empty()
        && let Err(error) = Registry::default().profiles(&policy)
    {
        wrong.push(Wrong {
            key: format!("policy.{}", error.path),
            value: String::new(),
            reason: error.problem,
        });
    }
    for (at, profile) in raw.iter().enumerate() {
        let mut earlier = raw.iter().take(at);
        if profile.name.is_empty() || earlier.any(|of| of.name == profile.name) {
            wrong.push(Wrong {
                key: format!("policy.profiles[{at}].name"),
                value: profile.name.clone(),
                reason: "must be a name that no other profile has".to_owned(),
            });
        }
        let cost = profile.cost.as_ref();
        let bounds = [
            ("beta", cost.and_then(|cost| cost.beta), 100.0),
            (
                "decode_ms_per_token",
                cost.and_then(|cost| cost.decode_ms_per_token),
                10_000.0,
            ),
        ];
        for (name, value, max) in bounds {
            if let Some(value) = value.filter(|value| !(0.0..=max).contains(value)) {
                wrong.push(Wrong {
                    key: format!("policy.profiles[{at}].cost.{name}"),
                    value: value.to_string(),
                    reason: format!("is out of range, allowed: 0 to {max}"),
                });
            }
        }
    }
    for pool in pools.keys() {
        if !known_pools.contains(&pool.as_str()) {
            wrong.push(Wrong {
                key: format!("policy.pools.{pool}"),
                value: pool.clone(),
                reason: "is not the pool of any model".to_owned(),
            });
        }
    }
    scheduling
}

type RawParameters = Option<serde_json::Map<String, serde_json::Value>>;

/// Name of the plugin that is written in CEL.
const EXPRESSION: &str = "expression";

fn profile(raw: &RawProfile, path: &str, wrong: &mut Vec<Wrong>) -> proto::SchedulingProfile {
    let filters = raw.filters.iter().enumerate();
    let filters = filters.map(|(at, of)| proto::Plugin {
        r#type: of.r#type.clone(),
        parameters: parameters(
            &of.r#type,
            &of.parameters,
            &format!("{path}.filters[{at}]"),
            wrong,
        ),
        weight: None,
        required: of.required,
    });
    let filters = filters.collect();
    let scorers = raw.scorers.iter().enumerate();
    let scorers = scorers.map(|(at, of)| proto::Plugin {
        r#type: of.r#type.clone(),
        parameters: parameters(
            &of.r#type,
            &of.parameters,
            &format!("{path}.scorers[{at}]"),
            wrong,
        ),
        weight: of.weight,
        required: false,
    });
    proto::SchedulingProfile {
        name: raw.name.clone(),
        filters,
        cost: raw.cost.as_ref().map(|cost| proto::Cost {
            beta: cost.beta,
            max_sequences: cost.max_sequences,
            output_tokens: cost.output_tokens,
            decode_ms_per_token: cost.decode_ms_per_token,
        }),
        scorers: scorers.collect(),
        picker: raw.picker.clone(),
        max_imbalance: raw.max_imbalance,
    }
}

/// Parameters as gateways read them; expressions are read here and sent as what they mean.
fn parameters(plugin: &str, raw: &RawParameters, path: &str, wrong: &mut Vec<Wrong>) -> String {
    let Some(raw) = raw else {
        return String::new();
    };
    let text = raw.get("expression").and_then(|text| text.as_str());
    if plugin != EXPRESSION {
        return serde_json::to_string(raw).unwrap_or_default();
    }
    let compiled = match (text, raw.len()) {
        (Some(text), 1) => expression::compile(text).map_err(|error| error.to_string()),
        _ => Err("needs one key, expression, with a text".to_owned()),
    };
    match compiled {
        Ok(parameters) => serde_json::to_string(&parameters).unwrap_or_default(),
        Err(reason) => {
            wrong.push(Wrong {
                key: format!("{path}.parameters.expression"),
                value: text.unwrap_or_default().to_owned(),
                reason,
            });
            String::new()
        }
    }
}
