//! Chunk hashes and scopes.
//!
//! ```text
//! h_0 = scope            h_k = XXH3-64( h_{k-1} as 8 LE bytes || chunk_k (64 bytes), seed )
//! scope = XXH3-64( space || len id || id || len adapter || adapter || len salt || salt || revision, seed )
//! ```
//!
//! `seed` is a secret of the deployment. XXH64 is not used: pairs of printable chunks that collide under almost every XXH64 seed are found
//! in milliseconds. The hash is not a MAC: whoever learns the seed can look for collisions.
//! Lengths and the revision are u64 LE; `space` is one byte, 1 = text, 2 = token.

mod chunk;

pub(crate) use chunk::ChunkHasher;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of canonical text (or of token ids as u32 LE) in one chunk.
pub const CHUNK_BYTES: usize = 64;

/// Token ids in one chunk of the token space.
pub const CHUNK_TOKENS: usize = CHUNK_BYTES / 4;

/// The deployment's secret hash seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

impl core::fmt::Debug for Seed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed(secret)")
    }
}

impl Seed {
    /// A number that tells two seeds apart without showing them: `XXH3-64("prefixway seed check", seed)`.
    pub fn check(self) -> u64 {
        xxh3_64_with_seed(b"prefixway seed check", self.0)
    }
}

/// What a chain of hashes is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Canonical text.
    Text,
    /// Token ids, u32 LE.
    Token,
}

/// Everything besides text that must be equal for two prompts to share cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope<'a> {
    /// Text or token space.
    pub space: Space,
    /// Profile id (not the request's `model`: aliases share a profile).
    pub profile: &'a str,
    /// Revision of the profile: another template is another revision.
    pub revision: u64,
    /// Adapter name, or empty for the base model.
    pub adapter: &'a str,
    /// Cache salt, or empty.
    pub salt: &'a str,
}

impl Scope<'_> {
    /// `h_0` of the scope's chains.
    pub fn hash(&self, seed: Seed) -> ChunkHash {
        let mut bytes =
            Vec::with_capacity(33 + self.profile.len() + self.adapter.len() + self.salt.len());
        bytes.push(match self.space {
            Space::Text => 1,
            Space::Token => 2,
        });
        let mut field = |text: &str| {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        };
        field(self.profile);
        field(self.adapter);
        field(self.salt);
        bytes.extend_from_slice(&self.revision.to_le_bytes());
        ChunkHash(xxh3_64_with_seed(&bytes, seed.0))
    }
}

/// Hash of a chain of chunks up to a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkHash(pub u64);

impl ChunkHash {
    /// The hash one chunk deeper.
    #[must_use]
    pub fn extend(self, chunk: &[u8; CHUNK_BYTES], seed: Seed) -> Self {
        Self(ChunkHasher::new(seed).extend(self.0, chunk))
    }
}

/// Hashes of every whole chunk of `text`, shallowest first; a tail shorter than a chunk has none.
pub fn chunk_hashes(scope: ChunkHash, text: &[u8], seed: Seed) -> impl Iterator<Item = ChunkHash> {
    let (chunks, _tail) = text.as_chunks::<CHUNK_BYTES>();
    let hasher = ChunkHasher::new(seed);
    chunks.iter().scan(scope.0, move |hash, chunk| {
        *hash = hasher.extend(*hash, chunk);
        Some(ChunkHash(*hash))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Scope<'_> = Scope {
        space: Space::Text,
        profile: "llama",
        revision: 7,
        adapter: "",
        salt: "",
    };

    #[test]
    fn scopes_differ_in_every_field_and_do_not_run_into_each_other() {
        let seed = Seed(1);
        let base = SCOPE.hash(seed);
        let others = [
            Scope {
                space: Space::Token,
                ..SCOPE
            },
            Scope {
                profile: "llam",
                adapter: "a",
                ..SCOPE
            },
            Scope {
                revision: 8,
                ..SCOPE
            },
            Scope {
                adapter: "a",
                ..SCOPE
            },
            Scope { salt: "a", ..SCOPE },
            Scope {
                profile: "llamaa",
                ..SCOPE
            },
        ];
        for (i, a) in others.iter().enumerate() {
            assert_ne!(a.hash(seed), base, "{a:?}");
            for b in &others[i + 1..] {
                assert_ne!(a.hash(seed), b.hash(seed), "{a:?} {b:?}");
            }
        }
        assert_ne!(SCOPE.hash(Seed(2)), base);
    }

    #[test]
    fn a_tail_shorter_than_a_chunk_has_no_hash() {
        let text = [b'x'; 130];
        assert_eq!(chunk_hashes(ChunkHash(0), &text, Seed(0)).count(), 2);
        assert_eq!(chunk_hashes(ChunkHash(0), &text[..63], Seed(0)).count(), 0);
    }

    #[test]
    fn seed_is_not_printed() {
        assert_eq!(format!("{:?}", Seed(42)), "Seed(secret)");
    }
}
