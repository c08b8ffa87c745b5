//! What requests are promised, and what becomes of one whose promise can't be kept.

use hashbrown::HashMap;
use serde::Deserialize;

use crate::{proto, schedule::Explanation, snapshot::EndpointKey};

/// What becomes of a request when no endpoint is expected to meet its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenMissed {
    /// It goes to the best all the same.
    #[default]
    BestEffort,
    /// It goes to the best of the cheapest accelerator class: what is late in any case need not take dear ones.
    CheaperClass,
    /// It waits, for at most its target, until an endpoint would meet it; then it goes to the best.
    Queue,
    /// It is refused.
    Refuse,
}

impl WhenMissed {
    /// Reads its name; `None` when there is no such one.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "best_effort" => Some(Self::BestEffort),
            "cheaper_class" => Some(Self::CheaperClass),
            "queue" => Some(Self::Queue),
            "refuse" => Some(Self::Refuse),
            _ => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best_effort",
            Self::CheaperClass => "cheaper_class",
            Self::Queue => "queue",
            Self::Refuse => "refuse",
        }
    }
}

/// What a request is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// Greater goes first.
    pub priority: i32,
    /// Time to the first token, in ms.
    pub ttft_ms: Option<f64>,
    /// Time for each token after it, in ms.
    pub tpot_ms: Option<f64>,
    /// When no endpoint is expected to meet the first.
    pub when_missed: WhenMissed,
}

/// Objectives by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objectives(HashMap<String, Objective>);

impl Objectives {
    /// Those of a policy. A word of a newer indexer means best effort.
    pub fn of(policy: &proto::Policy) -> Self {
        let of = |objective: &proto::Objective| {
            let when_missed = WhenMissed::from_name(&objective.when_missed);
            let made = Objective {
                priority: objective.priority,
                ttft_ms: objective.ttft_ms,
                tpot_ms: objective.tpot_ms,
                when_missed: when_missed.unwrap_or_default(),
            };
            (objective.name.clone(), made)
        };
        Self(policy.objectives.iter().map(of).collect())
    }

    /// The objective of this name; one that nobody knows promises nothing.
    pub fn get(&self, name: &str) -> Objective {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// A target for the time to the first token, and whether it is expected to be met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The target, in ms.
    pub ttft_ms: f64,
    /// Whether the first of the ranking is expected to meet it.
    pub is_met: bool,
    /// What becomes of it otherwise.
    pub when_missed: WhenMissed,
}

impl Target {
    /// Puts those that are expected to meet a target before the others, in their order otherwise. Where none is, and the target says so,
    /// those of the cheapest class come first: the one whose endpoints prefill slowest on average, which is what is known of what they cost.
    pub fn apply<'a>(
        ttft_ms: f64,
        when_missed: WhenMissed,
        ranking: &mut [Explanation],
        class_of: impl Fn(EndpointKey) -> &'a str,
    ) -> Self {
        let meets = |of: &Explanation| !of.is_full && of.ttft_ms <= ttft_ms;
        let is_met = ranking.iter().any(meets);
        if is_met {
            ranking.sort_by_key(|of| !meets(of));
        } else if when_missed == WhenMissed::CheaperClass
            && let Some(cheapest) = cheapest(ranking, &class_of)
        {
            ranking.sort_by_key(|of| class_of(of.key) != cheapest);
        }
        Self {
            ttft_ms,
            is_met,
            when_missed,
        }
    }

    /// Whether the request is to be refused.
    pub fn refuses(&self) -> bool {
        !self.is_met && self.when_missed == WhenMissed::Refuse
    }

    /// Whether a request that has waited so long is to wait on.
    pub fn waits(&self, waited_ms: u64) -> bool {
        !self.is_met && self.when_missed == WhenMissed::Queue && (waited_ms as f64) < self.ttft_ms
    }
}

