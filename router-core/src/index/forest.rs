//! Nodes: blocks by content, shared by all sources, and their lifting to rungs.
//!
//! ```text
//!  scope ─► root ─► node ─► node ...   keyed by (parent, token ids, extra keys)
//!                     │
//!                     ├ tokens         depth of the node's end
//!                     ├ text           ladder over the bytes of the tokens
//!                     └ ids            ladder over the token ids as u32 LE (token space)
//! ```
//!
//! Live nodes give token depths to rungs (see [`Ladder::each_depth`]). The maximum at a rung is its token depth: the deepest live block,
//! among the blocks whose chain covers the rung, that ends at most half a chunk after it. For a node that ends later it is the parent's
//! depth, and the parent is live whenever the node is.

use super::arena::{Arena, NONE};
use super::ladder::Ladder;
use super::rungs::Rungs;
use crate::endpoint::HolderId;
use crate::hash::{CHUNK_TOKENS, ChunkHash, Seed};
use crate::text::TokenBytes;
use hashbrown::{HashMap, HashTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[derive(Debug)]
struct Node {
    /// Hash of (parent, token ids, extra keys); the text scope for a root.
    key: u64,
    parent: u32,
    /// Tokens from the start of the prompt to the node's end.
    tokens: u32,
    /// Entries and child nodes that refer to the node.
    refs: u32,
    /// Live entries of all sources.
    live: u32,
    /// `None` where the bytes are not known: no vocabulary, or an image on the way.
    text: Option<Ladder>,
    /// `None` where token space is not published, and from an image on.
    ids: Option<Box<Ladder>>,
}

impl Node {
    fn ladders(&self) -> impl Iterator<Item = &Ladder> {
        self.text.iter().chain(self.ids.as_deref())
    }
}

/// Content of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub(super) tokens: &'a [u32],
    /// Digest of extra keys that are neither adapter nor salt: the block holds more than its tokens say.
    pub(super) extra: Option<u64>,
}

/// Start of the chains of a scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootScope {
    pub(super) text: ChunkHash,
    /// `None` where token space is not published.
    pub(super) ids: Option<ChunkHash>,
}

/// What a new node added to its model's totals; zero for a node that was there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lifted {
    pub(super) tokens: u64,
    pub(super) bytes: u64,
}

/// All nodes, by content, and the rungs they cover.
#[derive(Debug)]
pub(super) struct Forest {
    seed: Seed,
    nodes: Arena<Node>,
    children: HashTable<u32>,
    roots: HashMap<u64, u32>,
    with_ids: usize,
    pub(super) rungs: Rungs,
}

