//! Reading captures.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use prefixway_core::event::{Event, FrameError, Message, decode_batch, parse_frames};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Why a capture can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file can't be read.
    #[error("can't read {path}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is not of the format.
    #[error("line {line} of {path} is not of the capture format", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// One captured request.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) i: u64,
    #[serde(default)]
    pub(super) kind: String,
    pub(super) path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Exactly as it was sent; absent in lines that are no inference request.
    pub(super) body: Option<Box<RawValue>>,
    pub(super) rendered: Option<String>,
    pub(super) prompt_token_ids: Option<Vec<u32>>,
    usage: Option<Usage>,
    cached_tokens: Option<u32>,
    #[serde(default)]
    pub(super) seq_before: SeqBefore,
    #[serde(default)]
    pub(super) concurrent: bool,
    pub(super) t_start: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens_details: Option<PromptTokensDetails>,
}

#[derive(Debug, Deserialize)]
struct PromptTokensDetails {
    cached_tokens: Option<u32>,
}

/// Last sequence number received before the request was sent; -1 = none.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum SeqBefore {
    One(i64),
    /// Keys are ranks.
    ByRank(BTreeMap<String, i64>),
}

impl Default for SeqBefore {
    fn default() -> Self {
        Self::One(-1)
    }
}

impl SeqBefore {
    pub(super) fn of(&self, rank: u32) -> i64 {
        match self {
            Self::One(seq) => *seq,
            Self::ByRank(by_rank) => by_rank.get(&rank.to_string()).copied().unwrap_or(-1),
        }
    }
}

impl Line {
    /// What the engine said.
    pub(super) fn cached_tokens(&self) -> Option<u32> {
        self.cached_tokens.or_else(|| {
            self.usage
                .as_ref()?
                .prompt_tokens_details
                .as_ref()?
                .cached_tokens
        })
    }

    /// The rank that the request names.
    pub(super) fn rank(&self) -> Option<u32> {
        let header = self
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("x-data-parallel-rank"));
        header.and_then(|(_, rank)| rank.parse().ok())
    }
}

#[derive(Debug, Deserialize)]
struct EventLine {
    frames: Vec<String>,
    #[serde(default)]
    port_rank: u32,
}

/// A batch, or a message that is none.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) seq: u64,
    pub(super) payload: Vec<u8>,
}

/// A whole capture.
#[derive(Debug)]
pub(super) struct Capture {
    /// Batches of each rank, in the order received.
    pub(super) batches: BTreeMap<u32, Vec<Batch>>,
    /// In the order sent.
    pub(super) requests: Vec<Line>,
    /// Messages whose frames could not be read.
    pub(super) frame_errors: u64,
}

impl Capture {
    pub(super) fn load(events: &Path, requests: &Path) -> Result<Self, CaptureError> {
        let mut capture = Self {
            batches: BTreeMap::new(),
            requests: lines(requests)?,
            frame_errors: 0,
        };
        capture.requests.sort_by_key(|line| line.i);
        for line in lines::<EventLine>(events)? {
            let frames: Vec<Vec<u8>> = line.frames.iter().map(|frame| base64(frame)).collect();
            let batch = match parse_frames(&frames) {
                Ok(Message::Batch { seq, payload, .. }) => Batch {
                    seq,
                    payload: payload.to_vec(),
                },
                Ok(Message::ReplayEnd) => continue,
                Err(error) => {
                    capture.frame_errors += 1;
                    // The number came, so that the loss is no gap: an empty batch stands in for it.
                    match FrameError::seq(error) {
                        Some(seq) => Batch {
                            seq,
                            payload: vec![0x92, 0xc0, 0x90],
                        },
                        None => continue,
                    }
                }
            };
            capture
                .batches
                .entry(line.port_rank)
                .or_default()
                .push(batch);
        }
        Ok(capture)
    }

    fn events(&self, mut sink: impl FnMut(&Event<'_>)) {
        for batch in self.batches.values().flatten() {
            decode_batch(&batch.payload, &mut |event| sink(&event));
        }
    }

    /// Names of the adapters that occur in the events.
    pub(super) fn adapters(&self) -> BTreeSet<String> {
        let mut adapters = BTreeSet::new();
        self.events(|event| {
            if let Event::Stored(stored) = event
                && let Some(name) = stored.lora_name
                && !adapters.contains(name)
            {
                adapters.insert(name.to_owned());
            }
        });
        adapters
    }

    /// Tokens per block, from the first block stored; 0 when there is none.
    pub(super) fn block_size(&self) -> u32 {
        let mut block_size = 0;
        self.events(|event| {
            if let Event::Stored(stored) = event
                && block_size == 0
            {
                block_size = stored.block_size;
            }
        });
        block_size
    }
}

fn lines<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Vec<T>, CaptureError> {
    let text = std::fs::read_to_string(path).map_err(|source| CaptureError::File {
        path: path.to_owned(),
        source,
    })?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|source| CaptureError::Line {
                path: path.to_owned(),
                line: at + 1,
                source,
            })
        })
        .collect()
}

/// Bytes of standard base64; other characters than its own count as zero bits, so that a damaged frame fails later, as a frame.
fn base64(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'=').collect();
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let bits = group
            .iter()
            .fold(0u32, |bits, &digit| bits << 6 | digit_value(digit));
        let bytes = (bits << (6 * (4 - group.len()))).to_be_bytes();
        out.extend(bytes.iter().skip(1).take(group.len() - 1));
    }
    out
}

fn digit_value(digit: u8) -> u32 {
    u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_with_and_without_padding() {
        assert_eq!(base64("aGVsbG8="), b"hello");
        assert_eq!(base64("aGVsbG8"), b"hello");
        assert_eq!(base64("AP+A/w=="), [0, 255, 128, 255]);
        assert!(base64("").is_empty());
    }

    #[test]
    fn request_lines_of_one_and_of_several_ranks_are_read() {
        let one: Line = serde_json::from_str(
            r#"{"i": 3, "path": "/v1/completions", "body": {"b": 1.0, "a": 1e3}, "seq_before": 7, "usage": {"prompt_tokens_details": {"cached_tokens": 16}}}"#,
        )
        .unwrap();
        assert_eq!(
            (one.seq_before.of(0), one.cached_tokens(), one.rank()),
            (7, Some(16), None)
        );
        assert_eq!(one.body.unwrap().get(), r#"{"b": 1.0, "a": 1e3}"#);
        let two: Line = serde_json::from_str(
            r#"{"i": 3, "path": "/v1/completions", "headers": {"X-data-parallel-rank": "1"}, "seq_before": {"0": 4, "1": -1}}"#,
        )
        .unwrap();
        assert_eq!(
            (two.seq_before.of(0), two.seq_before.of(1), two.rank()),
            (4, -1, Some(1))
        );
    }
}
