//! Bytes that are being decoded, up to a cap.

use super::DecodeError;

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

    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}
