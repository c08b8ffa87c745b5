//! Token counts that an engine reports in its answer, and whether the answer came to its own end.
//!
//! The last bytes of an answer are enough in most APIs: both an SSE stream and a JSON body carry `"usage": {...}` near their end. Anthropic's
//! stream tells the prompt's tokens with its first event, so the first bytes are kept too; what both say is put together, the later word
//! wins. The name can't be met inside generated text, because quotes are escaped there. No usage is no evidence, not zero.
//!
//! ```text
//!  answer   ├─ head ─┤ ........ passes unread ........ ├──── tail ────┤      at most HEAD_BYTES + 2 * TAIL_BYTES are held
//! ```

use serde::Deserialize;

/// Bytes of the answer's end that are kept.
pub const TAIL_BYTES: usize = 4096;

/// Bytes of the answer's beginning that are kept.
pub const HEAD_BYTES: usize = 2048;

/// Longest the tail's buffer grows before its front is cut: amortises the copying.
const BUFFER_BYTES: usize = 2 * TAIL_BYTES;

/// Token counts of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Tokens that were generated.
    pub completion_tokens: Option<u32>,
    /// How many of the prompt's tokens came from the prefix cache.
    pub cached_tokens: Option<u32>,
}

/// As completions, Anthropic's messages and Responses spell it.
#[derive(Deserialize)]
struct Raw {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u32>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u32>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<RawDetails>,
    cache_read_input_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct RawDetails {
    cached_tokens: Option<u32>,
}

impl Usage {
    /// What both say; the later one's word counts where it has one.
    fn then(self, later: Self) -> Self {
        Self {
            prompt_tokens: later.prompt_tokens.or(self.prompt_tokens),
            completion_tokens: later.completion_tokens.or(self.completion_tokens),
            cached_tokens: later.cached_tokens.or(self.cached_tokens),
        }
    }
}

/// Whether answers of this content type are JSON or a stream of it; of any other nothing is read.
pub fn is_readable(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    ["application/json", "text/event-stream"]
        .iter()
        .any(|known| media.eq_ignore_ascii_case(known))
}

/// The first and the last bytes of an answer, at most [`HEAD_BYTES`] and [`TAIL_BYTES`].
#[derive(Clone, Debug, Default)]
pub struct Tail {
    head: Vec<u8>,
    last: Vec<u8>,
    /// Bytes that have passed.
    passed: usize,
}

impl Tail {
    /// Takes what is needed of a piece of `size` bytes; `read` gives some of them, by place and number.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn take<E>(
        &mut self,
        size: usize,
        mut read: impl FnMut(usize, usize) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        let room = HEAD_BYTES.saturating_sub(self.passed).min(size);
        let kept = size.min(TAIL_BYTES);
        let piece = read(size - kept, kept)?;
        if room > 0 {
            // The kept end is the whole piece, mostly.
            match piece.get(..room).filter(|_| kept == size) {
                Some(first) => self.head.extend_from_slice(first),
                None => self.head.extend(read(0, room)?),
            }
        }
        self.passed = self.passed.saturating_add(size);
        self.keep(&piece);
        Ok(())
    }

    /// Appends a piece of the stream; only its first and its last bytes matter.
    pub fn push(&mut self, piece: &[u8]) {
        let part = |at: usize, size: usize| piece.get(at..at + size).unwrap_or_default().to_vec();
        let read = |at, size| Ok::<_, core::convert::Infallible>(part(at, size));
        match self.take(piece.len(), read) {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.last.len() + piece.len() > BUFFER_BYTES {
            let keep = TAIL_BYTES.saturating_sub(piece.len());
            let cut = self.last.len().saturating_sub(keep);
            self.last.drain(..cut);
        }
        self.last.extend_from_slice(piece);
    }

    /// The last bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.last
            .get(self.last.len().saturating_sub(TAIL_BYTES)..)
            .unwrap_or_default()
    }

    /// What the usage objects at the beginning and at the end say together, or `None` where there is none.
    pub fn usage(&self) -> Option<Usage> {
        let all = [self.head.as_slice(), self.as_bytes()];
        let found = all.into_iter().flat_map(|bytes| {
            memchr::memmem::find_iter(bytes, NAME)
                .filter_map(move |at| read(bytes.get(at + NAME.len()..)?))
        });
        found.reduce(Usage::then)
    }

