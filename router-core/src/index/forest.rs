//! Nodes: blocks by content, shared by all sources, and their lifting to text.
//!
//! ```text
//!  scope ─► root ─► node ─► node ...   keyed by (parent, token ids, extra keys)
//!                     │
//!                     ├ tokens, bytes   depth of the node's end
//!                     ├ chunk, tail     hash at the last chunk end, bytes after it (< 64)
//!                     └ rung, covered   deepest rung at or before the end; rungs inside the block
//! ```
//!
//! The rungs inside a node are `rung` and its `covered - 1` predecessors. A live node gives each of them a token depth: its own where
//! the node ends at most half a chunk after the rung, else its parent's. A node that covers no rung but ends at most half a chunk after one gives
//! its own to that rung. The maximum over live nodes is then the token depth of `hash`: the deepest live block, among the
//! blocks whose chain covers the rung, that ends at most half a chunk after it.

use super::arena::{Arena, NONE};
use super::rungs::Rungs;
use super::vocabulary::Vocabulary;
use crate::endpoint::HolderId;
use crate::hash::{CHUNK_BYTES, ChunkHash, Seed};
use crate::rung::is_rung;
use hashbrown::{HashMap, HashTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A block may end this many bytes after a rung and still count for it.
const SLACK_BYTES: usize = CHUNK_BYTES / 2;

#[derive(Debug)]
struct Node {
    /// Hash of (parent, token ids, extra keys); the scope for a root.
    key: u64,
    /// Chunk hash at the last chunk end at or before the node's end.
    chunk: u64,
    parent: u32,
    /// Tokens from the start of the prompt to the node's end.
    tokens: u32,
    /// Whole chunks from the start of the prompt to the node's end.
    chunks: u32,
    /// Entries and child nodes that refer to the node.
    refs: u32,
    /// Live entries of all sources.
    live: u32,
    /// Deepest rung at or before the node's end, or `NONE`.
    rung: u32,
    /// Rungs inside the block.
    covered: u32,
    /// False where the bytes are not known: no vocabulary, or an image on the way.
    is_text: bool,
    tail_len: u8,
    tail: [u8; CHUNK_BYTES - 1],
}

impl Node {
    fn tail(&self) -> &[u8] {
        self.tail
            .get(..usize::from(self.tail_len))
            .unwrap_or_default()
    }
}

/// Content of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub(super) tokens: &'a [u32],
    /// Digest of extra keys that are neither adapter nor salt: the block holds more than its tokens say.
    pub(super) extra: Option<u64>,
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
    pub(super) rungs: Rungs,
}

