//! Bits of a byte string, lowest first, read from the front or from the back.

use crate::text::encoding::DecodeError;

/// Most bits that can be read at once: eight bytes less the bits before the first.
const MAX_BITS: u32 = 56;

/// The `count` bits from `at` on; bits behind the end are zero.
fn bits_at(bytes: &[u8], at: usize, count: u32) -> u64 {
    debug_assert!(count <= MAX_BITS, "too many bits at once");
    let tail = bytes.get(at / 8..).unwrap_or_default();
    let word = match tail.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => tail
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    (word >> (at % 8)) & ((1 << count) - 1)
}

/// Reads from the front.
#[derive(Debug)]
pub(super) struct Forward<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Forward<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next bits, without taking them; those behind the end are zero.
    pub(super) fn peek(&self, count: u32) -> u64 {
        bits_at(self.bytes, self.at, count)
    }

    pub(super) fn skip(&mut self, count: u32) -> Result<(), DecodeError> {
        self.at += count as usize;
        if self.at > self.bytes.len() * 8 {
            return Err(DecodeError::Corrupt);
        }
        Ok(())
    }

    pub(super) fn read(&mut self, count: u32) -> Result<u64, DecodeError> {
        let bits = self.peek(count);
        self.skip(count)?;
        Ok(bits)
    }

    /// Bytes of which at least one bit was taken.
    pub(super) fn used_bytes(&self) -> usize {
        self.at.div_ceil(8)
    }
}

/// Reads from the back. The highest set bit of the last byte is a mark and no bit of the string.
#[derive(Debug)]
pub(super) struct Backward<'a> {
    bytes: &'a [u8],
    /// Bits that are left; fewer than none once more were read, which were zero then.
    left: i64,
}

impl<'a> Backward<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mark = bytes
            .last()
            .and_then(|last| last.checked_ilog2())
            .ok_or(DecodeError::Corrupt)?;
        let whole = i64::try_from(bytes.len() - 1).map_err(|_| DecodeError::Corrupt)?;
        Ok(Self {
            bytes,
            left: whole * 8 + i64::from(mark),
        })
    }

    pub(super) fn left(&self) -> i64 {
        self.left
    }

    pub(super) fn read(&mut self, count: u32) -> u64 {
        self.left -= i64::from(count);
        if let Ok(at) = usize::try_from(self.left) {
            return bits_at(self.bytes, at, count);
        }
        // Some or all of the bits lie before the front.
        let missing = u32::try_from(-self.left).unwrap_or(u32::MAX);
        count
            .checked_sub(missing)
            .map_or(0, |there| bits_at(self.bytes, 0, there) << missing)
    }
}
