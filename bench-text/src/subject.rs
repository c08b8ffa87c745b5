//! One request and what is done with it.

use std::hint::black_box;

use prefixway_core::hash::{ChunkHash, Scope, Seed, Space};
use prefixway_core::snapshot::PromptHashes;
use prefixway_core::text::{
    Api, Canonicalisation, LocalTime, PromptProfile, Prompter, Request, parse,
};
use serde::de::IgnoredAny;

use crate::counting::{Counts, count};

const SEED: Seed = Seed(42);
/// As the filter without a policy.
const MAX_PROMPT_BYTES: usize = 4 << 20;

/// A piece of work that is timed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Body to request.
    Parse,
    /// Request to prompt text.
    Render,
    /// Request to canonical text: rendering, then canonicalising.
    Text,
    /// Canonical text to rungs.
    Hash,
    /// Body to rungs, as the filter does it.
    Total,
    /// Peer: copies the body.
    Memcpy,
    /// Peer: `serde_json` into a `Value`.
    JsonValue,
    /// Peer: `serde_json` with nothing kept.
    JsonIgnored,
    /// Peer: one XXH3-64 over the body.
    Xxh3,
}

impl Phase {
    /// Every phase, by number.
    pub const ALL: [Self; 9] = [
        Self::Parse,
        Self::Render,
        Self::Text,
        Self::Hash,
        Self::Total,
        Self::Memcpy,
        Self::JsonValue,
        Self::JsonIgnored,
        Self::Xxh3,
    ];

    /// The phase of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| *phase as u32 == number)
    }
}

/// A request body with its model.
#[derive(Debug)]
pub struct Subject {
    body: Vec<u8>,
    copy: Vec<u8>,
    prompter: Prompter,
    /// The same without canonicalisation.
    renderer: Prompter,
}

impl Subject {
    /// Compiles a profile (as JSON) for a body.
    ///
    /// # Errors
    /// The profile can't be read, or the body has no prompt text; the text says which.
    pub fn try_new(profile: &[u8], body: Vec<u8>) -> Result<Self, String> {
        let profile: PromptProfile =
            serde_json::from_slice(profile).map_err(|error| error.to_string())?;
        let bare = PromptProfile {
            canonicalisation: Canonicalisation::default(),
            ..profile.clone()
        };
        let compile = |profile| Prompter::try_new(profile).map_err(|error| error.to_string());
        let subject = Self {
            copy: vec![0; body.len()],
            body,
            prompter: compile(profile)?,
            renderer: compile(bare)?,
        };
        subject.text()?;
        Ok(subject)
    }

    /// The canonical text.
    ///
    /// # Errors
    /// There is none; the text says why.
    pub fn text(&self) -> Result<Vec<u8>, String> {
        let request = parse(Api::Chat, &self.body).map_err(|error| error.to_string())?;
        let prompt = self.prompter.prompt(&request, now());
        prompt
            .map(|prompt| prompt.text)
            .map_err(|reason| reason.to_string())
    }

    /// Nanoseconds that one of `rounds` runs of a phase takes, by a clock in nanoseconds.
    pub fn measure(&mut self, phase: Phase, rounds: u32, clock: impl Fn() -> f64) -> f64 {
        let mut timed = |work: &mut dyn FnMut()| {
            let start = clock();
            for _ in 0..rounds {
                work();
            }
            (clock() - start) / f64::from(rounds.max(1))
        };
        if phase == Phase::Memcpy {
            let (copy, body) = (&mut self.copy, &self.body);
            return timed(&mut || {
                black_box(&mut *copy).copy_from_slice(black_box(body));
            });
        }
        self.prepared(phase, &mut timed)
    }

    /// What one run of a phase allocates.
    pub fn count(&self, phase: Phase) -> Counts {
        self.prepared(phase, &mut |work| count(work).1)
    }

    /// Prepares a phase, and gives the work that is measured to `run`.
    fn prepared<T>(&self, phase: Phase, run: &mut dyn FnMut(&mut dyn FnMut()) -> T) -> T {
        let body = self.body.as_slice();
        let request = parse(Api::Chat, body);
        let text = || self.text().unwrap_or_default();
        match phase {
            Phase::Parse => run(&mut || {
                black_box(parse(Api::Chat, black_box(body)).is_ok());
            }),
            Phase::Render => run(&mut || {
                black_box(
                    request
                        .as_ref()
                        .is_ok_and(|r| prompt(&self.renderer, r).is_some()),
                );
            }),
            Phase::Text => run(&mut || {
                black_box(
                    request
                        .as_ref()
                        .is_ok_and(|r| prompt(&self.prompter, r).is_some()),
                );
            }),
            Phase::Hash => {
                let text = text();
                run(&mut || _ = black_box(hash(black_box(&text))))
            }
            Phase::Total => run(&mut || {
                let request = parse(Api::Chat, black_box(body)).ok();
                let text = request.and_then(|request| prompt(&self.prompter, &request));
                black_box(text.map(|text| hash(&text)));
            }),
            Phase::Memcpy => run(&mut || _ = black_box(black_box(body).to_vec())),
            Phase::JsonValue => run(&mut || {
                black_box(serde_json::from_slice::<serde_json::Value>(black_box(body)).is_ok());
            }),
            Phase::JsonIgnored => run(&mut || {
                black_box(serde_json::from_slice::<IgnoredAny>(black_box(body)).is_ok());
            }),
            Phase::Xxh3 => run(&mut || {
                black_box(xxhash_rust::xxh3::xxh3_64_with_seed(
                    black_box(body),
                    SEED.0,
                ));
            }),
        }
    }
}

fn now() -> LocalTime {
    LocalTime::from_unix(1_720_278_245, 0)
}

fn prompt(prompter: &Prompter, request: &Request<'_>) -> Option<Vec<u8>> {
    let prompt = prompter.prompt(black_box(request), now()).ok()?;
    Some(prompt.text)
}

fn hash(text: &[u8]) -> PromptHashes {
    PromptHashes::new(scope(), text, SEED, MAX_PROMPT_BYTES)
}

fn scope() -> ChunkHash {
    let scope = Scope {
        space: Space::Text,
        profile: "bench",
        revision: 1,
        adapter: "",
        salt: "",
    };
    scope.hash(SEED)
}
