//! Exact answers, block by block: for comparison, explanation and tests, not for the request path.

use super::apply::extend_digest;
use super::forest::Block;
use super::{Index, SourceId};
use crate::endpoint::HolderId;
use crate::hash::{ChunkHash, chunk_hashes};
use hashbrown::HashMap;
use std::collections::BTreeMap;

impl Index {
    /// Tokens of the longest live chain of each holder that is a prefix of the text; holders without one are absent.
    ///
    /// `text` is what the scope's space hashes: canonical text or, where token space is published, token ids as u32 LE.
    /// Cost is linear in the blocks of all sources.
    pub fn exact_credit(&self, scope: ChunkHash, text: &[u8]) -> BTreeMap<HolderId, u32> {
        let hashes: Vec<ChunkHash> = core::iter::once(scope)
            .chain(chunk_hashes(scope, text, self.config.seed))
            .collect();
        self.credit_where(|node| {
            self.forest
                .is_prefix(node, text, &hashes)
                .then(|| self.forest.tokens(node))
        })
    }

    /// Tokens of the longest live chain of each holder that is a prefix of the token ids; holders without one are absent.
    ///
    /// `scope` is the text-space scope and `extra` gives the ids of a block's multimodal items by the tokens before it.
    /// Cost is linear in the blocks of all sources.
    pub fn exact_tokens(
        &self,
        scope: ChunkHash,
        tokens: &[u32],
        block_size: usize,
        extra: impl Fn(usize) -> Vec<String>,
    ) -> BTreeMap<HolderId, u32> {
        let mut path: HashMap<u32, u32> = HashMap::new();
        let mut at = self.forest.find_root(scope);
        for (number, block) in tokens.chunks_exact(block_size.max(1)).enumerate() {
            let keys = extra(number * block_size);
            let extra = keys.iter().fold(None, |digest, key| {
                Some(extend_digest(digest, key.as_bytes()))
            });
            let block = Block {
                tokens: block,
                extra,
            };
            at = at.and_then(|parent| self.forest.find_child(parent, block));
            let Some(node) = at else {
                break;
            };
            path.insert(node, self.forest.tokens(node));
        }
        self.credit_where(|node| path.get(&node).copied())
    }

    /// Sources with their holders by tier, ascending.
    pub fn holders(&self) -> BTreeMap<SourceId, [HolderId; 3]> {
        self.sources
            .iter()
            .map(|(&id, (_, source))| (id, source.holders))
            .collect()
    }

    fn credit_where(&self, tokens: impl Fn(u32) -> Option<u32>) -> BTreeMap<HolderId, u32> {
        let mut credit = BTreeMap::new();
        for (_, source) in self.sources.values() {
            for id in source.ids() {
                let Some(holder) = source.credited(id) else {
                    continue;
                };
                if let Some(tokens) = tokens(source.entry(id).node) {
                    let best: &mut u32 = credit.entry(holder).or_default();
                    *best = tokens.max(*best);
                }
            }
        }
        credit
    }
}
