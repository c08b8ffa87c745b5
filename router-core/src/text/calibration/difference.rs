//! Where a variant's text and an engine's part, for people.

use core::fmt;

use super::Probe;

/// Bytes that are shown of either side.
const SHOWN_BYTES: usize = 48;

/// The first probe that a variant spells otherwise than the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What the probe is about.
    pub probe: &'static str,
    /// Whether it is a chat.
    pub is_chat: bool,
    /// What the variant assumes.
    pub assumes: &'static str,
    /// Bytes that are equal.
    pub at: usize,
    /// Our text from a little before there on.
    pub ours: String,
    /// The engine's from the same place on.
    pub engines: String,
    /// What would explain it.
    pub kind: DifferenceKind,
}

/// What may have gone wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The texts differ.
    Text,
    /// The texts differ as they would if the server's clock showed another date.
    Date,
    /// None of the chats that the engine takes has a text here.
    Unrendered,
}

impl Difference {
    pub(super) fn between(
        probe: &Probe,
        assumes: &'static str,
        ours: &[u8],
        engines: &[u8],
    ) -> Self {
        let at = ours
            .iter()
            .zip(engines)
            .take_while(|(one, other)| one == other)
            .count();
        let shown = |text: &[u8]| {
            let from = at.saturating_sub(SHOWN_BYTES / 3).min(text.len());
            let end = (from + SHOWN_BYTES).min(text.len());
            String::from_utf8_lossy(text.get(from..end).unwrap_or_default()).into_owned()
        };
        Self {
            probe: probe.name(),
            is_chat: probe.is_chat(),
            assumes,
            at,
            ours: shown(ours),
            engines: shown(engines),
            kind: DifferenceKind::Text,
        }
    }

    pub(super) fn unrendered(probe: &Probe, assumes: &'static str, engines: &[u8]) -> Self {
        Self {
            kind: DifferenceKind::Unrendered,
            ..Self::between(probe, assumes, &[], engines)
        }
    }

    pub(super) fn of_date(self) -> Self {
        Self {
            kind: DifferenceKind::Date,
            ..self
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_chat { "chat" } else { "prompt" };
        if self.kind == DifferenceKind::Unrendered {
            return f.write_str(
                "the engine takes chats that the model folder's chat template can't render; it may use another template",
            );
        }
        write!(
            f,
            "the engine spells a {kind} with {} otherwise from byte {} on: {:?} where {:?} was expected",
            self.probe, self.at, self.engines, self.ours
        )?;
        f.write_str(match self.kind {
            DifferenceKind::Date => {
                "; its clock shows another date, which the model's time_zone would explain"
            }
            _ if self.is_chat => {
                "; its chat template or a flag for it may differ from the model folder's"
            }
            _ => "; its tokenizer may differ from the model folder's",
        })
    }
}
