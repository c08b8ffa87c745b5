//! Whether the index proves right about an endpoint: predicted against real cached tokens.
//!
//! ```text
//!              mean of the newest 16 and of the newest 8 < 1/2
//!   Unproven, Trusted ───────────────────────────────────────────► Distrusted ──┐ every 8 fresh pieces:
//!          ▲                                                          │   ▲      │ the share is their mean
//!          └──────────────────────────────────────────────────────────┘   └──────┘
//!                     mean of 8 fresh pieces >= 4/5
//! ```
//!
//! A piece of evidence is one reply: `min(cached, claimed) / claimed`, so that each counts the same, however long its prompt was. While an
//! endpoint is distrusted, only a share of its credit counts: the mean of the newest 8 pieces in eighths, rounded down. Five wrong pieces
//! of eight are needed at least to become distrusted (nine of sixteen once the window is full), and at most every eighth piece changes
//! anything, so neither an outlier nor a burst of claims that came too early makes a difference. What the index does not know of
//! (more cached than claimed) is not held against it: that costs a chance, not a mistake.

/// Claims of fewer tokens say little: a block more or less is most of them.
pub const MIN_CLAIM_TOKENS: u32 = 64;

/// Pieces of evidence that count, the newest ones.
pub const WINDOW: usize = 16;

/// Fewest pieces that anything follows from, and fresh ones between two changes.
pub const MIN_EVIDENCE: usize = 8;

/// Mean below which an endpoint is distrusted, in thousandths.
const DISTRUST_BELOW: u32 = 500;

/// Mean from which it is trusted again, in thousandths.
const TRUST_FROM: u32 = 800;

/// A right piece, in thousandths.
const WHOLE: u16 = 1_000;

/// Steps of the share.
const SHARES: u32 = 8;

/// What one reply says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Tokens that the index claimed to be cached.
    pub claimed: u32,
    /// Tokens that were cached, as the engine says.
    pub cached: u32,
}

/// What the evidence comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// There is too little evidence; the index counts.
    #[default]
    Unproven,
    /// The index proves right.
    Trusted,
    /// It proved wrong, and has not proved right since.
    Distrusted,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unproven, Self::Trusted, Self::Distrusted];

    /// Name in metrics and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::Trusted => "trusted",
            Self::Distrusted => "distrusted",
        }
    }
}

/// Evidence about one endpoint, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Newest pieces in thousandths, a ring once it is full.
    pieces: [u16; WINDOW],
    len: usize,
    next: usize,
    /// Pieces since the last judgement, as far as that matters.
    fresh: usize,
    standing: Standing,
    /// Eighths of the credit that count while distrusted.
    share: u32,
}

impl Trust {
    /// Takes a piece of evidence; gives whether standing or share changed. Claims below [`MIN_CLAIM_TOKENS`] are passed over.
    pub fn observe(&mut self, evidence: Evidence) -> bool {
        if evidence.claimed < MIN_CLAIM_TOKENS {
            return false;
        }
        let right = u64::from(evidence.cached.min(evidence.claimed)) * u64::from(WHOLE)
            / u64::from(evidence.claimed);
        if let Some(place) = self.pieces.get_mut(self.next) {
            *place = u16::try_from(right).unwrap_or(WHOLE);
        }
        self.next = (self.next + 1) % WINDOW;
        self.len = (self.len + 1).min(WINDOW);
        self.fresh = (self.fresh + 1).min(MIN_EVIDENCE);
        if self.fresh < MIN_EVIDENCE {
            return false;
        }
        let before = (self.standing, self.share);
        self.judge();
        before != (self.standing, self.share)
    }

    fn judge(&mut self) {
        let newest = self.mean_of(MIN_EVIDENCE);
        match self.standing {
            Standing::Distrusted if newest >= TRUST_FROM => {
                self.standing = Standing::Trusted;
                self.fresh = 0;
                // The wrong ones have been paid for.
                self.len = MIN_EVIDENCE;
            }
            Standing::Distrusted => {
                self.share = share(newest);
                self.fresh = 0;
            }
            Standing::Unproven | Standing::Trusted => {
                if self.mean_of(WINDOW) < DISTRUST_BELOW && newest < DISTRUST_BELOW {
                    self.standing = Standing::Distrusted;
                    self.share = share(newest);
                    self.fresh = 0;
                } else {
                    self.standing = Standing::Trusted;
                }
            }
        }
    }

    /// What the evidence comes to.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Share of the prefix credit that counts, 0 to 1.
    pub fn share(&self) -> f64 {
        match self.standing {
            Standing::Unproven | Standing::Trusted => 1.0,
            Standing::Distrusted => f64::from(self.share) / f64::from(SHARES),
        }
    }

    /// Mean share of claimed tokens that were cached, over the window, 0 to 1; `None` without evidence.
    pub fn precision(&self) -> Option<f64> {
        (self.len > 0).then(|| f64::from(self.mean_of(WINDOW)) / f64::from(WHOLE))
    }

    /// Pieces in the window, at most [`WINDOW`].
    pub fn evidence(&self) -> usize {
        self.len
    }

    /// Forgets everything: the engine or what is known of it is another one.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Mean of the newest pieces in thousandths, rounded down; 0 of none.
    fn mean_of(&self, pieces: usize) -> u32 {
        let count = self.len.min(pieces);
        let newest = (1..=count).map(|back| (self.next + WINDOW - back) % WINDOW);
        let sum: u32 = newest
            .filter_map(|place| self.pieces.get(place))
            .map(|&piece| u32::from(piece))
            .sum();
        u32::try_from(count)
            .ok()
            .and_then(|count| sum.checked_div(count))
            .unwrap_or(0)
    }
}

/// A mean in eighths, rounded down.
fn share(mean: u32) -> u32 {
    mean * SHARES / u32::from(WHOLE)
}

#[cfg(test)]
mod tests;
