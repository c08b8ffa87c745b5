//! The best of a ranking are those that ordering all of it gives.

use super::*;
use crate::snapshot::EndpointKey;

/// Endpoints with and without ranks, of which some hold some of the prompt.
fn pool(count: u32, ranks: u32) -> Endpoints {
    let of = |at: u32| proto::Endpoint {
        id: at,
        rank: (ranks > 0).then(|| at % ranks),
        ..endpoint(&format!("10.0.0.{at}:8000"))
    };
    endpoints((0..count).map(of).collect())
}

#[test]
fn the_best_are_the_first_of_all_and_retries_are_the_same() {
    let pickers = [
        Picker::MaxScore,
        Picker::WeightedRandom,
        Picker::PowerOfTwo,
        Picker::Random,
    ];
    for (count, ranks) in [(0, 0), (1, 0), (5, 0), (40, 0), (40, 8), (9, 9), (64, 2)] {
        let endpoints = pool(count, ranks);
        for (picker, seed) in pickers
            .into_iter()
            .flat_map(|picker| (0..20u64).map(move |seed| (picker, seed)))
        {
            // Few figures, so that many are equal.
            let random = |at: u32, below: u64| scatter(EndpointKey(at.into()), seed) % below;
            let of: Vec<_> = (0..count)
                .map(|at| {
                    let tokens = if random(at, 3) == 0 { 160 } else { 0 };
                    let in_flight = u32::try_from(random(at, 4)).unwrap();
                    (tokens, load(random(at, 5) * 200, in_flight))
                })
                .collect();
            let candidates = candidates(&endpoints, &of);
            let profile = Profile {
                picker,
                ..Profile::default()
            };
            let all = profile.rank(&candidates, &need(), seed);
            assert_eq!(all.len(), count as usize);
            for most in [1, 3, 8, 64] {
                let some = profile.best(&candidates, &need(), seed, most);
                let first = most.min(all.len());
                assert_eq!(some.eligible, all.len());
                assert_eq!(some.best[..first], all[..first], "{picker:?} {seed}");
                let keys =
                    |ranking: &[Explanation]| choices(ranking).map(|of| of.key).collect::<Vec<_>>();
                assert_eq!(
                    keys(&some.best),
                    keys(&all),
                    "{picker:?} {seed}, {ranks} ranks"
                );
                let named = |key| some.best.iter().any(|of| of.key == key);
                let mut others: Vec<_> = all
                    .iter()
                    .filter(|of| of.indexed_tokens > 0 && !named(of.key))
                    .map(|of| (of.key, of.credit.tokens(), of.indexed_tokens))
                    .collect();
                others.sort_unstable();
                let mut holding: Vec<_> = some
                    .others
                    .iter()
                    .map(|of| (of.key, of.tokens, of.indexed_tokens))
                    .collect();
                holding.sort_unstable();
                assert_eq!(holding, others);
            }
            // The order of the candidates is of no matter.
            let turned: Vec<_> = candidates.iter().rev().copied().collect();
            let keys =
                |ranking: Vec<Explanation>| ranking.iter().map(|of| of.key).collect::<Vec<_>>();
            assert_eq!(keys(profile.rank(&turned, &need(), seed)), keys(all));
        }
    }
}

#[test]
fn a_mean_does_not_depend_on_order_and_bears_nonsense() {
    let values = [0.1, 1e9, 0.3, 12_345.678_9, 0.0, 1e-9];
    let forth = mean(values.into_iter()).unwrap();
    let back = mean(values.into_iter().rev()).unwrap();
    assert_eq!(forth.to_bits(), back.to_bits());
    let sum: f64 = values.iter().sum();
    assert!((forth - sum / 6.0).abs() < 1e-6, "{forth}");
    assert_eq!(mean(std::iter::empty()), None);
    assert!(mean([f64::NAN, 4.0].into_iter()).unwrap() < 2.1);
    assert!(mean([f64::INFINITY, f64::INFINITY].into_iter()).unwrap() > 1e18);
}
