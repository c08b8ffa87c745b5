//! ZMQ frames of live and replayed batches.

/// Sequence number that ends a replay: -1 in the engine's 8 bytes.
const REPLAY_END: u64 = u64::MAX;

/// A message from an engine's event socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// One batch.
    Batch {
        /// Topic as sent; empty when the engine sends none. Not an identity.
        topic: &'a [u8],
        /// Sequence number of the batch, from 0.
        seq: u64,
        /// msgpack payload.
        payload: &'a [u8],
    },
    /// The replay is over.
    ReplayEnd,
}

/// Why frames are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer than three frames.
    #[error("message of {frames} frames")]
    TooFew {
        /// Frames received.
        frames: usize,
        /// Sequence number, when the last frame can be one (the payload is missing): the batch is lost, but it is no gap.
        seq: Option<u64>,
    },
    /// The sequence frame has another length than 8 bytes.
    #[error("sequence frame of {bytes} bytes")]
    SequenceLength {
        /// Its length.
        bytes: usize,
    },
}

impl FrameError {
    /// Sequence number of the lost batch, where it could be read.
    pub fn seq(self) -> Option<u64> {
        match self {
            Self::TooFew { seq, .. } => seq,
            Self::SequenceLength { .. } => None,
        }
    }
}

/// Reads a live or replayed message. Frames are read from the end, because engines before 0.26 leave out the topic in replays.
///
/// # Errors
/// [`FrameError`] when there are fewer than three frames or the sequence frame does not have 8 bytes.
pub fn parse_frames<F: AsRef<[u8]>>(frames: &[F]) -> Result<Message<'_>, FrameError> {
    let number = |frame: &F| Some(u64::from_be_bytes(frame.as_ref().try_into().ok()?));
    let [before @ .., topic, seq, payload] = frames else {
        return Err(FrameError::TooFew {
            frames: frames.len(),
            seq: frames.get(1).and_then(number),
        });
    };
    let (topic, payload) = (topic.as_ref(), payload.as_ref());
    let seq = number(seq).ok_or(FrameError::SequenceLength {
        bytes: seq.as_ref().len(),
    })?;
    if seq == REPLAY_END && payload.is_empty() && (topic.is_empty() || !before.is_empty()) {
        return Ok(Message::ReplayEnd);
    }
    Ok(Message::Batch {
        topic,
        seq,
        payload,
    })
}
