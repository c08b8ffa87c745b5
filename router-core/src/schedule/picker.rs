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
    /// Weight of a chance, not negative.
    pub(super) weight: f64,
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

    /// Orders the judged, first the one that is chosen.
    pub(super) fn order(self, judged: &mut [Judged], seed: u64) {
        judged.sort_unstable_by_key(|of| (of.rank, of.in_flight, scatter(of.key, seed), of.key));
        let chosen = match self {
            Self::MaxScore => None,
            Self::WeightedRandom => first_by(judged, |of| exponential(of.key, seed) / of.weight),
            Self::Random => first_by(judged, |of| exponential(of.key, seed)),
            Self::PowerOfTwo => power_of_two(judged, seed),
        };
        // The others keep their order.
        if let Some(first) = chosen.and_then(|chosen| judged.get_mut(..=chosen)) {
            first.rotate_right(1);
        }
    }
}

fn first_by(judged: &[Judged], key: impl Fn(&Judged) -> f64) -> Option<usize> {
    let keys = judged.iter().map(key).enumerate();
    let least = keys.min_by(|(_, a), (_, b)| a.total_cmp(b));
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

/// Place of the better of two; they are ordered, so it is the lesser place.
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
    draws.iter().take(taken).map(|&(at, _)| at).min()
}
