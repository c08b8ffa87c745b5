//! Whose turn it is: shares the owner's time between sources, so that none waits for another's replay.
//!
//! ```text
//!  job ─► queue of its source ─┬─ fresh: had nothing to do before      served first, in order of arrival
//!                              └─ rest:  has had a turn in this round  served one after the other
//!
//!  a turn: jobs of one source until TURN_UNITS of work are done; then the source goes to the end of `rest`, even with an empty queue
//! ```
//!
//! A source that sends now and then is served as soon as the turn under way and those of other fresh ones are over, however many
//! sources have a replay in their queue. One that always has something to do is served once a round. Going through `rest` before it is
//! fresh again keeps a source whose queue is filled as fast as it is emptied from being fresh for ever.

use std::collections::{HashMap, VecDeque};

use prefixway_core::index::SourceId;

/// Work of one turn, about 0.1 ms: bytes of event payloads, at about 70 bytes for a block of 16 tokens.
pub(super) const TURN_UNITS: usize = 16 << 10;

/// Queues of all sources. What may wait in them is bounded where it comes from: each source has a quota of batches, and of held ones.
#[derive(Debug)]
pub(super) struct Turns<T> {
    queues: HashMap<SourceId, Queue<T>>,
    fresh: VecDeque<SourceId>,
    rest: VecDeque<SourceId>,
    /// Jobs in all queues.
    waiting: usize,
}

#[derive(Debug)]
struct Queue<T> {
    jobs: VecDeque<T>,
    /// Whether the source is in one of the lists, or has its turn.
    is_listed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            jobs: VecDeque::new(),
            is_listed: false,
        }
    }
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            fresh: VecDeque::new(),
            rest: VecDeque::new(),
            waiting: 0,
        }
    }
}

impl<T> Turns<T> {
    /// Whether nobody has anything to do. Sources that wait to be fresh again don't count.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Jobs that wait for a source.
    pub(super) fn waiting(&self, source: SourceId) -> usize {
        self.queues.get(&source).map_or(0, |queue| queue.jobs.len())
    }

    /// Adds a job behind the others of its source.
    pub(super) fn push(&mut self, source: SourceId, job: T) {
        let queue = self.queues.entry(source).or_default();
        queue.jobs.push_back(job);
        self.waiting += 1;
        if !queue.is_listed {
            queue.is_listed = true;
            self.fresh.push_back(source);
        }
    }

    /// Adds jobs before the others of a source, the first of them first.
    pub(super) fn push_front(
        &mut self,
        source: SourceId,
        jobs: impl DoubleEndedIterator<Item = T>,
    ) {
        let queue = self.queues.entry(source).or_default();
        for job in jobs.rev() {
            queue.jobs.push_front(job);
            self.waiting += 1;
        }
        if !queue.is_listed && !queue.jobs.is_empty() {
            queue.is_listed = true;
            self.fresh.push_back(source);
        }
    }

    /// Drops the first jobs of a source as long as they are `of_no_use`.
    pub(super) fn drop_front(&mut self, source: SourceId, of_no_use: impl Fn(&T) -> bool) {
        if let Some(queue) = self.queues.get_mut(&source) {
            while queue.jobs.pop_front_if(|job| of_no_use(job)).is_some() {
                self.waiting -= 1;
            }
        }
    }

    /// The source whose turn it is; [`Self::end`] ends the turn.
    pub(super) fn begin(&mut self) -> Option<SourceId> {
        loop {
            let source = self.fresh.pop_front().or_else(|| self.rest.pop_front())?;
            let Some(queue) = self.queues.get_mut(&source) else {
                continue;
            };
            if !queue.jobs.is_empty() {
                return Some(source);
            }
            queue.is_listed = false;
        }
    }

    /// Takes the next job of a source.
    pub(super) fn take(&mut self, source: SourceId) -> Option<T> {
        let job = self.queues.get_mut(&source)?.jobs.pop_front()?;
        self.waiting -= 1;
        Some(job)
    }

    /// Ends a source's turn.
    pub(super) fn end(&mut self, source: SourceId) {
        self.rest.push_back(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a batch in these tests.
    const BATCH: usize = 4 << 10;

    /// A clock that counts work: serves turns until `source` has had `wanted`, and gives the work done until then.
    fn work_until(turns: &mut Turns<usize>, source: SourceId, wanted: usize) -> usize {
        let mut work = 0;
        while let Some(at) = turns.begin() {
            let mut left = TURN_UNITS;
            while left > 0
                && let Some(job) = turns.take(at)
            {
                work += job;
                left = left.saturating_sub(job);
                if at == source && job == wanted {
                    turns.end(at);
                    return work;
                }
            }
            turns.end(at);
        }
        panic!("source {} was never served", source.0);
    }

    #[test]
    fn a_live_batch_waits_for_one_turn_however_long_the_replays_of_others_are() {
        for replaying in [1u32, 8, 64] {
            let mut turns = Turns::default();
            for source in 0..replaying {
                for _ in 0..10_000 {
                    turns.push(SourceId(source), BATCH);
                }
            }
            // All of them have had a turn: none is fresh.
            let first = SourceId(0);
            for _ in 0..3 {
                work_until(&mut turns, first, BATCH);
            }
            let live = SourceId(1_000);
            for _ in 0..50 {
                turns.push(live, 7);
                let waited = work_until(&mut turns, live, 7);
                assert_eq!(waited, 7, "with {replaying} replays");
                // The next comes after a round of all the others, as it does where it sends now and then.
                for _ in 0..=replaying {
                    let at = turns.begin().unwrap();
                    assert_ne!(at, live);
                    turns.take(at);
                    turns.end(at);
                }
            }
        }
    }

    #[test]
    fn a_source_that_is_never_idle_is_served_once_a_round() {
        let mut turns = Turns::default();
        let (busy, replaying) = (SourceId(99), 8u32);
        for source in 0..replaying {
            for _ in 0..10_000 {
                turns.push(SourceId(source), BATCH);
            }
        }
        turns.push(busy, 7);
        let round = replaying as usize * TURN_UNITS;
        for _ in 0..100 {
            let waited = work_until(&mut turns, busy, 7);
            assert!(waited <= round + 7, "{waited}");
            // Filled again as soon as it is empty: that makes it no fresher than the others.
            turns.push(busy, 7);
        }
        let done: Vec<usize> = (0..replaying)
            .map(|source| 10_000 - turns.waiting(SourceId(source)))
            .collect();
        let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
        assert!(*least >= 390 && most - least <= 4, "{done:?}");
    }

    #[test]
    fn jobs_of_a_source_stay_in_order_and_the_front_can_be_replaced() {
        let mut turns = Turns::default();
        let source = SourceId(1);
        turns.push(source, 3);
        turns.push(source, 4);
        turns.push_front(source, [1, 2].into_iter());
        assert_eq!(turns.begin(), Some(source));
        assert_eq!(turns.take(source), Some(1));
        turns.drop_front(source, |job| *job < 4);
        assert_eq!(turns.take(source), Some(4));
        assert_eq!(turns.take(source), None);
        turns.end(source);
        assert!(turns.is_empty());
        assert_eq!(turns.begin(), None);
        turns.push_front(source, [5].into_iter());
        assert_eq!(turns.begin(), Some(source));
    }
}
