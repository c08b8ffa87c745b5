//! What the index knows about a model.

use super::forest::Lifted;
use super::vocabulary::Vocabulary;
use crate::hash::{ChunkHash, Scope, Seed, Space};

#[derive(Debug)]
pub(super) struct Model {
    profile: String,
    revision: u64,
    pub(super) vocabulary: Option<Vocabulary>,
    /// Scope without adapter and salt, once it was needed.
    base: Option<ChunkHash>,
    lifted: Lifted,
}

impl Model {
    pub(super) fn new(profile: &str, revision: u64, vocabulary: Option<Vocabulary>) -> Self {
        Self {
            profile: profile.to_owned(),
            revision,
            vocabulary,
            base: None,
            lifted: Lifted::default(),
        }
    }

    pub(super) fn scope(&mut self, adapter: &str, salt: &str, seed: Seed) -> ChunkHash {
        let is_base = adapter.is_empty() && salt.is_empty();
        if let (true, Some(base)) = (is_base, self.base) {
            return base;
        }
        let scope = Scope {
            space: Space::Text,
            profile: &self.profile,
            revision: self.revision,
            adapter,
            salt,
        }
        .hash(seed);
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
