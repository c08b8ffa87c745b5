//! Scheduling profiles of the policy: the file's shape, and what of it gateways are told.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use prefixway_core::proto;
use prefixway_core::schedule::Registry;
use serde::Deserialize;

use super::expression;
#[cfg(test)]
use super::tests::schema;

/// A profile, as written.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    name: String,
    #[serde(default)]
    filters: Vec<RawFilter>,
    cost: Option<RawCost>,
    #[serde(default)]
    scorers: Vec<RawScorer>,
    #[serde(default)]
    #[cfg_attr(test, schemars(schema_with = "schema::picker"))]
    picker: String,
    max_imbalance: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawFilter {
    #[cfg_attr(test, schemars(schema_with = "schema::filter"))]
    r#type: String,
    parameters: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    required: bool,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawScorer {
    #[cfg_attr(test, schemars(schema_with = "schema::scorer"))]
    r#type: String,
    parameters: Option<serde_json::Map<String, serde_json::Value>>,
    weight: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct RawCost {
    beta: Option<f64>,
    max_sequences: Option<u32>,
    output_tokens: Option<u32>,
    decode_ms_per_token: Option<f64>,
    adapter_load_ms: Option<f64>,
}

/// What a pool has of its own, as written.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawPool {
    profile: String,
}

/// What is wrong with a key.
pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) reason: String,
    pub(super) hint: Option<&'static str>,
}

/// Where a name that no plugin has may be right all the same.
const OWN_PLUGIN: &str =
    "a plugin that the gateways' filter has besides those is named in policy.own_plugins too";

/// Checks profiles by making them as a gateway does. Of `own` plugins nothing is known here but their names.
pub(super) fn check(
    raw: &[RawProfile],
    pools: &BTreeMap<String, RawPool>,
    own: &[String],
    known_pools: &[&str],
    wrong: &mut Vec<Wrong>,
) -> proto::Scheduling {
    let profiles = raw.iter().enumerate();
    let scheduling = proto::Scheduling {
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
        scheduling: Some(Box::new(without_own(scheduling.clone(), own))),
        ..proto::Policy::default()
    };
    if wrong.is_empty()
        && let Err(error) = Registry::default().profiles(&policy)
    {
        let is_name = error.path.rsplit('.').next() == Some("type");
        wrong.push(Wrong {
            key: format!("policy.{}", error.path),
            value: String::new(),
            reason: error.problem,
            hint: is_name.then_some(OWN_PLUGIN),
        });
    }
    for (at, profile) in raw.iter().enumerate() {
        let mut earlier = raw.iter().take(at);
        if profile.name.is_empty() || earlier.any(|of| of.name == profile.name) {
            wrong.push(Wrong {
                key: format!("policy.profiles[{at}].name"),
                value: profile.name.clone(),
                reason: "must be a name that no other profile has".to_owned(),
                hint: None,
            });
        }
        for (name, value, range) in profile.numbers() {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                wrong.push(Wrong {
                    key: format!("policy.profiles[{at}].{name}"),
                    value: value.to_string(),
                    reason: format!(
                        "is out of range, allowed: {} to {}",
                        range.start(),
                        range.end()
                    ),
                    hint: None,
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
                hint: None,
            });
        }
    }
    scheduling
}

impl RawProfile {
    /// Its numbers, and what they may be.
    fn numbers(&self) -> [(&'static str, Option<f64>, RangeInclusive<f64>); 6] {
        let none = RawCost::default();
        let cost = self.cost.as_ref().unwrap_or(&none);
        [
            ("cost.beta", cost.beta, 0.0..=100.0),
            (
                "cost.max_sequences",
                cost.max_sequences.map(f64::from),
                1.0..=1e6,
            ),
            (
                "cost.output_tokens",
                cost.output_tokens.map(f64::from),
                0.0..=1e6,
            ),
            (
                "cost.decode_ms_per_token",
                cost.decode_ms_per_token,
                0.0..=10_000.0,
            ),
            (
                "cost.adapter_load_ms",
                cost.adapter_load_ms,
                0.0..=3_600_000.0,
            ),
            (
                "max_imbalance",
                self.max_imbalance.map(f64::from),
                1.0..=1e6,
            ),
        ]
    }
}

/// The same with plugins in place of `own` ones that take any request as it is, so that all else is checked, and the places stay.
fn without_own(mut scheduling: proto::Scheduling, own: &[String]) -> proto::Scheduling {
    for profile in &mut scheduling.profiles {
        let filters = profile
            .filters
            .iter_mut()
            .zip(std::iter::repeat("staleness"));
        let scorers = profile.scorers.iter_mut().zip(std::iter::repeat("queue"));
        for (plugin, other) in filters.chain(scorers) {
            if own.contains(&plugin.r#type) {
                other.clone_into(&mut plugin.r#type);
                plugin.parameters.clear();
            }
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
            adapter_load_ms: cost.adapter_load_ms,
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
                hint: None,
            });
            String::new()
        }
    }
}
