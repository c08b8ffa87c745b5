//! Empties the keys of dead terms, a few per tick.

use super::{RING_DELTAS, SharedData, SharedError, keys::ShardKeys};

/// Keys looked at per tick.
pub const MAX_KEYS_PER_TICK: usize = 16;

const NAMES: [&str; 4] = ["meta", "policy", "endpoints", "load"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Name(usize),
    Segment(usize),
    Page(usize),
    Delta(u64),
}

/// A term whose keys are to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadTerm {
    /// Number of the term.
    pub term: u64,
    /// Segments that were certainly published.
    pub segments: usize,
    /// Pages of sets that were certainly published.
    pub pages: usize,
}

impl DeadTerm {
    /// A term of which nothing else is known: what another VM published.
    pub fn of_another(term: u64) -> Self {
        Self {
            term,
            segments: 0,
            pages: 0,
        }
    }
}

/// Terms whose keys are to be emptied.
#[derive(Clone, Debug, Default)]
pub struct Sweeper {
    terms: Vec<DeadTerm>,
    place: Option<Place>,
}

impl Sweeper {
    /// Adds a term.
    pub fn add(&mut self, dead: DeadTerm) {
        match self.terms.iter_mut().find(|known| known.term == dead.term) {
            Some(known) => {
                known.segments = known.segments.max(dead.segments);
                known.pages = known.pages.max(dead.pages);
            }
            None => self.terms.push(dead),
        }
    }

    /// Terms that are not emptied yet.
    pub fn terms(&self) -> &[DeadTerm] {
        &self.terms
    }

    /// Empties some keys.
    ///
    /// A leader numbers segments and pages without holes, so the first absent one ends them. Only a leader that was deposed in the middle of a
    /// tick leaves holes, when its successor had emptied the keys already; it knows how many there were and looks at all of them.
    ///
    /// # Errors
    /// When the host fails; the next call goes on from there.
    pub fn sweep(&mut self, keys: &ShardKeys, shared: &impl SharedData) -> Result<(), SharedError> {
        for _ in 0..MAX_KEYS_PER_TICK {
            let Some(&DeadTerm {
                term,
                segments,
                pages,
            }) = self.terms.first()
            else {
                return Ok(());
            };
            let place = self.place.unwrap_or(Place::Name(0));
            let key = match place {
                Place::Name(at) => keys.of_term(term, NAMES.get(at).copied().unwrap_or_default()),
                Place::Segment(number) => keys.segment(term, number),
                Place::Page(number) => keys.page(term, number),
                Place::Delta(at) => keys.delta(term, at),
            };
            let existed = shared.get(&key)?.is_some();
            if existed {
                shared.set(&key, &[], None)?;
            }
            self.place = match place {
                Place::Name(at) if at + 1 < NAMES.len() => Some(Place::Name(at + 1)),
                Place::Name(_) => Some(Place::Segment(0)),
                Place::Segment(number) if existed || number < segments => {
                    Some(Place::Segment(number + 1))
                }
                Place::Segment(_) => Some(Place::Page(0)),
                Place::Page(number) if existed || number < pages => Some(Place::Page(number + 1)),
                Place::Page(_) => Some(Place::Delta(0)),
                Place::Delta(at) if at + 1 < RING_DELTAS => Some(Place::Delta(at + 1)),
                Place::Delta(_) => {
                    self.terms.remove(0);
                    None
                }
            };
        }
        Ok(())
    }
}
