//! Events → entries.

use super::chain::TokenChain;
use super::groups::Role;
use super::lift::SLACK_BYTES;
use super::model::{Model, RootScope};
use super::removals::{Removal, Removals};
use super::slab::NONE;
use super::source::{Copies, Found, Source};
use super::store::Store;
use super::{BatchOutcome, IndexCounters, SourceId};
use crate::endpoint::Tier;
use crate::event::{BlockKeys, EngineHash, Event, ExtraKey, Removed, Stored};
use crate::hash::Space;
use crate::rung::is_rung;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a token after a block's end counts for when its hash covers it too: a token id's bytes, and about as many bytes of text.
const LOOKAHEAD_BYTES: usize = 4;

/// Applies the events of one batch to one source.
pub(super) struct Apply<'a> {
    pub(super) model: &'a mut Model,
    pub(super) source: &'a mut Source,
    pub(super) store: &'a mut Store,
    pub(super) counters: &'a mut IndexCounters,
    pub(super) outcome: &'a mut BatchOutcome,
    pub(super) has_token_space: bool,
    /// Says when blocks were stored last.
    pub(super) now: u16,
    pub(super) id: SourceId,
    pub(super) removals: &'a mut Removals,
    /// Whether the event may be a report of what is live of which blocks were dropped here.
    pub(super) may_repeat: bool,
}

/// Where a stored chain goes on.
pub(super) struct Place {
    /// Block above, `NONE` for the first block of a prompt.
    pub(super) block: u32,
    pub(super) chain: TokenChain,
    has_text: bool,
}

/// How much of a store is known already.
enum Repeated {
    Nothing,
    Part,
    All,
}

