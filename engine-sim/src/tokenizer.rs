//! The model's tokenizer: text to ids, ids to text, and the text the engine pretends to generate.

use std::path::Path;

use thiserror::Error;
use tokenizers::Tokenizer as HfTokenizer;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Words of the generated text; plain ASCII, so that any tokenizer spells them.
const WORDS: [&str; 32] = [
    "the", "cache", "holds", "a", "block", "of", "every", "prefix", "and", "request", "that",
    "reads", "its", "first", "token", "waits", "for", "one", "engine", "to", "answer", "with",
    "short", "words", "while", "another", "keeps", "some", "memory", "free", "in", "order",
];

/// Why a model folder or a text can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The tokenizer file is absent or not understood.
    #[error("can't load {path}")]
    Load {
        /// Path of the file.
        path: String,
        /// What the library says.
        #[source]
        source: tokenizers::Error,
    },
    /// The library refused a text or ids.
    #[error("can't tokenize")]
    Tokenize(#[source] tokenizers::Error),
}

/// A loaded tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    inner: HfTokenizer,
}

/// Output decided beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Token ids in order.
    pub tokens: Vec<u32>,
    /// Text that each token completes: empty while a character is unfinished.
    pub pieces: Vec<String>,
}

impl Tokenizer {
    /// Loads `tokenizer.json` of a model folder.
    ///
    /// # Errors
    /// [`TokenizerError::Load`].
    pub fn from_model_dir(folder: &Path) -> Result<Self, TokenizerError> {
        let path = folder.join("tokenizer.json");
        let inner = HfTokenizer::from_file(&path).map_err(|source| TokenizerError::Load {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Self { inner })
    }

    /// Gives the ids of `text`; with `add_special_tokens` also those that the post-processor adds (BOS).
    ///
    /// # Errors
    /// [`TokenizerError::Tokenize`].
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self
            .inner
            .encode_fast(text, add_special_tokens)
            .map_err(TokenizerError::Tokenize)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Gives the vocabulary's spelling of each id; empty for ids it doesn't hold.
    pub fn token_strings(&self, ids: &[u32]) -> Vec<String> {
        let spell = |&id: &u32| self.inner.id_to_token(id).unwrap_or_default();
        ids.iter().map(spell).collect()
    }

    /// Gives the text of `ids` without special tokens.
    ///
    /// # Errors
    /// [`TokenizerError::Tokenize`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.inner
            .decode(ids, true)
            .map_err(TokenizerError::Tokenize)
    }

    /// Gives pseudo-random words as `count` token ids, a function of the arguments only. The ids are a prefix of what the tokenizer makes of
    /// the text, as they would be from a trained model.
    ///
    /// # Errors
    /// [`TokenizerError::Tokenize`].
    pub fn generate(
        &self,
        prompt: &[u32],
        seed: u64,
        count: usize,
    ) -> Result<Vec<u32>, TokenizerError> {
        let bytes: Vec<u8> = prompt.iter().flat_map(|id| id.to_le_bytes()).collect();
        let mut state = xxh3_64_with_seed(&bytes, seed);
        let mut text = String::new();
        let mut words = count;
        loop {
            for _ in 0..words.max(8) {
                state = xxh3_64_with_seed(&state.to_le_bytes(), seed);
                let pick = usize::try_from(state % WORDS.len() as u64).unwrap_or_default();
                text.push_str(if text.is_empty() { "" } else { " " });
                text.push_str(WORDS.get(pick).copied().unwrap_or_default());
            }
            let mut ids = self.encode(&text, false)?;
            if ids.len() >= count {
                ids.truncate(count);
                return Ok(ids);
            }
            words = count - ids.len();
        }
    }

    /// Joins ids with the text that each completes.
    ///
    /// # Errors
    /// [`TokenizerError::Tokenize`].
    pub fn output(&self, tokens: Vec<u32>) -> Result<Output, TokenizerError> {
        let mut stream = self.inner.decode_stream(true);
        let pieces = tokens
            .iter()
            .map(|&id| {
                Ok(stream
                    .step(id)
                    .map_err(TokenizerError::Tokenize)?
                    .unwrap_or_default())
            })
            .collect::<Result<_, TokenizerError>>()?;
        Ok(Output { tokens, pieces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tinybpe() -> Tokenizer {
        Tokenizer::from_model_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tinybpe"))
            .unwrap()
    }

    #[test]
    fn generated_text_is_repeatable_decodable_and_canonical() {
        let tokenizer = tinybpe();
        let ids = tokenizer.generate(&[1, 2, 3], 7, 40).unwrap();
        assert_eq!(ids.len(), 40);
        assert_eq!(ids, tokenizer.generate(&[1, 2, 3], 7, 40).unwrap());
        assert_ne!(ids, tokenizer.generate(&[1, 2, 4], 7, 40).unwrap());
        assert_ne!(ids, tokenizer.generate(&[1, 2, 3], 8, 40).unwrap());
        assert_eq!(ids[..10], tokenizer.generate(&[1, 2, 3], 7, 10).unwrap());
        let text = tokenizer.decode(&ids).unwrap();
        assert_eq!(tokenizer.encode(&text, false).unwrap()[..39], ids[..39]);
    }

    #[test]
    fn pieces_join_to_the_text_even_inside_characters() {
        let tokenizer = tinybpe();
        let text = "日本 ok 👩\u{200d}👩";
        let output = tokenizer
            .output(tokenizer.encode(text, false).unwrap())
            .unwrap();
        assert_eq!(output.pieces.concat(), text);
        assert!(output.pieces.iter().any(String::is_empty));
    }

    #[test]
    fn an_absent_file_is_named() {
        let error = Tokenizer::from_model_dir(Path::new("nowhere")).unwrap_err();
        assert_eq!(error.to_string(), "can't load nowhere/tokenizer.json");
    }
}
