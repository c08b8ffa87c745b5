//! Content of messages: strings, parts, media.

use std::borrow::Cow;

use super::{ContentFormat, FirstMedia, Preparation};
use crate::text::datum::{Datum, Entry, Text};
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// Stands for the first media item; what is rendered from it on is not prompt text.
pub(in crate::text) const MEDIA_TAG: &str = "PREFIXWAY_MEDIA_STARTS_HERE";

/// Stands for media in the content of a string where there is nothing else; which words a model has there is not known.
const MEDIA_WORD: &str = "<media>";

/// What engines put in the place of embeddings that are given as a part.
const EMBEDS_WORD: &str = "<prompt_embeds>";

/// Appended to the final message where it is to be continued, as transformers does.
pub(in crate::text) const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// First words of a line that engines drop from system messages, because it changes with each request.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Content of one message.
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// One part of a content list.
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
        /// The object it came from, whose further fields the template sees; a plain string has none.
        item: Option<&'a Json<'a>>,
    },
    /// A media item, by modality.
    Media {
        modality: &'static str,
        item: &'a Json<'a>,
    },
    /// The first media item, where it is marked.
    Mark(&'a Json<'a>),
    /// Embeddings, which take the place of a word in the text.
    Embeds,
    ToolReference(&'a str),
}

/// Fields that engines know from some kind of part; a template sees the others only.
const KNOWN_FIELDS: [&str; 18] = [
    "type",
    "text",
    "image_url",
    "input_audio",
    "file",
    "refusal",
    "thinking",
    "closed",
    "name",
    "uuid",
    "data",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "audio_url",
    "video_embeds",
    "video_url",
    "prompt_cache_breakpoint",
];

impl<'a> Content<'a> {
    /// Reads `content` (absent and null are `None`). `media`: whether media came before, or come here.
    pub(super) fn read(
        content: Option<&'a Json<'a>>,
        role: &str,
        how: Preparation,
        media: &mut bool,
    ) -> Result<Self, Unscorable> {
        let mut parts = match content {
            None => Vec::new(),
            Some(Json::String(text)) => vec![Part::text(text)],
            Some(Json::Array(items)) => items
                .iter()
                .filter_map(|item| Part::read(item).transpose())
                .collect::<Result<Vec<_>, _>>()?,
            Some(_) => return Err(Unscorable::Invalid),
        };
        if role == "system" {
            drop_billing_header(&mut parts);
        }
        let begins = !*media && parts.iter().any(Part::is_media);
        *media |= begins;
        let marks = begins && how.first_media == FirstMedia::Mark;
        match how.format {
            ContentFormat::OpenAi => {
                if marks && let Some(first) = parts.iter_mut().find(|part| part.is_media()) {
                    *first = first.mark();
                }
                spell_embeds(&mut parts);
                Ok(Self::Parts(parts))
            }
            ContentFormat::String => {
                let in_text = |part: &Part<'_>| matches!(part, Part::Embeds);
                let is_apart = |part: &Part<'_>| part.is_media() && !in_text(part);
                let has_media = parts.iter().any(Part::is_media);
                if marks {
                    if parts.iter().any(is_apart) {
                        // Placeholders go in front of the text, wherever the media stood.
                        parts.insert(0, Part::text(MEDIA_TAG));
                    } else if let Some(first) = parts.iter_mut().find(|part| in_text(part)) {
                        *first = first.mark();
                    }
                }
                spell_embeds(&mut parts);
                let text = join(parts, true);
                let is_nothing =
                    text.is_empty() && has_media && how.first_media == FirstMedia::Item;
                Ok(Self::Text(if is_nothing {
                    MEDIA_WORD.into()
                } else {
                    text
                }))
            }
        }
    }

    /// Makes a list of nothing but text one string, as is done for the tool role.
    pub(super) fn join_text_parts(&mut self) {
        if let Self::Parts(parts) = self
            && parts.iter().all(|part| matches!(part, Part::Text { .. }))
        {
            *self = Self::Text(join(core::mem::take(parts), false));
        }
    }

    /// Length of the text.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts
                .iter()
                .map(|part| match part {
                    Part::Text { text, .. } => text.len(),
                    _ => 0,
                })
                .sum(),
        }
    }

    /// The text alone, parts joined with line ends.
    pub(super) fn joined(&self) -> String {
        match self {
            Self::Text(text) => text.to_string(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::Text { text, .. } => Some(text.as_ref()),
                        _ => None,
                    })
                    .collect();
                texts.join("\n")
            }
        }
    }

    /// Marks the end of the text that is to be continued.
    pub(super) fn append_continue_tag(&mut self) -> Result<(), Unscorable> {
        let text = match self {
            Self::Text(text) => Some(text),
            Self::Parts(parts) => parts.iter_mut().rev().find_map(|part| match part {
                Part::Text { text, .. } => Some(text),
                _ => None,
            }),
        };
        text.ok_or(Unscorable::Invalid)?
            .to_mut()
            .push_str(CONTINUE_TAG);
        Ok(())
    }

    pub(super) fn into_datum(self) -> Datum<'a> {
        match self {
            Self::Text(text) => Datum::Text(text.into()),
            Self::Parts(parts) => Datum::list(parts.into_iter().map(Part::into_datum).collect()),
        }
    }
}

impl<'a> Part<'a> {
    fn is_media(&self) -> bool {
        matches!(self, Self::Media { .. } | Self::Embeds)
    }

    /// What marks the place of a media item. For a template it is text, and one part as before.
    fn mark(&self) -> Self {
        match self {
            Self::Media { item, .. } => Self::Mark(item),
            _ => Self::text(MEDIA_TAG),
        }
    }