    /// Whether the last event is the one that ends a stream: then nothing is missing, whoever closes the connection. Text that quotes the
    /// mark is inside a longer line.
    pub fn has_end_mark(&self) -> bool {
        let bytes = self.as_bytes().trim_ascii_end();
        let begins = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        let line = match begins {
            Some(at) => bytes.get(at + 1..).unwrap_or_default(),
            // The beginning of the line may be gone.
            None if self.passed > self.as_bytes().len() => return false,
            None => bytes,
        };
        let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii_start);
        data.is_some_and(|data| END_MARKS.contains(&data))
    }
}

const NAME: &[u8] = b"\"usage\"";

/// Data of the events that end a stream: of completions, and of Anthropic's messages as vLLM spells it.
const END_MARKS: [&[u8]; 3] = [
    b"[DONE]",
    b"{\"type\":\"message_stop\"}",
    b"{\"type\": \"message_stop\"}",
];

/// Reads `: {...}` and ignores what follows; `null` gives `None`.
fn read(bytes: &[u8]) -> Option<Usage> {
    let value = bytes.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Raw>();
    let raw = values.next()?.ok()?;
    let details = raw.prompt_tokens_details.and_then(|d| d.cached_tokens);
    Some(Usage {
        prompt_tokens: raw.prompt_tokens,
        completion_tokens: raw.completion_tokens,
        cached_tokens: details.or(raw.cache_read_input_tokens),
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
        completion_tokens: None,
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
            assert!(tail.last.len() <= BUFFER_BYTES && tail.head.len() <= HEAD_BYTES);
        }
        assert_eq!(tail.as_bytes(), &text[text.len() - TAIL_BYTES..]);
        assert_eq!(tail.head, &text[..HEAD_BYTES]);
        tail.push(&text);
        assert_eq!(tail.as_bytes(), &text[text.len() - TAIL_BYTES..]);
        assert_eq!(tail.head, &text[..HEAD_BYTES]);
        let mut whole = Tail::default();
        whole.push(&text);
        assert_eq!(whole.head, &text[..HEAD_BYTES]);
        assert_eq!(whole.as_bytes(), &text[text.len() - TAIL_BYTES..]);
    }

    #[test]
    fn what_the_first_event_says_is_put_together_with_the_last() {
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":21,\"cache_read_input_tokens\":16,\"output_tokens\":0}}}\n\n";
        let text =
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"usage: none\"}}\n\n"
                .repeat(500);
        let end = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\n";
        let expected = Some(Usage {
            prompt_tokens: Some(21),
            completion_tokens: Some(5),
            cached_tokens: Some(16),
        });
        assert_eq!(usage(&[start, &text, end]), expected);
        assert_eq!(usage(&[&[start, &text, end].concat()]), expected);
        let responses = r#"{"usage":{"input_tokens":21,"input_tokens_details":{"cached_tokens":16},"output_tokens":5}}"#;
        assert_eq!(usage(&[responses]), expected);
    }

    #[test]
    fn a_stream_ends_with_its_last_event_and_not_where_text_quotes_the_mark() {
        let ends = |text: &str| {
            let mut tail = Tail::default();
            tail.push(text.as_bytes());
            tail.has_end_mark()
        };
        for (text, is_end) in [
            ("data: {\"content\":\"say data: [DONE]", false),
            ("data: {\"content\":\"say data: [DONE] now\"}\n\n", false),
            ("data: {}\n\ndata: [DONE]\n\n", true),
            ("data: {}\r\n\r\ndata:[DONE]\r\n\r\n", true),
            ("data: [DONE]", true),
            (
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
                true,
            ),
            ("data: [DONE]\n\n: more\n\n", false),
            ("", false),
        ] {
            assert_eq!(ends(text), is_end, "{text}");
        }
        // A line whose beginning is gone is none.
        assert!(!ends(&format!(
            "x{}data: [DONE]",
            " ".repeat(TAIL_BYTES - 12)
        )));
        assert!(is_readable("text/event-stream; charset=utf-8") && is_readable("Application/JSON"));
        assert!(!is_readable("text/plain"));
    }
}
