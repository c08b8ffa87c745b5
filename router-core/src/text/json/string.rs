//! JSON strings: finding their end and undoing escapes.

use std::borrow::Cow;

use super::{JsonError, JsonProblem};

/// Bytes that are looked at together.
const BLOCK: usize = 32;
/// Bytes that are copied together.
const PIECE: usize = 16;

/// Index of the first byte at or after `from` that is a quote, a backslash or a control character.
pub(in crate::text) fn next_special(bytes: &[u8], from: usize) -> usize {
    let tail = bytes.get(from..).unwrap_or_default();
    let (blocks, _) = tail.as_chunks::<BLOCK>();
    let plain = blocks.iter().take_while(|block| is_plain(block)).count();
    let at = from + plain * BLOCK;
    // The rest is shorter than a block, or its first block has what is looked for.
    let rest = bytes.get(at..).unwrap_or_default();
    let (words, last) = rest.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + i * 8 + (marks.trailing_zeros() / 8) as usize;
        }
    }
    let position = last.iter().position(|&b| is_bound(b) || b == b'\\');
    at + words.len() * 8 + position.unwrap_or(last.len())
}

/// Whether a byte is a quote or a control character.
fn is_bound(byte: u8) -> bool {
    byte ^ 2 < 0x21
}

/// Whether nothing in the block is special. Written without branches, so that it becomes a few vector instructions.
#[inline]
fn is_plain<const N: usize>(block: &[u8; N]) -> bool {
    let found = block.iter().fold(0, |found, &byte| {
        found | u8::from(is_bound(byte)) | u8::from(byte == b'\\')
    });
    found == 0
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

/// A string that was read.
pub(super) struct Read<'a> {
    pub(super) text: Cow<'a, str>,
    /// Index after the closing quote.
    pub(super) end: usize,
    /// Whether half a surrogate pair was replaced.
    pub(super) is_lone: bool,
}

/// Reads the string whose opening quote ends just before `start`. `scratch` is for use by nobody else; it saves growing a new one.
pub(super) fn read<'a>(
    text: &'a str,
    start: usize,
    scratch: &mut Vec<u8>,
) -> Result<Read<'a>, JsonError> {
    let bytes = text.as_bytes();
    let at = next_special(bytes, start);
    // Both ends lie next to ASCII bytes, so this never cuts a character.
    let plain = text.get(start..at).unwrap_or_default();
    if bytes.get(at) == Some(&b'"') {
        return Ok(Read {
            text: Cow::Borrowed(plain),
            end: at + 1,
            is_lone: false,
        });
    }
    scratch.clear();
    scratch.extend_from_slice(plain.as_bytes());
    let (end, is_lone) = unescape(bytes, at, scratch)?;
    // Whole characters of a text and escapes that are characters: this is UTF-8 for sure.
    let unescaped = simdutf8::basic::from_utf8(scratch).map_err(|_| JsonError {
        at,
        problem: JsonProblem::Escape,
    })?;
    Ok(Read {
        text: Cow::Owned(unescaped.to_owned()),
        end,
        is_lone,
    })
}

/// Appends the rest of a string, from `at` to its closing quote, unescaped. Gives the index after the quote, and whether half a
/// surrogate pair was replaced.
fn unescape(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<(usize, bool), JsonError> {
    let mut is_lone = false;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok((at + 1, is_lone)),
            Some(b'\\') => {
                let (letter, next) = escape(bytes, at)?;
                is_lone |= letter.is_none();
                push(out, letter.unwrap_or(char::REPLACEMENT_CHARACTER));
                at = next;
            }
            Some(&byte) if is_bound(byte) => return Err(unclosed(bytes, at)),
            Some(_) => at = copy_plain(bytes, at, out),
            None => return Err(unclosed(bytes, at)),
        }
    }
}

/// Appends bytes from `at` on up to one that is special; gives its index.
///
/// Pieces are copied whole and cut off afterwards: that takes fewer instructions than a call that copies a few bytes.
fn copy_plain(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let tail = bytes.get(at..).unwrap_or_default();
    let (pieces, last) = tail.as_chunks::<PIECE>();
    for (i, piece) in pieces.iter().enumerate() {
        out.extend_from_slice(piece);
        if !is_plain(piece) {
            let length = next_special(piece, 0);
            out.truncate(out.len() - (PIECE - length));
            return at + i * PIECE + length;
        }
    }
    let length = next_special(last, 0);
    out.extend_from_slice(last.get(..length).unwrap_or_default());
    at + pieces.len() * PIECE + length
}

/// Appends a character; arrays of fixed length spare a call for each.
fn push(out: &mut Vec<u8>, letter: char) {
    let mut bytes = [0; 4];
    match *letter.encode_utf8(&mut bytes).as_bytes() {
        [a] => out.push(a),
        [a, b] => out.extend([a, b]),
        [a, b, c] => out.extend([a, b, c]),
        _ => out.extend(bytes),
    }
}

/// The error of a string that ends at `at` without a quote.
fn unclosed(bytes: &[u8], at: usize) -> JsonError {
    let problem = if at < bytes.len() {
        JsonProblem::Control
    } else {
        JsonProblem::End
    };
    JsonError {
        at: at.min(bytes.len()),
        problem,
    }
}

/// Finds the end of a string without keeping it: the index after the closing quote.
pub(super) fn skip(bytes: &[u8], start: usize) -> Result<usize, JsonError> {
    let mut at = start;
    loop {
        while bytes.get(at) == Some(&b'\\') {
            at = escape(bytes, at)?.1;
        }
        at = next_special(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => {}
            _ => return Err(unclosed(bytes, at)),
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
    let [a, b, c, d] = *bytes.get(at..)?.first_chunk::<4>()?;
    let digit = |byte: u8| HEX.get(usize::from(byte)).copied().unwrap_or(NO_DIGIT);
    let code = (digit(a) << 12) | (digit(b) << 8) | (digit(c) << 4) | digit(d);
    // What is no digit sets bits above those of four digits.
    (code <= 0xffff).then_some(code)
}

/// Marks bytes in [`HEX`] that are no digits; shifted by any number of digits it stays above them all.
const NO_DIGIT: u32 = 0x1_0000;

/// Values of hexadecimal digits.
static HEX: [u32; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
        {
            let letters = b"0123456789abcdef";
            values[letters[digit as usize] as usize] = digit;
            values[letters[digit as usize].to_ascii_uppercase() as usize] = digit;
        }
        digit += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn word_scan_finds_what_a_plain_loop_finds(
            bytes in proptest::collection::vec(0x1eu8..=0x7e, 0..120),
            from in 0usize..120,
        ) {
            let from = from.min(bytes.len());
            let expected = (from..bytes.len())
                .find(|&i| is_bound(bytes[i]) || bytes[i] == b'\\')
                .unwrap_or(bytes.len());
            prop_assert_eq!(next_special(&bytes, from), expected);
        }
    }
}
