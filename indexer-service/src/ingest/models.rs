//! The models as gateways see them.

use prefixway_core::index::{Index, ModelId};
use prefixway_core::proto;

use crate::config::{self, Config};
use crate::profile::Profile;

/// Change of a model's mean bytes per token that is worth telling gateways.
const TOLD_CHANGE_RATIO: f64 = 0.05;

/// One model's state.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) id: ModelId,
    settings: config::Model,
    has_events: bool,
    prompt_profile: prost::bytes::Bytes,
    revision: u64,
    blind_reason: Option<String>,
    /// As told last; 0 = unknown.
    bytes_per_token: f64,
}

impl Model {
    /// Adds the model to the index.
    pub(super) fn add(
        number: usize,
        config: &Config,
        settings: &config::Model,
        profile: Profile,
        index: &mut Index,
    ) -> Self {
        let id = ModelId(u32::try_from(number).unwrap_or(u32::MAX));
        index.add_model(id, &settings.id, profile.revision, profile.vocabulary);
        let mut endpoints = config
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.model == number);
        Self {
            id,
            settings: settings.clone(),
            has_events: endpoints.any(|endpoint| endpoint.events.is_some()),
            prompt_profile: profile.json,
            revision: profile.revision,
            blind_reason: profile.blind_reason,
            bytes_per_token: 0.0,
        }
    }

    pub(super) fn pool(&self) -> &str {
        &self.settings.pool
    }

    /// Takes the index's mean; whether it is different enough from the one told last.
    pub(super) fn learn(&mut self, index: &Index) -> bool {
        let Some(learned) = index.bytes_per_token(self.id) else {
            return false;
        };
        let is_worth_telling =
            (learned - self.bytes_per_token).abs() > TOLD_CHANGE_RATIO * self.bytes_per_token;
        if is_worth_telling {
            self.bytes_per_token = learned;
        }
        is_worth_telling
    }

    pub(super) fn message(&self) -> proto::ModelProfile {
        let (state, state_reason) = match &self.blind_reason {
            Some(reason) => ("blind", reason.clone()),
            None if self.has_events => ("precise", String::new()),
            None => ("approximate", "no endpoint sends events".to_owned()),
        };
        proto::ModelProfile {
            id: self.settings.id.clone(),
            revision: self.revision,
            pool: self.settings.pool.clone(),
            names: self.settings.names.clone(),
            adapters: self.settings.adapters.clone(),
            prompt_profile: self.prompt_profile.clone(),
            bytes_per_token: self.bytes_per_token,
            state: state.to_owned(),
            state_reason,
        }
    }
}

/// The policy for a gateway of these pools; no pools: all.
pub(super) fn policy(
    config: &Config,
    models: &[Model],
    pools: &[String],
    revision: u64,
) -> proto::Policy {
    let ms =
        |duration: std::time::Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    let policy = &config.policy;
    let models = models
        .iter()
        .filter(|model| pools.is_empty() || pools.iter().any(|pool| pool == model.pool()));
    proto::Policy {
        models: models.map(Model::message).collect(),
        beta: policy.beta,
        max_age_ms: ms(policy.max_age),
        max_body_bytes: policy.max_body_bytes,
        max_prompt_bytes: policy.max_prompt_bytes,
        explain: policy.explain,
        reject_bad_requests: Some(policy.reject_bad_requests),
        mode: policy.mode.as_str().to_owned(),
        utc_offset_s: policy.utc_offset_s,
        speculative_ttl_ms: ms(policy.speculative_ttl),
        revision,
        default_model: policy.default_model.clone().unwrap_or_default(),
    }
}
