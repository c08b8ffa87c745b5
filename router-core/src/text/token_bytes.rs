//! Token ids to the bytes of the text that they stand for.
//!
//! Not what the tokenizer's decoder makes of them: decoders strip spaces and clean up, bytes here are those of the prompt.

use std::borrow::Cow;
use std::collections::HashMap;

use super::error::ProfileError;
use super::profile::ModelFiles;
use super::tokenizer_file::{AddedToken, Spelling, TokenizerConfig, TokenizerFile};

/// SentencePiece's stand-in for a space.
pub(super) const SPACE_MARKER: char = '\u{2581}';

/// Bytes copied at once; most tokens are shorter.
const WIDE: usize = 16;

/// Largest token id that is kept.
pub const MAX_TOKEN_ID: u32 = (1 << 24) - 1;

/// The bytes of every token.
///
/// ```text
/// ends:  [ 3 | 3 | 8 | ... ]        token i is blob[ends[i-1]..ends[i]]
/// blob:  [ t h e q u i c k ... ]
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBytes {
    ends: Vec<u32>,
    blob: Vec<u8>,
}

impl TokenBytes {
    /// Reads the vocabulary of a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// The file can't be read, or its tokens don't spell text (see [`ProfileError`]).
    pub fn from_tokenizer_json(json: &str) -> Result<Self, ProfileError> {
        Self::read(&TokenizerFile::read(json)?, &[])
    }

    /// Reads the vocabulary of a model: of `tokenizer.json`, with the added tokens that only `tokenizer_config.json` has.
    ///
    /// # Errors
    ///
    /// A file can't be read, or its tokens don't spell text (see [`ProfileError`]).
    pub fn from_model_files(files: &ModelFiles<'_>) -> Result<Self, ProfileError> {
        let file = TokenizerFile::read(files.tokenizer_json)?;
        let config = TokenizerConfig::read(files.tokenizer_config_json)?;
        Self::read(&file, &config.added_tokens().unwrap_or_default())
    }

    fn read(file: &TokenizerFile<'_>, more: &[AddedToken]) -> Result<Self, ProfileError> {
        let spelling = file.spelling()?;
        let vocab: HashMap<Cow<'_, str>, u64> = serde_json::from_str(file.model.vocab.get())
            .map_err(|source| ProfileError::File {
                file: "tokenizer.json",
                source,
            })?;
        let mut pieces: HashMap<u32, Cow<'_, [u8]>> = HashMap::with_capacity(vocab.len());
        for (piece, id) in &vocab {
            pieces.insert(checked(*id)?, spelled(piece, spelling));
        }
        let only_there = more
            .iter()
            .filter(|token| file.added_tokens.iter().all(|other| other.id != token.id));
        for token in file.added_tokens.iter().chain(only_there) {
            // Literals are kept as they are, but the space marker of non-special ones is a space like any other.
            let bytes = if spelling == Spelling::SentencePiece && !token.special {
                Cow::Owned(token.content.replace(SPACE_MARKER, " ").into_bytes())
            } else {
                Cow::Borrowed(token.content.as_bytes())
            };
            pieces.insert(checked(token.id)?, bytes);
        }
        let len = pieces.keys().max().map_or(0, |&max| max as usize + 1);
        let mut tokens = Self {
            ends: Vec::with_capacity(len),
            blob: Vec::new(),
        };
        for id in 0..=MAX_TOKEN_ID {
            if tokens.ends.len() == len {
                break;
            }
            if let Some(bytes) = pieces.get(&id) {
                tokens.blob.extend_from_slice(bytes);
            }
            let end = u32::try_from(tokens.blob.len()).map_err(|_| ProfileError::TokenId {
                id: id.into(),
                max: MAX_TOKEN_ID,
            })?;
            tokens.ends.push(end);
        }
        Ok(tokens)
    }

    /// The bytes of token `id`; empty for ids without a token, such as padded rows.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else {
            return &[];
        };
        let before = (id as usize)
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or(0);
        self.blob
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    /// Appends the bytes of all `tokens` to `out`.
    pub fn append(&self, tokens: &[u32], out: &mut Vec<u8>) {
        let mut filled = out.len();
        out.resize(filled + tokens.len() * WIDE, 0);
        for &token in tokens {
            let start = (token as usize)
                .checked_sub(1)
                .map_or(Some(0), |before| self.ends.get(before).copied());
            let (Some(start), Some(&end)) = (start, self.ends.get(token as usize)) else {
                continue;
            };
            let (start, end) = (start as usize, end as usize);
            let wide = self.blob.get(start..start + WIDE);
            let room = out.get_mut(filled..filled + WIDE);
            match (wide, room) {
                // Copying a fixed number of bytes is cheaper than copying the few that count.
                (Some(wide), Some(room)) if end - start <= WIDE => room.copy_from_slice(wide),
                _ => {
                    let bytes = self.blob.get(start..end).unwrap_or_default();
                    out.resize(out.len().max(filled + bytes.len()), 0);
                    if let Some(room) = out.get_mut(filled..filled + bytes.len()) {
                        room.copy_from_slice(bytes);
                    }
                }
            }
            filled += end - start;
        }
        out.truncate(filled);
    }

    /// Number of ids that the table covers, from 0.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory that the table takes.
    pub fn memory_bytes(&self) -> usize {
        self.ends.capacity() * size_of::<u32>() + self.blob.capacity()
    }
}

