//! The index again, slow and obvious: everything is worked out anew from whole texts and plain lists.

use super::{RungChange, SpeculationId};
use crate::endpoint::{HolderId, Tier};
use crate::event::encode::{EventSpec, StoredSpec};
use crate::hash::{ChunkHash, Seed, Space, chunk_hashes};
use crate::rung::is_rung;
use std::collections::{BTreeMap, BTreeSet};

type Hash = u64;

/// Content of a block: the block above and its own tokens.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    scope: ChunkHash,
    parent: Option<Hash>,
    tokens: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    content: Option<Content>,
    main: [u32; 3],
    sliding: [u32; 3],
}

/// One source. Group 0 (or none) is the main one, group 1 slides over `window` blocks.
#[derive(Clone, Debug)]
pub(super) struct OracleSource {
    pub(super) holders: [HolderId; 3],
    window: Option<usize>,
    blocks: BTreeMap<Hash, Block>,
}

/// A live block, spelled out.
#[derive(Debug)]
struct Live {
    scope: ChunkHash,
    text: Vec<u8>,
    start: usize,
    tokens: u32,
    /// Byte ends and tokens of the ancestors.
    above: Vec<(usize, u32)>,
    credited: Option<HolderId>,
}

#[derive(Clone, Debug)]
pub(super) struct OracleSpeculation {
    pub(super) holder: HolderId,
    pub(super) rungs: Vec<(u64, u32)>,
}

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) seed: Seed,
    pub(super) vocabulary: Vec<Vec<u8>>,
    /// Text scopes and the token scopes that belong to them.
    pub(super) token_scopes: BTreeMap<ChunkHash, ChunkHash>,
    pub(super) sources: BTreeMap<u32, OracleSource>,
    pub(super) speculations: BTreeMap<SpeculationId, OracleSpeculation>,
}

fn tier_of(medium: Option<&str>) -> usize {
    Tier::from_medium(medium).unwrap() as usize
}

impl OracleSource {
    pub(super) fn new(holders: [HolderId; 3]) -> Self {
        Self {
            holders,
            window: None,
            blocks: BTreeMap::new(),
        }
    }

    fn knows_content(&self, hash: Hash) -> bool {
        self.blocks
            .get(&hash)
            .is_some_and(|block| block.content.is_some())
    }

    /// Forgets blocks without copies that no known block hangs below.
    fn prune(&mut self) {
        loop {
            let parents: BTreeSet<Hash> = self
                .blocks
                .values()
                .filter_map(|block| block.content.as_ref()?.parent)
                .collect();
            let before = self.blocks.len();
            self.blocks.retain(|hash, block| {
                block.main != [0; 3] || block.sliding != [0; 3] || parents.contains(hash)
            });
            if self.blocks.len() == before {
                return;
            }
        }
    }

    pub(super) fn apply(&mut self, event: &EventSpec, scope: ChunkHash) {
        match event {
            EventSpec::Stored(stored) => self.stored(stored, scope),
            EventSpec::Removed {
                hashes,
                medium,
                group,
            } => {
                let tier = tier_of(medium.as_deref());
                for hash in hashes {
                    if let Some(block) = self.blocks.get_mut(hash) {
                        let counts = if *group == Some(1) {
                            &mut block.sliding
                        } else {
                            &mut block.main
                        };
                        counts[tier] = counts[tier].saturating_sub(1);
                    }
                    self.prune();
                }
            }
            EventSpec::Cleared => self.blocks.clear(),
        }
    }

    fn stored(&mut self, stored: &StoredSpec, scope: ChunkHash) {
        let tier = tier_of(stored.medium.as_deref());
        let is_sliding = matches!(stored.group, Some((1, ..)));
        if let Some((1, _, Some(window))) = stored.group {
            self.window.get_or_insert(
                (window as usize - 1)
                    .div_ceil(stored.block_size.max(1) as usize)
                    .max(1),
            );
        }
        let count = |block: &Block| {
            if is_sliding {
                block.sliding[tier]
            } else {
                block.main[tier]
            }
        };
        let is_live = |hash: &Hash| self.blocks.get(hash).is_some_and(|block| count(block) > 0);
        let is_report = stored.parent.is_none()
            && stored.hashes.len() >= 2
            && stored.hashes.iter().all(is_live);
        let size = stored.block_size as usize;
        let is_whole = size > 0 && stored.tokens.len() == size * stored.hashes.len();
        let is_placed = stored
            .parent
            .is_none_or(|parent| self.knows_content(parent));
        if is_whole && !is_placed && !is_sliding {
            return;
        }
        let scope = stored
            .parent
            .and_then(|parent| self.blocks.get(&parent)?.content.as_ref())
            .map_or(scope, |content| content.scope);
        let mut parent = stored.parent;
        for (at, &hash) in stored.hashes.iter().enumerate() {
            let block = self.blocks.entry(hash).or_default();
            if is_whole && is_placed {
                let tokens = stored.tokens[at * size..(at + 1) * size].to_vec();
                block.content = Some(Content {
                    scope,
                    parent,
                    tokens,
                });
            }
            let counts = if is_sliding {
                &mut block.sliding
            } else {
                &mut block.main
            };
            counts[tier] += u32::from(!is_report);
            parent = Some(hash);
        }
    }

    /// The block and its ancestors, itself first.
    fn path(&self, hash: Hash) -> Option<Vec<&Block>> {
        let block = self.blocks.get(&hash)?;
        let mut path = vec![block];
        if let Some(parent) = block.content.as_ref()?.parent {
            path.extend(self.path(parent)?);
        }
        Some(path)
    }

