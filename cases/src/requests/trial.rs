//! One case at all levels.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{Outcome, check, invariants};
use super::deployment::families;
use super::expect::{Check, Seeded};
use super::file::{Input, Relation, Twin};
use super::forms::{framings, leading_messages, plain};
use super::levels::{Available, Level, Native, outer};
use super::relation::relate;
use super::request::Request;
use super::seen::{Fate, Identity, Seen};
use super::setup::Setup;
use crate::error::CaseError;
use crate::report::{Line, Status};

/// The level whose sight of identities the others are held against.
const NATIVE: &str = "native";

/// All levels, for each model family.
pub(super) struct Bench {
    families: Vec<Stand>,
}

/// All levels of one family.
struct Stand {
    family: &'static str,
    native: Native,
    outer: Vec<(&'static str, Available)>,
}

/// What has come of a case so far.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Levels that ran.
    ran: BTreeSet<&'static str>,
    /// Levels that could not, and why.
    absent: BTreeMap<&'static str, String>,
    failures: Vec<String>,
    /// Checks that no level could see, each with its input.
    unchecked: Vec<String>,
    /// Inputs that can't be run here, and why.
    pub(super) not_run: Vec<String>,
}

impl Bench {
    /// Compiles profiles and looks for the filter and Envoy.
    ///
    /// # Errors
    /// A model of the repository can't be used.
    pub(super) fn new() -> Result<Self, CaseError> {
        let stands = families()?.into_iter().enumerate().map(|(number, family)| {
            let mut outer = outer(&family);
            // Envoy shows nothing of prompts: one family is enough there.
            outer.retain(|(level, _)| number == 0 || *level != "envoy");
            Ok(Stand {
                family: family.name,
                native: Native::new(family)?,
                outer,
            })
        });
        let families: Result<Vec<Stand>, CaseError> = stands.collect();
        Ok(Self {
            families: families?,
        })
    }

    /// The native level alone.
    #[cfg(test)]
    pub(super) fn native() -> Result<Self, CaseError> {
        let family = families()?.into_iter().take(1);
        let stands = family.map(|family| {
            Ok(Stand {
                family: family.name,
                native: Native::new(family)?,
                outer: Vec::new(),
            })
        });
        let families: Result<Vec<Stand>, CaseError> = stands.collect();
        Ok(Self {
            families: families?,
        })
    }

    /// Sends an input at every level.
    pub(super) fn try_input(&mut self, input: &Input, trial: &mut Trial) {
        let mut held = vec![false; input.checks.len()];
        for stand in &mut self.families {
            stand.try_input(input, &mut held, trial);
        }
        for (check, _) in input.checks.iter().zip(held).filter(|(_, held)| !held) {
            let failed = trial.failures.iter().any(|why| why.contains(check.name()));
            if !failed {
                let place = if input.name.is_empty() { "" } else { " of " };
                let (name, input) = (check.name(), &input.name);
                trial.unchecked.push(format!("{name}{place}{input}"));
            }
        }
    }
}

impl Stand {
    fn try_input(&mut self, input: &Input, held: &mut [bool], trial: &mut Trial) {
        let shared = self.shared_texts(input);
        let ours = Sight::of(&mut self.native, input, &shared, None);
        let identities = ours.identities.clone();
        self.judge(NATIVE, input, ours, held, trial);
        for at in 0..self.outer.len() {
            let Some((name, available)) = self.outer.get_mut(at) else {
                continue;
            };
            let name = *name;
            match available {
                Ok(level) => {
                    let sight = Sight::of(level.as_mut(), input, &shared, Some(&identities));
                    self.judge(name, input, sight, held, trial);
                }
                Err(why) => {
                    trial.absent.insert(name, why.clone());
                }
            }
        }
    }

    fn judge(
        &self,
        level: &'static str,
        input: &Input,
        sight: Sight,
        held: &mut [bool],
        trial: &mut Trial,
    ) {
        trial.ran.insert(level);
        for (held, is_held) in held.iter_mut().zip(sight.held) {
            *held |= is_held;
        }
        for failure in sight.failures {
            let place = [&input.name, level, self.family].map(str::to_owned);
            let place: Vec<String> = place.into_iter().filter(|part| !part.is_empty()).collect();
            trial
                .failures
                .push(format!("[{}] {failure}", place.join(", ")));
        }
    }

