//! Choosing from what was judged.

use super::scatter;
use crate::snapshot::EndpointKey;

/// How the first is chosen. The others follow in the order of what they were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Picker {
    /// The best; equals by requests in flight, then at random by the seed.
    #[default]
    MaxScore,
    /// At random, each with a chance in proportion to its score: key = -ln(u) / weight, least wins (Efraimidis and Spirakis 2006, A-Res).
    WeightedRandom,
    /// The better of two taken at random: near the best, and many gateways that know the same do not all choose the same.
    PowerOfTwo,
    /// At random.
    Random,
}

/// What a picker orders by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// Place among the contenders.
    pub(super) at: usize,
    pub(super) key: EndpointKey,
    /// Lower is better: whole milliseconds of cost, or a millionth of what is missing of the greatest score.
    pub(super) rank: u64,
    /// Requests in flight.
    pub(super) in_flight: u64,
    /// Decides between equals.
    pub(super) tie: u64,
    /// Weight of a chance, not negative.
    pub(super) weight: f64,
}

impl Judged {
    /// What they are ordered by, least first; no two are equal.
    pub(super) fn order(&self) -> (u64, u64, u64, EndpointKey) {
        (self.rank, self.in_flight, self.tie, self.key)
    }
}

impl Picker {
    /// Its name in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxScore => "max-score",
            Self::WeightedRandom => "weighted-random",
            Self::PowerOfTwo => "power-of-two",
            Self::Random => "random",
        }
    }

    /// Puts the one that is chosen first, and after it the best of the others in their order, `most` together. The rest is in any order.
    pub(super) fn order(self, judged: &mut [Judged], seed: u64, most: usize) {
        let chosen = match self {
            Self::MaxScore => None,
            Self::WeightedRandom => first_by(judged, |of| exponential(of.key, seed) / of.weight),
            Self::Random => first_by(judged, |of| exponential(of.key, seed)),
            Self::PowerOfTwo => power_of_two(judged, seed),
        };
        let Some(chosen) = chosen else {
            return best_first(judged, most);
        };
        judged.swap(0, chosen);
        if let Some((_, others)) = judged.split_first_mut() {
            best_first(others, most.saturating_sub(1));
        }
    }
}

/// Orders the best `most`, and leaves the rest behind them.
fn best_first(judged: &mut [Judged], most: usize) {
    if most == 0 {
        return;
    }
    if most < judged.len() {
        judged.select_nth_unstable_by_key(most - 1, Judged::order);
    }
    let best = most.min(judged.len());
    if let Some(best) = judged.get_mut(..best) {
        best.sort_unstable_by_key(Judged::order);
    }
}

/// Place of the one with the least key.
fn first_by(judged: &[Judged], key: impl Fn(&Judged) -> f64) -> Option<usize> {
    let keys = judged.iter().map(|of| (key(of), of.order())).enumerate();
    let least = keys.min_by(|(_, (a, one)), (_, (b, other))| a.total_cmp(b).then(one.cmp(other)));
    least.map(|(at, _)| at)
}

/// -ln of a number from (0, 1] that belongs to an endpoint and a seed.
fn exponential(key: EndpointKey, seed: u64) -> f64 {
    // Another use of the seed than the order of equals.
    const SALT: u64 = 0x5851_F42D_4C95_7F2D;
    let bits = scatter(key, seed ^ SALT) >> 11;
    let unit = (bits as f64 + 1.0) / (1u64 << 53) as f64;
    -unit.ln()
}

/// Place of the better of two that are taken at random.
fn power_of_two(judged: &[Judged], seed: u64) -> Option<usize> {
    let mut draws: Vec<(usize, f64)> = judged
        .iter()
        .map(|of| exponential(of.key, seed))
        .enumerate()
        .collect();
    let taken = 2.min(draws.len());
    if taken == 2 {
        draws.select_nth_unstable_by(1, |(_, a), (_, b)| a.total_cmp(b));
    }
    let places = draws.iter().take(taken).map(|&(at, _)| at);
    places.min_by_key(|&at| judged.get(at).map(Judged::order))
}