    fn live(&self, hash: Hash, vocabulary: &[Vec<u8>]) -> Option<Live> {
        let path = self.path(hash)?;
        let fastest = |block: &&Block| block.main.iter().position(|&count| count > 0);
        let level = path
            .iter()
            .map(fastest)
            .collect::<Option<Vec<usize>>>()?
            .into_iter()
            .max()?;
        let window = self.window.unwrap_or(0);
        let is_served = path
            .iter()
            .take(window)
            .all(|block| block.sliding != [0; 3]);
        let mut live = Live {
            scope: path[0].content.as_ref()?.scope,
            text: Vec::new(),
            start: 0,
            tokens: 0,
            above: Vec::new(),
            credited: is_served.then(|| self.holders[level]),
        };
        for block in path.iter().rev() {
            if live.tokens > 0 {
                live.above.push((live.text.len(), live.tokens));
            }
            live.start = live.text.len();
            let tokens = &block.content.as_ref()?.tokens;
            for &token in tokens {
                live.text.extend(&vocabulary[token as usize]);
            }
            live.tokens += u32::try_from(tokens.len()).unwrap();
        }
        Some(live)
    }
}

impl Oracle {
    /// What live blocks publish, by rung hash, in the space where tokens spell `vocabulary`.
    fn live_rungs(
        &self,
        space: Space,
        vocabulary: &[Vec<u8>],
        scope: impl Fn(ChunkHash) -> ChunkHash,
    ) -> BTreeMap<u64, RungChange> {
        let live: Vec<Live> = self
            .sources
            .values()
            .flat_map(|source| {
                source
                    .blocks
                    .keys()
                    .filter_map(|&hash| source.live(hash, vocabulary))
            })
            .map(|live| Live {
                scope: scope(live.scope),
                ..live
            })
            .collect();
        let mut published: BTreeMap<(u64, Vec<u8>), RungChange> = BTreeMap::new();
        for block in &live {
            let all: Vec<usize> = (1..=block.text.len() / 64)
                .filter(|&chunk| is_rung(space, u32::try_from(chunk).unwrap()))
                .map(|chunk| chunk * 64)
                .collect();
            let mut credited: Vec<usize> = all
                .iter()
                .copied()
                .filter(|&depth| depth > block.start)
                .collect();
            for &depth in &credited {
                let prefix = &block.text[..depth];
                published
                    .entry((block.scope.0, prefix.to_vec()))
                    .or_insert_with(|| RungChange {
                        hash: chunk_hashes(block.scope, prefix, self.seed)
                            .last()
                            .unwrap()
                            .0,
                        token_depth: token_depth(&live, block.scope, prefix),
                        holders: Vec::new(),
                    });
            }
            if credited.is_empty() {
                credited.extend(all.last());
            }
            if let Some(holder) = block.credited {
                for depth in credited {
                    let key = (block.scope.0, block.text[..depth].to_vec());
                    // An ancestor is live and covers it, so it is there or will be.
                    let rung = published.entry(key).or_insert_with(|| RungChange {
                        hash: chunk_hashes(block.scope, &block.text[..depth], self.seed)
                            .last()
                            .unwrap()
                            .0,
                        token_depth: token_depth(&live, block.scope, &block.text[..depth]),
                        holders: Vec::new(),
                    });
                    rung.holders.push(holder);
                }
            }
        }
        published
            .into_values()
            .map(|rung| (rung.hash, rung))
            .collect()
    }

    /// What must be published, by rung hash.
    pub(super) fn published(&self) -> BTreeMap<u64, RungChange> {
        let mut by_hash = self.live_rungs(Space::Text, &self.vocabulary, |scope| scope);
        let ids: Vec<Vec<u8>> = (0u32..)
            .take(self.vocabulary.len())
            .map(|id| id.to_le_bytes().to_vec())
            .collect();
        by_hash.extend(self.live_rungs(Space::Token, &ids, |scope| self.token_scopes[&scope]));
        let mut guessed: BTreeSet<u64> = BTreeSet::new();
        for speculation in self.speculations.values() {
            for &(hash, tokens) in &speculation.rungs {
                let rung = by_hash.entry(hash).or_insert_with(|| {
                    guessed.insert(hash);
                    RungChange {
                        hash,
                        token_depth: 0,
                        holders: Vec::new(),
                    }
                });
                if guessed.contains(&hash) {
                    rung.token_depth = rung.token_depth.max(tokens);
                }
                rung.holders.push(speculation.holder);
            }
        }
        for rung in by_hash.values_mut() {
            rung.holders.sort_unstable();
            rung.holders.dedup();
        }
        by_hash
    }

    /// Holders whose live blocks cover the rung.
    pub(super) fn covering(&self, hash: u64) -> BTreeSet<HolderId> {
        let mut rungs = self.live_rungs(Space::Text, &self.vocabulary, |scope| scope);
        rungs
            .remove(&hash)
            .map_or_else(BTreeSet::new, |rung| rung.holders.into_iter().collect())
    }
}

/// Tokens of the deepest live block, among the blocks whose chain covers `prefix`, that ends at most 32 bytes after it.
fn token_depth(live: &[Live], scope: ChunkHash, prefix: &[u8]) -> u32 {
    let depth = prefix.len();
    live.iter()
        .filter(|block| block.scope == scope && block.text.starts_with(prefix))
        .flat_map(|block| {
            let own = (block.text.len(), block.tokens);
            block
                .above
                .iter()
                .copied()
                .chain([own])
                .filter(|&(end, _)| end <= depth + 32)
                .map(|(_, tokens)| tokens)
        })
        .max()
        .unwrap_or(0)
}
