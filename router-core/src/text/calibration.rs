//! Holds a model's profile against a live engine.
//!
//! ```text
//!  files ─► variants ─► Calibration ─ probes ─► engine's /tokenize
//!                            │                        │ token ids
//!                            └──────── judge ◄────────┘
//!                                        │
//!              Fit { variants that spell every prompt as the engine does } | Difference | nothing to compare
//! ```
//!
//! Files leave room: releases of an engine read the same tokenizer in different ways, and a server may be started with another template.
//! So the engine is asked for the token ids of some hard texts and chats; their bytes must equal the canonical text that a variant
//! gives. The engine's own text is never needed. Several engines of one model are judged one by one, and [`choose`] finds the variant
//! for all of them.

mod difference;
mod probes;

use super::canonical::Literal;
use super::error::Unscorable;
use super::messages::ContentFormat;
use super::model_folder::{MAX_VARIANTS, Variant};
use super::profile::PromptProfile;
use super::prompter::Prompter;
use super::strftime::LocalTime;
use super::token_bytes::TokenBytes;
use super::{Api, ProfileError};

pub use difference::{Difference, DifferenceKind};
pub use probes::Probe;

/// Most variants that are held against an engine: those of the files, each with two content formats.
pub const MAX_CANDIDATES: usize = 2 * MAX_VARIANTS;

/// What an engine says to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its token ids.
    Tokens(Vec<u32>),
    /// It takes the request for invalid, as engines do when a template refuses a chat.
    Refused,
}

/// What answers tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These variants spell every prompt as the engine does; at least one.
    Fits(Fit),
    /// No variant does. The difference is the one of the variant that comes closest.
    Differs(Difference),
    /// No answer could be compared.
    Nothing,
}

/// A set of variants, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit(u32);

impl Fit {
    /// Whether the variant of this number is in the set.
    pub fn has(self, variant: usize) -> bool {
        u32::try_from(variant).is_ok_and(|bit| bit < u32::BITS && self.0 & (1 << bit) != 0)
    }

    fn add(&mut self, variant: usize) {
        if let Ok(bit) = u32::try_from(variant)
            && bit < u32::BITS
        {
            self.0 |= 1 << bit;
        }
    }
}

impl FromIterator<usize> for Fit {
    fn from_iter<I: IntoIterator<Item = usize>>(variants: I) -> Self {
        let mut fit = Self::default();
        for variant in variants {
            fit.add(variant);
        }
        fit
    }
}

/// The variant for all engines of a model: the first one among those that the most engines fit; `None`: no engine fits any.
pub fn choose(fits: &[Fit]) -> Option<usize> {
    let fitting = |variant: usize| fits.iter().filter(|fit| fit.has(variant)).count();
    (0..MAX_CANDIDATES)
        .filter(|&variant| fitting(variant) > 0)
        // The first of several maxima.
        .rev()
        .max_by_key(|&variant| fitting(variant))
}

/// The variants of one model and what is asked about them.
#[derive(Debug)]
pub struct Calibration {
    candidates: Vec<Candidate>,
    probes: Vec<Probe>,
    tells_time: bool,
}

#[derive(Debug)]
struct Candidate {
    variant: Variant,
    prompter: Prompter,
}

impl Calibration {
    /// A calibration of `variants`, of which those beyond [`MAX_VARIANTS`] are passed over.
    ///
    /// # Errors
    ///
    /// A profile doesn't compile.
    pub fn try_new(variants: &[Variant]) -> Result<Self, ProfileError> {
        let known = variants.iter().take(MAX_VARIANTS);
        let other_format = known.clone().filter_map(|variant| {
            Some(Variant {
                profile: with_other_format(&variant.profile)?,
                assumes: "the content format that the template does not seem to want",
            })
        });
        let candidates = known
            .cloned()
            .chain(other_format)
            .map(|variant| {
                let prompter = Prompter::try_new(variant.profile.clone())?;
                Ok(Candidate { variant, prompter })
            })
            .collect::<Result<Vec<_>, ProfileError>>()?;
        let tells_time = variants.iter().any(|variant| tells_time(&variant.profile));
        Ok(Self {
            probes: probes::make(&literals(variants)),
            candidates,
            tells_time,
        })
    }

    /// What to ask an engine, in order.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The variants, by the number that [`Verdict`] and [`choose`] mean: those given, then those with the other content format.
    pub fn variants(&self) -> impl ExactSizeIterator<Item = &Variant> {
        self.candidates.iter().map(|candidate| &candidate.variant)
    }

