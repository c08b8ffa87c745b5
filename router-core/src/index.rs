//! The index: which endpoint holds which prefix, from engine events to published rungs.
//!
//! ```text
//!  payload ─► event ─► Source: engine hash → block number            one per (endpoint, rank)
//!                                   │
//!                                   ▼
//!                        Blocks: content, copies, level, lifted to rungs
//!                                   │
//!                                   ▼
//!                        Rungs: holders and token depth ─► take_changes()   shared
//! ```
//!
//! Everything published is a function of what is live, never of the order in which it came. Blocks are identified by their token ids,
//! adapter, salt and extra keys; an engine's own hashes are labels within one source.
//!
//! A block counts if it and all its ancestors are there (each in any tier; the slowest one decides which holder it counts for) and, on
//! engines with several KV cache groups, if the limiting groups have their windows. A block that covers no rung counts for the last
//! rung before its end.

mod ahead;
mod apply;
mod approximate;
mod blocks;
mod bound;
mod branches;
mod chain;
mod counts;
mod exact;
mod groups;
mod inspect;
mod labels;
mod lift;
mod model;
mod plain;
mod removals;
mod rungs;
mod slab;
mod source;
mod speculation;
mod store;
mod tails;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use approximate::{ApproximateStats, Decided, DecisionId};
pub use inspect::{MAX_SHARED, SharedPrefix, SharedScan, SourceStats};
pub use speculation::{Speculation, SpeculationId};

use crate::endpoint::HolderId;
use crate::event::{BatchInfo, Decoder, Event};
use crate::hash::Seed;
use crate::text::TokenBytes;
use approximate::Approximates;
use bound::Clock;
use hashbrown::HashMap;
use model::Model;
use removals::Removals;
use source::Source;
use speculation::Speculations;
use store::Store;

/// Number of one event source: one (endpoint, data-parallel rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// Number of a model, chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u32);

/// Settings of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexConfig {
    /// The deployment's hash seed.
    pub seed: Seed,
    /// Bytes the index may use, about. At the bound the least recently stored leaves go first and their sources become partial.
    pub max_bytes: usize,
}

/// Published state of one rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RungChange {
    /// Chunk hash at the rung.
    pub hash: u64,
    /// Token depth of the rung.
    pub token_depth: u32,
    /// Holders, ascending. Empty where a prefix is known but no holder can serve a hit that ends here.
    pub holders: Vec<HolderId>,
}

/// What changed since the last call of [`Index::take_changes`]; each rung is named at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Rungs that are there now, with their whole state.
    pub upserts: Vec<RungChange>,
    /// Hashes of rungs that are no longer there.
    pub removes: Vec<u64>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.removes.is_empty()
    }
}

/// What one batch did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchOutcome {
    /// What the decoder saw.
    pub info: BatchInfo,
    /// Blocks stored, copies included.
    pub stored: u64,
    /// Copies that were to be removed; those of which there were none are counted in [`IndexCounters::unknown_removes`].
    pub removed: u64,
    /// Whether everything was dropped in the course of the batch.
    pub cleared: bool,
    /// False when the source is not known; then nothing was applied.
    pub is_known_source: bool,
}

/// Totals since the index was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounters {
    /// Events and batches that could not be read.
    pub decode_errors: u64,
    /// Events of unknown types.
    pub unknown_events: u64,
    /// Unknown keys and trailing elements.
    pub unknown_keys: u64,
    /// Blocks stored whose parent is not known: they can't be placed.
    pub orphan_blocks: u64,
    /// Stores of a block that the source already held in the same group and tier.
    pub duplicate_stores: u64,
    /// Stores that only repeated what is live (the full report of an engine), not counted; where blocks were dropped to stay within the
    /// byte bound, also those of which a part was live, and that part was not counted.
    pub full_reports: u64,
    /// Removals of a block the source does not hold in that group and tier.
    pub unknown_removes: u64,
    /// Events with a medium that is not known.
    pub unknown_medium_events: u64,
    /// Blocks whose content contradicts what their hash stood for; not counted.
    pub conflicts: u64,
    /// Blocks dropped to stay within the byte bound.
    pub evicted_blocks: u64,
    /// Batches for sources that are not known (any more).
    pub stale_batches: u64,
}

/// Sizes and totals of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Blocks known, over all sources.
    pub blocks: usize,
    /// Rungs kept.
    pub rungs: usize,
    /// Speculations under way.
    pub speculations: usize,
    /// Bytes in use, about.
    pub bytes: usize,
    /// Totals.
    pub counters: IndexCounters,
}

