//! Token id → bytes.

/// Bytes of every token id of a model, in one block of memory.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// End of each token's bytes; token `i` starts where `i - 1` ends.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Vocabulary {
    /// Bytes of a token; empty for ids that have none (padded rows) or are out of range.
    #[inline]
    pub fn bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        let start = match at.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).copied().unwrap_or_default(),
        };
        self.ends
            .get(at)
            .and_then(|&end| self.bytes.get(start as usize..end as usize))
            .unwrap_or_default()
    }
}

impl<B: AsRef<[u8]>> FromIterator<B> for Vocabulary {
    /// Bytes of token 0, 1, 2, ...
    fn from_iter<I: IntoIterator<Item = B>>(tokens: I) -> Self {
        let mut vocabulary = Self::default();
        for token in tokens {
            vocabulary.bytes.extend_from_slice(token.as_ref());
            vocabulary
                .ends
                .push(u32::try_from(vocabulary.bytes.len()).unwrap_or(u32::MAX));
        }
        vocabulary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_give_their_bytes_and_unknown_ids_none() {
        let vocabulary: Vocabulary = ["a", "", "bc"].into_iter().collect();
        let all: Vec<&[u8]> = (0..5).map(|id| vocabulary.bytes(id)).collect();
        assert_eq!(all, [&b"a"[..], b"", b"bc", b"", b""]);
    }
}
