//! Figures of runs: means, percentiles, and intervals over seeds.

use crate::simulation::Run;
use crate::workload::Workload;

/// Share of the first requests that don't count: caches are empty then.
pub const WARM_UP: f64 = 0.1;

/// Figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests that count.
    pub requests: usize,
    /// Mean time to first token, in seconds.
    pub mean_ttft_s: f64,
    /// Median.
    pub p50_ttft_s: f64,
    /// 90 of 100 are faster.
    pub p90_ttft_s: f64,
    /// 99 of 100 are faster.
    pub p99_ttft_s: f64,
    /// Share of prompt tokens found in caches.
    pub hit_ratio: f64,
    /// Most prefilled tokens of an endpoint, of the mean.
    pub imbalance: f64,
}

impl Figures {
    /// Those of a run.
    pub fn of(run: &Run, work: &Workload) -> Self {
        let warm = (run.served.len() as f64 * WARM_UP) as usize;
        let counted = || run.served.iter().zip(&work.arrivals).skip(warm);
        let mut ttfts: Vec<u64> = counted().map(|(served, _)| served.ttft_us).collect();
        ttfts.sort_unstable();
        let seconds = |us: u64| us as f64 / 1e6;
        let percentile = |of: f64| {
            let rank = (of * ttfts.len() as f64).ceil() as usize;
            ttfts
                .get(rank.saturating_sub(1))
                .map_or(0.0, |&us| seconds(us))
        };
        let cached: u64 = counted()
            .map(|(served, _)| u64::from(served.cached_tokens))
            .sum();
        let all: u64 = counted().map(|(_, of)| u64::from(of.prompt_tokens)).sum();
        let most = run.prefilled_tokens.iter().copied().max().unwrap_or(0);
        let sum: u64 = run.prefilled_tokens.iter().sum();
        Self {
            requests: ttfts.len(),
            mean_ttft_s: seconds(ttfts.iter().sum()) / ttfts.len().max(1) as f64,
            p50_ttft_s: percentile(0.5),
            p90_ttft_s: percentile(0.9),
            p99_ttft_s: percentile(0.99),
            hit_ratio: cached as f64 / all.max(1) as f64,
            imbalance: most as f64 * run.prefilled_tokens.len() as f64 / sum.max(1) as f64,
        }
    }

    /// Mean of each figure.
    pub fn mean(of: &[Self]) -> Self {
        let mean =
            |figure: fn(&Self) -> f64| of.iter().map(figure).sum::<f64>() / of.len().max(1) as f64;
        Self {
            requests: of.iter().map(|figures| figures.requests).sum(),
            mean_ttft_s: mean(|of| of.mean_ttft_s),
            p50_ttft_s: mean(|of| of.p50_ttft_s),
            p90_ttft_s: mean(|of| of.p90_ttft_s),
            p99_ttft_s: mean(|of| of.p99_ttft_s),
            hit_ratio: mean(|of| of.hit_ratio),
            imbalance: mean(|of| of.imbalance),
        }
    }
}

/// A value and the interval in which it lies with 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Mean of values (Student's t); without at least two there is no interval.
    pub fn of_mean(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half = student(values.len())? * (squares / (count - 1.0) / count).sqrt();
        Some(Self {
            value: mean,
            low: mean - half,
            high: mean + half,
        })
    }

    /// Ratio of two figures that were measured in pairs, one pair a seed: the t interval of the mean logarithm.
    pub fn of_ratio(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let logs: Vec<f64> = pairs.map(|(one, other)| (one / other).ln()).collect();
        let of = Self::of_mean(&logs)?;
        Some(Self {
            value: of.value.exp(),
            low: of.low.exp(),
            high: of.high.exp(),
        })
    }
}

/// Student's t of 97.5 % for so many values; from a table, in between rounded up.
fn student(values: usize) -> Option<f64> {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let freedom = values.checked_sub(1).filter(|&of| of > 0)?;
    Some(TABLE.get(freedom - 1).copied().unwrap_or(2.042))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students_and_those_of_pairs_ignore_what_both_share() {
        let of = Interval::of_mean(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((of.value - 3.0).abs() < 1e-12);
        assert!((of.high - 3.0 - 2.776 * (2.5f64 / 5.0).sqrt()).abs() < 1e-9);
        let pairs = [(1.1, 1.0), (11.0, 10.0), (110.0, 100.0)];
        let of = Interval::of_ratio(pairs.into_iter()).unwrap();
        assert!((of.low - 1.1).abs() < 1e-9 && (of.high - 1.1).abs() < 1e-9);
        assert_eq!(Interval::of_mean(&[1.0]), None);
    }
}
