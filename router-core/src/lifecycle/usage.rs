//! Token counts that an engine reports at the end of its answer.
//!
//! The last bytes of an answer are enough: both an SSE stream and a JSON body carry `"usage": {...}` near their end. The name can't be met inside
//! generated text, because quotes are escaped there. No usage is no evidence, not zero.

use serde::Deserialize;

/// Bytes of the answer's end that are kept.
pub const TAIL_BYTES: usize = 4096;

/// Longest the tail's buffer grows before its front is cut: amortises the copying.
const BUFFER_BYTES: usize = 2 * TAIL_BYTES;

/// Token counts of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// How many of them came from the prefix cache.
    pub cached_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Raw {
    prompt_tokens: Option<u32>,
    prompt_tokens_details: Option<RawDetails>,
}

#[derive(Deserialize)]
struct RawDetails {
    cached_tokens: Option<u32>,
}

/// The last bytes of a stream, at most [`TAIL_BYTES`].
#[derive(Clone, Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// Appends a piece of the stream; only its last [`TAIL_BYTES`] matter.
    pub fn push(&mut self, piece: &[u8]) {
        let piece = piece
            .get(piece.len().saturating_sub(TAIL_BYTES)..)
            .unwrap_or_default();
        if self.0.len() + piece.len() > BUFFER_BYTES {
            let keep = TAIL_BYTES.saturating_sub(piece.len());
            let cut = self.0.len().saturating_sub(keep);
            self.0.drain(..cut);
        }
        self.0.extend_from_slice(piece);
    }

    /// The last bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0
            .get(self.0.len().saturating_sub(TAIL_BYTES)..)
            .unwrap_or_default()
    }

    /// The last usage object in the tail, or `None`.
    pub fn usage(&self) -> Option<Usage> {
        let bytes = self.as_bytes();
        memchr::memmem::rfind_iter(bytes, b"\"usage\"")
            .find_map(|at| read(bytes.get(at + b"\"usage\"".len()..)?))
    }
}

/// Reads `: {...}` and ignores what follows; `null` gives `None`.
fn read(bytes: &[u8]) -> Option<Usage> {
    let value = bytes.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Raw>();
    let raw = values.next()?.ok()?;
    Some(Usage {
        prompt_tokens: raw.prompt_tokens,
        cached_tokens: raw.prompt_tokens_details.and_then(|d| d.cached_tokens),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(pieces: &[&str]) -> Option<Usage> {
        let mut tail = Tail::default();
        for piece in pieces {
            tail.push(piece.as_bytes());
        }
        tail.usage()
    }

    const SIXTEEN_OF_TWENTY: Option<Usage> = Some(Usage {
        prompt_tokens: Some(20),
        cached_tokens: Some(16),
    });

    #[test]
    fn usage_is_read_from_streams_and_bodies_however_they_are_cut() {
        for pieces in [
            &[
                "{\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"total_tokens\":30,\"prompt_tokens_details\":{\"cached_tokens\":16}},\"x\":1}",
            ][..],
            &[
                "data: {\"usage\":null}\n\n",
                "data: {\"usa",
                "ge\" : {\"prompt_tokens\":20,\"prompt_tokens_details\":{\"cached_tok",
                "ens\":16}}}\n\ndata: [DONE]\n\n",
            ],
        ] {
            assert_eq!(usage(pieces), SIXTEEN_OF_TWENTY, "{pieces:?}");
        }
    }

    #[test]
    fn every_cut_of_a_stream_gives_the_same() {
        let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"say data: [DONE] now\"}}]}\r\n\r\n: keep-alive\n\n\
            data:{\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\ndata: [DONE]\n\n";
        let mut bytewise = Tail::default();
        for at in 0..stream.len() {
            let (head, rest) = stream.split_at(at);
            assert_eq!(usage(&[head, rest]), SIXTEEN_OF_TWENTY, "{at}");
            bytewise.push(&stream.as_bytes()[at..=at]);
        }
        assert_eq!(bytewise.usage(), SIXTEEN_OF_TWENTY);
    }

    #[test]
    fn absent_details_are_no_evidence() {
        let counted = usage(&[r#"{"usage":{"prompt_tokens":20,"prompt_tokens_details":null}}"#]);
        assert_eq!(counted.unwrap().cached_tokens, None);
        assert_eq!(usage(&["data: {\"choices\":[]}\n\ndata: [DONE]\n\n"]), None);
        assert_eq!(usage(&[r#"{"usage":null}"#]), None);
        assert_eq!(usage(&[r#"{"usage":{"prompt_tokens":2"#]), None);
    }

    #[test]
    fn generated_text_can_not_pretend_to_be_usage() {
        let body = r#"{"usage":{"prompt_tokens":20,"prompt_tokens_details":{"cached_tokens":16}},"text":"\"usage\":{\"prompt_tokens\":1}"}"#;
        assert_eq!(usage(&[body]), SIXTEEN_OF_TWENTY);
    }

    #[test]
    fn the_tail_is_bounded_and_is_the_end() {
        let mut tail = Tail::default();
        let text: Vec<u8> = (0..50_000u32).map(|i| b'a' + (i % 26) as u8).collect();
        for piece in text.chunks(77) {
            tail.push(piece);
            assert!(tail.0.len() <= BUFFER_BYTES);
        }
        assert_eq!(tail.as_bytes(), &text[text.len() - TAIL_BYTES..]);
        tail.push(&text);
        assert_eq!(tail.as_bytes(), &text[text.len() - TAIL_BYTES..]);
    }
}
