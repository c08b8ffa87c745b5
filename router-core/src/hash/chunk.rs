//! XXH3-64 of a parent's hash and a chunk, the one length that chains of hashes need.
//!
//! The general function derives its keys from the seed for each call, and multiplies 64 by 64 bits through a library call where the
//! target has no such instruction (wasm). Here the keys are derived once for a whole chain, and wasm multiplies in 32-bit halves.
//! Checked against the general function by a property test.
//!
//! XXH3 of 65 to 96 bytes (xxHash 0.8, `XXH3_len_17to128_64b`): with `n` the length, `p(i)` and `k(i)` the 16 bytes of input and key at
//! `i`, both as two u64 LE, and `fold` the xor of both halves of the 128-bit product of `p.0 ^ (k.0 + seed)` and `p.1 ^ (k.1 - seed)`:
//!
//! ```text
//! avalanche( n * PRIME64_1 + fold(p(32), k(64)) + fold(p(n-48), k(80)) + fold(p(16), k(32)) + fold(p(n-32), k(48))
//!            + fold(p(0), k(0)) + fold(p(n-16), k(16)) )
//! ```

use xxhash_rust::const_xxh3::const_custom_default_secret;

use super::{CHUNK_BYTES, Seed};

/// XXH3's default secret.
const SECRET: [u8; 192] = const_custom_default_secret(0);
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const AVALANCHE: u64 = 0x1656_6791_9E37_79F9;
/// Bytes that are hashed: the parent and the chunk.
const BYTES: u64 = 8 + CHUNK_BYTES as u64;
/// Words of the key that this length uses.
const KEY_WORDS: usize = 12;

/// The keys of one seed.
#[derive(Clone, Copy)]
pub(crate) struct ChunkHasher([u64; KEY_WORDS]);

impl ChunkHasher {
    #[inline]
    pub(crate) fn new(seed: Seed) -> Self {
        let (pairs, _) = SECRET.as_chunks::<16>();
        let mut keys = [0; KEY_WORDS];
        let (places, _) = keys.as_chunks_mut::<2>();
        for ([even, odd], pair) in places.iter_mut().zip(pairs) {
            let pair = u128::from_le_bytes(*pair);
            #[expect(clippy::cast_possible_truncation, reason = "takes the pair apart")]
            let [low, high] = [pair as u64, (pair >> 64) as u64];
            *even = low.wrapping_add(seed.0);
            *odd = high.wrapping_sub(seed.0);
        }
        Self(keys)
    }

    /// The hash of `parent` (8 bytes LE) and `chunk`.
    #[inline]
    pub(crate) fn extend(&self, parent: u64, chunk: &[u8; CHUNK_BYTES]) -> u64 {
        let (words, _) = chunk.as_chunks::<8>();
        let words: &[[u8; 8]; CHUNK_BYTES / 8] = match words.try_into() {
            Ok(words) => words,
            Err(_) => return parent,
        };
        let [w0, w1, w2, w3, w4, w5, w6, w7] = words.map(u64::from_le_bytes);
        let [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11] = self.0;
        // Everything that doesn't wait for the parent comes first.
        let own = (BYTES.wrapping_mul(PRIME64_1))
            .wrapping_add(fold(w3 ^ k8, w4 ^ k9))
            .wrapping_add(fold(w2 ^ k10, w3 ^ k11))
            .wrapping_add(fold(w1 ^ k4, w2 ^ k5))
            .wrapping_add(fold(w4 ^ k6, w5 ^ k7))
            .wrapping_add(fold(w6 ^ k2, w7 ^ k3));
        avalanche(own.wrapping_add(fold(parent ^ k0, w0 ^ k1)))
    }
}

fn avalanche(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 37)).wrapping_mul(AVALANCHE);
    hash ^ (hash >> 32)
}

/// Both halves of the 128-bit product, xored.
#[cfg(not(target_family = "wasm"))]
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "takes the halves")]
    [product as u64, (product >> 64) as u64]
        .into_iter()
        .fold(0, |all, half| all ^ half)
}

/// The same from four products of 32-bit halves.
#[cfg(any(target_family = "wasm", test))]
#[inline]
fn fold_by_halves(a: u64, b: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (a0, a1, b0, b1) = (a & LOW, a >> 32, b & LOW, b >> 32);
    let low = a0 * b0;
    // Neither sum overflows: (2^32 - 1)^2 + 2 * (2^32 - 1) = 2^64 - 1.
    let middle = a1 * b0 + (low >> 32);
    let other = a0 * b1 + (middle & LOW);
    let high = a1 * b1 + (middle >> 32) + (other >> 32);
    high ^ ((other << 32) | (low & LOW))
}

#[cfg(target_family = "wasm")]
use fold_by_halves as fold;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    proptest! {
        #[test]
        fn equals_the_general_function(
            parent in any::<u64>(),
            chunk in any::<[[u8; 8]; 8]>(),
            seed in any::<u64>(),
        ) {
            let chunk: [u8; CHUNK_BYTES] = chunk.concat().try_into().unwrap();
            let mut input = parent.to_le_bytes().to_vec();
            input.extend_from_slice(&chunk);
            prop_assert_eq!(
                ChunkHasher::new(Seed(seed)).extend(parent, &chunk),
                xxh3_64_with_seed(&input, seed)
            );
        }

        #[test]
        fn halves_give_the_same_product(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(fold_by_halves(a, b), fold(a, b));
            prop_assert_eq!(fold_by_halves(u64::MAX - (a & 1), u64::MAX), fold(u64::MAX - (a & 1), u64::MAX));
        }
    }
}
