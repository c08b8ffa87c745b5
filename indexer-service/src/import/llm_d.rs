//! llm-d's `EndpointPickerConfig`: its scheduling as profiles of ours, and what has no counterpart, with the reason.

mod plugins;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::{Config, ConfigError};
use plugins::Meaning;

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Not YAML of this shape.
    #[error("not an EndpointPickerConfig: {0}")]
    Syntax(String),
    /// Another kind of object.
    #[error("kind is {0:?}, EndpointPickerConfig is needed")]
    Kind(String),
    /// A profile refers to a plugin that there is not.
    #[error("profile {profile:?} refers to plugin {plugin:?}, which is not among the plugins")]
    Plugin {
        /// The profile.
        profile: String,
        /// The reference.
        plugin: String,
    },
    /// What comes of it can't be used.
    #[error(transparent)]
    Policy(#[from] ConfigError),
}

/// What comes of a file.
#[derive(Debug)]
pub struct Import {
    /// Part of a configuration for the indexer, YAML.
    pub policy: String,
    /// What is not in it, and why.
    pub notes: Vec<Note>,
}

/// Something without a counterpart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// What it is about.
    pub what: String,
    /// What became of it and why.
    pub why: String,
}

#[derive(Debug, Deserialize)]
struct Picker {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    plugins: Vec<Plugin>,
    #[serde(default, rename = "schedulingProfiles")]
    profiles: Vec<Profile>,
    #[serde(default, rename = "featureGates")]
    feature_gates: Vec<String>,
    #[serde(rename = "saturationDetector")]
    saturation: Option<Map<String, Value>>,
    #[serde(rename = "flowControl")]
    flow_control: Option<Map<String, Value>>,
    #[serde(rename = "dataLayer")]
    data_layer: Option<Value>,
    #[serde(rename = "requestHandler")]
    request_handler: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Plugin {
    name: Option<String>,
    r#type: String,
    parameters: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    name: String,
    #[serde(default)]
    plugins: Vec<Reference>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    #[serde(rename = "pluginRef")]
    plugin: String,
    weight: Option<f64>,
}

/// Imports a file's text.
///
/// # Errors
/// It is no such file, or names what it does not have.
pub fn import(text: &str) -> Result<Import, ImportError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: Picker = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ImportError::Syntax(error.to_string()))?;
    if !file.kind.is_empty() && file.kind != "EndpointPickerConfig" {
        return Err(ImportError::Kind(file.kind));
    }
    let plugins: BTreeMap<&str, &Plugin> = file
        .plugins
        .iter()
        .map(|plugin| (plugin.name.as_deref().unwrap_or(&plugin.r#type), plugin))
        .collect();
    let mut notes = Vec::new();
    for plugin in &file.plugins {
        if let Meaning::None(why) = plugins::meaning(&plugin.r#type) {
            notes.push(Note {
                what: plugin.r#type.clone(),
                why: why.to_owned(),
            });
        }
    }
    let mut policy = String::from("policy:\n");
    note_tiers(&file, &mut notes);
    write_admission(&mut policy, &file, &mut notes);
    policy.push_str("  profiles:\n");
    for profile in &file.profiles {
        write_profile(&mut policy, profile, &plugins, &mut notes)?;
    }
    if file.profiles.is_empty() {
        policy.truncate(policy.len() - "  profiles:\n".len());
        notes.push(Note {
            what: "schedulingProfiles".to_owned(),
            why: "there are none: the default cost decides".to_owned(),
        });
    }
    for gate in &file.feature_gates {
        notes.push(Note {
            what: format!("featureGates: {gate}"),
            why: "there are no gates: what is configured is in use".to_owned(),
        });
    }
    if file.data_layer.is_some() {
        notes.push(Note {
            what: "dataLayer".to_owned(),
            why: "the indexer reads engines' figures and events itself: see scrape and endpoints"
                .to_owned(),
        });
    }
    if file.request_handler.is_some() {
        notes.push(Note {
            what: "requestHandler".to_owned(),
            why: "every API that is known is recognised by its path".to_owned(),
        });
    }
    notes.sort();
    notes.dedup();
    if policy == "policy:\n" {
        policy.clear();
        policy.push_str("policy: {}\n");
    }
    Config::check_policy(&policy)?;
    Ok(Import { policy, notes })
}

fn write_profile(
    out: &mut String,
    profile: &Profile,
    plugins: &BTreeMap<&str, &Plugin>,
    notes: &mut Vec<Note>,
) -> Result<(), ImportError> {
    let mut filters = String::new();
    let mut scorers = String::new();
    let mut picker = None;
    for reference in &profile.plugins {
        let plugin = plugins.get(reference.plugin.as_str()).copied();
        let plugin = plugin.ok_or_else(|| ImportError::Plugin {
            profile: profile.name.clone(),
            plugin: reference.plugin.clone(),
        })?;
        match plugins::meaning(&plugin.r#type) {
            Meaning::Filter(name) => {
                let parameters = parameters(plugin, notes);
                // In llm-d a filter that leaves nothing leaves no endpoint.
                let _ = writeln!(
                    filters,
                    "        - {{type: {name}{parameters}, required: true}}"
                );
            }
            Meaning::Scorer(name) => {
                let parameters = parameters(plugin, notes);
                let weight = reference.weight.unwrap_or(1.0);
                let _ = writeln!(
                    scorers,
                    "        - {{type: {name}, weight: {weight}{parameters}}}"
                );
            }
            Meaning::Picker(name) => {
                let _ = parameters(plugin, notes);
                picker = Some(name);
            }
            Meaning::None(_) => {}
        }
    }
    let name = Value::String(profile.name.clone());
    let _ = writeln!(out, "    - name: {name}");
    if !filters.is_empty() {
        let _ = write!(out, "      filters:\n{filters}");
    }
    if scorers.is_empty() {
        notes.push(Note {
            what: format!("profile {}", profile.name),
            why: "it has no scorer: llm-d picks at random, here the default cost decides"
                .to_owned(),
        });
    } else {
        let _ = write!(out, "      scorers:\n{scorers}");
    }
    if let Some(picker) = picker {
        let _ = writeln!(out, "      picker: {picker}");
    }
    Ok(())
}

/// A plugin's parameters as flow YAML, without those that have no counterpart.
fn parameters(plugin: &Plugin, notes: &mut Vec<Note>) -> String {
    let mut kept = Map::new();
    for (key, value) in plugin.parameters.iter().flatten() {
        match plugins::dropped(&plugin.r#type, key) {
            None => {
                kept.insert(key.clone(), value.clone());
            }
            Some(why) => notes.push(Note {
                what: format!("{}: {key}", plugin.r#type),
                why: why.to_owned(),
            }),
        }
    }
    if kept.is_empty() {
        return String::new();
    }
    // JSON is YAML.
    format!(", parameters: {}", Value::Object(kept))
}

/// Weights of tiers say how good a hit in host memory is; here it is said how long it takes to bring.
fn note_tiers(file: &Picker, notes: &mut Vec<Note>) {
    let tiers = file.plugins.iter().find_map(|plugin| {
        let indexer = plugin.parameters.as_ref()?.get("indexerConfig")?;
        indexer.get("kvCacheBackendConfigs")
    });
    if tiers.is_some() {
        notes.push(Note {
            what: "kvCacheBackendConfigs".to_owned(),
            why: "tiers cost the time they take, not a share of a score: set policy.tiers.cpu.fetch_us_per_token by what your engines measure"
                .to_owned(),
        });
    }
}

/// What saturates a pool.
fn write_admission(out: &mut String, file: &Picker, notes: &mut Vec<Note>) {
    let nested = file
        .flow_control
        .as_ref()
        .and_then(|control| control.get("saturationDetector"))
        .and_then(Value::as_object);
    let detector = file.saturation.as_ref().or(nested);
    let plugin = file
        .plugins
        .iter()
        .find(|plugin| plugin.r#type == "utilization-detector")
        .and_then(|plugin| plugin.parameters.as_ref());
    let figure = |name: &str| {
        let of = |map: &Map<String, Value>| map.get(name).and_then(Value::as_f64);
        detector.and_then(of).or(plugin.and_then(of))
    };
    let (queue, memory) = (
        figure("queueDepthThreshold"),
        figure("kvCacheUtilThreshold"),
    );
    if queue.is_some() || memory.is_some() {
        out.push_str("  admission:\n");
        if let Some(queue) = queue {
            let _ = writeln!(out, "    max_waiting: {}", queue.max(1.0).round());
        }
        if let Some(memory) = memory {
            let _ = writeln!(out, "    max_kv_usage_ratio: {memory}");
        }
    }
    if file.flow_control.is_some() {
        notes.push(Note {
            what: "flowControl".to_owned(),
            why: "thresholds became policy.admission: past them requests are answered with 429; queues, bands and fairness are not imported"
                .to_owned(),
        });
    }
}

#[cfg(test)]
mod tests;
