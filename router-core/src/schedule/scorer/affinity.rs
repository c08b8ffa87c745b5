//! By what endpoints are and where, and who asks.

use serde::{Deserialize, Deserializer};

use super::super::{Field, Scorer, scatter};
use crate::snapshot::EndpointKey;

/// The endpoint of the request's session: the one for which a hash of session and endpoint is greatest (rendezvous hashing). Every worker and
/// gateway finds the same, nobody keeps a list, and an endpoint that comes or goes moves only its own sessions.
pub(in super::super) fn of_session(field: &Field<'_>) -> Option<EndpointKey> {
    let session = field.need.session?;
    let keys = field
        .contenders
        .iter()
        .map(|contender| contender.endpoint().key);
    keys.max_by_key(|&key| (scatter(key, session), key))
}

/// 1 for the endpoint of the request's session (`session-affinity`).
#[derive(Debug)]
pub(in super::super) struct SessionAffinity;

impl Scorer for SessionAffinity {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let pinned = of_session(field);
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            *score = f64::from(u8::from(Some(contender.endpoint().key) == pinned));
        }
    }
}

/// 1 where the request's adapter is loaded, 0.8 where there is room for it, 0.6 where it is about to be loaded, else 0 (`lora-affinity`).
/// Requests of the base model score 1 everywhere.
#[derive(Debug)]
pub(in super::super) struct LoraAffinity;

impl Scorer for LoraAffinity {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let Some(adapter) = field.need.adapter else {
            scores.fill(1.0);
            return;
        };
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            let adapters = &contender.endpoint().loaded_adapters;
            let is_among = |names: &[String]| names.iter().any(|name| name == adapter);
            let count = adapters.running.len() + adapters.waiting.len();
            *score = if is_among(&adapters.running) {
                1.0
            } else if count < adapters.max as usize {
                0.8
            } else if is_among(&adapters.waiting) {
                0.6
            } else {
                0.0
            };
        }
    }
}

/// By a label with a range of prompt lengths, `min-max` (`context-length-aware`): inside from 0.3 to 1, the narrower the better; outside from 0
/// to 0.3, the nearer the better; without label 0.5.
#[derive(Debug)]
pub(in super::super) struct ContextLength(pub(in super::super) String);

/// Reads `min-max`.
pub(in super::super) fn range(label: &str) -> Option<(u32, u32)> {
    let (min, max) = label.split_once('-')?;
    let range = (min.trim().parse().ok()?, max.trim().parse().ok()?);
    (range.0 <= range.1).then_some(range)
}

impl Scorer for ContextLength {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let tokens = f64::from(field.need.prompt_tokens);
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            let Some((min, max)) = contender.endpoint().label(&self.0).and_then(range) else {
                *score = 0.5;
                continue;
            };
            let (min, max) = (f64::from(min), f64::from(max));
            *score = if tokens < min {
                0.3 * tokens / min
            } else if tokens > max {
                0.3 * max / tokens
            } else {
                // How much of the range the prompt takes up: a short prompt leaves endpoints for long ones alone.
                0.3 + 0.7 * (tokens + 1.0) / (max + 1.0)
            };
        }
    }
}

/// 1 where a label has the value of a request header (`header-label-affinity`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct HeaderLabel {
    #[serde(deserialize_with = "lower_case")]
    header_name: String,
    label_key: String,
}

/// A header's name as proxies have it.
fn lower_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(name.to_ascii_lowercase())
}

impl Scorer for HeaderLabel {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let Some(value) = field.need.header(&self.header_name) else {
            return;
        };
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            let is_same = contender.endpoint().label(&self.label_key) == Some(value);
            *score = f64::from(u8::from(is_same));
        }
    }

    fn headers(&self, names: &mut Vec<String>) {
        names.push(self.header_name.clone());
    }
}

/// By nearness to a place (`topology-affinity`): the same host 1, rack 0.2, zone 0.05, region 0.02.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in super::super) struct Topology {
    host: Option<String>,
    rack: Option<String>,
    zone: Option<String>,
    region: Option<String>,
}

impl Scorer for Topology {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        let levels = [
            (&self.host, "kubernetes.io/hostname", 1.0),
            (&self.rack, "topology.kubernetes.io/rack", 0.2),
            (&self.zone, "topology.kubernetes.io/zone", 0.05),
            (&self.region, "topology.kubernetes.io/region", 0.02),
        ];
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            let mut near = levels.iter().filter(|(place, label, _)| {
                place.is_some() && contender.endpoint().label(label) == place.as_deref()
            });
            *score = near.next().map_or(0.0, |(_, _, score)| *score);
        }
    }
}
