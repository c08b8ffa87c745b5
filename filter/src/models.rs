//! Which model a request is for.

use hashbrown::HashMap;
use prefixway_core::proto::{ModelProfile, Policy};
use prefixway_core::text::{PromptProfile, Prompter};

/// Bytes per token where nothing has been learned.
const DEFAULT_BYTES_PER_TOKEN: f64 = 4.0;

/// One model of the policy.
#[derive(Debug)]
pub(crate) struct Model {
    /// Profile id.
    pub(crate) id: String,
    /// Revision of the profile.
    pub(crate) revision: u64,
    /// Pool of its endpoints.
    pub(crate) pool: String,
    /// Makes prompts; `None` when the profile brings none that can be used.
    pub(crate) prompter: Option<Prompter>,
    /// Learned mean, or the default.
    pub(crate) bytes_per_token: f64,
}

/// All models of a policy by the names that requests use.
#[derive(Debug, Default)]
pub(crate) struct Models {
    list: Vec<Model>,
    /// Place in the list, and whether the name is an adapter's.
    names: HashMap<String, (usize, bool)>,
    default: Option<usize>,
}

impl Models {
    /// Compiles the profiles. One that fails is kept without prompter, so that its requests are routed by load; `failed` hears why.
    pub(crate) fn from_policy(policy: &Policy, mut failed: impl FnMut(&str, &str)) -> Self {
        let mut models = Self::default();
        for profile in &policy.models {
            let place = models.list.len();
            let prompter = compile(profile).unwrap_or_else(|error| {
                failed(&profile.id, &error);
                None
            });
            let learned = profile.bytes_per_token;
            models.list.push(Model {
                id: profile.id.clone(),
                revision: profile.revision,
                pool: profile.pool.clone(),
                prompter,
                bytes_per_token: if learned.is_finite() && learned > 0.0 {
                    learned
                } else {
                    DEFAULT_BYTES_PER_TOKEN
                },
            });
            for name in &profile.names {
                models.names.entry(name.clone()).or_insert((place, false));
            }
            for name in &profile.adapters {
                models.names.entry(name.clone()).or_insert((place, true));
            }
            if profile.id == policy.default_model {
                models.default = Some(place);
            }
        }
        models
    }

    /// The model that a request names, and its adapter (empty for the base model). Without a name the policy's default, if it has one.
    pub(crate) fn find<'a>(&'a self, name: Option<&'a str>) -> Option<(&'a Model, &'a str)> {
        match name.filter(|name| !name.is_empty()) {
            None => Some((self.list.get(self.default?)?, "")),
            Some(name) => {
                let (place, is_adapter) = *self.names.get(name)?;
                let model = self.list.get(place)?;
                Some((model, if is_adapter { name } else { "" }))
            }
        }
    }
}

/// The profile's prompter; `Ok(None)` when it brings none.
fn compile(profile: &ModelProfile) -> Result<Option<Prompter>, String> {
    if profile.prompt_profile.is_empty() {
        return Ok(None);
    }
    let read: PromptProfile =
        serde_json::from_slice(&profile.prompt_profile).map_err(|error| error.to_string())?;
    Prompter::try_new(read)
        .map(Some)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_profiles_and_adapters_keep_their_name() {
        let profile = |id: &str, names: &[&str], adapters: &[&str]| ModelProfile {
            id: id.to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
            adapters: adapters.iter().map(ToString::to_string).collect(),
            prompt_profile: b"nonsense".to_vec(),
            ..ModelProfile::default()
        };
        let policy = Policy {
            models: vec![
                profile("llama", &["llama", "llama-latest"], &["sql"]),
                profile("qwen", &["qwen", "llama"], &[]),
            ],
            default_model: "qwen".to_owned(),
            ..Policy::default()
        };
        let mut failed = Vec::new();
        let models = Models::from_policy(&policy, |id, _| failed.push(id.to_owned()));
        let found = |name| models.find(name).map(|(m, a)| (m.id.as_str(), a));
        assert_eq!(found(Some("llama-latest")), Some(("llama", "")));
        assert_eq!(found(Some("llama")), Some(("llama", "")));
        assert_eq!(found(Some("sql")), Some(("llama", "sql")));
        assert_eq!(found(None), Some(("qwen", "")));
        assert_eq!(found(Some("other")), None);
        assert_eq!(failed, ["llama", "qwen"]);
    }
}
