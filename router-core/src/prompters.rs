//! Compiled prompt profiles of the policy's models, and the hashes of requests' prompts.

use hashbrown::HashMap;

use crate::{
    admission::Served,
    hash::{Scope, Seed, Space},
    proto::{ModelProfile, Policy},
    snapshot::PromptHashes,
    text::{LocalTime, PromptProfile, Prompter, Request, Unscorable},
};

/// Most prompts of one request that are looked up; the others count as uncached. A lookup of a prompt costs about as much as its bytes,
/// and many short ones more than that.
pub const MAX_SCORED_PROMPTS: usize = 64;

/// Bytes of a token id in a prompt's text.
const TOKEN_ID_BYTES: usize = 4;

/// One prompter for each revision of a profile; a profile that brings none, or one that fails, has none.
#[derive(Debug, Default)]
pub struct Prompters(HashMap<String, Vec<(u64, Prompter)>>);

impl Prompters {
    /// Compiles the profiles of all policies. Requests of a model whose profile fails are routed by load; `failed` hears why.
    pub fn compile<'a>(
        policies: impl Iterator<Item = &'a Policy>,
        mut failed: impl FnMut(&str, &str),
    ) -> Self {
        let mut prompters = Self::default();
        for profile in policies.flat_map(|policy| &policy.models) {
            // Shards tell the same profile, mostly.
            if prompters.get(profile).is_some() {
                continue;
            }
            match compile(profile) {
                Ok(Some(prompter)) => {
                    let revisions = prompters.0.entry(profile.id.clone()).or_default();
                    revisions.push((profile.revision, prompter));
                }
                Ok(None) => {}
                Err(error) => failed(&profile.id, &error),
            }
        }
        prompters
    }

    fn get(&self, profile: &ModelProfile) -> Option<&Prompter> {
        let mut revisions = self.0.get(&profile.id)?.iter();
        let (_, prompter) = revisions.find(|(revision, _)| *revision == profile.revision)?;
        Some(prompter)
    }

    /// The rungs of a request's prompts, in order; of a batch as many prompts as [`MAX_SCORED_PROMPTS`] and the bytes allow. The last
    /// element then stands for all the others: it has no rungs, only their bytes.
    ///
    /// # Errors
    /// Why there is no text to hash.
    pub fn hashes(
        &self,
        served: Served<'_>,
        request: &Request<'_>,
        hashing: Hashing,
    ) -> Result<Hashed, Unscorable> {
        let Served { profile, adapter } = served;
        let prompter = self.get(profile).ok_or(Unscorable::NoTemplate)?;
        let prompts = prompter.prompts(request, hashing.local_time)?;
        let mut left = hashing.max_bytes;
        let mut hashes = Vec::with_capacity(prompts.len().min(MAX_SCORED_PROMPTS + 1));
        let mut rest = PromptHashes::default();
        let mut ids = Some(0usize);
        for prompt in &prompts {
            ids = match prompt.space {
                Space::Token => ids.map(|ids| ids + prompt.text.len() / TOKEN_ID_BYTES),
                Space::Text => None,
            };
            if left == 0 || hashes.len() == MAX_SCORED_PROMPTS {
                rest.bytes = rest.bytes.saturating_add(prompt.text.len() as u64);
                continue;
            }
            let scope = Scope {
                space: prompt.space,
                profile: &profile.id,
                revision: profile.revision,
                adapter: adapter.unwrap_or_default(),
                salt: request.cache_salt.as_deref().unwrap_or_default(),
            };
            let scope = scope.hash(hashing.seed);
            let hash = match prompt.space {
                Space::Text => PromptHashes::new,
                Space::Token => PromptHashes::of_token_ids,
            };
            hashes.push(hash(scope, &prompt.text, hashing.seed, left));
            left = left.saturating_sub(prompt.text.len());
        }
        if rest.bytes > 0 {
            hashes.push(rest);
        }
        Ok(Hashed {
            prompts: hashes,
            tokens: ids.and_then(|ids| u32::try_from(ids).ok()),
        })
    }
}

/// Prompts as they are looked up.
#[derive(Clone, Debug, Default)]
pub struct Hashed {
    /// At least one.
    pub prompts: Vec<PromptHashes>,
    /// Tokens of all of them, where they were given as token ids.
    pub tokens: Option<u32>,
}

/// How prompts are hashed now.
#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    /// The deployment's seed.
    pub seed: Seed,
    /// Bytes that are hashed; the rest counts as uncached.
    pub max_bytes: usize,
    /// What a template that prints the date sees.
    pub local_time: LocalTime,
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
