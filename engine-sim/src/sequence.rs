//! One request inside the engine: its tokens, the hashes of its full blocks and the blocks it holds.

use xxhash_rust::xxh3::Xxh3;

use crate::block_pool::{BlockHash, BlockId};
use crate::events::Lora;

/// Number of a request, unique in its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What separates caches that must never share a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Adapter; part of the hash of every block.
    pub lora: Option<Lora>,
    /// Cache salt; part of the hash of the first block, and so of all.
    pub salt: Option<String>,
}

impl Scope {
    /// Gives the extra keys of the block at `position`, in the order of the wire; `None` when it has none.
    pub fn extra_keys(&self, position: usize) -> Option<Vec<String>> {
        let salt = self.salt.as_ref().filter(|_| position == 0);
        let keys: Vec<String> = self
            .lora
            .iter()
            .map(|lora| &lora.name)
            .chain(salt)
            .cloned()
            .collect();
        (!keys.is_empty()).then_some(keys)
    }
}

/// Work for the scheduler. The output is decided beforehand; the scheduler only reveals it, one token a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Number of the request.
    pub id: RequestId,
    /// Prompt token ids; not empty.
    pub prompt: Vec<u32>,
    /// Token ids to generate.
    pub output: Vec<u32>,
    /// Cache scope.
    pub scope: Scope,
    /// Session to name in stored events.
    pub session_id: Option<String>,
    /// Whether the reused prefix is announced again (`kv_cache_report_mode` = `full`).
    pub reports_reused: bool,
}

/// A request in the scheduler.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) request: Request,
    /// Prompt, then the output revealed so far.
    pub(crate) tokens: Vec<u32>,
    /// Hashes of the full blocks of `tokens`.
    pub(crate) hashes: Vec<BlockHash>,
    /// Blocks held, in prompt order.
    pub(crate) blocks: Vec<BlockId>,
    /// How many of `blocks` are in the cache (hit or stored).
    pub(crate) cached_blocks: usize,
    /// Tokens whose KV is computed or hit.
    pub(crate) computed: usize,
    /// Prompt tokens hit at the first admission; `None` before it.
    pub(crate) hit_tokens: Option<usize>,
    block_size: usize,
}

impl Sequence {
    pub(crate) fn new(request: Request, block_size: usize) -> Self {
        let mut sequence = Self {
            tokens: request.prompt.clone(),
            request,
            hashes: Vec::new(),
            blocks: Vec::new(),
            cached_blocks: 0,
            computed: 0,
            hit_tokens: None,
            block_size,
        };
        sequence.hash_full_blocks();
        sequence
    }

    pub(crate) fn id(&self) -> RequestId {
        self.request.id
    }

    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Tells whether the next token to compute is the newest output token, the last one known.
    pub(crate) fn is_decoding(&self) -> bool {
        self.generated() > 0 && self.computed + 1 == self.tokens.len()
    }

    /// Reveals the next output token; `None` when the output is over.
    pub(crate) fn reveal(&mut self) -> Option<u32> {
        let token = self.request.output.get(self.generated()).copied()?;
        self.tokens.push(token);
        self.hash_full_blocks();
        Some(token)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.generated() >= self.request.output.len()
    }

    fn hash_full_blocks(&mut self) {
        let known = self.hashes.len();
        for (position, block) in self
            .tokens
            .chunks_exact(self.block_size)
            .enumerate()
            .skip(known)
        {
            let hash = block_hash(
                self.hashes.last().copied(),
                block,
                &self.request.scope,
                position,
            );
            self.hashes.push(hash);
        }
    }
}

/// `XXH3-64(parent as 8 LE bytes, 0 at the start || ids as u32 LE || per extra key: tag, length as u64 LE, bytes)`, tag `l` for the adapter, `s` for
/// the salt. Like vLLM's hash it depends on nothing of the engine, so equal prompts have equal hashes on all engines; it is not vLLM's SHA-256.
fn block_hash(
    parent: Option<BlockHash>,
    tokens: &[u32],
    scope: &Scope,
    position: usize,
) -> BlockHash {
    let mut state = Xxh3::new();
    state.update(&parent.map_or(0, |hash| hash.0).to_le_bytes());
    for token in tokens {
        state.update(&token.to_le_bytes());
    }
    let lora = scope.lora.as_ref().map(|lora| (b'l', &lora.name));
    let salt = scope
        .salt
        .as_ref()
        .filter(|_| position == 0)
        .map(|salt| (b's', salt));
    for (tag, key) in lora.into_iter().chain(salt) {
        state.update(&[tag]);
        state.update(&(key.len() as u64).to_le_bytes());
        state.update(key.as_bytes());
    }
    BlockHash(state.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(salt: Option<&str>, lora: Option<&str>, tokens: Vec<u32>) -> Vec<BlockHash> {
        let scope = Scope {
            lora: lora.map(|name| Lora {
                id: 1,
                name: name.to_owned(),
            }),
            salt: salt.map(str::to_owned),
        };
        let request = Request {
            id: RequestId(0),
            prompt: tokens,
            output: vec![1],
            scope,
            session_id: None,
            reports_reused: false,
        };
        Sequence::new(request, 4).hashes
    }

    #[test]
    fn a_block_hash_covers_the_whole_prefix() {
        let a = hashes(None, None, vec![1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let b = hashes(None, None, vec![0, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(a.len(), 2, "a partial block has no hash");
        assert!(a.iter().zip(&b).all(|(x, y)| x != y));
    }

    #[test]
    fn salts_and_adapters_never_share_a_block() {
        let tokens: Vec<u32> = (0..8).collect();
        let all = [
            hashes(None, None, tokens.clone()),
            hashes(Some("x"), None, tokens.clone()),
            hashes(None, Some("x"), tokens.clone()),
            hashes(Some("x"), Some("x"), tokens),
        ];
        let mut flat = all.concat();
        flat.sort();
        flat.dedup();
        assert_eq!(flat.len(), 8);
    }

    #[test]
    fn extra_keys_name_the_adapter_everywhere_and_the_salt_once() {
        let scope = Scope {
            lora: Some(Lora {
                id: 1,
                name: "a".into(),
            }),
            salt: Some("s".into()),
        };
        assert_eq!(scope.extra_keys(0).unwrap(), ["a", "s"]);
        assert_eq!(scope.extra_keys(1).unwrap(), ["a"]);
        assert_eq!(Scope::default().extra_keys(0), None);
    }
}
