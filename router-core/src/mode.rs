//! What a gateway does with its decisions: by configuration, by route and by policy, the most careful word counts.
//!
//! ```text
//!  plugin configuration ─┐
//!  metadata of the route ├─► the most careful ─► on | split | shadow | off
//!  policy (of the route) ┘                             │
//!                                    session key ─► arm: steered (as on) or control (as shadow)
//! ```
//!
//! A session's arm depends on nothing but its key and the percentage: every gateway and every VM puts it into the same one, and a higher
//! percentage moves sessions only from control to steered.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{proto, snapshot::PromptHashes};

/// Rungs after which a prompt's beginning names its session, where nothing else does: 512 bytes, which is less than most first turns.
const SESSION_RUNGS: usize = 8;
/// Seed of the arms, so that keys that are hashes themselves are mixed anew.
const ARM_SEED: u64 = 0x7370_6c69_7400_0001;
/// Steps of the arms in a percent.
const STEPS: u64 = 100;

/// What is done with decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Requests are steered.
    #[default]
    On,
    /// A share of the sessions is steered, the others are handled as in mode shadow.
    Split {
        /// Share that is steered, 0 to 100.
        percent: u32,
    },
    /// Decided and recorded, not steered.
    Shadow,
    /// Nothing.
    Off,
}

/// Part of an experiment that a session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// It is steered.
    Steered,
    /// It is not.
    Control,
}

impl Arm {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Steered, Self::Control];

    /// Name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steered => "steered",
            Self::Control => "control",
        }
    }
}

impl Mode {
    /// Reads a mode's name, split with its percentage; `None` when it has no such name.
    pub fn from_name(name: &str, percent: u32) -> Option<Self> {
        match name {
            "on" => Some(Self::On),
            "split" => Some(Self::Split {
                percent: percent.min(100),
            }),
            "shadow" => Some(Self::Shadow),
            "off" => Some(Self::Off),
            _ => None,
        }
    }

    /// The mode that a policy sets for a route; a word of a newer indexer means shadow.
    pub fn of_policy(policy: &proto::Policy, route: Option<&str>) -> Self {
        let of_route = route.and_then(|route| policy.routes.iter().find(|of| of.route == route));
        let (name, percent) = match of_route {
            Some(of) => (of.mode.as_str(), of.split_percent),
            None => (policy.mode.as_str(), policy.split_percent),
        };
        if name.is_empty() {
            return Self::On;
        }
        Self::from_name(name, percent).unwrap_or(Self::Shadow)
    }

    /// The mode's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Split { .. } => "split",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }

    /// The more careful of two modes: what one forbids the other does not allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Off, _) | (_, Self::Off) => Self::Off,
            (Self::Shadow, _) | (_, Self::Shadow) => Self::Shadow,
            (Self::Split { percent: a }, Self::Split { percent: b }) => {
                Self::Split { percent: a.min(b) }
            }
            (Self::Split { percent }, _) | (_, Self::Split { percent }) => Self::Split { percent },
            (Self::On, Self::On) => Self::On,
        }
    }

    /// Arm of a session; `None` where there is no experiment.
    pub fn arm(self, session: u64) -> Option<Arm> {
        let Self::Split { percent } = self else {
            return None;
        };
        let place = xxh3_64_with_seed(&session.to_le_bytes(), ARM_SEED) % (100 * STEPS);
        Some(if place < u64::from(percent) * STEPS {
            Arm::Steered
        } else {
            Arm::Control
        })
    }

    /// Whether requests of a session go where the decision says.
    pub fn steers(self, session: u64) -> bool {
        match self {
            Self::On => true,
            Self::Split { .. } => self.arm(session) == Some(Arm::Steered),
            Self::Shadow | Self::Off => false,
        }
    }
}

/// Key of the session that a text names: a header's value, or the body's `user`.
pub fn session_of(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

/// Key of the session that a prompt begins like; `None` without text.
pub fn session_of_prompt(prompts: &[PromptHashes]) -> Option<u64> {
    let first = prompts.first()?;
    let rung = first.rungs.get(SESSION_RUNGS - 1).or(first.rungs.last())?;
    Some(rung.hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_most_careful_word_counts() {
        let split = |percent| Mode::Split { percent };
        for (one, other, both) in [
            (Mode::On, Mode::On, Mode::On),
            (Mode::On, split(30), split(30)),
            (split(40), split(30), split(30)),
            (split(0), Mode::Shadow, Mode::Shadow),
            (Mode::Shadow, Mode::On, Mode::Shadow),
            (Mode::Off, Mode::On, Mode::Off),
            (Mode::Shadow, Mode::Off, Mode::Off),
        ] {
            assert_eq!(one.and(other), both);
            assert_eq!(other.and(one), both);
        }
    }

    #[test]
    fn a_policy_names_routes_and_what_is_not_known_is_not_steered() {
        let route = |route: &str, mode: &str, split_percent| proto::RouteMode {
            route: route.into(),
            mode: mode.into(),
            split_percent,
        };
        let policy = proto::Policy {
            mode: "shadow".into(),
            routes: vec![
                route("chat", "split", 250),
                route("beta", "on", 0),
                route("new", "sideways", 0),
            ],
            ..proto::Policy::default()
        };
        for (name, mode) in [
            (None, Mode::Shadow),
            (Some("other"), Mode::Shadow),
            (Some("chat"), Mode::Split { percent: 100 }),
            (Some("beta"), Mode::On),
            (Some("new"), Mode::Shadow),
        ] {
            assert_eq!(Mode::of_policy(&policy, name), mode, "{name:?}");
        }
        assert_eq!(Mode::of_policy(&proto::Policy::default(), None), Mode::On);
    }

    #[test]
    fn the_steered_share_is_the_percentage() {
        for percent in [0, 1, 10, 50, 99, 100] {
            let mode = Mode::Split { percent };
            let steered = (0..100_000u64).filter(|key| mode.steers(*key)).count();
            let expected = percent as usize * 1_000;
            assert!(steered.abs_diff(expected) < 600, "{percent}: {steered}");
        }
    }

    proptest! {
        #[test]
        fn a_session_stays_in_its_arm_and_more_percent_only_steer_more(key in any::<u64>(), percent in 0u32..100) {
            let mode = Mode::Split { percent };
            prop_assert_eq!(mode.arm(key), mode.arm(key));
            let more = Mode::Split { percent: percent + 1 };
            prop_assert!(!mode.steers(key) || more.steers(key));
            let all = Mode::Split { percent: 100 };
            prop_assert!(all.steers(key));
            prop_assert_eq!(Mode::On.arm(key), None);
        }
    }
}
