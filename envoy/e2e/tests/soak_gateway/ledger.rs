//! What became of every request, and what may excuse an answer that is not whole.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::client::{Ask, End};
use crate::corpus::Kind;

/// Wrong ends that are told in full.
const MAX_TOLD: usize = 20;
/// Time for a cut to be noticed.
const NOTICE: Duration = Duration::from_millis(500);

/// What cuts answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// An engine's connections break: those that it was answering on.
    Engine(String),
    /// A VM of the gateway traps: all that go through it, and new ones until it is started anew.
    Trap,
}

#[derive(Debug)]
struct Window {
    cut: Cut,
    until: Option<Instant>,
}

/// Counts of one kind of request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Ends by what they were.
    pub(crate) ends: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct State {
    tallies: BTreeMap<Kind, Tally>,
    windows: Vec<Window>,
    wrong: Vec<String>,
    events: BTreeMap<&'static str, u64>,
    prompt_tokens: u64,
    cached_tokens: u64,
}

/// The books of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is done to the system.
    pub(crate) fn event(&self, name: &'static str) {
        *self.state().events.entry(name).or_default() += 1;
    }

    /// From now on, and until [`Self::close`], answers may be cut.
    pub(crate) fn open(&self, cut: Cut) {
        self.state().windows.push(Window { cut, until: None });
    }

    /// The cutting is over.
    pub(crate) fn close(&self, cut: &Cut) {
        let now = Instant::now();
        for window in &mut self.state().windows {
            if window.cut == *cut && window.until.is_none() {
                window.until = Some(now);
            }
        }
    }

    /// A request that began at `from` has ended.
    pub(crate) fn ended(&self, kind: Kind, ask: &Ask, end: &End, from: Instant) {
        let mut state = self.state();
        let (name, is_wrong) = state.judge(kind, end, from);
        if let End::Whole { body, .. } = end {
            state.read_usage(body);
        }
        let tally = state.tallies.entry(kind).or_default();
        *tally.ends.entry(name.clone()).or_default() += 1;
        if is_wrong && state.wrong.len() < MAX_TOLD {
            let Ask {
                protocol, conduct, ..
            } = ask;
            let size = ask.body.as_ref().map_or(0, bytes::Bytes::len);
            let seen = match end {
                End::Whole {
                    status,
                    engine,
                    body,
                } => {
                    let body = String::from_utf8_lossy(body);
                    let cut: String = body.chars().take(300).collect();
                    format!("status {status} of '{engine}': {cut}")
                }
                other => format!("{other:?}"),
            };
            let after = from.elapsed();
            state.wrong.push(format!(
                "{} ({protocol:?}, {conduct:?}, {size} bytes) after {after:?}: {name}: {seen}",
                kind.name()
            ));
        }
    }

    /// Requests that ended so far.
    pub(crate) fn requests(&self) -> u64 {
        let state = self.state();
        let tallies = state.tallies.values();
        tallies.flat_map(|tally| tally.ends.values()).sum()
    }

    /// Ends that nothing excuses.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.state().wrong.clone()
    }

    /// Counts by kind, and what was done to the system.
    pub(crate) fn summary(&self) -> (BTreeMap<Kind, Tally>, BTreeMap<&'static str, u64>) {
        let state = self.state();
        (state.tallies.clone(), state.events.clone())
    }

    /// Share of prompt tokens that engines had in cache.
    pub(crate) fn cached_ratio(&self) -> f64 {
        let state = self.state();
        state.cached_tokens as f64 / state.prompt_tokens.max(1) as f64
    }
}

impl State {
    /// Gives what an end is called, and whether it is wrong.
    fn judge(&self, kind: Kind, end: &End, from: Instant) -> (String, bool) {
        match end {
            End::Left => ("client left".to_owned(), false),
            End::Whole { status, body, .. } if kind.statuses().contains(status) => {
                let is_whole = *status != 200 || kind.is_whole(body);
                let name = if is_whole { "" } else { ", not whole" };
                (format!("{status}{name}"), !is_whole)
            }
            // Until the VM is started anew, its worker says so.
            End::Whole { status: 503, .. } if self.happened(&Cut::Trap, from) => {
                ("503 by a trap".to_owned(), false)
            }
            End::Whole { status, .. } => (status.to_string(), true),
            End::Cut { .. } if self.happened(&Cut::Trap, from) => {
                ("cut by a trap".to_owned(), false)
            }
            End::Cut {
                status: Some(200),
                engine,
                ..
            } if self.happened(&Cut::Engine(engine.clone()), from) => {
                ("cut by its engine".to_owned(), false)
            }
            End::Cut { .. } => ("cut".to_owned(), true),
        }
    }

    /// Whether something cut answers while a request that began at `from`, and ends now, was under way.
    fn happened(&self, cut: &Cut, from: Instant) -> bool {
        let mut windows = self
            .windows
            .iter()
            .rev()
            .filter(|window| window.cut == *cut);
        windows.any(|window| window.until.is_none_or(|until| until + NOTICE >= from))
    }

    fn read_usage(&mut self, body: &[u8]) {
        // The last event of a stream, or the whole body.
        let text = String::from_utf8_lossy(body);
        let json = text.lines().rev().find(|line| line.contains("\"usage\""));
        let json = json.map(|line| line.trim_start_matches("data: "));
        let Some(Ok(value)) = json.map(serde_json::from_str::<serde_json::Value>) else {
            return;
        };
        let number = |path: &str| value.pointer(path).and_then(serde_json::Value::as_u64);
        self.prompt_tokens += number("/usage/prompt_tokens").unwrap_or(0);
        let cached = number("/usage/prompt_tokens_details/cached_tokens");
        self.cached_tokens += cached.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(status: u16, body: &str) -> End {
        End::Whole {
            status,
            engine: "a".to_owned(),
            body: body.into(),
        }
    }

    fn cut(status: Option<u16>) -> End {
        End::Cut {
            status,
            engine: "a".to_owned(),
            why: String::new(),
        }
    }

    #[test]
    fn only_what_cuts_answers_excuses_them_and_only_while_it_does() {
        let ledger = Ledger::default();
        let engine = Cut::Engine("a".to_owned());
        let judge = |end: &End, from: Instant| ledger.state().judge(Kind::Chat, end, from).1;
        let before = Instant::now();
        let answer = r#"{"choices": []}"#;
        for (end, is_wrong) in [
            (whole(200, answer), false),
            (whole(200, "{\"choi"), true),
            (whole(503, ""), true),
            (whole(400, ""), true),
            (End::Left, false),
            (cut(None), true),
            (cut(Some(200)), true),
        ] {
            assert_eq!(judge(&end, before), is_wrong, "{end:?}");
        }
        ledger.open(Cut::Engine("b".to_owned()));
        assert!(judge(&cut(Some(200)), before));
        ledger.open(engine.clone());
        assert!(!judge(&cut(Some(200)), before));
        // Before the first byte there is another engine to ask.
        assert!(judge(&cut(None), before) && judge(&whole(503, ""), before));
        ledger.close(&engine);
        let later = Instant::now() + 2 * NOTICE;
        assert!(!judge(&cut(Some(200)), before) && judge(&cut(Some(200)), later));
        ledger.open(Cut::Trap);
        assert!(!judge(&cut(None), later) && !judge(&whole(503, ""), later));
        assert!(judge(&whole(400, ""), later));
    }
}
