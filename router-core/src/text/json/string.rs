//! JSON strings: finding their end and undoing escapes.

use std::borrow::Cow;

use super::{JsonError, JsonProblem};

/// Index of the first byte at or after `from` that is a quote, a backslash or a control character.
///
/// Sixteen bytes at a time, see [`marks`].
pub(super) fn next_special(bytes: &[u8], from: usize) -> usize {
    let tail = bytes.get(from..).unwrap_or_default();
    let (pairs, rest) = tail.as_chunks::<16>();
    for (i, pair) in pairs.iter().enumerate() {
        let pair = u128::from_le_bytes(*pair);
        #[expect(clippy::cast_possible_truncation, reason = "takes the pair apart")]
        let [first, second] = [marks(pair as u64), marks((pair >> 64) as u64)];
        if first | second != 0 {
            let bit = if first == 0 {
                64 + second.trailing_zeros()
            } else {
                first.trailing_zeros()
            };
            return from + i * 16 + (bit / 8) as usize;
        }
    }
    let done = from + pairs.len() * 16;
    done + rest
        .iter()
        .position(|&b| is_special(b))
        .unwrap_or(rest.len())
}

fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Sets the high bit of each special byte of a word; above the first one it may also set others.
///
/// A byte `b` is a control character or a quote where `b ^ 2 < 0x21`, and a backslash where `b ^ '\\' < 1`. Subtracting the bound
/// borrows into the high bit of a smaller byte, which `& !` takes back from bytes that had it set; a borrow out of a byte can only
/// mark bytes above it.
fn marks(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let control = word ^ (ONES * 2);
    let backslash = word ^ (ONES * u64::from(b'\\'));
    ((control.wrapping_sub(ONES * 0x21) & !control) | (backslash.wrapping_sub(ONES) & !backslash))
        & HIGHS
}

/// Reads the string whose opening quote ends just before `start`; returns it, the index after the closing quote, and whether a
/// lone surrogate was replaced.
pub(super) fn read(text: &str, start: usize) -> Result<(Cow<'_, str>, usize, bool), JsonError> {
    let bytes = text.as_bytes();
    let mut from = start;
    let mut owned: Option<String> = None;
    let mut lone = false;
    loop {
        let at = next_special(bytes, from);
        // Both ends lie next to ASCII bytes, so this never cuts a character.
        let run = text.get(from..at).unwrap_or_default();
        match bytes.get(at) {
            Some(b'"') => {
                let value = match owned {
                    None => Cow::Borrowed(run),
                    Some(mut unescaped) => {
                        unescaped.push_str(run);
                        Cow::Owned(unescaped)
                    }
                };
                return Ok((value, at + 1, lone));
            }
            Some(b'\\') => {
                let unescaped =
                    owned.get_or_insert_with(|| String::with_capacity(run.len() * 4 + 32));
                unescaped.push_str(run);
                let (letter, next) = escape(bytes, at)?;
                lone |= letter.is_none();
                unescaped.push(letter.unwrap_or(char::REPLACEMENT_CHARACTER));
                from = next;
            }
            Some(_) => {
                return Err(JsonError {
                    at,
                    problem: JsonProblem::Control,
                });
            }
            None => {
                return Err(JsonError {
                    at: bytes.len(),
                    problem: JsonProblem::End,
                });
            }
        }
    }
}

/// Finds the end of a string without keeping it.
pub(super) fn skip(bytes: &[u8], start: usize) -> Result<usize, JsonError> {
    let mut from = start;
    loop {
        let at = next_special(bytes, from);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => from = escape(bytes, at)?.1,
            Some(_) => {
                return Err(JsonError {
                    at,
                    problem: JsonProblem::Control,
                });
            }
            None => {
                return Err(JsonError {
                    at: bytes.len(),
                    problem: JsonProblem::End,
                });
            }
        }
    }
}

/// Reads the escape at `at` (the backslash); `None` for half a surrogate pair. Returns the index after it.
fn escape(bytes: &[u8], at: usize) -> Result<(Option<char>, usize), JsonError> {
    let letter = match bytes.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes, at),
        Some(_) => {
            return Err(JsonError {
                at,
                problem: JsonProblem::Escape,
            });
        }
        None => {
            return Err(JsonError {
                at: bytes.len(),
                problem: JsonProblem::End,
            });
        }
    };
    Ok((Some(letter), at + 2))
}

fn unicode_escape(bytes: &[u8], at: usize) -> Result<(Option<char>, usize), JsonError> {
    let high = hex4(bytes, at + 2).ok_or(JsonError {
        at,
        problem: JsonProblem::Escape,
    })?;
    if let Some(letter) = char::from_u32(high) {
        return Ok((Some(letter), at + 6));
    }
    if (0xd800..0xdc00).contains(&high) && bytes.get(at + 6..at + 8) == Some(b"\\u") {
        // A second escape that isn't hexadecimal is reported when it is read on its own.
        if let Some(low) = hex4(bytes, at + 8).filter(|low| (0xdc00..0xe000).contains(low)) {
            let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            return Ok((char::from_u32(code), at + 12));
        }
    }
    Ok((None, at + 6))
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |code, &digit| {
        Some(code * 16 + char::from(digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn word_scan_finds_what_a_plain_loop_finds(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            from in 0usize..40,
        ) {
            let from = from.min(bytes.len());
            let expected = (from..bytes.len())
                .find(|&i| is_special(bytes[i]))
                .unwrap_or(bytes.len());
            prop_assert_eq!(next_special(&bytes, from), expected);
        }
    }
}
