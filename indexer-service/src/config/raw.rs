//! The file's shape, exactly as written; nothing here is checked beyond types.

use std::collections::BTreeMap;
use std::path::PathBuf;

use prefixway_core::text::ContentFormat;
use serde::Deserialize;

use super::duration::RawDuration;
use super::error::ConfigError;
use super::profiles::{RawPool, RawProfile};
use super::seed::RawSeed;
#[cfg(test)]
use super::tests::schema;
use super::{FailureMode, Mode, Overrides, Role, Switch, WhenMissed};

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Raw {
    pub(super) listen: RawListen,
    pub(super) shard: Option<String>,
    pub(super) shards: Vec<String>,
    pub(super) seed: Option<RawSeed>,
    pub(super) seed_file: Option<PathBuf>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) models: Vec<RawModel>,
    pub(super) endpoints: Vec<RawEndpoint>,
    pub(super) policy: RawPolicy,
    pub(super) index: RawIndex,
    pub(super) scrape: RawScrape,
    pub(super) ready_grace: Option<RawDuration>,
    /// Set by [`Raw::put_over`]: paths given by flags are not relative to the file.
    #[serde(skip)]
    pub(super) paths_from_flags: PathsFromFlags,
}

#[derive(Debug, Default)]
pub(super) struct PathsFromFlags {
    pub(super) state_dir: bool,
    pub(super) seed_file: bool,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawListen {
    pub(super) http: Option<String>,
    pub(super) grpc: Option<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawModel {
    pub(super) id: String,
    #[serde(default)]
    pub(super) names: Vec<String>,
    #[serde(default)]
    pub(super) adapters: Vec<String>,
    pub(super) model_dir: PathBuf,
    pub(super) chat_template: Option<PathBuf>,
    pub(super) pool: Option<String>,
    pub(super) tokenizer_mode: Option<String>,
    #[cfg_attr(test, schemars(default, schema_with = "schema::content_format"))]
    pub(super) content_format: Option<ContentFormat>,
    pub(super) default_chat_template_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    pub(super) exclude_tools_when_tool_choice_none: bool,
    pub(super) utc_offset_s: Option<i64>,
    pub(super) time_zone: Option<String>,
    #[serde(default)]
    pub(super) calibration: Switch,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawEndpoint {
    pub(super) address: String,
    pub(super) rank: Option<u32>,
    pub(super) ranks: Option<u32>,
    pub(super) model: String,
    #[serde(default)]
    pub(super) role: Role,
    #[serde(default)]
    pub(super) accelerator: String,
    pub(super) adapters: Option<Vec<String>>,
    pub(super) events: Option<RawEvents>,
    pub(super) prefill_tokens_per_s: Option<f64>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) scrape: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawEvents {
    pub(super) connect: Option<String>,
    pub(super) bind: Option<String>,
    pub(super) replay: Option<String>,
    #[serde(default)]
    pub(super) topic: String,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(transform = schema::known_plugins))]
pub(super) struct RawPolicy {
    pub(super) beta: Option<f64>,
    pub(super) max_age: Option<RawDuration>,
    pub(super) explain: bool,
    pub(super) reject_bad_requests: Option<bool>,
    pub(super) mode: Mode,
    pub(super) max_body_bytes: Option<u64>,
    pub(super) max_prompt_bytes: Option<u64>,
    pub(super) utc_offset_s: i64,
    pub(super) speculative_ttl: Option<RawDuration>,
    pub(super) default_model: Option<String>,
    pub(super) tiers: RawTiers,
    pub(super) orca: bool,
    pub(super) split_percent: Option<u32>,
    pub(super) session_header: Option<String>,
    pub(super) session_cookie: Option<String>,
    pub(super) routes: Vec<RawRoute>,
    pub(super) sampled_decisions_per_s: Option<u32>,
    pub(super) max_imbalance: Option<u32>,
    pub(super) admission: Option<RawAdmission>,
    pub(super) objectives: Vec<RawObjective>,
    pub(super) flow_control: Option<RawFlowControl>,
    #[cfg_attr(test, schemars(default, schema_with = "schema::failure_mode"))]
    pub(super) failure_mode: Option<FailureMode>,
    pub(super) learn_rates: Switch,
    pub(super) profiles: Vec<RawProfile>,
    pub(super) pools: BTreeMap<String, RawPool>,
    pub(super) own_plugins: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawRoute {
    pub(super) route: String,
    pub(super) mode: Mode,
    pub(super) split_percent: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmission {
    pub(super) max_in_flight: Option<u32>,
    pub(super) max_waiting: Option<u32>,
    pub(super) max_queued_tokens: Option<u64>,
    pub(super) max_kv_usage_ratio: Option<f64>,
    pub(super) retry_after: Option<RawDuration>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawObjective {
    pub(super) name: String,
    #[serde(default)]
    pub(super) priority: i32,
    pub(super) ttft_ms: Option<f64>,
    pub(super) tpot_ms: Option<f64>,
    #[serde(default)]
    #[cfg_attr(test, schemars(schema_with = "schema::when_missed"))]
    pub(super) when_missed: WhenMissed,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFlowControl {
    pub(super) max_waiting: Option<u32>,
    pub(super) max_waiting_bytes: Option<u64>,
    pub(super) max_wait: Option<RawDuration>,
    pub(super) lowest_share_percent: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTiers {
    pub(super) cpu: RawTier,
    pub(super) disk: RawTier,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTier {
    pub(super) fetch_us_per_token: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawIndex {
    pub(super) max_bytes: Option<u64>,
    pub(super) approximate_tokens: Option<u64>,
    pub(super) tick: Option<RawDuration>,
    pub(super) token_space: Switch,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawScrape {
    pub(super) interval: Option<RawDuration>,
    pub(super) idle_interval: Option<RawDuration>,
    pub(super) timeout: Option<RawDuration>,
    pub(super) max_age: Option<RawDuration>,
}

impl Raw {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The text is not YAML of this shape; the error names line and column.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        // A snippet of the file could show the seed, so errors carry only the place.
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| ConfigError::Syntax {
            text: error.to_string(),
        })
    }

    /// Puts flags and environment over the file's values.
    pub fn put_over(&mut self, overrides: &Overrides) {
        fn put<T: Clone>(target: &mut Option<T>, value: Option<&T>) -> bool {
            if let Some(value) = value {
                *target = Some(value.clone());
            }
            value.is_some()
        }
        put(&mut self.listen.http, overrides.http.as_ref());
        put(&mut self.listen.grpc, overrides.grpc.as_ref());
        put(&mut self.shard, overrides.shard.as_ref());
        self.paths_from_flags.state_dir = put(&mut self.state_dir, overrides.state_dir.as_ref());
        if put(&mut self.seed_file, overrides.seed_file.as_ref()) {
            self.paths_from_flags.seed_file = true;
            self.seed = None;
        }
    }
}
