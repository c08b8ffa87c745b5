//! Events → entries.

use super::arena::NONE;
use super::forest::{Block, Forest};
use super::groups::Role;
use super::model::Model;
use super::source::{Copies, Source};
use super::{BatchOutcome, IndexCounters};
use crate::endpoint::Tier;
use crate::event::{BlockKeys, EngineHash, Event, ExtraKey, Removed, Stored};
use crate::hash::Seed;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Applies the events of one batch to one source.
pub(super) struct Apply<'a> {
    pub(super) model: &'a mut Model,
    pub(super) source: &'a mut Source,
    pub(super) forest: &'a mut Forest,
    pub(super) counters: &'a mut IndexCounters,
    pub(super) outcome: &'a mut BatchOutcome,
    pub(super) seed: Seed,
    pub(super) has_token_space: bool,
    pub(super) now: u32,
}

/// Where a stored chain hangs.
struct Place {
    /// Entry above, `NONE` for the first block of a prompt.
    entry: u32,
    node: u32,
}

/// What a block's extra keys say.
#[derive(Default)]
struct Keys<'a> {
    salt: Option<&'a str>,
    /// Digest of keys that are neither adapter nor salt.
    other: Option<u64>,
}

impl Apply<'_> {
    pub(super) fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Stored(stored) => self.stored(stored),
            Event::Removed(removed) => self.removed(removed),
            Event::Cleared => {
                self.source.clear(self.forest);
                self.outcome.cleared = true;
            }
        }
    }

    fn stored(&mut self, stored: &Stored<'_>) {
        let Some(tier) = Tier::from_medium(stored.medium) else {
            self.counters.unknown_medium_events += 1;
            return;
        };
        let (role, limits_more) = self.source.groups.meet(
            stored.group,
            stored.kind,
            stored.sliding_window,
            stored.block_size,
        );
        if limits_more {
            self.source.refresh_all(self.forest);
        }
        let copies = match role {
            Role::Main => Copies::Main(tier),
            Role::Limit(slot) => Copies::Limit { slot, tier },
            Role::Ignored => return,
        };
        if stored.hashes.is_empty() {
            return;
        }
        if self.is_full_report(stored, copies) {
            self.counters.full_reports += 1;
            return;
        }
        // Only whole blocks can be told apart by position; masked groups and placeholders are known by hash.
        let block_size = stored.block_size as usize;
        if block_size > 0
            && stored.hashes.len().checked_mul(block_size) == Some(stored.tokens.len())
        {
            self.stored_content(stored, block_size, copies);
        } else {
            self.stored_hashes(stored.hashes, copies);
        }
    }

    /// An engine asked to report everything announces a live prefix again; counting it would keep it forever.
    fn is_full_report(&self, stored: &Stored<'_>, copies: Copies) -> bool {
        let is_live = |&hash: &EngineHash| {
            self.source
                .find(hash)
                .is_some_and(|id| self.source.count(id, copies) > 0)
        };
        stored.parent.is_none() && stored.hashes.len() >= 2 && stored.hashes.iter().all(is_live)
    }

    fn stored_hashes(&mut self, hashes: &[EngineHash], copies: Copies) {
        for &hash in hashes {
            let id = self.source.find_or_insert(hash);
            self.count(id, copies);
        }
    }

    fn stored_content(&mut self, stored: &Stored<'_>, block_size: usize, copies: Copies) {
        let mut keys = stored.extra_keys.map(|keys| keys.blocks());
        let mut next_keys = |is_first| {
            let keys = keys.as_mut().and_then(Iterator::next);
            keys.map_or_else(Keys::default, |keys| {
                read_keys(keys, stored.lora_name, is_first)
            })
        };
        let first_keys = next_keys(stored.parent.is_none());
        let Some(mut place) = self.place(stored, first_keys.salt) else {
            if matches!(copies, Copies::Main(_)) {
                self.counters.orphan_blocks += stored.hashes.len() as u64;
            } else {
                self.stored_hashes(stored.hashes, copies);
            }
            return;
        };
        let mut block_keys = first_keys;
        for (at, (&hash, tokens)) in stored
            .hashes
            .iter()
            .zip(stored.tokens.chunks_exact(block_size))
            .enumerate()
        {
            if at > 0 {
                block_keys = next_keys(false);
            }
            let block = Block {
                tokens,
                extra: block_keys.other,
            };
            let (node, lifted) =
                self.forest
                    .child(place.node, block, self.model.vocabulary.as_ref());
            self.model.learn(lifted);
            let id = self.source.find_or_insert(hash);
            match self.source.entry(id).node {
                NONE => self.source.place(id, place.entry, node, self.forest),
                known if known == node => {}
                _ => {
                    self.forest.prune(node);
                    self.counters.conflicts += 1;
                    return;
                }
            }
            self.count(id, copies);
            place = Place { entry: id, node };
        }
    }

    /// Place of the event's first block, `None` if its parent is not known by content.
    fn place(&mut self, stored: &Stored<'_>, salt: Option<&str>) -> Option<Place> {
        if let Some(parent) = stored.parent {
            let entry = self.source.find(parent)?;
            let node = self.source.entry(entry).node;
            return (node != NONE).then_some(Place { entry, node });
        }
        // An adapter known by its number only gets a scope that no request has.
        let number = stored
            .lora_id
            .filter(|_| stored.lora_name.is_none())
            .map(|id| format!("\0{id}"));
        let adapter = stored.lora_name.or(number.as_deref()).unwrap_or_default();
        let scope = self.model.scope(
            adapter,
            salt.unwrap_or_default(),
            self.seed,
            self.has_token_space,
        );
        let node = self.forest.root(scope);
        Some(Place { entry: NONE, node })
    }

    fn count(&mut self, id: u32, copies: Copies) {
        if self.source.count(id, copies) > 0 {
            self.counters.duplicate_stores += 1;
        }
        self.source.add_copy(id, copies, self.forest);
        self.source.touch(id, self.now);
        self.outcome.stored += 1;
    }

    fn removed(&mut self, removed: &Removed<'_>) {
        let Some(tier) = Tier::from_medium(removed.medium) else {
            self.counters.unknown_medium_events += 1;
            return;
        };
        let copies = match self.source.groups.role(removed.group) {
            Some(Role::Main) => Copies::Main(tier),
            Some(Role::Limit(slot)) => Copies::Limit { slot, tier },
            Some(Role::Ignored) => return,
            None => {
                self.counters.unknown_removes += removed.hashes.len() as u64;
                return;
            }
        };
        for &hash in removed.hashes {
            let is_held = self
                .source
                .find(hash)
                .is_some_and(|id| self.source.remove_copy(id, copies, self.forest));
            if is_held {
                self.outcome.removed += 1;
            } else {
                self.counters.unknown_removes += 1;
            }
        }
    }
}

/// Takes a block's keys apart. The adapter's name repeats in every block; the salt is the text left over in the first block of a prompt.
fn read_keys<'a>(keys: BlockKeys<'a>, adapter: Option<&str>, is_first: bool) -> Keys<'a> {
    let mut read = Keys::default();
    let mut adapter = adapter;
    for key in keys {
        match key {
            ExtraKey::Text(text) if adapter == Some(text) => adapter = None,
            ExtraKey::Text(text) if is_first && read.salt.is_none() => read.salt = Some(text),
            ExtraKey::Text(id) | ExtraKey::Item(id) => {
                read.other = Some(extend_digest(read.other, id.as_bytes()));
            }
            ExtraKey::Other(raw) => read.other = Some(extend_digest(read.other, raw)),
        }
    }
    read
}

/// Digest of extra keys with one more key.
pub(super) fn extend_digest(before: Option<u64>, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, before.unwrap_or_default())
}