/// One block of an event.
struct NewBlock<'e> {
    tokens: &'e [u32],
    /// Digest of keys that say that the block holds more than its tokens.
    extra: Option<u64>,
    lookahead_bytes: usize,
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
            Event::Stored(stored) => {
                self.settle();
                self.stored(stored);
            }
            Event::Removed(removed) => self.removed(removed),
            Event::Cleared => {
                self.settle();
                self.source.clear(self.store);
                self.store.lift.forget();
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
            self.source.refresh_all(self.store);
        }
        let copies = match role {
            Role::Main => Copies::Main(tier),
            Role::Limit(slot) => Copies::Limit { slot, tier },
            Role::Ignored => return,
        };
        if stored.hashes.is_empty() {
            return;
        }
        self.may_repeat = false;
        match self.repeated(stored, copies) {
            Repeated::Nothing => {}
            Repeated::Part => {
                self.counters.full_reports += 1;
                self.may_repeat = true;
            }
            Repeated::All => {
                self.counters.full_reports += 1;
                return;
            }
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

    /// How much a store only repeats, if it may be a report: an engine asked to report everything announces a live prefix again, and
    /// counting it would keep it forever. Where blocks were dropped to stay within the byte bound, a report looks like a store of which a
    /// part is live. Then what is live is not counted either: a copy too few is missed, a copy too many would never go away.
    fn repeated(&self, stored: &Stored<'_>, copies: Copies) -> Repeated {
        if stored.parent.is_some() || stored.hashes.len() < 2 {
            return Repeated::Nothing;
        }
        let held = |&hash: &EngineHash| {
            let id = self.source.find(hash, self.store)?;
            (self.source.count(id, copies, self.store) > 0).then_some(id)
        };
        let is_held = |hash: &EngineHash| held(hash).is_some();
        // What is known by its hash alone gets its content from the report.
        let is_known =
            |hash: &EngineHash| held(hash).is_some_and(|id| self.store.blocks[id].is_placed());
        let mut hashes = stored.hashes.iter();
        if hashes.clone().all(is_known) {
            Repeated::All
        } else if hashes.clone().all(is_held) || (self.source.is_partial && hashes.any(is_held)) {
            Repeated::Part
        } else {
            Repeated::Nothing
        }
    }

    fn stored_hashes(&mut self, hashes: &[EngineHash], copies: Copies) {
        for &hash in hashes {
            let id = self.source.find_or_add(hash, self.store);
            self.count(id, copies, false);
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
        let mut block_keys = next_keys(stored.parent.is_none());
        let Some(mut place) = self.place(stored, block_keys.salt) else {
            if matches!(copies, Copies::Main(_)) {
                self.counters.orphan_blocks += stored.hashes.len() as u64;
            } else {
                self.stored_hashes(stored.hashes, copies);
            }
            return;
        };
        core::hint::black_box(self.source.touch_labels(stored.hashes));
        let lookahead_bytes = stored.lookahead as usize * LOOKAHEAD_BYTES;
        let plain_tier = match copies {
            Copies::Main(tier)
                if stored.extra_keys.is_none()
                    && lookahead_bytes == 0
                    && !self.source.groups.has_limits() =>
            {
                Some(tier)
            }
            _ => None,
        };
        let plain = plain_tier.map_or(0, |tier| {
            self.store_plain(stored.hashes, stored.tokens, block_size, tier, &mut place)
        });
        let blocks = stored.tokens.chunks_exact(block_size);
        for (at, (&hash, tokens)) in stored.hashes.iter().zip(blocks).enumerate().skip(plain) {
            if at > 0 {
                block_keys = next_keys(false);
            }
            let block = NewBlock {
                tokens,
                extra: block_keys.other,
                lookahead_bytes,
            };
            let Some((id, is_new)) = self.find_or_place(hash, &block, &mut place) else {
                self.counters.conflicts += 1;
                break;
            };
            self.count(id, copies, is_new);
            place.block = id;
        }
    }

    /// Place of the event's first block, `None` if its parent is not known by content.
    fn place(&mut self, stored: &Stored<'_>, salt: Option<&str>) -> Option<Place> {
        self.store.lift.forget();
        if let Some(parent) = stored.parent {
            let block = self.source.find(parent, self.store)?;
            return self.store.blocks[block].is_placed().then(|| Place {
                block,
                chain: self.source.chain(block, self.store),
                has_text: true,
            });
        }
        // An adapter known by its number only gets a scope that no request has.
        let number = stored
            .lora_id
            .filter(|_| stored.lora_name.is_none())
            .map(|id| format!("\0{id}"));
        let adapter = stored.lora_name.or(number.as_deref()).unwrap_or_default();
        let scope: RootScope = self
            .model
            .scope(adapter, salt.unwrap_or_default(), self.store.seed);
        self.store.lift.start(scope.text);
        Some(Place {
            block: NONE,
            chain: TokenChain::new(scope.tokens),
            has_text: true,
        })
    }

    /// The block with this label, and whether its content has just become known. `None` where it contradicts what the label stands for.
    fn find_or_place(
        &mut self,
        hash: EngineHash,
        block: &NewBlock<'_>,
        place: &mut Place,
    ) -> Option<(u32, bool)> {
        let (mixed, found) = self.source.look_up(hash, self.store);
        let seed = self.store.seed;
        let known = match found {
            Found::Known(id) => Some(id),
            Found::Unknown(..) => None,
        };
        if let Some(id) = known.filter(|&id| self.store.blocks[id].is_placed()) {
            let counts = place
                .chain
                .extend(block.tokens, block.extra, seed, |_, _| {});
            let same = counts && self.source.is_chain(id, &place.chain, self.store);
            return same.then_some((id, false));
        }
        let mut rung = if place.block == NONE {
            NONE
        } else {
            self.store.blocks[place.block].rung
        };
        let (publishes, rungs) = (self.has_token_space, &mut self.store.rungs);
        let counts = place
            .chain
            .extend(block.tokens, block.extra, seed, |number, hash| {
                if publishes && is_rung(Space::Token, number) {
                    rung = rungs.acquire(hash, rung);
                }
            });
        if !counts {
            return None;
        }
        let id = match found {
            Found::Known(id) => id,
            Found::Unknown(position, dead) => {
                self.source
                    .add(mixed, (position, dead), place.block, self.store)
            }
        };
        self.source.set_chain(id, &place.chain, self.store);
        let chain = &place.chain;
        let kept = &mut self.store.blocks[id];
        kept.rung = if chain.is_opaque { NONE } else { rung };
        kept.set_reaches(
            is_rung(Space::Token, chain.chunks())
                && chain.tail_len() + block.lookahead_bytes <= SLACK_BYTES,
        );
        kept.set_looks_ahead(block.lookahead_bytes > 0);
        self.lift(id, block.tokens, block.lookahead_bytes, place);
        self.source.link(id, place.block, self.store);
        Some((id, true))
    }

    /// Works out the block's text, where that of the block above is known.
    pub(super) fn lift(&mut self, id: u32, tokens: &[u32], ahead: usize, place: &mut Place) {
        let Some(vocabulary) = &self.model.vocabulary else {
            return;
        };
        let Store {
            seed,
            blocks,
            tails,
            rungs,
            lift,
            ..
        } = &mut *self.store;
        place.has_text &= !place.chain.is_opaque;
        let is_there =
            place.has_text && (place.block == NONE || lift.go_to(place.block, blocks, tails));
        if !is_there {
            return;
        }
        let (text, bytes) = lift.extend(id, tokens, vocabulary, ahead, *seed, (rungs, tails));
        blocks.set_text(id, text);
        self.model.learn(tokens.len() as u64, bytes);
    }

    fn count(&mut self, id: u32, copies: Copies, is_placed_now: bool) {
        if self.source.count(id, copies, self.store) > 0 {
            if self.may_repeat {
                if is_placed_now {
                    self.source
                        .refresh(id, self.source.groups.reach(), self.store);
                }
                return;
            }
            self.counters.duplicate_stores += 1;
        }
        self.source.add_copy(id, copies, is_placed_now, self.store);
        self.store.blocks[id].touch(self.now);
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
        self.outcome.removed += removed.hashes.len() as u64;
        for &hash in removed.hashes {
            self.removals.push(Removal {
                source: self.id,
                hash,
                copies,
            });
        }
    }

    /// Carries out the source's removals that wait.
    fn settle(&mut self) {
        if self.removals.is_empty() {
            return;
        }
        let own = self.removals.take_of(self.id);
        for removal in own {
            if !self.source.remove(removal.hash, removal.copies, self.store) {
                self.counters.unknown_removes += 1;
            }
        }
        self.store.rungs.forget_uncovered();
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
