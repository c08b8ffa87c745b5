//! What is known of each endpoint's cache, and from what.
//!
//! ```text
//!                 events arrive: decisions are forgotten          all of it
//!   approximate ────────────────────────────────────────► partial ◄──────► precise
//!        ▲  ◄──────────────────────────────────────────────┘ publisher gone, another spelling │
//!        │  ◄────────────────────────────────────────────────────────────────────────────────┘
//!        │ the engine caches, and the size of its cache is known or assumed
//!        ▼
//!      blind     no prefix caching, or no size, and no events
//! ```
//!
//! While a publisher is gone its last state is kept beside the decisions since, until these alone fill the engine's cache: by then it has
//! dropped what it held before. Such a source is indexed anew once its publisher is back.

use std::time::{Duration, Instant};

use prefixway_core::index::SourceId;
use prefixway_core::sequence::SourceState;
use serde::Serialize;

use super::Ingest;
use super::endpoints::Endpoint;
use crate::scrape::parse::Figures;

/// An engine that has not answered for so long is gone: whatever comes back is another one.
const GONE_AFTER: Duration = Duration::from_mins(5);
/// Difference of two start times that is not rounding.
const ANOTHER_START_S: f64 = 1.0;

/// What is known of an endpoint's cache.
///
/// Best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Knowledge {
    /// All of it, from events.
    Precise,
    /// A part of it, from events.
    Partial,
    /// What decisions say that it should hold.
    Approximate,
    /// Nothing.
    Blind,
}

impl Knowledge {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Precise, Self::Partial, Self::Approximate, Self::Blind];

    /// Name in metrics and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Precise => "precise",
            Self::Partial => "partial",
            Self::Approximate => "approximate",
            Self::Blind => "blind",
        }
    }

    /// Whether it comes from events.
    pub(super) fn is_by_events(self) -> bool {
        matches!(self, Self::Precise | Self::Partial)
    }

    /// What is known of several endpoints together: the one that all have, or partial where some are known by events. Of none nothing.
    pub(super) fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let together = |a: Self, b: Self| match (a, b) {
            (a, b) if a == b => a,
            (a, b) if a.is_by_events() || b.is_by_events() => Self::Partial,
            _ => Self::Approximate,
        };
        all.into_iter().reduce(together).unwrap_or(Self::Blind)
    }
}

/// An engine's cache as its metrics show it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cache {
    /// Tokens that it has room for, when the engine says.
    pub(super) tokens: Option<u64>,
    is_off: bool,
    started_s: Option<f64>,
    prompt_tokens: Option<f64>,
    silent_since: Option<Instant>,
    /// Whether the blocks that events told were given up while the publisher was gone.
    has_dropped: bool,
}

impl Cache {
    /// Takes figures of the engine; whether what it held is gone: it has started anew, or sleeps.
    pub(super) fn look(&mut self, figures: &Figures) -> bool {
        let is_another = self
            .started_s
            .zip(figures.started_s)
            .is_some_and(|(old, new)| (old - new).abs() > ANOTHER_START_S);
        let went_back = self
            .prompt_tokens
            .zip(figures.prompt_tokens)
            .is_some_and(|(old, new)| new < old);
        self.started_s = figures.started_s.or(self.started_s);
        self.prompt_tokens = figures.prompt_tokens.or(self.prompt_tokens);
        self.tokens = figures.cache_tokens.or(self.tokens);
        self.is_off = figures.caches_prefixes.map_or(self.is_off, |on| !on);
        is_another || went_back || figures.is_asleep
    }

    /// Takes whether the engine answers; whether what it held is gone for all that is known.
    pub(super) fn answers(&mut self, is_healthy: bool, now: Instant) -> bool {
        if !is_healthy {
            let since = *self.silent_since.get_or_insert(now);
            return now.duration_since(since) >= GONE_AFTER;
        }
        let was_silent = self.silent_since.take().is_some();
        let can_tell = self.started_s.is_some() || self.prompt_tokens.is_some();
        was_silent && !can_tell
    }
}

impl Endpoint {
    /// What is known now, where the text of its prompts is known or not.
    fn known(&self, has_text: bool, assumed_tokens: u64) -> Knowledge {
        if self.cache.is_off {
            return Knowledge::Blind;
        }
        let feed = self.feed.as_ref().filter(|_| has_text && !self.is_odd);
        let by_events = feed.and_then(|feed| match feed.state() {
            SourceState::Live if feed.is_partial() || self.is_cut => Some(Knowledge::Partial),
            SourceState::Live => Some(Knowledge::Precise),
            SourceState::Gapped => Some(Knowledge::Partial),
            // It was, and what it was is still there or comes back in a moment.
            SourceState::Replaying if feed.has_been_live() => Some(Knowledge::Partial),
            SourceState::Replaying
            | SourceState::Connecting
            | SourceState::Silent
            | SourceState::Gone => None,
        });
        by_events.unwrap_or(if self.cache_tokens(assumed_tokens) == 0 {
            Knowledge::Blind
        } else {
            Knowledge::Approximate
        })
    }

    /// Tokens that its cache has room for: as it says, or else as is assumed.
    pub(super) fn cache_tokens(&self, assumed_tokens: u64) -> u64 {
        self.cache.tokens.unwrap_or(assumed_tokens)
    }

