//! `gzip` and `deflate`.

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};

use super::DecodeError;
use super::output::Output;

/// Most members of one gzip body; each costs some work, however short it is.
const MAX_MEMBERS: usize = 1024;

/// Decodes one gzip member after the other (RFC 1952). Zero bytes after the last are padding, as for Python's `gzip`.
pub(super) fn gzip(body: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut rest = body;
    for _ in 0..MAX_MEMBERS {
        output.read(GzDecoder::new(&mut rest))?;
        if rest.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
    }
    Err(DecodeError::Corrupt)
}

/// Decodes `deflate`: a zlib stream (RFC 1950), or a bare one as some clients send.
pub(super) fn deflate(body: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut rest = body;
    if is_zlib(body) {
        output.read(ZlibDecoder::new(&mut rest))?;
    } else {
        output.read(DeflateDecoder::new(&mut rest))?;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::Corrupt)
    }
}

/// Whether a stream starts with zlib's header: deflate, and a check sum over the first two bytes. A bare stream that starts so has a
/// stored block with a wrong length, or none at all.
fn is_zlib(body: &[u8]) -> bool {
    match body {
        [method, flags, ..] => {
            method & 0xf == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0
        }
        _ => false,
    }
}
