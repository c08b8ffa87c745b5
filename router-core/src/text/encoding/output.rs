//! Bytes that are being decoded, up to a cap.

use std::io::Read;

use super::DecodeError;

/// Bytes that are decoded at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Decoded bytes. Memory grows with them, at most twofold.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl Output {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            max_bytes,
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Makes room for so many bytes more.
    fn reserve(&mut self, bytes: usize) -> Result<(), DecodeError> {
        if bytes > self.max_bytes.saturating_sub(self.bytes.len()) {
            return Err(DecodeError::TooLong);
        }
        // Memory that isn't there is one more bound.
        self.bytes
            .try_reserve(bytes)
            .map_err(|_| DecodeError::TooLong)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds all that a decoder gives.
    pub(super) fn read(&mut self, mut decoder: impl Read) -> Result<(), DecodeError> {
        let mut piece = [0; PIECE_BYTES];
        loop {
            match decoder.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(read) => self.extend(piece.get(..read).unwrap_or_default())?,
                Err(_) => return Err(DecodeError::Corrupt),
            }
        }
    }
}