    /// For each twin the canonical text of the messages that both begin with.
    fn shared_texts(&self, input: &Input) -> Vec<Option<Vec<u8>>> {
        let text = |twin: &Twin| {
            let wanted = twin.relation == Relation::CommonPrefixKept;
            let leading = leading_messages(&input.request, &twin.request);
            leading
                .filter(|_| wanted)
                .and_then(|request| self.native.text_of(&request))
        };
        input.twins.iter().map(text).collect()
    }
}

/// What one level saw of an input and its twins.
#[derive(Default)]
struct Sight {
    /// By check: whether it holds.
    held: Vec<bool>,
    failures: Vec<String>,
    /// Of the request and of each twin; `None` where the level can't see it.
    identities: Vec<Option<Identity>>,
}

impl Sight {
    /// Sends the input in every framing, and its twins. `native` are the identities that another level saw.
    fn of(
        level: &mut dyn Level,
        input: &Input,
        shared: &[Option<Vec<u8>>],
        native: Option<&[Option<Identity>]>,
    ) -> Self {
        let mut sight = Self {
            held: vec![false; input.checks.len()],
            ..Self::default()
        };
        let mut first = None;
        for request in framings(&input.request) {
            let framing = request.framing.as_str();
            match level.send(&input.setup, &request, None) {
                Ok(seen) => {
                    let framed = Input {
                        request,
                        ..input.clone()
                    };
                    sight.hold(level, &framed, &seen, framing);
                    first = first.or(Some(seen));
                }
                Err(error) => sight.failures.push(format!("{framing}: {error}")),
            }
        }
        let ours = first.and_then(|seen| seen.identity);
        sight.identities.push(ours.clone());
        for (twin, shared) in input.twins.iter().zip(shared) {
            let theirs = sight.identity_of(level, &input.setup, &twin.request);
            if let (Some(ours), Some(theirs)) = (&ours, &theirs)
                && let Err(error) = relate(twin.relation, ours, theirs, shared.as_deref())
            {
                sight.failures.push(error.to_string());
            }
            sight.identities.push(theirs);
        }
        if let Some(native) = native {
            sight.compare(native);
        }
        sight
    }

    fn hold(&mut self, level: &mut dyn Level, input: &Input, seen: &Seen, framing: &str) {
        if let Err(error) = invariants(&input.request, seen) {
            self.failures.push(format!("{framing}: {error}"));
        }
        for (number, wanted) in input.checks.iter().enumerate() {
            let outcome = match wanted {
                Check::Seeded(seeded) => is_picked(level, input, seeded),
                Check::LikePlain => self.is_like_plain(level, input, seen),
                other => check(other, input, seen),
            };
            match outcome {
                Outcome::Held => {
                    if let Some(held) = self.held.get_mut(number) {
                        *held = true;
                    }
                }
                Outcome::Unseen => {}
                Outcome::Failed(error) => {
                    let name = wanted.name();
                    self.failures.push(format!("{name}: {framing}: {error}"));
                }
            }
        }
    }

    fn identity_of(
        &mut self,
        level: &mut dyn Level,
        setup: &Setup,
        request: &Request,
    ) -> Option<Identity> {
        match level.send(setup, request, None) {
            Ok(seen) => {
                if let Err(error) = invariants(request, &seen) {
                    self.failures.push(format!("twin: {error}"));
                }
                if !matches!(seen.fate, Fate::Routed(_)) {
                    let fate = format!("{:?}", seen.fate);
                    let error = CaseError::mismatch("twin", &"routed", &fate);
                    self.failures.push(error.to_string());
                }
                seen.identity
            }
            Err(error) => {
                self.failures.push(format!("twin: {error}"));
                None
            }
        }
    }

    /// Holds a request's identity against that of its plain form.
    fn is_like_plain(&mut self, level: &mut dyn Level, input: &Input, seen: &Seen) -> Outcome {
        let Some(ours) = &seen.identity else {
            return Outcome::Unseen;
        };
        let Some(plain) = plain(&input.request) else {
            return match ours {
                Identity::None => Outcome::Held,
                Identity::Known { .. } => Outcome::Failed(CaseError::mismatch(
                    "identity",
                    &"none, since the body can't be decoded",
                    &"one",
                )),
            };
        };
        let Some(theirs) = self.identity_of(level, &input.setup, &plain) else {
            return Outcome::Unseen;
        };
        match relate(Relation::SamePrefix, ours, &theirs, None) {
            Ok(()) => Outcome::Held,
            Err(error) => Outcome::Failed(error),
        }
    }

