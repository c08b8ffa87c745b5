//! Compiled prompt profiles of the policy's models.

use hashbrown::HashMap;
use prefixway_core::hash::{Scope, Seed};
use prefixway_core::proto::{ModelProfile, Policy};
use prefixway_core::snapshot::PromptHashes;
use prefixway_core::text::{LocalTime, PromptProfile, Prompter, Request, Unscorable};

/// One prompter for each profile id; a profile that brings none, or one that fails, has none.
#[derive(Debug, Default)]
pub(crate) struct Prompters(HashMap<String, Prompter>);

impl Prompters {
    /// Compiles the profiles of all policies. Requests of a model whose profile fails are routed by load; `failed` hears why.
    pub(crate) fn compile<'a>(
        policies: impl Iterator<Item = &'a Policy>,
        mut failed: impl FnMut(&str, &str),
    ) -> Self {
        let mut prompters = HashMap::new();
        for profile in policies.flat_map(|policy| &policy.models) {
            match compile(profile) {
                Ok(Some(prompter)) => {
                    prompters.entry(profile.id.clone()).or_insert(prompter);
                }
                Ok(None) => {}
                Err(error) => failed(&profile.id, &error),
            }
        }
        Self(prompters)
    }

    /// The rungs of a request's prompt.
    ///
    /// # Errors
    /// Why there is no text to hash.
    pub(crate) fn hashes(
        &self,
        profile: &ModelProfile,
        adapter: Option<&str>,
        request: &Request<'_>,
        hashing: Hashing,
    ) -> Result<PromptHashes, Unscorable> {
        let prompter = self.0.get(&profile.id).ok_or(Unscorable::NoTemplate)?;
        let prompt = prompter.prompt(request, hashing.local_time)?;
        let scope = Scope {
            space: prompt.space,
            profile: &profile.id,
            revision: profile.revision,
            adapter: adapter.unwrap_or_default(),
            salt: request.cache_salt.as_deref().unwrap_or_default(),
        };
        let (seed, max_bytes) = (hashing.seed, hashing.max_bytes);
        Ok(PromptHashes::new(
            scope.hash(seed),
            &prompt.text,
            seed,
            max_bytes,
        ))
    }
}

/// How prompts are hashed now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashing {
    /// The deployment's seed.
    pub(crate) seed: Seed,
    /// Bytes that are hashed; the rest counts as uncached.
    pub(crate) max_bytes: usize,
    /// What a template that prints the date sees.
    pub(crate) local_time: LocalTime,
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
    fn a_profile_that_fails_is_named_and_leaves_the_others_alone() {
        let profile = |id: &str, json: &[u8]| ModelProfile {
            id: id.to_owned(),
            prompt_profile: json.to_vec().into(),
            ..ModelProfile::default()
        };
        let policy = Policy {
            models: vec![profile("blind", b""), profile("broken", b"nonsense")],
            ..Policy::default()
        };
        let mut failed = Vec::new();
        let prompters =
            Prompters::compile(std::iter::once(&policy), |id, _| failed.push(id.to_owned()));
        assert_eq!(failed, ["broken"]);
        assert!(prompters.0.is_empty());
    }
}
