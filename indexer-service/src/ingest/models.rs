//! The models as gateways see them.

use std::time::SystemTime;

use prefixway_core::index::{Index, ModelId};
use prefixway_core::proto;
use prefixway_core::text::{PromptProfile, TokenBytes};

use crate::calibration::ModelVerdict;
use crate::config::{self, Config, FlowControl, Objective, RouteMode};
use crate::profile::{Profile, Spelling};

/// Change of a model's mean bytes per token that is worth telling gateways.
const TOLD_CHANGE_RATIO: f64 = 0.05;

/// Bytes over which the mean of what replies say is taken: the newest requests count, and no single one.
const OBSERVED_BYTES: f64 = 1_000_000.0;

/// Bit that tells a model's twin, see [`Model::twin`].
const TWIN: u32 = 1 << 31;

/// States of a model's prompt text, on the wire and in metrics.
pub(super) const STATES: [&str; 3] = ["precise", "approximate", "unknown"];

/// One model's state.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) id: ModelId,
    settings: config::Model,
    has_events: bool,
    spelling: Spelling,
    /// Kept for when the model is added to the index anew; `None`: the engine's text can't be derived.
    vocabulary: Option<TokenBytes>,
    approximate_reason: Option<String>,
    verdict: ModelVerdict,
    /// What the spelling assumes, in words.
    assumes: &'static str,
    /// Engines' local time minus UTC, as told last.
    utc_offset_s: Option<i32>,
    /// As told last; 0 = unknown.
    bytes_per_token: f64,
    /// Bytes and tokens of prompts by the replies' usage, the older ones faded.
    observed: (f64, f64),
}

impl Model {
    /// Adds the model to the index.
    pub(super) fn add(
        number: usize,
        settings: &config::Model,
        profile: Profile,
        verdict: ModelVerdict,
        index: &mut Index,
    ) -> Self {
        let id = ModelId(u32::try_from(number).unwrap_or(u32::MAX) & !TWIN);
        let mut model = Self {
            id,
            settings: settings.clone(),
            has_events: settings.has_events,
            assumes: profile
                .variants
                .first()
                .map_or("", |variant| variant.assumes),
            spelling: profile.spelling,
            vocabulary: profile.vocabulary,
            approximate_reason: profile.approximate_reason,
            verdict,
            utc_offset_s: None,
            bytes_per_token: 0.0,
            observed: (0.0, 0.0),
        };
        model.tell_time(SystemTime::now());
        model.add_to(index);
        model
    }

    fn add_to(&self, index: &mut Index) {
        // Where the engine's text is not known, its tokens must not be taken for it.
        let vocabulary = match self.approximate_reason() {
            None => self.vocabulary.clone(),
            Some(_) => None,
        };
        let (id, revision) = (&self.settings.id, self.spelling.revision);
        index.add_model(self.id, id, revision, vocabulary);
        // Requests that carry token ids are served by it as by any: there it is the model's. It has no text.
        index.add_model(self.twin(), id, revision, None);
    }

    /// A model of the same name whose tokens spell no text: for the events of engines that spell prompts otherwise.
    pub(super) fn twin(&self) -> ModelId {
        ModelId(self.id.0 | TWIN)
    }

