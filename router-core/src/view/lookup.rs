//! What a request's `model` means.

use super::RoutingView;
use crate::{
    admission::{Lookup, Served},
    proto::ModelProfile,
    shared::Member,
};

impl RoutingView {
    /// What `model` means. Without one: the default model, or the only one that is served.
    ///
    /// A name that is in no policy is unknown only while all shards' policies are at hand and current; before that, and once the
    /// indexers have been silent for too long, nothing is certain.
    pub fn lookup(&self, model: Option<&str>, now_ms: u64) -> Lookup<'_> {
        let found = match model {
            Some(name) => self.named(name),
            None => self.unnamed(now_ms),
        };
        match found {
            Some(served) => Lookup::Served(served),
            None if self.knows_models(now_ms) => Lookup::NotServed {
                names: self.names(),
            },
            None => Lookup::Unsure,
        }
    }

    fn profiles(&self) -> impl Iterator<Item = &ModelProfile> {
        self.policies().flat_map(|policy| &policy.models)
    }

    fn named(&self, name: &str) -> Option<Served<'_>> {
        let base = self
            .profiles()
            .find(|profile| profile.names.iter().any(|other| other == name));
        if let Some(profile) = base {
            return Some(Served {
                profile,
                adapter: None,
            });
        }
        self.profiles().find_map(|profile| {
            let adapter = profile.adapters.iter().find(|other| *other == name)?;
            Some(Served {
                profile,
                adapter: Some(adapter),
            })
        })
    }

    fn unnamed(&self, now_ms: u64) -> Option<Served<'_>> {
        let default = self.policies().find_map(|policy| {
            let default = &policy.default_model;
            let mut models = policy.models.iter();
            models.find(|profile| !default.is_empty() && profile.id == *default)
        });
        // Another shard may serve others.
        let only = || {
            let first = self
                .profiles()
                .next()
                .filter(|_| self.knows_models(now_ms))?;
            let is_only = self.profiles().all(|profile| profile.id == first.id);
            is_only.then_some(first)
        };
        default.or_else(only).map(|profile| Served {
            profile,
            adapter: None,
        })
    }

    /// Whether models and endpoints of all shards are known, and not from too long ago.
    pub fn knows_models(&self, now_ms: u64) -> bool {
        let is_current = |member: &Member| {
            let policy = member.info().policy.as_ref();
            policy.is_some_and(|policy| {
                let max_age_ms = u64::from(policy.max_age_ms);
                let age_ms = member.age_ms(now_ms);
                max_age_ms == 0 || age_ms.is_some_and(|age_ms| age_ms <= max_age_ms)
            })
        };
        self.members().iter().all(is_current)
    }

    /// First name of each model, in the policies' order.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for profile in self.profiles() {
            let name = profile.names.first().unwrap_or(&profile.id);
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }
}
