//! `zstd` (RFC 8878), one frame after the other.
//!
//! ```text
//!  frame  = magic, header, blocks, check sum?          | skippable frame
//!  block  = raw bytes | one byte many times | literals + sequences
//!  sequence: copy so many literals, then repeat so many bytes from so far back
//! ```
//!
//! Own code, because a decoder for hostile bodies must stop at a cap in the middle of a block: one block of 128 KiB can claim
//! gigabytes, and the common decoder makes them first. Dictionaries are not known. The window is not looked at: the whole output is
//! at hand anyway.

mod bits;
mod fse;
mod huffman;
mod literals;
mod sequences;

use xxhash_rust::xxh64::xxh64;

use self::huffman::Huffman;
use self::sequences::Tables;
use super::DecodeError;
use super::output::Output;

/// Starts a frame.
const MAGIC: u32 = 0xfd2f_b528;
/// Starts a frame that is passed over, with any last digit.
const SKIPPABLE: u32 = 0x184d_2a50;
/// Most bytes of a block, coded or not.
const MAX_BLOCK_BYTES: usize = 128 << 10;

/// What a block may take over from the one before.
#[derive(Debug)]
struct Frame {
    /// Where the frame starts in the output.
    start: usize,
    huffman: Option<Huffman>,
    tables: Tables,
    /// The last three distances.
    distances: [u64; 3],
}

/// Decodes all frames of `body`; there is at least one.
pub(super) fn decode(body: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut input = Input(body);
    let mut frames = 0;
    while frames == 0 || !input.0.is_empty() {
        let magic = input.number(4)?;
        if magic == u64::from(MAGIC) {
            frame(&mut input, output)?;
        } else if magic & !0xf == u64::from(SKIPPABLE) {
            let length = input.number(4)?;
            input.take(usize::try_from(length).map_err(|_| DecodeError::Corrupt)?)?;
        } else {
            return Err(DecodeError::Corrupt);
        }
        frames += 1;
    }
    Ok(())
}

fn frame(input: &mut Input<'_>, output: &mut Output) -> Result<(), DecodeError> {
    let descriptor = input.number(1)?;
    let is_single_segment = descriptor & 0x20 != 0;
    let has_checksum = descriptor & 0x04 != 0;
    if descriptor & 0x08 != 0 {
        return Err(DecodeError::Corrupt);
    }
    if !is_single_segment {
        input.number(1)?;
    }
    let dictionary = match descriptor & 3 {
        3 => input.number(4)?,
        bytes => input.number(usize::try_from(bytes).unwrap_or_default())?,
    };
    if dictionary != 0 {
        return Err(DecodeError::Corrupt);
    }
    let size = match (descriptor >> 6, is_single_segment) {
        (0, false) => None,
        (0, true) => Some(input.number(1)?),
        (1, _) => Some(input.number(2)? + 256),
        (2, _) => Some(input.number(4)?),
        _ => Some(input.number(8)?),
    };
    let mut frame = Frame {
        start: output.len(),
        huffman: None,
        tables: Tables::default(),
        distances: [1, 4, 8],
    };
    while !block(input, output, &mut frame)? {}
    let made = output.since(frame.start);
    if size.is_some_and(|size| size != made.len() as u64) {
        return Err(DecodeError::Corrupt);
    }
    if has_checksum && input.number(4)? != xxh64(made, 0) & 0xffff_ffff {
        return Err(DecodeError::Corrupt);
    }
    Ok(())
}

/// Decodes a block; gives whether it was the frame's last.
fn block(
    input: &mut Input<'_>,
    output: &mut Output,
    frame: &mut Frame,
) -> Result<bool, DecodeError> {
    let header = input.number(3)?;
    let size = usize::try_from(header >> 3).map_err(|_| DecodeError::Corrupt)?;
    if size > MAX_BLOCK_BYTES {
        return Err(DecodeError::Corrupt);
    }
    match header >> 1 & 3 {
        0 => output.extend(input.take(size)?)?,
        1 => {
            let byte = input.take(1)?.first().copied().unwrap_or_default();
            output.fill(byte, size)?;
        }
        2 => {
            let mut section = Input(input.take(size)?);
            let literals = literals::read(&mut section, &mut frame.huffman)?;
            sequences::run(section.0, &literals, output, frame)?;
        }
        _ => return Err(DecodeError::Corrupt),
    }
    Ok(header & 1 == 1)
}

/// Bytes that are taken from the front.
#[derive(Clone, Copy, Debug)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(DecodeError::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A little-endian number of up to eight bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, DecodeError> {
        let bytes = self.take(bytes)?;
        let digits = bytes.iter().rev();
        Ok(digits.fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}
