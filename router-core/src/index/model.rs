//! What the index knows about a model.

use super::forest::{Lifted, RootScope};
use crate::hash::{Scope, Seed, Space};
use crate::text::TokenBytes;

#[derive(Debug)]
pub(super) struct Model {
    profile: String,
    revision: u64,
    pub(super) vocabulary: Option<TokenBytes>,
    /// Scope without adapter and salt, once it was needed.
    base: Option<RootScope>,
    lifted: Lifted,
}

impl Model {
    pub(super) fn new(profile: &str, revision: u64, vocabulary: Option<TokenBytes>) -> Self {
        Self {
            profile: profile.to_owned(),
            revision,
            vocabulary,
            base: None,
            lifted: Lifted::default(),
        }
    }

    pub(super) fn scope(
        &mut self,
        adapter: &str,
        salt: &str,
        seed: Seed,
        has_token_space: bool,
    ) -> RootScope {
        let is_base = adapter.is_empty() && salt.is_empty();
        if let (true, Some(base)) = (is_base, self.base) {
            return base;
        }
        let of = |space| {
            Scope {
                space,
                profile: &self.profile,
                revision: self.revision,
                adapter,
                salt,
            }
            .hash(seed)
        };
        let scope = RootScope {
            text: of(Space::Text),
            ids: has_token_space.then(|| of(Space::Token)),
        };
        if is_base {
            self.base = Some(scope);
        }
        scope
    }

    pub(super) fn learn(&mut self, lifted: Lifted) {
        self.lifted.tokens += lifted.tokens;
        self.lifted.bytes += lifted.bytes;
    }

    pub(super) fn bytes_per_token(&self) -> Option<f64> {
        (self.lifted.tokens > 0).then(|| self.lifted.bytes as f64 / self.lifted.tokens as f64)
    }
}