impl Forest {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            nodes: Arena::default(),
            children: HashTable::new(),
            roots: HashMap::new(),
            with_ids: 0,
            rungs: Rungs::default(),
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        const PER_NODE: usize = size_of::<Node>() + 8;
        self.nodes.len() * PER_NODE
            + self.with_ids * size_of::<Ladder>()
            + self.roots.len() * 16
            + self.rungs.bytes()
    }

    /// Node above the first block of a scope's prompts. It must be given a child before anything is freed.
    pub(super) fn root(&mut self, scope: RootScope) -> u32 {
        let key = scope.text.0;
        if let Some(&root) = self.roots.get(&key) {
            return root;
        }
        self.with_ids += usize::from(scope.ids.is_some());
        let root = self.nodes.insert(Node {
            key,
            parent: NONE,
            tokens: 0,
            refs: 0,
            live: 0,
            text: Some(Ladder::new(scope.text)),
            ids: scope.ids.map(|ids| Box::new(Ladder::new(ids))),
        });
        self.roots.insert(key, root);
        root
    }

    /// Root of a scope that has blocks.
    pub(super) fn find_root(&self, text_scope: ChunkHash) -> Option<u32> {
        self.roots.get(&text_scope.0).copied()
    }

    /// Child of `parent` with this content.
    pub(super) fn find_child(&self, parent: u32, block: Block<'_>) -> Option<u32> {
        self.find(parent, self.content_key(parent, block))
    }

    fn find(&self, parent: u32, key: u64) -> Option<u32> {
        let is_it = |&id: &u32| {
            let node = &self.nodes[id];
            node.key == key && node.parent == parent
        };
        self.children.find(key, is_it).copied()
    }

    /// Finds or makes the child of `parent` with this content. A new node has no references yet.
    pub(super) fn child(
        &mut self,
        parent: u32,
        block: Block<'_>,
        vocabulary: Option<&TokenBytes>,
    ) -> (u32, Lifted) {
        let key = self.content_key(parent, block);
        if let Some(id) = self.find(parent, key) {
            return (id, Lifted::default());
        }
        let above = &self.nodes[parent];
        let tokens = u32::try_from(block.tokens.len()).unwrap_or(u32::MAX);
        let mut node = Node {
            key,
            parent,
            tokens: above.tokens.saturating_add(tokens),
            refs: 0,
            live: 0,
            text: None,
            ids: None,
        };
        let mut lifted = Lifted::default();
        if block.extra.is_none() {
            if let (Some(text), Some(vocabulary)) = (&above.text, vocabulary) {
                let pieces = block.tokens.iter().map(|&token| vocabulary.bytes(token));
                let (text, bytes) = text.extend(pieces, self.seed, &mut self.rungs);
                node.text = Some(text);
                lifted = Lifted {
                    tokens: block.tokens.len() as u64,
                    bytes,
                };
            }
            if let Some(ids) = &above.ids {
                let pieces = block.tokens.iter().map(|token| token.to_le_bytes());
                let (ids, _) = ids.extend(pieces, self.seed, &mut self.rungs);
                node.ids = Some(Box::new(ids));
                self.with_ids += 1;
            }
        }
        self.nodes[parent].refs += 1;
        let id = self.nodes.insert(node);
        self.children
            .insert_unique(key, id, |&id| self.nodes[id].key);
        (id, lifted)
    }

    fn content_key(&self, parent: u32, block: Block<'_>) -> u64 {
        let mut key = self.seed.0 ^ u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(extra) = block.extra {
            key = xxh3_64_with_seed(&extra.to_le_bytes(), key);
        }
        let mut buffer = [0u8; CHUNK_TOKENS * 4];
        for tokens in block.tokens.chunks(CHUNK_TOKENS) {
            for (to, token) in buffer.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
                *to = token.to_le_bytes();
            }
            let used = buffer.get(..tokens.len() * 4).unwrap_or_default();
            key = xxh3_64_with_seed(used, key);
        }
        key
    }

    /// An entry refers to the node.
    pub(super) fn acquire(&mut self, id: u32) {
        self.nodes[id].refs += 1;
    }

    /// An entry no longer refers to the node.
    pub(super) fn release(&mut self, id: u32) {
        self.nodes[id].refs -= 1;
        self.prune(id);
    }

    /// Frees the node, and the ancestors that it alone kept, if nothing refers to it.
    pub(super) fn prune(&mut self, id: u32) {
        let mut at = id;
        while at != NONE && self.nodes[at].refs == 0 {
            let node = &mut self.nodes[at];
            for ladder in node.ladders() {
                ladder.release(&mut self.rungs);
            }
            self.with_ids -= usize::from(node.ids.take().is_some());
            let (key, parent) = (node.key, node.parent);
            if parent == NONE {
                self.roots.remove(&key);
            } else {
                if let Ok(entry) = self.children.find_entry(key, |&other| other == at) {
                    entry.remove();
                }
                self.nodes[parent].refs -= 1;
            }
            self.nodes.free(at);
            at = parent;
        }
    }

    /// One more entry of the node is live.
    pub(super) fn add_live(&mut self, id: u32) {
        self.nodes[id].live += 1;
        if self.nodes[id].live == 1 {
            self.each_depth(id, Rungs::add_depth);
        }
    }

    /// One live entry of the node less.
    pub(super) fn remove_live(&mut self, id: u32) {
        self.nodes[id].live -= 1;
        if self.nodes[id].live == 0 {
            self.each_depth(id, Rungs::remove_depth);
        }
    }

    fn each_depth(&mut self, id: u32, with: fn(&mut Rungs, u32, u32)) {
        let node = &self.nodes[id];
        let above = self.nodes[node.parent].tokens;
        for ladder in node.ladders() {
            ladder.each_depth(node.tokens, above, |rung, tokens| {
                with(&mut self.rungs, rung, tokens);
                self.rungs.prev(rung)
            });
        }
    }

    /// Credits `holder` with the node.
    pub(super) fn cover(&mut self, id: u32, holder: HolderId) {
        self.each_covered(id, |rungs, rung| rungs.cover(rung, holder));
    }

    /// Takes back what `cover` gave.
    pub(super) fn uncover(&mut self, id: u32, holder: HolderId) {
        self.each_covered(id, |rungs, rung| rungs.uncover(rung, holder));
    }

    fn each_covered(&mut self, id: u32, with: impl Fn(&mut Rungs, u32)) {
        for ladder in self.nodes[id].ladders() {
            ladder.each_covered(|rung| {
                with(&mut self.rungs, rung);
                self.rungs.prev(rung)
            });
        }
    }

    /// Tokens from the start of the prompt to the node's end.
    pub(super) fn tokens(&self, id: u32) -> u32 {
        self.nodes[id].tokens
    }

    /// Whether the node's chain spells a prefix of `text`, whose chunk hashes, starting with the scope, are `hashes`.
    pub(super) fn is_prefix(&self, id: u32, text: &[u8], hashes: &[ChunkHash]) -> bool {
        self.nodes[id]
            .ladders()
            .any(|ladder| ladder.is_prefix(text, hashes))
    }
}