    /// Whether requests mean the base model by `name`.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.settings.names.iter().any(|other| other == name)
    }

    /// Whether requests mean an adapter of the model by `name`.
    pub(super) fn has_adapter(&self, name: &str) -> bool {
        self.settings.adapters.iter().any(|other| other == name)
    }

    /// Bytes of the model's tokens, where they spell its prompts.
    pub(super) fn spelling_vocabulary(&self) -> Option<&TokenBytes> {
        let is_known = self.approximate_reason().is_none();
        self.vocabulary.as_ref().filter(|_| is_known)
    }

    pub(super) fn settings_id(&self) -> &str {
        &self.settings.id
    }

    /// Takes a verdict of the engines; whether prompts are spelled in another way from now on, so that sources have to start over.
    pub(super) fn calibrate(
        &mut self,
        verdict: ModelVerdict,
        profile: Option<&PromptProfile>,
        assumes: &'static str,
        index: &mut Index,
    ) -> bool {
        let spelling = match (&verdict, profile) {
            (ModelVerdict::Differs(_), _) => Spelling::outline(),
            (_, Some(profile)) => Spelling::new(profile),
            // Nothing new is known of the text.
            (_, None) => self.spelling.clone(),
        };
        self.verdict = verdict;
        self.assumes = assumes;
        let is_changed = self.spelling != spelling;
        if is_changed {
            self.spelling = spelling;
            self.bytes_per_token = 0.0;
            self.observed = (0.0, 0.0);
            self.add_to(index);
        }
        is_changed
    }

    pub(super) fn verdict(&self) -> &ModelVerdict {
        &self.verdict
    }

    pub(super) fn assumes(&self) -> &'static str {
        self.assumes
    }

    /// Why the engine's text is not known.
    pub(super) fn approximate_reason(&self) -> Option<&str> {
        match &self.verdict {
            ModelVerdict::Differs(why) => Some(why),
            _ => self.approximate_reason.as_deref(),
        }
    }

    /// State of the prompt text, and why it is not precise.
    pub(super) fn state(&self) -> (&'static str, &str) {
        match (self.approximate_reason(), &self.verdict) {
            (Some(reason), _) => ("approximate", reason),
            (None, _) if !self.has_events => ("approximate", "no endpoint sends events"),
            (None, ModelVerdict::Pending) => ("unknown", "no engine has answered calibration yet"),
            (None, _) => ("precise", ""),
        }
    }

    /// Looks at the clock; whether the engines' offset from UTC has changed, as daylight saving does.
    pub(super) fn tell_time(&mut self, now: SystemTime) -> bool {
        let offset_s = self
            .settings
            .clock
            .as_ref()
            .map(|clock| clock.offset_s(now));
        let is_changed = self.utc_offset_s != offset_s;
        self.utc_offset_s = offset_s;
        is_changed
    }

    pub(super) fn pool(&self) -> &str {
        &self.settings.pool
    }

    /// A prompt of so many bytes had so many tokens.
    pub(super) fn observe(&mut self, prompt_bytes: u64, prompt_tokens: u32) {
        let (bytes, tokens) = &mut self.observed;
        let stays = (1.0 - prompt_bytes as f64 / OBSERVED_BYTES).max(0.0);
        *bytes = *bytes * stays + prompt_bytes as f64;
        *tokens = *tokens * stays + f64::from(prompt_tokens);
    }

    /// Takes the mean of the index, or else of what replies say; whether it is different enough from the one told last.
    pub(super) fn learn(&mut self, index: &Index) -> bool {
        let (bytes, tokens) = self.observed;
        let observed = || (bytes > 0.0 && tokens > 0.0).then(|| bytes / tokens);
        let Some(learned) = index.bytes_per_token(self.id).or_else(observed) else {
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
        let (state, state_reason) = self.state();
        proto::ModelProfile {
            id: self.settings.id.clone(),
            revision: self.spelling.revision,
            pool: self.settings.pool.clone(),
            names: self.settings.names.clone(),
            adapters: self.settings.adapters.clone(),
            prompt_profile: self.spelling.json.clone(),
            bytes_per_token: self.bytes_per_token,
            state: state.to_owned(),
            state_reason: state_reason.to_owned(),
            utc_offset_s: self.utc_offset_s,
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
        cpu_fetch_us_per_token: Some(policy.cpu_fetch_us_per_token),
        disk_fetch_us_per_token: Some(policy.disk_fetch_us_per_token),
        orca: policy.orca,
        split_percent: policy.split_percent,
        session_header: policy.session_header.clone().unwrap_or_default(),
        session_cookie: policy.session_cookie.clone().unwrap_or_default(),
        objectives: policy.objectives.iter().map(Objective::message).collect(),
        flow_control: policy.flow_control.as_ref().map(FlowControl::message),
        routes: policy.routes.iter().map(route).collect(),
        sampled_decisions_per_s: policy.sampled_decisions_per_s,
        max_imbalance: policy.max_imbalance,
        max_load_age_ms: ms(config.scrape.max_age),
        admission: policy.admission.map(|admission| proto::Admission {
            max_in_flight: admission.max_in_flight,
            max_waiting: admission.max_waiting,
            max_queued_tokens: admission.max_queued_tokens,
            max_kv_usage_ratio: admission.max_kv_usage_ratio,
            retry_after_s: u32::try_from(admission.retry_after.as_secs()).unwrap_or(u32::MAX),
        }),
        failure_mode: policy
            .failure_mode
            .map_or_else(String::new, |mode| mode.as_str().to_owned()),
        scheduling: Some(Box::new(policy.scheduling.clone())),
    }
}

fn route(route: &RouteMode) -> proto::RouteMode {
    proto::RouteMode {
        route: route.route.clone(),
        mode: route.mode.as_str().to_owned(),
        split_percent: route.split_percent,
    }
}
