//! What a body is, apart from its JSON: how it is declared, encoded for transport, and spelled.

use std::borrow::Cow;

use crate::text::{Api, BodyError, BodyFormat, encoding::Codings};

/// Why a request is routed by load alone, because nothing of its body can be read.
///
/// Where the body can be read but its prompt's text can't be derived, the reason is an [`Unscorable`](crate::text::Unscorable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LoadOnly {
    /// The body is encoded for transport in a way that is not read.
    #[error("the body's content encoding is not read")]
    UnsupportedEncoding,
    /// The body is not what its content encoding says, or too long once it is decoded.
    #[error("the body can't be decoded")]
    Undecodable,
    /// The body is in UTF-16 or UTF-32, or holds halves of surrogate pairs: Python reads that.
    #[error("the body is not in UTF-8")]
    Charset,
}

impl LoadOnly {
    /// Every reason, for defining metrics ahead of time.
    pub const ALL: [Self; 3] = [Self::UnsupportedEncoding, Self::Undecodable, Self::Charset];

    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::Undecodable => "undecodable",
            Self::Charset => "charset",
        }
    }
}

/// How a body is encoded for transport; `None`: in a way that is not read.
pub(super) type Coding = Option<Codings>;

/// Reads a `content-encoding`.
pub(super) fn coding(value: Option<&str>) -> Coding {
    Codings::from_header(value.unwrap_or_default()).ok()
}

/// Undoes a coding; what comes out has at most `max_bytes`.
pub(super) fn open(
    coding: Coding,
    body: &[u8],
    max_bytes: usize,
) -> Result<Cow<'_, [u8]>, LoadOnly> {
    let codings = coding.ok_or(LoadOnly::UnsupportedEncoding)?;
    codings
        .undo(body, max_bytes)
        .map_err(|_| LoadOnly::Undecodable)
}

/// Whether a body says that it is what the API reads, or says nothing.
pub(super) fn is_declared(api: Api, content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else {
        return true;
    };
    let media = content_type.split(';').next().unwrap_or_default().trim();
    match api.body_format() {
        BodyFormat::Json => {
            let ends_in_json = || {
                let suffix = media.len().checked_sub("+json".len());
                let suffix = suffix.and_then(|at| media.get(at..));
                suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json"))
            };
            media.eq_ignore_ascii_case("application/json") || ends_in_json()
        }
        BodyFormat::Form => media.eq_ignore_ascii_case("multipart/form-data"),
    }
}

/// Whether a body that could not be read is in another encoding of Unicode that Python's reader takes.
pub(super) fn other_charset(body: &[u8], error: &BodyError) -> Option<LoadOnly> {
    // As Python's `json` tells: by byte order marks and by where the first NUL bytes are.
    let is_wide = body.starts_with(b"\xff\xfe")
        || body.starts_with(b"\xfe\xff")
        || body.iter().take(2).any(|byte| *byte == 0);
    let is_half = || match error {
        // Python decodes with `surrogatepass`.
        BodyError::Utf8 { at } => {
            let bytes = body.get(*at..*at + 3);
            matches!(bytes, Some([0xed, 0xa0..=0xbf, 0x80..=0xbf]))
        }
        _ => false,
    };
    (is_wide || is_half()).then_some(LoadOnly::Charset)
}
