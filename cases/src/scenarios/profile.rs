//! Profiles that cases are played with.

use prefixway_core::proto::{Plugin, Scheduling, SchedulingProfile};
#[cfg(feature = "envoy")]
use serde_json::{Value, json};

/// llm-d's scorers and weights.
const WEIGHTS: [(&str, u32); 3] = [
    ("prefix-cache", 3),
    ("queue", 2),
    ("kv-cache-utilization", 2),
];

/// A profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Profile {
    /// The cost, as without any policy.
    #[default]
    Default,
    /// Weighted scores.
    Weighted,
}

impl Profile {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::Default, Self::Weighted];

    /// Its name in lines.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Weighted => "weighted",
        }
    }

    /// What the simulator calls it.
    pub(super) fn simulated(self) -> &'static str {
        match self {
            Self::Default => "prefixway",
            Self::Weighted => "weighted",
        }
    }

    /// The policy of the indexer's configuration.
    #[cfg(feature = "envoy")]
    pub(super) fn policy(self) -> Value {
        match self {
            Self::Default => json!({}),
            Self::Weighted => {
                let scorers = WEIGHTS.map(|(name, weight)| json!({"type": name, "weight": weight}));
                json!({"profiles": [{"name": self.as_str(), "scorers": scorers}]})
            }
        }
    }

    /// The same as gateways are told it.
    pub(super) fn scheduling(self) -> Option<Box<Scheduling>> {
        if self == Self::Default {
            return None;
        }
        let scorers = WEIGHTS.into_iter().map(|(name, weight)| Plugin {
            r#type: name.to_owned(),
            weight: Some(f64::from(weight)),
            ..Plugin::default()
        });
        Some(Box::new(Scheduling {
            profiles: vec![SchedulingProfile {
                name: self.as_str().to_owned(),
                scorers: scorers.collect(),
                ..SchedulingProfile::default()
            }],
            pools: Vec::new(),
        }))
    }
}
