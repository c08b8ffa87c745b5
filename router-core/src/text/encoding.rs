//! Undoes the content codings of a request body, so that it can be read; what goes upstream stays as it came.
//!
//! ```text
//!  content-encoding: gzip, zstd     body ─ zstd ─► ─ gzip ─► what was sent, at most so many bytes
//! ```
//!
//! A body is hostile until it is read: output is capped while it is made, memory grows with what was made and never with what a header
//! claims, and whatever is broken, cut off or too long is an error and nothing else. Engines themselves read no coded bodies; where
//! clients send them, something between here and the engine decodes them.

mod inflate;
mod output;
mod unzstd;

use std::borrow::Cow;

use output::Output;

/// Most codings that are undone, one after the other.
const MAX_CODINGS: usize = 4;

/// Why a body can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DecodeError {
    /// A coding that is not known here, or a long list of them.
    #[error("the content encoding is not known")]
    Unknown,
    /// The body is not what its coding says, or ends too early.
    #[error("the body is not what its content encoding says")]
    Corrupt,
    /// The decoded body is longer than is taken.
    #[error("the decoded body is too long")]
    TooLong,
}

/// What a `content-encoding` header lists, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codings([Option<Coding>; MAX_CODINGS]);

/// A way of coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Zstd,
}

impl Coding {
    /// The coding with a name; `Ok(None)`: one that changes nothing.
    fn from_name(name: &str) -> Result<Option<Self>, DecodeError> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if name.is_empty() || is("identity") {
            Ok(None)
        } else if is("gzip") || is("x-gzip") {
            Ok(Some(Self::Gzip))
        } else if is("deflate") {
            Ok(Some(Self::Deflate))
        } else if is("zstd") {
            Ok(Some(Self::Zstd))
        } else {
            Err(DecodeError::Unknown)
        }
    }

    fn undo(self, body: &[u8], max_bytes: usize) -> Result<Vec<u8>, DecodeError> {
        let mut output = Output::new(max_bytes);
        match self {
            Self::Gzip => inflate::gzip(body, &mut output)?,
            Self::Deflate => inflate::deflate(body, &mut output)?,
            Self::Zstd => unzstd::zstd(body, &mut output)?,
        }
        Ok(output.into_bytes())
    }
}

impl Codings {
    /// Reads a header: `gzip`, `deflate` and `zstd` in any letter case, and what changes nothing.
    ///
    /// # Errors
    ///
    /// A coding that isn't known, or more than four of them.
    pub fn from_header(content_encoding: &str) -> Result<Self, DecodeError> {
        let mut codings = Self::default();
        let mut places = codings.0.iter_mut();
        for name in content_encoding.split(',') {
            if let Some(coding) = Coding::from_name(name.trim())? {
                *places.next().ok_or(DecodeError::Unknown)? = Some(coding);
            }
        }
        Ok(codings)
    }

    /// Whether a body so coded is the body itself.
    pub fn is_identity(self) -> bool {
        self == Self::default()
    }

    /// Undoes the codings, the last one first. At most `max_bytes` come out of each.
    ///
    /// # Errors
    ///
    /// A body that isn't coded so, or one that is too long.
    pub fn undo(self, body: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        let mut decoded = Cow::Borrowed(body);
        for coding in self.0.into_iter().flatten().rev() {
            decoded = Cow::Owned(coding.undo(&decoded, max_bytes)?);
        }
        Ok(decoded)
    }
}

/// Undoes what a `content-encoding` header lists.
///
/// # Errors
///
/// As those of [`Codings::from_header`] and [`Codings::undo`].
pub fn decode<'b>(
    content_encoding: &str,
    body: &'b [u8],
    max_bytes: usize,
) -> Result<Cow<'b, [u8]>, DecodeError> {
    Codings::from_header(content_encoding)?.undo(body, max_bytes)
}

#[cfg(test)]
mod tests;
