//! Bytes between a block's last whole chunk and its end, by length in steps of eight.

use super::slab::{NONE, make_room};

/// Most bytes of a tail.
pub(super) const MAX_TAIL: usize = 63;
const WORD: usize = 8;
const CLASSES: usize = MAX_TAIL.div_ceil(WORD) + 1;

/// Tails of one number of words, one after the other; free ones are linked through their first word.
#[derive(Debug)]
struct Class {
    words: Vec<u64>,
    free: u32,
}

/// All tails.
#[derive(Debug)]
pub(super) struct Tails {
    classes: [Class; CLASSES],
    used_words: usize,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            classes: core::array::from_fn(|_| Class {
                words: Vec::new(),
                free: NONE,
            }),
            used_words: 0,
        }
    }
}

impl Tails {
    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.used_words * WORD
    }

    /// Keeps `tail` and returns where; an empty one takes no memory.
    pub(super) fn insert(&mut self, tail: &[u8]) -> u32 {
        let words = tail.len().div_ceil(WORD);
        if words == 0 {
            return NONE;
        }
        let Some(class) = self.classes.get_mut(words) else {
            debug_assert!(false, "tail of a chunk or more");
            return NONE;
        };
        self.used_words += words;
        let at = class.take(words);
        let start = at as usize * words;
        if let Some(slots) = class.words.get_mut(start..start + words) {
            for (slot, bytes) in slots.iter_mut().zip(tail.chunks(WORD)) {
                let mut word = [0u8; WORD];
                for (to, from) in word.iter_mut().zip(bytes) {
                    *to = *from;
                }
                *slot = u64::from_le_bytes(word);
            }
        }
        at
    }

    /// Copies the tail of `len` bytes at `at` to the front of `out`.
    pub(super) fn read(&self, len: usize, at: u32, out: &mut [u8; MAX_TAIL + 1]) {
        let words = len.div_ceil(WORD);
        let start = at as usize * words;
        let kept = self
            .classes
            .get(words)
            .and_then(|class| class.words.get(start..start + words));
        for (to, word) in out
            .as_chunks_mut::<WORD>()
            .0
            .iter_mut()
            .zip(kept.unwrap_or_default())
        {
            *to = word.to_le_bytes();
        }
    }

    /// Gives the tail of `len` bytes at `at` back.
    pub(super) fn free(&mut self, len: usize, at: u32) {
        let words = len.div_ceil(WORD);
        if words == 0 {
            return;
        }
        if let Some(class) = self.classes.get_mut(words)
            && let Some(first) = class.words.get_mut(at as usize * words)
        {
            *first = u64::from(core::mem::replace(&mut class.free, at));
            self.used_words -= words;
        }
    }
}

impl Class {
    fn take(&mut self, words: usize) -> u32 {
        if self.free == NONE {
            let at = u32::try_from(self.words.len() / words).unwrap_or(NONE);
            for _ in 0..words {
                make_room(&mut self.words);
                self.words.push(0);
            }
            return at;
        }
        let at = self.free;
        let next = self.words.get(at as usize * words).copied();
        self.free = next
            .and_then(|next| u32::try_from(next).ok())
            .unwrap_or(NONE);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_of_all_lengths_come_back_and_their_room_is_used_again() {
        let mut tails = Tails::default();
        let tail = |len: usize, salt: usize| -> Vec<u8> {
            (0..len)
                .map(|at| u8::try_from(len * 7 + at + salt).unwrap_or(0xaa))
                .collect()
        };
        let mut allocated = 0;
        for round in 0..3 {
            let kept: Vec<(Vec<u8>, u32)> = (0..64)
                .map(|len| {
                    let tail = tail(len, round);
                    let at = tails.insert(&tail);
                    (tail, at)
                })
                .collect();
            for (tail, at) in &kept {
                let mut out = [0u8; 64];
                tails.read(tail.len(), *at, &mut out);
                assert_eq!(&out[..tail.len()], tail);
            }
            for (tail, at) in kept {
                tails.free(tail.len(), at);
            }
            assert_eq!(tails.bytes(), 0);
            let words: usize = tails.classes.iter().map(|class| class.words.len()).sum();
            assert!(round == 0 || words == allocated);
            allocated = words;
        }
    }
}
