//! Exact answers, block by block: for comparison, explanation and tests, not for the request path.

use super::apply::extend_digest;
use super::chain::TokenChain;
use super::store::Store;
use super::{Index, SourceId};
use crate::endpoint::HolderId;
use crate::hash::{ChunkHash, chunk_hashes};
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
        self.credit_where(|chain, id| {
            self.store.spells_prefix(id, text, &hashes) || Store::is_prefix(chain, text, &hashes)
        })
    }

    /// Tokens of the longest live chain of each holder that is a prefix of the token ids; holders without one are absent.
    ///
    /// `scope` is the token-space scope and `extra` gives the ids of a block's multimodal items by the tokens before it. A block whose
    /// hash covers tokens after its end counts only if there are any.
    /// Cost is linear in the blocks of all sources.
    pub fn exact_tokens(
        &self,
        scope: ChunkHash,
        tokens: &[u32],
        block_size: usize,
        extra: impl Fn(usize) -> Vec<String>,
    ) -> BTreeMap<HolderId, u32> {
        let mut path: BTreeMap<u32, TokenChain> = BTreeMap::new();
        let mut chain = TokenChain::new(scope);
        for (number, block) in tokens.chunks_exact(block_size.max(1)).enumerate() {
            let keys = extra(number * block_size);
            let extra = keys.iter().fold(None, |digest, key| {
                Some(extend_digest(digest, key.as_bytes()))
            });
            chain.extend(block, extra, self.config.seed, |_, _| {});
            path.insert(chain.depth, chain.clone());
        }
        self.credit_where(|chain, id| {
            let fits = chain.depth as usize + usize::from(self.store.blocks[id].looks_ahead());
            let same = path
                .get(&chain.depth)
                .is_some_and(|own| own.hash == chain.hash && own.tail() == chain.tail());
            same && fits <= tokens.len()
        })
    }

    /// Sources with their holders by tier, ascending.
    pub fn holders(&self) -> BTreeMap<SourceId, [HolderId; 3]> {
        self.sources
            .iter()
            .map(|(&id, (_, source))| (id, source.holders))
            .collect()
    }

    fn credit_where(&self, counts: impl Fn(&TokenChain, u32) -> bool) -> BTreeMap<HolderId, u32> {
        let mut credit = BTreeMap::new();
        for (_, source) in self.sources.values() {
            for id in source.ids(&self.store) {
                let Some(holder) = source.credited(id, &self.store) else {
                    continue;
                };
                let chain = source.chain(id, &self.store);
                if counts(&chain, id) {
                    let best: &mut u32 = credit.entry(holder).or_default();
                    *best = chain.depth.max(*best);
                }
            }
        }
        credit
    }
}
