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
mod zstd;

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

/// A way of coding.
#[derive(Clone, Copy, Debug)]
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
            Self::Zstd => zstd::decode(body, &mut output)?,
        }
        Ok(output.into_bytes())
    }
}

/// Undoes what a `content-encoding` header lists: `gzip`, `deflate` and `zstd`, in any letter case, one after the other.
///
/// A list that changes nothing gives the body itself. At most `max_bytes` come out of each step.
///
/// # Errors
///
/// A coding that isn't known, a body that isn't coded so, or one that is too long.
pub fn decode<'b>(
    content_encoding: &str,
    body: &'b [u8],
    max_bytes: usize,
) -> Result<Cow<'b, [u8]>, DecodeError> {
    let mut codings = [None; MAX_CODINGS];
    let mut count = 0;
    for name in content_encoding.split(',') {
        if let Some(coding) = Coding::from_name(name.trim())? {
            *codings.get_mut(count).ok_or(DecodeError::Unknown)? = Some(coding);
            count += 1;
        }
    }
    let mut decoded = Cow::Borrowed(body);
    for coding in codings.into_iter().flatten().rev() {
        decoded = Cow::Owned(coding.undo(&decoded, max_bytes)?);
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests;
