//! `gzip` and `deflate`.

use std::io::Read;

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};

use super::DecodeError;
use super::output::Output;

/// Bytes that are decoded at a time.
const PIECE_BYTES: usize = 16 << 10;
/// Most members of one gzip body; each costs some work, however short it is.
const MAX_MEMBERS: usize = 1024;

/// Decodes one gzip member after the other (RFC 1952). Zero bytes after the last are padding, as for Python's `gzip`.
pub(super) fn gzip(body: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut rest = body;
    for _ in 0..MAX_MEMBERS {
        read(GzDecoder::new(&mut rest), output)?;
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
        read(ZlibDecoder::new(&mut rest), output)?;
    } else {
        read(DeflateDecoder::new(&mut rest), output)?;
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

fn read(mut decoder: impl Read, output: &mut Output) -> Result<(), DecodeError> {
    let mut piece = [0; PIECE_BYTES];
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(read) => output.extend(piece.get(..read).unwrap_or_default())?,
            Err(_) => return Err(DecodeError::Corrupt),
        }
    }
}
