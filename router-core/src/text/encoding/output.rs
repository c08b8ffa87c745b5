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

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What was made from `start` on.
    pub(super) fn since(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or_default()
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

    /// Adds `count` times the same byte.
    pub(super) fn fill(&mut self, byte: u8, count: usize) -> Result<(), DecodeError> {
        self.reserve(count)?;
        self.bytes.resize(self.bytes.len() + count, byte);
        Ok(())
    }

    /// Repeats `count` bytes from `distance` bytes ago, which may reach into what is being added, but not before `start`.
    pub(super) fn repeat(
        &mut self,
        distance: usize,
        count: usize,
        start: usize,
    ) -> Result<(), DecodeError> {
        let made = self.bytes.len() - start.min(self.bytes.len());
        if distance == 0 || distance > made {
            return Err(DecodeError::Corrupt);
        }
        self.reserve(count)?;
        let mut left = count;
        while left > 0 {
            // Whole periods are there already; each round doubles them.
            let from = self.bytes.len() - distance;
            let piece = left.min(distance);
            self.bytes.extend_from_within(from..from + piece);
            left -= piece;
        }
        Ok(())
    }
}
