//! Literals of a block.

use super::huffman::Huffman;
use super::{Input, MAX_BLOCK_BYTES};
use crate::text::encoding::DecodeError;

/// Reads the literals section. A tree is kept for later blocks that bring none.
pub(super) fn read(
    input: &mut Input<'_>,
    kept: &mut Option<Huffman>,
) -> Result<Vec<u8>, DecodeError> {
    let first = input.0.first().copied().ok_or(DecodeError::Corrupt)?;
    let (kind, format) = (first & 3, first >> 2 & 3);
    if kind < 2 {
        let (bytes, shift) = match format {
            0 | 2 => (1, 3),
            1 => (2, 4),
            _ => (3, 4),
        };
        let size = size(input.number(bytes)? >> shift)?;
        return if kind == 0 {
            Ok(input.take(size)?.to_vec())
        } else {
            let byte = input.take(1)?.first().copied().unwrap_or_default();
            Ok(vec![byte; size])
        };
    }
    let (bytes, width) = match format {
        0 | 1 => (3, 10),
        2 => (4, 14),
        _ => (5, 18),
    };
    let header = input.number(bytes)? >> 4;
    let mask = (1 << width) - 1;
    let decoded = size(header & mask)?;
    let mut coded = Input(input.take(size(header >> width & mask)?)?);
    if kind == 2 {
        *kept = Some(Huffman::read(&mut coded)?);
    }
    let huffman = kept.as_ref().ok_or(DecodeError::Corrupt)?;
    let mut literals = Vec::with_capacity(decoded);
    if format == 0 {
        huffman.decode(coded.0, decoded, &mut literals)?;
        return Ok(literals);
    }
    // Four streams of equal counts, the last with the rest.
    let mut sizes = [0; 3];
    for bytes in &mut sizes {
        *bytes = size(coded.number(2)?)?;
    }
    let each = decoded.div_ceil(4);
    for bytes in sizes {
        huffman.decode(coded.take(bytes)?, each, &mut literals)?;
    }
    let rest = decoded.checked_sub(3 * each).ok_or(DecodeError::Corrupt)?;
    huffman.decode(coded.0, rest, &mut literals)?;
    Ok(literals)
}

fn size(number: u64) -> Result<usize, DecodeError> {
    usize::try_from(number)
        .ok()
        .filter(|&size| size <= MAX_BLOCK_BYTES)
        .ok_or(DecodeError::Corrupt)
}
