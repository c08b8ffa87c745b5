//! Rules of `models[]`.

use std::collections::HashMap;
use std::path::Path;

use super::Checker;
use crate::config::raw::RawModel;
use crate::config::{DEFAULT_POOL, Model, Server};
use crate::time_zone::Clock;

/// Most models of one shard.
const MAX_MODELS: usize = 256;
/// Farthest that a local time is from UTC.
const MAX_UTC_OFFSET_S: i64 = 14 * 3600;

impl Checker {
    pub(super) fn models(&mut self, raw: &[RawModel], base: &Path) -> Vec<Model> {
        if raw.is_empty() || raw.len() > MAX_MODELS {
            self.problem(
                "models",
                raw.len(),
                format!("models are configured, allowed: 1 to {MAX_MODELS}"),
            );
        }
        let mut ids = HashMap::new();
        let mut requested = HashMap::new();
        raw.iter()
            .enumerate()
            .map(|(i, model)| {
                self.name(&format!("models[{i}].id"), &model.id);
                self.unique(&mut ids, &model.id, format!("models[{i}].id"));
                // Without names the id itself is what requests say.
                let names = if model.names.is_empty() {
                    vec![model.id.clone()]
                } else {
                    model.names.clone()
                };
                for (field, values) in [("names", &names), ("adapters", &model.adapters)] {
                    for (j, value) in values.iter().enumerate() {
                        let key = format!("models[{i}].{field}[{j}]");
                        self.name(&key, value);
                        self.unique(&mut requested, value, key);
                    }
                }
                let pool = model
                    .pool
                    .clone()
                    .unwrap_or_else(|| DEFAULT_POOL.to_owned());
                self.name(&format!("models[{i}].pool"), &pool);
                Model {
                    id: model.id.clone(),
                    names,
                    adapters: model.adapters.clone(),
                    model_dir: base.join(&model.model_dir),
                    chat_template: model.chat_template.as_ref().map(|path| base.join(path)),
                    pool,
                    server: server(model),
                    clock: self.clock(i, model),
                    calibration: model.calibration,
                    has_events: false,
                }
            })
            .collect()
    }

    fn clock(&mut self, i: usize, model: &RawModel) -> Option<Clock> {
        let key = format!("models[{i}].time_zone");
        match (&model.time_zone, model.utc_offset_s) {
            (None, None) => None,
            (None, Some(offset)) => {
                let key = format!("models[{i}].utc_offset_s");
                Some(Clock::Offset(self.utc_offset(&key, offset)))
            }
            (Some(zone), Some(_)) => {
                self.problem(
                    key,
                    zone,
                    "is given besides utc_offset_s, allowed: one of them",
                );
                None
            }
            (Some(zone), None) => {
                let clock = Clock::zone(zone);
                if clock.is_none() {
                    self.hinted(
                        key,
                        zone,
                        "is not a time zone, allowed: a name of the IANA database",
                        "such as Europe/Zurich, America/New_York or UTC",
                    );
                }
                clock
            }
        }
    }

    pub(super) fn utc_offset(&mut self, key: &str, offset_s: i64) -> i32 {
        let offset_s = self.number(key, offset_s, -MAX_UTC_OFFSET_S..=MAX_UTC_OFFSET_S);
        i32::try_from(offset_s).unwrap_or(0)
    }
}

fn server(model: &RawModel) -> Server {
    Server {
        tokenizer_mode: model.tokenizer_mode.clone(),
        content_format: model.content_format,
        default_kwargs: model
            .default_chat_template_kwargs
            .as_ref()
            .map(|kwargs| serde_json::Value::Object(kwargs.clone()).to_string()),
        exclude_tools_when_tool_choice_none: model.exclude_tools_when_tool_choice_none,
    }
}
