//! What the index knows about a model.

use crate::hash::{ChunkHash, Scope, Seed, Space};
use crate::text::TokenBytes;

/// Start of the chains of a scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootScope {
    pub(super) text: ChunkHash,
    pub(super) tokens: ChunkHash,
}

#[derive(Debug)]
pub(super) struct Model {
    profile: String,
    revision: u64,
    pub(super) vocabulary: Option<TokenBytes>,
    /// Scope without adapter and salt, once it was needed.
    base: Option<RootScope>,
    /// Tokens and bytes of text of the blocks whose text was worked out.
    lifted_tokens: u64,
    lifted_bytes: u64,
}

impl Model {
    pub(super) fn new(profile: &str, revision: u64, vocabulary: Option<TokenBytes>) -> Self {
        Self {
            profile: profile.to_owned(),
            revision,
            vocabulary,
            base: None,
            lifted_tokens: 0,
            lifted_bytes: 0,
        }
    }

    pub(super) fn scope(&mut self, adapter: &str, salt: &str, seed: Seed) -> RootScope {
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
            tokens: of(Space::Token),
        };
        if is_base {
            self.base = Some(scope);
        }
        scope
    }

    pub(super) fn learn(&mut self, tokens: u64, bytes: u64) {
        self.lifted_tokens += tokens;
        self.lifted_bytes += bytes;
    }

    pub(super) fn bytes_per_token(&self) -> Option<f64> {
        (self.lifted_tokens > 0).then(|| self.lifted_bytes as f64 / self.lifted_tokens as f64)
    }
}
