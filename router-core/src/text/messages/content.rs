//! Content of messages: strings, parts, media.

use std::borrow::Cow;

use minijinja::Value;

use super::ContentFormat;
use crate::text::error::Unscorable;
use crate::text::json::Json;
use crate::text::value::dict;

/// Stands before the first media item; what is rendered after it is not prompt text.
pub(in crate::text) const MEDIA_TAG: &str = "PREFIXWAY_MEDIA_STARTS_HERE";

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
    Text(Cow<'a, str>),
    /// A media item, by modality.
    Media(&'static str),
    ToolReference(&'a str),
}

impl<'a> Content<'a> {
    /// Reads `content` (absent and null are `None`). Sets `media` and places the tag where the first media item stands.
    pub(super) fn read(
        content: Option<&'a Json<'_>>,
        role: &str,
        format: ContentFormat,
        media: &mut bool,
    ) -> Result<Self, Unscorable> {
        let mut parts = match content {
            None => Vec::new(),
            Some(Json::String(text)) => vec![Part::Text(Cow::Borrowed(text.as_ref()))],
            Some(Json::Array(items)) => items
                .iter()
                .map(Part::read)
                .collect::<Result<Vec<_>, _>>()?,
            Some(_) => return Err(Unscorable::Invalid),
        };
        if role == "system" {
            drop_billing_header(&mut parts);
        }
        let first_media = parts.iter().position(|part| matches!(part, Part::Media(_)));
        let starts_media =
            first_media.filter(|_| !core::mem::replace(media, *media || first_media.is_some()));
        match format {
            ContentFormat::OpenAi => {
                if let Some(first) = starts_media {
                    parts.insert(first, Part::Text(Cow::Borrowed(MEDIA_TAG)));
                }
                Ok(Self::Parts(parts))
            }
            ContentFormat::String => {
                if starts_media.is_some() {
                    // Placeholders go in front of the text, wherever the media stood.
                    parts.insert(0, Part::Text(Cow::Borrowed(MEDIA_TAG)));
                }
                Ok(Self::Text(join(parts, true)))
            }
        }
    }

    /// Makes a list of nothing but text one string, as is done for the tool role.
    pub(super) fn join_text_parts(&mut self) {
        if let Self::Parts(parts) = self
            && parts.iter().all(|part| matches!(part, Part::Text(_)))
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
                    Part::Text(text) => text.len(),
                    Part::Media(_) | Part::ToolReference(_) => 0,
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
                        Part::Text(text) => Some(text.as_ref()),
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
                Part::Text(text) => Some(text),
                _ => None,
            }),
        };
        text.ok_or(Unscorable::Invalid)?
            .to_mut()
            .push_str(CONTINUE_TAG);
        Ok(())
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_ref()),
            Self::Parts(parts) => parts
                .into_iter()
                .map(Part::into_value)
                .collect::<Vec<_>>()
                .into(),
        }
    }
}

impl<'a> Part<'a> {
    fn read(item: &'a Json<'_>) -> Result<Self, Unscorable> {
        if let Json::String(text) = item {
            return Ok(Self::Text(Cow::Borrowed(text.as_ref())));
        }
        if !matches!(item, Json::Object(_)) {
            return Err(Unscorable::Invalid);
        }
        let text = |key: &str| {
            let text = item
                .get(key)
                .and_then(Json::as_str)
                .ok_or(Unscorable::Invalid)?;
            Ok(Self::Text(Cow::Borrowed(text)))
        };
        match item.get("type").and_then(Json::as_str) {
            Some("text" | "input_text" | "output_text") => text("text"),
            Some("refusal") => text("refusal"),
            Some("thinking") => text("thinking"),
            Some("tool_reference") => item
                .get("name")
                .and_then(Json::as_str)
                .map(Self::ToolReference)
                .ok_or(Unscorable::Invalid),
            Some(kind) => modality(kind).map(Self::Media).ok_or(Unscorable::Invalid),
            None => [
                "image_url",
                "image_embeds",
                "input_audio",
                "audio_url",
                "audio_embeds",
                "video_url",
                "video_embeds",
            ]
            .into_iter()
            .find(|kind| item.has(kind))
            .and_then(modality)
            .map(Self::Media)
            .ok_or(Unscorable::Invalid),
        }
    }

    fn into_value(self) -> Value {
        let entry = |key: &str, value: &str| (Value::from(key), Value::from(value));
        match self {
            Self::Text(text) => dict([entry("type", "text"), entry("text", &text)].into_iter()),
            Self::Media(modality) => dict([entry("type", modality)].into_iter()),
            Self::ToolReference(name) => {
                dict([entry("type", "tool_reference"), entry("name", name)].into_iter())
            }
        }
    }
}

/// What a template is told about a media part.
fn modality(kind: &str) -> Option<&'static str> {
    match kind {
        "image_url" | "input_image" | "image_embeds" | "image_pil" => Some("image"),
        "audio_url" | "input_audio" | "audio_embeds" => Some("audio"),
        "video_url" | "video_embeds" => Some("video"),
        // Spliced in after tokenization; whatever it is, text ends here.
        "prompt_embeds" => Some("text"),
        _ => None,
    }
}

/// Joins the texts of parts with line ends. Engines leave out empty parts of string content, but keep those of a tool's parts.
fn join(parts: Vec<Part<'_>>, leave_out_empty: bool) -> Cow<'_, str> {
    let mut texts = parts
        .into_iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text),
            Part::ToolReference(name) => Some(Cow::Borrowed(name)),
            Part::Media(_) => None,
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

fn drop_billing_header(parts: &mut Vec<Part<'_>>) {
    parts.retain_mut(|part| match part {
        Part::Text(text) if text.starts_with(BILLING_HEADER) => match text.split_once('\n') {
            Some((_, rest)) if !rest.is_empty() => {
                *text = Cow::Owned(rest.to_owned());
                true
            }
            _ => false,
        },
        _ => true,
    });
}