fn cheapest<'a>(
    ranking: &[Explanation],
    class_of: impl Fn(EndpointKey) -> &'a str,
) -> Option<&'a str> {
    let mut classes: HashMap<&'a str, (f64, f64)> = HashMap::new();
    for of in ranking {
        let (rates, count) = classes.entry(class_of(of.key)).or_default();
        *rates += of.prefill_tokens_per_s;
        *count += 1.0;
    }
    let means = classes
        .into_iter()
        .map(|(class, (rates, count))| (class, rates / count));
    let slowest = means.min_by(|(a, x), (b, y)| x.total_cmp(y).then_with(|| a.cmp(b)));
    slowest.map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        load::EndpointLoad,
        schedule::{Candidate, Need, rank},
        snapshot::{Credit, Endpoints},
    };

    /// Endpoints `(address, class, rate)`, each with the work of `queued` tokens before it.
    fn ranking(of: &[(&str, &str, f64, u64)]) -> (Endpoints, Vec<Explanation>) {
        let endpoint =
            |(id, (address, class, rate, _)): (u32, &(&str, &str, f64, u64))| proto::Endpoint {
                id,
                address: (*address).to_owned(),
                accelerator: (*class).to_owned(),
                prefill_tokens_per_s: *rate,
                healthy: true,
                ..proto::Endpoint::default()
            };
        let endpoints = Endpoints::from_message(&proto::Endpoints {
            revision: 1,
            endpoints: (0..).zip(of).map(endpoint).collect(),
        });
        let load = |queued_prefill_tokens| {
            let mut load = EndpointLoad {
                has_others: true,
                engine: Some(crate::load::Figures::default()),
                ..EndpointLoad::default()
            };
            load.usage.queued_prefill_tokens = queued_prefill_tokens;
            load
        };
        let candidates: Vec<_> = endpoints
            .list()
            .iter()
            .map(|endpoint| Candidate {
                endpoint,
                shard: 0,
                credit: Credit::default(),
                load: load(
                    of.iter()
                        .find(|(address, ..)| *address == endpoint.address)
                        .map_or(0, |(.., queued)| *queued),
                ),
            })
            .collect();
        let need = Need {
            prompt_tokens: 1_000,
            ..Need::default()
        };
        let ranking = rank(&candidates, &need, 1);
        (endpoints, ranking)
    }

    fn order(
        of: &[(&str, &str, f64, u64)],
        ttft_ms: f64,
        when_missed: WhenMissed,
    ) -> (Vec<String>, Target) {
        let (endpoints, mut ranking) = ranking(of);
        let class_of = |key| {
            let place = endpoints.place_of(key).unwrap();
            endpoints.list()[place].accelerator.as_str()
        };
        let target = Target::apply(ttft_ms, when_missed, &mut ranking, class_of);
        let order = ranking.into_iter().map(|of| of.address).collect();
        (order, target)
    }

    /// Work until the first token: 1.5 s at the dear one, 2 s at the cheap ones, 2.5 s at the last.
    const POOL: [(&str, &str, f64, u64); 4] = [
        ("dear:1", "dear", 10_000.0, 14_000),
        ("cheap:1", "cheap", 1_000.0, 1_000),
        ("cheap:2", "cheap", 1_000.0, 1_100),
        ("dear:2", "dear", 10_000.0, 24_000),
    ];

    #[test]
    fn those_that_meet_the_target_come_first() {
        let (order, target) = order(&POOL, 1_600.0, WhenMissed::Refuse);
        assert_eq!(order[0], "dear:1");
        assert!(target.is_met && !target.refuses());
    }

    #[test]
    fn without_one_the_best_is_taken_by_best_effort() {
        let (_, plain) = ranking(&POOL);
        let plain: Vec<String> = plain.into_iter().map(|of| of.address).collect();
        for when_missed in [WhenMissed::BestEffort, WhenMissed::Queue] {
            let (order, target) = order(&POOL, 100.0, when_missed);
            assert_eq!(order, plain);
            assert!(!target.is_met && !target.refuses());
        }
    }

    #[test]
    fn without_one_the_cheaper_class_comes_first_in_its_order() {
        let (order, target) = order(&POOL, 100.0, WhenMissed::CheaperClass);
        assert_eq!(order[..2], ["cheap:1", "cheap:2"]);
        assert!(!target.is_met);
    }

    #[test]
    fn without_one_it_is_refused_or_waits_for_at_most_its_target() {
        let (_, target) = order(&POOL, 100.0, WhenMissed::Refuse);
        assert!(target.refuses() && !target.waits(0));
        let (_, target) = order(&POOL, 100.0, WhenMissed::Queue);
        assert!(target.waits(0) && target.waits(99) && !target.waits(100));
        let (_, target) = order(&POOL, 1_600.0, WhenMissed::Queue);
        assert!(!target.waits(0));
    }

    #[test]
    fn objectives_are_found_by_name_and_strangers_promise_nothing() {
        let policy = proto::Policy {
            objectives: vec![proto::Objective {
                name: "chat".to_owned(),
                priority: 5,
                ttft_ms: Some(300.0),
                tpot_ms: None,
                when_missed: "refuse".to_owned(),
            }],
            ..proto::Policy::default()
        };
        let objectives = Objectives::of(&policy);
        let chat = objectives.get("chat");
        assert_eq!((chat.priority, chat.ttft_ms), (5, Some(300.0)));
        assert_eq!(chat.when_missed, WhenMissed::Refuse);
        assert_eq!(objectives.get("other"), Objective::default());
        for name in ["best_effort", "cheaper_class", "queue", "refuse"] {
            assert_eq!(WhenMissed::from_name(name).unwrap().as_str(), name);
        }
    }
}