/// Which endpoint holds which prefix.
#[derive(Debug)]
pub struct Index {
    config: IndexConfig,
    models: HashMap<ModelId, Model>,
    sources: HashMap<SourceId, (ModelId, Source)>,
    store: Store,
    speculations: Speculations,
    approximates: Approximates,
    decoder: Decoder,
    counters: IndexCounters,
    has_token_space: bool,
    /// Bytes of all sources, about.
    source_bytes: usize,
    removals: Removals,
    clock: Clock,
    /// Sources made so far.
    numbered: u32,
}

impl Index {
    /// An empty index.
    pub fn new(config: IndexConfig) -> Self {
        Self {
            config,
            models: HashMap::new(),
            sources: HashMap::new(),
            store: Store::new(config.seed),
            speculations: Speculations::default(),
            approximates: Approximates::default(),
            decoder: Decoder::default(),
            counters: IndexCounters::default(),
            has_token_space: false,
            source_bytes: 0,
            removals: Removals::default(),
            clock: Clock::new(config.max_bytes),
            numbered: 0,
        }
    }

    /// Publishes rungs in token space too, for requests that carry token ids. It takes as many rungs again.
    ///
    /// To be chosen before anything is stored.
    #[must_use]
    pub fn with_token_space(mut self) -> Self {
        self.has_token_space = true;
        self
    }

    /// Adds a model. `profile` and `revision` go into its scopes; without a vocabulary its blocks are known by token ids only and publish no text.
    ///
    /// A model that was added before is replaced for blocks stored from now on; reset its sources to have one state.
    pub fn add_model(
        &mut self,
        id: ModelId,
        profile: &str,
        revision: u64,
        vocabulary: Option<TokenBytes>,
    ) {
        if vocabulary.is_some() {
            self.store.blocks.need_texts();
        }
        self.models
            .insert(id, Model::new(profile, revision, vocabulary));
    }

    /// Adds a source, or resets one that is there. `holders` are its holder ids by tier, fastest first; they must not be in use.
    pub fn add_source(&mut self, id: SourceId, model: ModelId, holders: [HolderId; 3]) {
        self.remove_source(id);
        let source = self.new_source(holders);
        self.sources.insert(id, (model, source));
    }

    /// Drops everything known from a source and begins a new incarnation with fresh holder ids. An unknown source stays unknown.
    ///
    /// Cost is linear in the source's blocks.
    pub fn reset_source(&mut self, id: SourceId, holders: [HolderId; 3]) {
        if let Some(&(model, _)) = self.sources.get(&id) {
            self.add_source(id, model, holders);
        }
    }

    fn new_source(&mut self, holders: [HolderId; 3]) -> Source {
        self.numbered = self.numbered.wrapping_add(1);
        Source::new(holders, self.numbered, self.config.seed.0)
    }

    /// Forgets a source; its batches no longer count.
    pub fn remove_source(&mut self, id: SourceId) {
        if let Some((_, mut source)) = self.sources.remove(&id) {
            self.source_bytes -= source.bytes();
            source.clear(&mut self.store);
            let table = &mut self.store.rungs;
            self.speculations.cancel_holders(&source.holders, table);
            for holder in source.holders {
                self.approximates.clear(holder, table);
            }
        }
    }

    /// Whether blocks of the source were dropped to stay within the byte bound.
    pub fn is_partial(&self, id: SourceId) -> bool {
        self.sources
            .get(&id)
            .is_some_and(|(_, source)| source.is_partial)
    }

    /// Decodes and applies one batch of a source.
    pub fn apply(&mut self, id: SourceId, payload: &[u8]) -> BatchOutcome {
        let outcome = self.decode_and_apply(id, payload);
        self.settle();
        outcome
    }

    /// Decodes and applies batches, and tells what each did. Where many are waiting this is faster than one after the other.
    pub fn apply_all<'p>(
        &mut self,
        batches: impl IntoIterator<Item = (SourceId, &'p [u8])>,
        mut applied: impl FnMut(SourceId, &BatchOutcome),
    ) {
        let mut batches = batches.into_iter();
        let mut next: Vec<(SourceId, &[u8])> = Vec::with_capacity(ahead::BATCHES);
        loop {
            next.extend(batches.by_ref().take(ahead::BATCHES));
            if next.is_empty() {
                break;
            }
            self.look_ahead(&next);
            for (id, payload) in next.drain(..) {
                applied(id, &self.decode_and_apply(id, payload));
                if self.removals.is_full() {
                    self.settle();
                }
            }
        }
        self.settle();
    }

