//! Removals that wait to be carried out together.
//!
//! A removal is four steps, each of which reads memory that the one before names: label, block, rung, holders. One after the other, every
//! step is a cache miss that nothing overlaps with. Engines send removals one hash an event, so a few dozen of them are kept until there
//! are enough, or until something is stored in their source, and are then carried out step by step, all of them at each.

use super::source::{Copies, Source};
use super::store::Store;
use super::{ModelId, SourceId};
use crate::event::EngineHash;
use hashbrown::HashMap;

/// Removals carried out together.
const TOGETHER: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    pub(super) source: SourceId,
    pub(super) hash: EngineHash,
    pub(super) copies: Copies,
}

/// Removals that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Removals {
    waiting: Vec<Removal>,
    blocks: Vec<u32>,
}

impl Removals {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= TOGETHER
    }

    pub(super) fn push(&mut self, removal: Removal) {
        self.waiting.push(removal);
    }

    /// Takes those of one source.
    pub(super) fn take_of(&mut self, source: SourceId) -> Vec<Removal> {
        let (own, others) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|removal| removal.source == source);
        self.waiting = others;
        own
    }

    /// Carries all out, and takes over to `bytes` what the sources use more or less; gives the number of removals of which there was no
    /// copy.
    pub(super) fn settle(
        &mut self,
        sources: &mut HashMap<SourceId, (ModelId, Source)>,
        store: &mut Store,
        bytes: &mut usize,
    ) -> u64 {
        let Self { waiting, blocks } = self;
        let mut sum = 0u32;
        let source = |removal: &Removal| sources.get(&removal.source).map(|(_, source)| source);
        for removal in waiting.iter() {
            sum = sum
                .wrapping_add(source(removal).map_or(0, |source| source.touch_label(removal.hash)));
        }
        blocks.clear();
        let of = |removal| source(removal)?.find_label(removal.hash);
        blocks.extend(waiting.iter().filter_map(of));
        for &block in blocks.iter() {
            sum = sum.wrapping_add(store.touch(block));
        }
        core::hint::black_box(sum);
        let mut missing = 0;
        for removal in waiting.drain(..) {
            let Some((_, source)) = sources.get_mut(&removal.source) else {
                missing += 1;
                continue;
            };
            let before = source.bytes();
            let is_held = source.remove(removal.hash, removal.copies, store);
            *bytes = *bytes + source.bytes() - before;
            missing += u64::from(!is_held);
        }
        missing
    }
}