    fn text(text: &'a str) -> Self {
        Self::Text {
            text: Cow::Borrowed(text),
            item: None,
        }
    }

    /// Reads a part; `None`: one that the engine passes over.
    fn read(item: &'a Json<'a>) -> Result<Option<Self>, Unscorable> {
        if let Json::String(text) = item {
            return Ok(Some(Self::text(text)));
        }
        if !matches!(item, Json::Object(_)) {
            return Err(Unscorable::Invalid);
        }
        let media = |modality| Ok(Some(Self::Media { modality, item }));
        let kind = match item.get("type") {
            Some(kind) if !has(item, "uuid") => kind.as_str().ok_or(Unscorable::Invalid)?,
            // A part without a type, or with an identifier of its own, is known by its fields.
            _ => {
                let known = SHORT_KINDS.into_iter().find(|kind| item.has(kind));
                return match known.ok_or(Unscorable::Invalid)? {
                    "tool_reference" => Self::tool_reference(item),
                    "prompt_embeds" => Ok(Some(Self::Embeds)),
                    kind => media(modality(kind).ok_or(Unscorable::Invalid)?),
                };
            }
        };
        let key = match kind {
            "text" | "input_text" | "output_text" => "text",
            "refusal" | "thinking" => kind,
            "tool_reference" => return Self::tool_reference(item),
            "prompt_embeds" => return Ok(Some(Self::Embeds)),
            _ => return media(modality(kind).ok_or(Unscorable::Invalid)?),
        };
        match item.get(key) {
            Some(Json::String(text)) => Ok(Some(Self::Text {
                text: Cow::Borrowed(text),
                item: Some(item),
            })),
            None if matches!(kind, "text" | "refusal") => Ok(None),
            _ => Err(Unscorable::Invalid),
        }
    }

    fn tool_reference(item: &'a Json<'a>) -> Result<Option<Self>, Unscorable> {
        let name = item.get("name").and_then(Json::as_str);
        name.map(|name| Some(Self::ToolReference(name)))
            .ok_or(Unscorable::Invalid)
    }

    fn into_datum(self) -> Datum<'a> {
        let kind = |kind| (Text::Borrowed("type"), Datum::text(kind));
        match self {
            Self::Text { text, item } => {
                let text = (Text::Borrowed("text"), Datum::Text(text.into()));
                match item {
                    None => Datum::dict([kind("text"), text]),
                    Some(item) => with_further_fields(vec![kind("text"), text], item),
                }
            }
            Self::Media { modality, item } => with_further_fields(vec![kind(modality)], item),
            Self::Mark(item) => {
                let text = ("text".into(), Datum::text(MEDIA_TAG));
                with_further_fields(vec![kind("text"), text], item)
            }
            Self::Embeds => Self::text(EMBEDS_WORD).into_datum(),
            Self::ToolReference(name) => {
                Datum::dict([kind("tool_reference"), ("name".into(), Datum::text(name))])
            }
        }
    }
}

fn has(item: &Json<'_>, key: &str) -> bool {
    item.get(key).is_some()
}

/// Adds the fields of `item` that no kind of part has, in order.
fn with_further_fields<'a>(mut entries: Vec<Entry<'a>>, item: &'a Json<'a>) -> Datum<'a> {
    if let Json::Object(fields) = item {
        let further = fields
            .iter()
            .filter(|(key, _)| !KNOWN_FIELDS.contains(&key.as_ref()))
            .map(|(key, value)| (Text::Borrowed(key), Datum::from_json(value)));
        entries.extend(further);
    }
    Datum::dict(entries)
}

/// Fields by which a part without a type is known, in the order in which they are looked for.
const SHORT_KINDS: [&str; 10] = [
    "image_url",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "audio_url",
    "input_audio",
    "video_url",
    "tool_reference",
];

/// What a template is told about a media part.
fn modality(kind: &str) -> Option<&'static str> {
    match kind {
        "image_url" | "input_image" | "image_embeds" | "image_pil" => Some("image"),
        "audio_url" | "input_audio" | "audio_embeds" => Some("audio"),
        "video_url" | "video_embeds" => Some("video"),
        _ => None,
    }
}

/// Joins the texts of parts with line ends. Engines leave out empty parts of string content, but keep those of a tool's parts.
fn join(parts: Vec<Part<'_>>, leave_out_empty: bool) -> Cow<'_, str> {
    let mut texts = parts
        .into_iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } => Some(text),
            Part::ToolReference(name) => Some(Cow::Borrowed(name)),
            Part::Media { .. } | Part::Mark(_) | Part::Embeds => None,
        })
        .filter(|text| !leave_out_empty || !text.is_empty());
    let Some(mut joined) = texts.next() else {
        return Cow::Borrowed("");
    };
    for text in texts {
        let joined = joined.to_mut();
        joined.push('\n');
        joined.push_str(&text);
    }
    joined
}

/// Makes text of embeddings.
fn spell_embeds(parts: &mut [Part<'_>]) {
    for part in parts {
        if matches!(part, Part::Embeds) {
            *part = Part::text(EMBEDS_WORD);
        }
    }
}

fn drop_billing_header(parts: &mut Vec<Part<'_>>) {
    parts.retain_mut(|part| match part {
        Part::Text { text, item } if text.starts_with(BILLING_HEADER) && is_plain(*item) => {
            match text.split_once('\n') {
                Some((_, rest)) if !rest.is_empty() => {
                    *text = Cow::Owned(rest.to_owned());
                    true
                }
                _ => false,
            }
        }
        _ => true,
    });
}

/// Whether a text part is a string or of the type `text`, and not a refusal or some other kind of text.
fn is_plain(item: Option<&Json<'_>>) -> bool {
    item.is_none_or(|item| item.get("type").and_then(Json::as_str) == Some("text"))
}