    /// Applies events of sources that something else has decoded, each as a batch of its own.
    pub fn apply_events<'e>(&mut self, events: impl IntoIterator<Item = (SourceId, Event<'e>)>) {
        for (id, event) in events {
            self.apply_with(id, |sink| {
                sink(&event);
                BatchInfo {
                    events: 1,
                    ..BatchInfo::default()
                }
            });
            if self.removals.is_full() {
                self.settle();
            }
        }
        self.settle();
    }

    fn decode_and_apply(&mut self, id: SourceId, payload: &[u8]) -> BatchOutcome {
        let mut decoder = core::mem::take(&mut self.decoder);
        let outcome = self.apply_with(id, |apply| {
            decoder.decode(payload, &mut |event| apply(&event))
        });
        self.decoder = decoder;
        outcome
    }

    fn apply_with(
        &mut self,
        id: SourceId,
        events: impl FnOnce(&mut dyn FnMut(&Event<'_>)) -> BatchInfo,
    ) -> BatchOutcome {
        let mut outcome = BatchOutcome::default();
        let Some((model, source)) = self.sources.get_mut(&id) else {
            self.counters.stale_batches += 1;
            return outcome;
        };
        outcome.is_known_source = true;
        let bytes_before = source.bytes();
        if let Some(model) = self.models.get_mut(model) {
            let mut apply = apply::Apply {
                model,
                source,
                store: &mut self.store,
                counters: &mut self.counters,
                outcome: &mut outcome,
                has_token_space: self.has_token_space,
                now: self.clock.now(),
                id,
                removals: &mut self.removals,
                may_repeat: false,
            };
            let info = events(&mut |event| apply.event(event));
            outcome.info = info;
            source.sweep(false, &mut self.store);
        }
        self.source_bytes = self.source_bytes + source.bytes() - bytes_before;
        self.clock.advance(outcome.stored);
        self.counters.decode_errors += u64::from(outcome.info.decode_errors());
        self.counters.unknown_events += u64::from(outcome.info.unknown_events);
        self.counters.unknown_keys += u64::from(outcome.info.unknown_keys);
        self.speculations.confirm(&mut self.store.rungs);
        self.keep_within_bound();
        outcome
    }

    /// Carries out removals that wait.
    fn settle(&mut self) {
        if self.removals.is_empty() {
            return;
        }
        let missing =
            self.removals
                .settle(&mut self.sources, &mut self.store, &mut self.source_bytes);
        self.counters.unknown_removes += missing;
        self.speculations.confirm(&mut self.store.rungs);
        // Keeping track of what became free takes a few bytes too.
        self.keep_within_bound();
    }

    /// Credits a holder with a prompt before its events say so, and returns a handle to cancel it by. A speculation ends when the holder's
    /// events cover its deepest rung, when it is cancelled, when its time is over, or with the holder.
    pub fn credit_speculative(&mut self, speculation: &Speculation<'_>) -> SpeculationId {
        self.speculations.add(speculation, &mut self.store.rungs)
    }

    /// Takes a speculation back; one that has ended stays ended.
    pub fn cancel(&mut self, id: SpeculationId) {
        self.speculations.cancel(id, &mut self.store.rungs);
    }

    /// Ends speculations whose time is over at `now_ms`.
    pub fn expire(&mut self, now_ms: u64) {
        self.speculations.expire(now_ms, &mut self.store.rungs);
    }

    /// What changed since the last call, coalesced.
    pub fn take_changes(&mut self) -> Changes {
        self.store.rungs.take_changes()
    }

    /// Every published rung with its state, in no order, changes not yet taken included.
    pub fn all_rungs(&self) -> impl Iterator<Item = RungChange> {
        self.store.rungs.all()
    }

    /// Bytes of text per token over all distinct blocks the model has stored; `None` until there is one.
    pub fn bytes_per_token(&self, model: ModelId) -> Option<f64> {
        self.models.get(&model).and_then(Model::bytes_per_token)
    }

    /// Sizes and totals.
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            blocks: self.sources.values().map(|(_, source)| source.len()).sum(),
            rungs: self.store.rungs.len(),
            speculations: self.speculations.len(),
            bytes: self.used_bytes(),
            counters: self.counters,
        }
    }

    fn used_bytes(&self) -> usize {
        self.store.bytes()
            + self.speculations.bytes()
            + self.approximates.bytes()
            + self.source_bytes
    }
}