    /// The native level and this one have to see the same identities.
    fn compare(&mut self, native: &[Option<Identity>]) {
        for (number, (ours, theirs)) in self.identities.iter().zip(native).enumerate() {
            let (Some(ours), Some(theirs)) = (ours, theirs) else {
                continue;
            };
            let rungs = |identity: &Identity| match identity {
                Identity::None => None,
                Identity::Known { rungs, .. } => Some(rungs.clone()),
            };
            if rungs(ours) != rungs(theirs) {
                let what = match number {
                    0 => "identity".to_owned(),
                    twin => format!("identity of twin {twin}"),
                };
                let [ours, theirs] = [ours, theirs].map(|id| format!("{:x?}", rungs(id)));
                let error = CaseError::mismatch(what, &theirs, &ours);
                self.failures
                    .push(format!("as at the native level: {error}"));
            }
        }
    }
}

/// Whether the right pod is picked by what a seeded index knows.
fn is_picked(level: &mut dyn Level, input: &Input, seeded: &Seeded) -> Outcome {
    match level.send(&input.setup, &input.request, Some(seeded)) {
        Err(error) => Outcome::Failed(error),
        Ok(seen) => {
            let Some(tokens) = seen.matched_tokens else {
                return Outcome::Unseen;
            };
            let first = match &seen.fate {
                Fate::Routed(pods) => pods.first(),
                _ => None,
            };
            if first == Some(&seeded.pick) && tokens == seeded.tokens {
                return Outcome::Held;
            }
            let wanted = format!("{} with {} tokens", seeded.pick, seeded.tokens);
            let got = format!("{first:?} with {tokens}");
            Outcome::Failed(CaseError::mismatch("pick", &wanted, &got))
        }
    }
}

impl Trial {
    /// The case's line in the report.
    pub(super) fn line(self, id: String, file: String) -> Line {
        let mut why = self.failures;
        let mut status = if why.is_empty() {
            Status::Pass
        } else {
            Status::Fail
        };
        if !self.unchecked.is_empty() {
            let unchecked = format!("unchecked: {}", self.unchecked.join(", "));
            // A level that is not there may be the one that sees it.
            if self.absent.is_empty() {
                status = Status::Fail;
                why.push(unchecked);
            } else {
                status = status.max(Status::Pending);
                let absent = self
                    .absent
                    .iter()
                    .map(|(level, why)| format!("no {level}: {why}"));
                why.push(format!(
                    "{unchecked} ({})",
                    absent.collect::<Vec<_>>().join(", ")
                ));
            }
        }
        if !self.not_run.is_empty() {
            status = status.max(Status::Pending);
            why.extend(self.not_run);
        }
        let order = [NATIVE, "wasm", "envoy"];
        Line {
            id,
            file,
            status,
            levels: order
                .into_iter()
                .filter(|level| self.ran.contains(level))
                .collect(),
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_saw_fails_or_waits_for_the_level_that_is_missing() {
        let line = |trial: Trial| trial.line("R1".to_owned(), "f".to_owned());
        let unseen = || Trial {
            unchecked: vec!["streaming".to_owned()],
            ..Trial::default()
        };
        assert_eq!(line(Trial::default()).status, Status::Pass);
        let failed = line(unseen());
        assert_eq!(
            (failed.status, failed.why.as_slice()),
            (Status::Fail, &["unchecked: streaming".to_owned()][..])
        );
        let waiting = line(Trial {
            absent: BTreeMap::from([("envoy", "not installed".to_owned())]),
            ..unseen()
        });
        assert_eq!(waiting.status, Status::Pending);
        let mixed = line(Trial {
            failures: vec!["no".to_owned()],
            not_run: vec!["variant 2".to_owned()],
            ..Trial::default()
        });
        assert_eq!(mixed.status, Status::Fail);
    }
}