    /// Judges an engine's answers to [`Calibration::probes`]; missing ones are not compared. `times` are the server's local times at
    /// which it may have answered, for templates that print the date.
    pub fn judge(
        &self,
        tokens: &TokenBytes,
        answers: &[Option<Answer>],
        times: &[LocalTime],
    ) -> Verdict {
        let spelled: Vec<Option<Vec<u8>>> = answers
            .iter()
            .map(|answer| match answer {
                Some(Answer::Tokens(ids)) => Some(
                    ids.iter()
                        .flat_map(|&id| tokens.bytes(id).iter().copied())
                        .collect(),
                ),
                _ => None,
            })
            .collect();
        let mut fit = Fit::default();
        let mut closest: Option<(usize, Difference)> = None;
        let mut is_compared = false;
        for (number, candidate) in self.candidates.iter().enumerate() {
            let found = self.compare(candidate, &spelled, times);
            is_compared |= found.probes > 0;
            match found.difference {
                None if found.probes > 0 => fit.add(number),
                None => {}
                Some(difference) => {
                    let is_closer = closest
                        .as_ref()
                        .is_none_or(|(agreed, _)| found.agreed > *agreed);
                    if is_closer {
                        closest = Some((found.agreed, difference));
                    }
                }
            }
        }
        match closest {
            _ if fit != Fit::default() => Verdict::Fits(fit),
            Some((_, difference)) if is_compared => {
                Verdict::Differs(self.explain(difference, &spelled, times))
            }
            _ => Verdict::Nothing,
        }
    }

    fn compare(
        &self,
        candidate: &Candidate,
        spelled: &[Option<Vec<u8>>],
        times: &[LocalTime],
    ) -> Comparison {
        let mut result = Comparison::default();
        let mut unrendered = None;
        let mut has_rendered = false;
        for (probe, spelled) in self.probes.iter().zip(spelled) {
            let Some(spelled) = spelled else { continue };
            let mut nearest: Option<Vec<u8>> = None;
            let is_equal = times.iter().any(|&now| {
                let Ok(text) = text(&candidate.prompter, probe, now) else {
                    return false;
                };
                let is_equal = text == *spelled;
                nearest = Some(text);
                is_equal
            });
            let assumes = candidate.variant.assumes;
            // A chat without text here is routed by load: nothing wrong is said about it.
            let Some(nearest) = nearest else {
                unrendered.get_or_insert_with(|| Difference::unrendered(probe, assumes, spelled));
                continue;
            };
            has_rendered |= probe.is_chat();
            result.probes += 1;
            if is_equal {
                result.agreed += 1;
            } else if result.difference.is_none() {
                let difference = Difference::between(probe, assumes, &nearest, spelled);
                result.difference = Some(difference);
            }
        }
        if !has_rendered {
            result.difference = result.difference.or(unrendered);
        }
        result
    }

    /// Looks whether another date would explain a difference. Two local times are at most a day apart, so it is the day before or after.
    fn explain(
        &self,
        difference: Difference,
        spelled: &[Option<Vec<u8>>],
        times: &[LocalTime],
    ) -> Difference {
        const DAY_S: i32 = 86_400;
        if !self.tells_time {
            return difference;
        }
        let others: Vec<LocalTime> = times
            .iter()
            .flat_map(|time| [-DAY_S, DAY_S].map(|seconds| time.plus_seconds(seconds)))
            .collect();
        let is_date = self.candidates.iter().any(|candidate| {
            let found = self.compare(candidate, spelled, &others);
            found.probes > 0 && found.difference.is_none()
        });
        if is_date {
            difference.of_date()
        } else {
            difference
        }
    }
}

/// How one variant did.
#[derive(Debug, Default)]
struct Comparison {
    /// Probes with both texts.
    probes: usize,
    agreed: usize,
    /// The first one.
    difference: Option<Difference>,
}

fn text(prompter: &Prompter, probe: &Probe, now: LocalTime) -> Result<Vec<u8>, Unscorable> {
    let api = if probe.is_chat() {
        Api::Chat
    } else {
        Api::Completions
    };
    let body = probe.body();
    let request = super::parse(api, body.as_bytes()).map_err(|_| Unscorable::Invalid)?;
    let prompt = prompter.prompt(&request, now)?;
    Ok(prompt.text)
}

fn with_other_format(profile: &PromptProfile) -> Option<PromptProfile> {
    let mut profile = profile.clone();
    let templates = [profile.template.as_mut(), profile.tool_template.as_mut()];
    let mut has_one = false;
    for template in templates.into_iter().flatten() {
        has_one = true;
        template.content_format = match template.content_format {
            ContentFormat::String => ContentFormat::OpenAi,
            ContentFormat::OpenAi => ContentFormat::String,
        };
    }
    has_one.then_some(profile)
}

fn tells_time(profile: &PromptProfile) -> bool {
    [&profile.template, &profile.tool_template]
        .into_iter()
        .flatten()
        .any(|template| template.source.contains("strftime_now"))
}

/// Literals of added tokens to be asked about: special tokens by name, those that take space, and some more.
fn literals(variants: &[Variant]) -> Vec<String> {
    const MOST: usize = 8;
    let mut found: Vec<String> = Vec::new();
    let mut add = |literal: &str| {
        if found.len() < MOST && !literal.is_empty() && !found.iter().any(|other| other == literal)
        {
            found.push(literal.to_owned());
        }
    };
    for Variant { profile, .. } in variants {
        let strips = |literal: &&Literal| literal.lstrip || literal.rstrip;
        let literals = &profile.canonicalisation.literals;
        for literal in literals.iter().filter(strips).take(2) {
            add(&literal.text);
        }
        for name in ["bos_token", "eos_token"] {
            if let Some(literal) = profile.special_tokens.get(name) {
                add(literal);
            }
        }
        for literal in literals.iter().filter(|literal| !literal.special).take(2) {
            add(&literal.text);
        }
    }
    found
}

#[cfg(test)]
mod tests;