impl Forest {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            nodes: Arena::default(),
            children: HashTable::new(),
            roots: HashMap::new(),
            rungs: Rungs::default(),
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.len() * (size_of::<Node>() + 8) + self.roots.len() * 16 + self.rungs.bytes()
    }

    /// Node above the first block of a scope's prompts. It must be given a child or released with `prune` before anything else is freed.
    pub(super) fn root(&mut self, scope: ChunkHash, is_text: bool) -> u32 {
        if let Some(&root) = self.roots.get(&scope.0) {
            return root;
        }
        let root = self.nodes.insert(Node {
            key: scope.0,
            chunk: scope.0,
            parent: NONE,
            tokens: 0,
            chunks: 0,
            refs: 0,
            live: 0,
            rung: NONE,
            covered: 0,
            is_text,
            tail_len: 0,
            tail: [0; CHUNK_BYTES - 1],
        });
        self.roots.insert(scope.0, root);
        root
    }

    /// Root of a scope that has blocks.
    pub(super) fn find_root(&self, scope: ChunkHash) -> Option<u32> {
        self.roots.get(&scope.0).copied()
    }

    /// Child of `parent` with this content.
    pub(super) fn find_child(&self, parent: u32, block: Block<'_>) -> Option<u32> {
        let key = self.content_key(parent, block);
        self.find(parent, key)
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
        vocabulary: Option<&Vocabulary>,
    ) -> (u32, Lifted) {
        let key = self.content_key(parent, block);
        if let Some(id) = self.find(parent, key) {
            return (id, Lifted::default());
        }
        let above = &self.nodes[parent];
        let mut node = Node {
            key,
            chunk: above.chunk,
            parent,
            tokens: above
                .tokens
                .saturating_add(u32::try_from(block.tokens.len()).unwrap_or(u32::MAX)),
            chunks: above.chunks,
            refs: 0,
            live: 0,
            rung: above.rung,
            covered: 0,
            is_text: above.is_text && block.extra.is_none() && vocabulary.is_some(),
            tail_len: above.tail_len,
            tail: above.tail,
        };
        let mut lifted = Lifted::default();
        if let (true, Some(vocabulary)) = (node.is_text, vocabulary) {
            lifted.tokens = block.tokens.len() as u64;
            lifted.bytes = self.lift(&mut node, block.tokens, vocabulary);
        }
        self.nodes[parent].refs += 1;
        let id = self.nodes.insert(node);
        self.children
            .insert_unique(key, id, |&id| self.nodes[id].key);
        (id, lifted)
    }

    /// Appends the bytes of `tokens` to a node that has its parent's state; returns how many they are.
    fn lift(&mut self, node: &mut Node, tokens: &[u32], vocabulary: &Vocabulary) -> u64 {
        let mut chunk = [0u8; CHUNK_BYTES];
        let mut filled = usize::from(node.tail_len);
        for (to, from) in chunk.iter_mut().zip(node.tail()) {
            *to = *from;
        }
        let mut hash = ChunkHash(node.chunk);
        let mut total = 0;
        for &token in tokens {
            let mut bytes = vocabulary.bytes(token);
            total += bytes.len() as u64;
            while let Some(room) = chunk.get_mut(filled..) {
                let (now, later) = bytes.split_at(bytes.len().min(room.len()));
                for (to, from) in room.iter_mut().zip(now) {
                    *to = *from;
                }
                filled += now.len();
                bytes = later;
                if filled < CHUNK_BYTES {
                    break;
                }
                filled = 0;
                hash = hash.extend(&chunk, self.seed);
                node.chunks = node.chunks.saturating_add(1);
                if is_rung(node.chunks) {
                    node.rung = self.rungs.acquire(hash.0, node.rung);
                    node.covered += 1;
                }
            }
        }
        node.chunk = hash.0;
        for (to, from) in node.tail.iter_mut().zip(chunk.iter().take(filled)) {
            *to = *from;
        }
        // `filled` is below the chunk's length after the loop.
        node.tail_len = u8::try_from(filled).unwrap_or_default();
        total
    }

    fn content_key(&self, parent: u32, block: Block<'_>) -> u64 {
        let mut key = self.seed.0 ^ u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(extra) = block.extra {
            key = xxh3_64_with_seed(&extra.to_le_bytes(), key);
        }
        let mut buffer = [0u8; CHUNK_BYTES];
        for tokens in block.tokens.chunks(CHUNK_BYTES / 4) {
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
            let node = &self.nodes[at];
            let (key, parent, covered, mut rung) = (node.key, node.parent, node.covered, node.rung);
            for _ in 0..covered {
                let prev = self.rungs.prev(rung);
                self.rungs.release(rung);
                rung = prev;
            }
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

    /// Calls `with` for each rung the live node gives a token depth to.
    fn each_depth(&mut self, id: u32, with: fn(&mut Rungs, u32, u32)) {
        let node = &self.nodes[id];
        if !node.is_text || node.rung == NONE {
            return;
        }
        let above = self.nodes[node.parent].tokens;
        let reaches = is_rung(node.chunks) && usize::from(node.tail_len) <= SLACK_BYTES;
        let mut rung = node.rung;
        if reaches {
            with(&mut self.rungs, rung, node.tokens);
        }
        for step in 0..node.covered {
            if step > 0 || !reaches {
                with(&mut self.rungs, rung, above);
            }
            rung = self.rungs.prev(rung);
        }
    }

    /// Credits `holder` with the node: at the rungs inside it, or at the last one before its end.
    pub(super) fn cover(&mut self, id: u32, holder: HolderId) {
        self.each_covered(id, |rungs, rung| rungs.cover(rung, holder));
    }

    /// Takes back what `cover` gave.
    pub(super) fn uncover(&mut self, id: u32, holder: HolderId) {
        self.each_covered(id, |rungs, rung| rungs.uncover(rung, holder));
    }

    fn each_covered(&mut self, id: u32, mut with: impl FnMut(&mut Rungs, u32)) {
        let node = &self.nodes[id];
        if !node.is_text || node.rung == NONE {
            return;
        }
        let mut rung = node.rung;
        for _ in 0..node.covered.max(1) {
            with(&mut self.rungs, rung);
            rung = self.rungs.prev(rung);
        }
    }

    /// Tokens from the start of the prompt to the node's end.
    pub(super) fn tokens(&self, id: u32) -> u32 {
        self.nodes[id].tokens
    }

    /// Whether the node's chain spells a prefix of `text`, whose chunk hashes, starting with the scope, are `hashes`.
    pub(super) fn is_prefix(&self, id: u32, text: &[u8], hashes: &[ChunkHash]) -> bool {
        let node = &self.nodes[id];
        let chunks = node.chunks as usize;
        node.is_text
            && hashes.get(chunks).is_some_and(|hash| hash.0 == node.chunk)
            && text
                .get(chunks * CHUNK_BYTES..)
                .is_some_and(|rest| rest.starts_with(node.tail()))
    }
}