    fn is_silent(&self) -> bool {
        let silent = SourceState::Silent;
        self.feed
            .as_ref()
            .is_some_and(|feed| feed.state() == silent)
    }
}

impl Ingest {
    /// Takes over what has changed in what is known of the endpoints, and says so.
    pub(super) fn know(&mut self) {
        let assumed_tokens = self.config.index.approximate_tokens;
        let mut again = Vec::new();
        for endpoint in &mut self.endpoints.list {
            let model = self.models.get(endpoint.settings.model);
            let has_text = model.is_some_and(|model| model.approximate_reason().is_none());
            let (before, now) = (endpoint.knowledge, endpoint.known(has_text, assumed_tokens));
            let [holder, ..] = endpoint.holders;
            if before != now {
                log(&endpoint.label.endpoint, before, now);
                endpoint.knowledge = now;
                if now != Knowledge::Approximate {
                    self.index.forget_decisions(holder);
                }
                if now.is_by_events() && std::mem::take(&mut endpoint.cache.has_dropped) {
                    again.push(endpoint.source);
                }
            }
            if now == Knowledge::Approximate && endpoint.is_silent() && !endpoint.cache.has_dropped
            {
                let stats = self.index.approximate_stats(holder).unwrap_or_default();
                if stats.evicted_rungs > 0 {
                    tracing::info!(
                        endpoint = endpoint.label.endpoint,
                        "decisions have filled the cache since the publisher left: its last state is dropped"
                    );
                    endpoint.cache.has_dropped = true;
                    self.index.drop_blocks(endpoint.source);
                }
            }
        }
        for source in again {
            self.start_over(source);
        }
    }

    /// What an engine held is gone.
    pub(super) fn lost(&mut self, source: SourceId) {
        if let Some(endpoint) = self.endpoints.by_source(source) {
            let had_share = endpoint.proof.share().is_some();
            endpoint.proof.forget();
            let [holder, ..] = endpoint.holders;
            if self.index.approximate_stats(holder).is_some() {
                let endpoint = &endpoint.label.endpoint;
                tracing::info!(
                    endpoint,
                    "what the engine held is gone: decisions are forgotten"
                );
                self.index.forget_decisions(holder);
            }
            if had_share {
                self.endpoints.set_changed();
            }
        }
    }
}

fn log(endpoint: &str, before: Knowledge, now: Knowledge) {
    let is_worse = now > before;
    let (before, knowledge) = (before.as_str(), now.as_str());
    if is_worse {
        tracing::warn!(endpoint, before, knowledge, "knowledge of a cache changed");
    } else {
        tracing::info!(endpoint, before, knowledge, "knowledge of a cache changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(started_s: Option<f64>, prompt_tokens: Option<f64>) -> Figures {
        Figures {
            prompt_tokens,
            started_s,
            ..Figures::default()
        }
    }

    #[test]
    fn an_engine_that_has_started_anew_is_noticed() {
        let mut cache = Cache::default();
        assert!(!cache.look(&figures(Some(1_000.0), Some(50.0))));
        assert!(!cache.look(&figures(Some(1_000.01), Some(70.0))));
        // A page without them proves nothing.
        assert!(!cache.look(&figures(None, None)));
        assert!(cache.look(&figures(Some(1_002.0), Some(70.0))));
        assert!(cache.look(&figures(Some(1_002.0), Some(69.0))));
        let asleep = Figures {
            is_asleep: true,
            ..figures(Some(1_002.0), Some(69.0))
        };
        assert!(cache.look(&asleep));
    }

    #[test]
    fn an_engine_that_was_away_is_another_one_only_where_nothing_can_tell() {
        let start = Instant::now();
        let later = |s| start + Duration::from_secs(s);
        let mut cache = Cache::default();
        assert!(!cache.answers(true, start));
        assert!(!cache.answers(false, start));
        assert!(cache.answers(true, later(1)));
        assert!(!cache.answers(true, later(2)));
        cache.look(&figures(Some(1.0), None));
        assert!(!cache.answers(false, later(3)));
        assert!(!cache.answers(true, later(4)));
        assert!(!cache.answers(false, later(5)));
        assert!(!cache.answers(false, later(304)));
        assert!(cache.answers(false, later(305)));
    }

    #[test]
    fn a_size_and_a_switch_that_were_told_hold_until_told_otherwise() {
        let mut cache = Cache::default();
        let told = Figures {
            cache_tokens: Some(9_600),
            caches_prefixes: Some(false),
            ..figures(None, None)
        };
        cache.look(&told);
        cache.look(&Figures::default());
        assert_eq!((cache.tokens, cache.is_off), (Some(9_600), true));
    }

    #[test]
    fn several_endpoints_are_known_as_well_as_all_of_them() {
        use Knowledge::{Approximate, Blind, Partial, Precise};
        for (all, together) in [
            (&[][..], Blind),
            (&[Precise, Precise], Precise),
            (&[Precise, Approximate], Partial),
            (&[Blind, Precise, Precise], Partial),
            (&[Approximate, Blind], Approximate),
            (&[Blind, Blind], Blind),
            (&[Partial, Partial], Partial),
        ] {
            assert_eq!(Knowledge::of_all(all.iter().copied()), together, "{all:?}");
        }
    }
}
