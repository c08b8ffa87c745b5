//! Looking ahead: what the next batches will search for is read before they are applied.
//!
//! A batch begins with a search for the block above it: label, block, rung, each named by the one before. One batch after the other, every
//! step is a cache miss that nothing overlaps with, and with one block an event that is most of the work. So batches of such events are looked at
//! first, step by step, all of them at each. What is read here is only a hint; applying searches again.

use super::source::Source;
use super::{Index, SourceId};
use crate::event::{EngineHash, glimpse};

/// Labels of a batch that are looked at, about.
const LABELS: usize = 5;
/// Batches looked at together.
pub(super) const BATCHES: usize = 16;

impl Index {
    pub(super) fn look_ahead(&self, batches: &[(SourceId, &[u8])]) {
        if batches.len() < 2 {
            return;
        }
        let mut labels: Vec<(&Source, EngineHash)> = Vec::with_capacity(BATCHES * LABELS);
        let mut parents: Vec<(&Source, EngineHash)> = Vec::with_capacity(BATCHES);
        for &(id, payload) in batches {
            let Some((_, source)) = self.sources.get(&id) else {
                continue;
            };
            if let Some(parent) = glimpse(payload, |hash| labels.push((source, hash))) {
                labels.push((source, parent));
                parents.push((source, parent));
            }
        }
        // Loops of few instructions, so that the processor gets on to the next miss while it waits for one.
        let touch = |sum: u32, (source, hash): &(&Source, EngineHash)| {
            sum.wrapping_add(source.touch_label(*hash))
        };
        let mut sum = labels.iter().fold(0, touch);
        for (source, parent) in parents {
            if let Some(block) = source.find_label(parent) {
                sum = sum.wrapping_add(self.store.touch(block));
            }
        }
        core::hint::black_box(sum);
    }
}
