//! One entry of the table and its 16 bytes: `u64 hash, u32 set, u32 token depth`, little endian.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of an entry in slots, messages and deltas.
pub const ENTRY_BYTES: usize = 16;

/// Bytes of a rung hash.
pub const HASH_BYTES: usize = 8;

/// Number of an interned holder set; 0 is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u32);

impl SetId {
    /// The empty set: the rung is there, but nobody can serve a hit that ends at it.
    pub const EMPTY: Self = Self(0);
}

/// What the table knows of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Chunk hash of the rung; never 0 in a table.
    pub hash: u64,
    /// Who holds it.
    pub set: SetId,
    /// Tokens of the prompt up to the rung (`T(d)` of the design).
    pub token_depth: u32,
}

impl Entry {
    /// An empty slot.
    pub(crate) const EMPTY: Self = Self {
        hash: 0,
        set: SetId::EMPTY,
        token_depth: 0,
    };

    /// Reads 16 bytes; any bytes are an entry.
    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [
            h0,
            h1,
            h2,
            h3,
            h4,
            h5,
            h6,
            h7,
            s0,
            s1,
            s2,
            s3,
            t0,
            t1,
            t2,
            t3,
        ] = *bytes;
        Self {
            hash: u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]),
            set: SetId(u32::from_le_bytes([s0, s1, s2, s3])),
            token_depth: u32::from_le_bytes([t0, t1, t2, t3]),
        }
    }

    /// The 16 bytes of the entry.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let word = u128::from(self.hash)
            | u128::from(self.set.0) << 64
            | u128::from(self.token_depth) << 96;
        word.to_le_bytes()
    }

    /// The entry's part of the checksum: XXH3-64 of its 16 bytes, seed 0.
    pub fn sum(self) -> u64 {
        xxh3_64(&self.to_bytes())
    }
}

/// The entries in `bytes`; a rest shorter than an entry is left out.
pub fn entries(bytes: &[u8]) -> impl ExactSizeIterator<Item = Entry> {
    bytes.as_chunks().0.iter().map(Entry::from_bytes)
}

/// The rung hashes in `bytes`; a rest shorter than a hash is left out.
pub fn hashes(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    bytes
        .as_chunks::<HASH_BYTES>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        let entry = Entry {
            hash: 0x0102_0304_0506_0708,
            set: SetId(0x0A0B),
            token_depth: 0x10,
        };
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0x0B, 0x0A, 0, 0, 0x10, 0, 0, 0];
        assert_eq!(entry.to_bytes(), bytes);
        assert_eq!(Entry::from_bytes(&bytes), entry);
        assert_eq!(
            entries(&bytes)
                .chain(entries(&bytes[..15]))
                .collect::<Vec<_>>(),
            [entry]
        );
    }
}
