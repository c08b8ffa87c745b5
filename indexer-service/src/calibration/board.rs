//! What is known of a model's engines, and what it means for the model.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use prefixway_core::text::PromptProfile;
use prefixway_core::text::calibration::{Fit, choose};
use serde::Serialize;

/// What an engine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Its version; empty where it doesn't say.
    pub version: String,
    /// Names that it serves the base model by.
    pub served_names: Vec<String>,
    /// Adapters that it has loaded.
    pub adapters: Vec<String>,
    /// Longest context in tokens.
    pub max_model_len: Option<u64>,
}

/// How an engine compares with the model's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// These variants spell prompts as it does.
    Fits(Fit),
    /// None does; in words, why.
    Differs(String),
    /// It answers, but can't be compared; in words, why.
    Unavailable(String),
    /// It does not answer; in words, why.
    Unreachable(String),
}

impl EngineState {
    /// All names that [`EngineState::name`] gives.
    pub const NAMES: [&str; 4] = ["fits", "differs", "unavailable", "unreachable"];

    /// Name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fits(_) => "fits",
            Self::Differs(_) => "differs",
            Self::Unavailable(_) => "unavailable",
            Self::Unreachable(_) => "unreachable",
        }
    }
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// How it compares.
    pub state: EngineState,
    /// What it says of itself.
    pub facts: Facts,
}

/// What the engines mean for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelVerdict {
    /// The settings say that nobody asks.
    Off,
    /// No engine has answered yet.
    Pending,
    /// Engines can't be compared with; the profile stays as derived.
    Unavailable,
    /// The variant of this number spells prompts as the engines do.
    Calibrated {
        /// Its number.
        variant: usize,
    },
    /// No engine spells prompts as any variant does; in words, why.
    Differs(String),
}

impl ModelVerdict {
    /// Name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Pending => "pending",
            Self::Unavailable => "unavailable",
            Self::Calibrated { .. } => "calibrated",
            Self::Differs(_) => "differs",
        }
    }
}

/// A model's calibration after a round.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The model, by its number in the settings.
    pub model: usize,
    /// What holds now.
    pub verdict: ModelVerdict,
    /// The profile of the variant.
    pub profile: Option<PromptProfile>,
    /// What the variant assumes, in words; empty without one.
    pub assumes: &'static str,
    /// Engines, with whether they are odd ones out: they answer, and spell prompts otherwise than the model's variant.
    pub engines: Vec<(SocketAddr, EngineReport, bool)>,
}

/// Newest report of each engine.
#[derive(Debug, Default)]
pub(super) struct Board(BTreeMap<SocketAddr, EngineReport>);

impl Board {
    pub(super) fn set(&mut self, engine: SocketAddr, report: EngineReport) {
        // An engine that can't be reached for a while says nothing new: what it was stays, until it comes back as another.
        if matches!(report.state, EngineState::Unreachable(_))
            && let Some(known) = self.0.get(&engine)
            && matches!(known.state, EngineState::Fits(_) | EngineState::Differs(_))
        {
            return;
        }
        self.0.insert(engine, report);
    }

    /// The model's verdict and all reports; `engines` is how many there are.
    pub(super) fn verdict(
        &self,
        engines: usize,
    ) -> (ModelVerdict, Vec<(SocketAddr, EngineReport, bool)>) {
        let fits: Vec<Fit> = self
            .0
            .values()
            .filter_map(|report| match report.state {
                EngineState::Fits(fit) => Some(fit),
                _ => None,
            })
            .collect();
        let difference = self
            .0
            .iter()
            .find_map(|(address, report)| match &report.state {
                EngineState::Differs(why) => Some(format!("{address}: {why}")),
                _ => None,
            });
        let is_unavailable =
            |report: &EngineReport| matches!(report.state, EngineState::Unavailable(_));
        let verdict = match (choose(&fits), difference) {
            (Some(variant), _) => ModelVerdict::Calibrated { variant },
            (None, Some(why)) => ModelVerdict::Differs(why),
            (None, None) if self.0.len() == engines && self.0.values().all(is_unavailable) => {
                ModelVerdict::Unavailable
            }
            (None, None) => ModelVerdict::Pending,
        };
        let is_odd = |report: &EngineReport| match (&verdict, &report.state) {
            (ModelVerdict::Calibrated { variant }, EngineState::Fits(fit)) => !fit.has(*variant),
            (ModelVerdict::Calibrated { .. }, EngineState::Differs(_)) => true,
            _ => false,
        };
        let reports = self
            .0
            .iter()
            .map(|(address, report)| (*address, report.clone(), is_odd(report)))
            .collect();
        (verdict, reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn report(state: EngineState) -> EngineReport {
        EngineReport {
            state,
            facts: Facts::default(),
        }
    }

    fn fits(variants: &[usize]) -> EngineState {
        EngineState::Fits(variants.iter().copied().collect())
    }

    /// Verdict and odd engines.
    fn judge(states: &[EngineState]) -> (ModelVerdict, Vec<u16>) {
        let mut board = Board::default();
        for (state, port) in states.iter().zip(1..) {
            board.set(engine(port), report(state.clone()));
        }
        let (verdict, engines) = board.verdict(states.len());
        let odd = engines.iter().filter(|(_, _, is_odd)| *is_odd);
        (verdict, odd.map(|(address, _, _)| address.port()).collect())
    }

    #[test]
    fn the_model_is_what_most_engines_are_and_the_others_are_named() {
        let (differs, gone) = (
            EngineState::Differs("why".to_owned()),
            EngineState::Unreachable("refused".to_owned()),
        );
        let without = EngineState::Unavailable("404".to_owned());
        let calibrated = |variant| ModelVerdict::Calibrated { variant };
        for (states, verdict, odd) in [
            (vec![], ModelVerdict::Unavailable, vec![]),
            (vec![gone.clone()], ModelVerdict::Pending, vec![]),
            (vec![without.clone()], ModelVerdict::Unavailable, vec![]),
            (
                vec![without.clone(), gone.clone()],
                ModelVerdict::Pending,
                vec![],
            ),
            (
                vec![fits(&[0]), gone.clone(), without],
                calibrated(0),
                vec![],
            ),
            (
                vec![fits(&[0]), fits(&[1]), fits(&[1, 2])],
                calibrated(1),
                vec![1],
            ),
            (vec![differs.clone(), fits(&[3])], calibrated(3), vec![1]),
            (
                vec![gone, differs],
                ModelVerdict::Differs("127.0.0.1:2: why".to_owned()),
                vec![],
            ),
        ] {
            assert_eq!(judge(&states), (verdict, odd), "{states:?}");
        }
    }

    #[test]
    fn an_engine_that_is_away_for_a_while_keeps_its_verdict() {
        let mut board = Board::default();
        board.set(engine(1), report(fits(&[0])));
        board.set(engine(1), report(EngineState::Unreachable(String::new())));
        assert_eq!(board.verdict(1).0, ModelVerdict::Calibrated { variant: 0 });
        board.set(engine(1), report(EngineState::Differs("x".to_owned())));
        assert!(matches!(board.verdict(1).0, ModelVerdict::Differs(_)));
    }
}
