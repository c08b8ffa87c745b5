//! What evidence comes to, against a slow model and under every order.

use proptest::prelude::*;

use super::*;

const RIGHT: Evidence = Evidence {
    claimed: 640,
    cached: 640,
};
const WRONG: Evidence = Evidence {
    claimed: 640,
    cached: 0,
};

fn after(pieces: &[Evidence]) -> Trust {
    let mut trust = Trust::default();
    for piece in pieces {
        trust.observe(*piece);
    }
    trust
}

#[test]
fn an_index_that_proves_right_is_trusted_and_one_that_lies_is_not() {
    let mut trust = Trust::default();
    assert_eq!(
        (trust.standing(), trust.precision()),
        (Standing::Unproven, None)
    );
    for _ in 0..MIN_EVIDENCE {
        assert_eq!(trust.standing(), Standing::Unproven);
        trust.observe(RIGHT);
    }
    assert_eq!(trust.standing(), Standing::Trusted);
    let lies = (1..100).find(|_| {
        trust.observe(WRONG);
        trust.standing() == Standing::Distrusted
    });
    assert_eq!(lies, Some(9), "more than half of the window");
    assert!(trust.share().abs() < 1e-9, "the newest eight are all wrong");
    let truths = (1..100).find(|_| {
        trust.observe(RIGHT);
        trust.standing() == Standing::Trusted
    });
    assert_eq!(truths, Some(MIN_EVIDENCE));
    assert_eq!(trust.precision(), Some(1.0));
    assert!((trust.share() - 1.0).abs() < 1e-9);
}

#[test]
fn one_that_is_half_right_counts_by_half() {
    let half = Evidence {
        claimed: 1_000,
        cached: 460,
    };
    let trust = after(&[half; 8]);
    assert_eq!(trust.standing(), Standing::Distrusted);
    assert!((trust.share() - 0.375).abs() < 1e-9, "{}", trust.share());
    let better = Evidence {
        cached: 700,
        ..half
    };
    let trust = after(&[[half; 8], [better; 8]].concat());
    assert_eq!(trust.standing(), Standing::Distrusted);
    assert!((trust.share() - 0.625).abs() < 1e-9, "{}", trust.share());
}

#[test]
fn more_than_claimed_is_right_and_small_claims_say_nothing() {
    let more = Evidence {
        claimed: MIN_CLAIM_TOKENS,
        cached: u32::MAX,
    };
    assert_eq!(after(&[more; 8]).precision(), Some(1.0));
    let small = Evidence {
        claimed: MIN_CLAIM_TOKENS - 1,
        cached: 0,
    };
    assert_eq!(after(&[small; 100]), Trust::default());
    let mut trust = after(&[WRONG; 20]);
    trust.forget();
    assert_eq!(trust, Trust::default());
}

/// The same as a list of everything that ever came.
#[derive(Default)]
struct Model {
    pieces: Vec<u32>,
    judged_at: usize,
    distrusted: bool,
    proven: bool,
    share: f64,
}

impl Model {
    fn mean(&self, newest: usize) -> u32 {
        let from = self.pieces.len().saturating_sub(newest);
        let pieces = &self.pieces[from..];
        pieces.iter().sum::<u32>() / u32::try_from(pieces.len()).unwrap()
    }

    fn observe(&mut self, evidence: Evidence) {
        if evidence.claimed < MIN_CLAIM_TOKENS {
            return;
        }
        let right = u64::from(evidence.cached.min(evidence.claimed)) * 1_000;
        self.pieces
            .push(u32::try_from(right / u64::from(evidence.claimed)).unwrap());
        if self.pieces.len() < self.judged_at + 8 {
            return;
        }
        let newest = self.mean(8);
        let eighths = f64::from(newest * 8 / 1_000) / 8.0;
        if self.distrusted {
            if newest >= 800 {
                self.distrusted = false;
                let from = self.pieces.len() - 8;
                self.pieces.drain(..from);
                self.judged_at = 0;
            }
            self.share = eighths;
            self.judged_at = self.pieces.len();
        } else if self.mean(16) < 500 && newest < 500 {
            self.distrusted = true;
            self.share = eighths;
            self.judged_at = self.pieces.len();
        }
        self.proven = true;
    }

    fn standing(&self) -> Standing {
        match (self.proven, self.distrusted) {
            (false, _) => Standing::Unproven,
            (true, false) => Standing::Trusted,
            (true, true) => Standing::Distrusted,
        }
    }
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let claimed = prop_oneof![0u32..200, 64u32..20_000, Just(u32::MAX)];
    let cached = prop_oneof![Just(0u32), 0u32..20_000, any::<u32>()];
    (claimed, cached, any::<bool>()).prop_map(|(claimed, cached, is_right)| Evidence {
        claimed,
        cached: if is_right { claimed } else { cached },
    })
}

proptest! {
    #[test]
    fn standing_and_share_are_those_of_the_slow_model(pieces in prop::collection::vec(evidence(), 0..200)) {
        let (mut trust, mut model) = (Trust::default(), Model::default());
        for piece in pieces {
            let before = (trust.standing(), trust.share());
            let is_changed = trust.observe(piece);
            model.observe(piece);
            prop_assert_eq!(trust.standing(), model.standing());
            let share = if model.distrusted { model.share } else { 1.0 };
            prop_assert!((trust.share() - share).abs() < 1e-9);
            prop_assert!((0.0..=1.0).contains(&trust.share()));
            prop_assert!(trust.evidence() <= WINDOW);
            prop_assert!(trust.precision().is_none_or(|mean| (0.0..=1.0).contains(&mean)));
            if (trust.standing(), trust.share()) != before {
                prop_assert!(is_changed);
            }
        }
    }

    #[test]
    fn four_wrong_of_any_eight_never_distrust(
        pattern in prop::collection::vec(any::<prop::sample::Index>(), 4),
        rounds in 1usize..20,
    ) {
        let mut trust = Trust::default();
        for _ in 0..rounds {
            let mut round = [RIGHT; 8];
            for place in &pattern {
                round[place.index(8)] = WRONG;
            }
            for piece in round {
                trust.observe(piece);
                prop_assert_ne!(trust.standing(), Standing::Distrusted);
            }
        }
    }

    #[test]
    fn it_recovers_from_anything_after_sixteen_right_ones(pieces in prop::collection::vec(evidence(), 0..100)) {
        let mut trust = after(&pieces);
        for _ in 0..16 {
            trust.observe(RIGHT);
        }
        prop_assert_eq!(trust.standing(), Standing::Trusted);
    }
}