impl<B: AsRef<[u8]>> FromIterator<B> for TokenBytes {
    /// The bytes of token 0, 1, 2, ...
    fn from_iter<I: IntoIterator<Item = B>>(tokens: I) -> Self {
        let mut all = Self {
            ends: Vec::new(),
            blob: Vec::new(),
        };
        for token in tokens {
            all.blob.extend_from_slice(token.as_ref());
            all.ends
                .push(u32::try_from(all.blob.len()).unwrap_or(u32::MAX));
        }
        all
    }
}

fn checked(id: u64) -> Result<u32, ProfileError> {
    u32::try_from(id)
        .ok()
        .filter(|&id| id <= MAX_TOKEN_ID)
        .ok_or(ProfileError::TokenId {
            id,
            max: MAX_TOKEN_ID,
        })
}

fn spelled(piece: &str, spelling: Spelling) -> Cow<'_, [u8]> {
    match spelling {
        Spelling::ByteLevel => {
            let bytes: Option<Vec<u8>> = piece.chars().map(byte_of).collect();
            // A piece with a character outside the table can only be matched as it is.
            bytes.map_or(Cow::Borrowed(piece.as_bytes()), Cow::Owned)
        }
        Spelling::SentencePiece => {
            let byte = piece
                .strip_prefix("<0x")
                .and_then(|hex| hex.strip_suffix('>'))
                .filter(|hex| hex.len() == 2)
                .and_then(|hex| u8::from_str_radix(hex, 16).ok());
            match byte {
                Some(byte) => Cow::Owned(vec![byte]),
                None if piece.contains(SPACE_MARKER) => {
                    Cow::Owned(piece.replace(SPACE_MARKER, " ").into_bytes())
                }
                None => Cow::Borrowed(piece.as_bytes()),
            }
        }
    }
}

/// The byte that a character stands for in GPT-2's table: printable Latin-1 for itself, the others from U+0100 on in order.
fn byte_of(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        // 0x00..=0x20, 0x7f..=0xa0, 0xad
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..0x200)
            .filter_map(char::from_u32)
            .filter_map(byte_of)
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
    }

    fn tokens(vocab: &str, rest: &str) -> Result<TokenBytes, ProfileError> {
        TokenBytes::from_tokenizer_json(&format!(
            r#"{{"model":{{"type":"BPE","vocab":{vocab},"merges":[]{rest}}}"#
        ))
    }

    #[test]
    fn pieces_of_both_kinds_are_spelled_out() {
        let byte_level = tokens(
            r#"{"Ġa":0,"Ã©":2}"#,
            r#"},"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":5,"content":"<|▁|>","special":true}]"#,
        )
        .unwrap();
        assert_eq!(byte_level.bytes(0), b" a");
        assert_eq!(byte_level.bytes(1), b"");
        assert_eq!(byte_level.bytes(2), "é".as_bytes());
        assert_eq!(byte_level.bytes(5), "<|▁|>".as_bytes());
        assert_eq!(byte_level.bytes(6), b"");
        assert_eq!(byte_level.len(), 6);
        let pieces = tokens(
            r#"{"▁a":0,"<0x0A>":1,"<0xZZ>":2}"#,
            r#","byte_fallback":true,"unk_token":"<unk>"},"added_tokens":[{"id":3,"content":"▁▁","special":false}]"#,
        )
        .unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|id| pieces.bytes(id)),
            [&b" a"[..], b"\n", b"<0xZZ>", b"  "]
        );
    }

    #[test]
    fn tokens_are_appended_one_after_the_other() {
        let tokens: TokenBytes = ["a", "", "bcd", "a token of more than sixteen bytes", "e"]
            .iter()
            .collect();
        for ids in [&[0u32, 2, 1, 3, 3, 9, 4, 0][..], &[4, 4], &[]] {
            let mut out = b"before ".to_vec();
            tokens.append(ids, &mut out);
            let mut expected = b"before ".to_vec();
            for &id in ids {
                expected.extend_from_slice(tokens.bytes(id));
            }
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn tokens_that_only_the_configuration_has_are_spelled_too() {
        let tokens = TokenBytes::from_model_files(&ModelFiles {
            tokenizer_json: r#"{"model":{"type":"BPE","vocab":{"a":0,"x":1},"merges":[]},"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":1,"content":"<one>"}]}"#,
            tokenizer_config_json: r#"{"added_tokens_decoder":{"1":{"content":"<other>"},"2":{"content":"<two>"}}}"#,
            chat_template: None,
        })
        .unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|id| tokens.bytes(id)),
            [&b"a"[..], b"<one>", b"<two>", b""]
        );
    }

    #[test]
    fn tokenizers_that_lose_text_are_refused() {
        assert!(matches!(
            tokens("{}", r#","unk_token":"<unk>"}"#),
            Err(ProfileError::UnknownToken { .. })
        ));
        assert!(matches!(
            tokens(r#"{"a":16777216}"#, "}"),
            Err(ProfileError::TokenId { .. })
        ));
        for kind in ["Unigram", "WordPiece", "WordLevel"] {
            let json = format!(r#"{{"model":{{"type":"{kind}","vocab":[]}}}}"#);
            assert!(matches!(
                TokenBytes::from_tokenizer_json(&json),
                Err(ProfileError::Model { .. })
            ));
        }
        assert!(matches!(
            TokenBytes::from_tokenizer_json("{"),
            Err(ProfileError::File { .. })
        ));
    }
}
