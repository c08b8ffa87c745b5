//! Frames of batches, live and replayed.
//!
//! ```text
//!  live                         topic | seq | payload
//!  replay, vLLM 0.26 and later   ""  | topic | seq | payload      end: "" | ""  | ff*8 | ""
//!  replay, vLLM 0.25 and before  ""  | seq   | payload            end: "" | ff*8 | ""
//! ```
//!
//! `seq` is 8 bytes, big endian. Reading from the end makes one rule of all forms: payload is the last frame, `seq` the one before.

use std::ops::Deref;

/// `seq` of the message that ends a replay: -1.
pub(super) const END_OF_REPLAY: u64 = u64::MAX;

/// Frames kept of one message; more are read and dropped, from the front.
const MAX_FRAMES: usize = 4;

/// Reads one whole message without waiting; `None` when there is none.
pub(super) fn receive(socket: &zmq::Socket) -> zmq::Result<Option<Message>> {
    let mut frames = Vec::with_capacity(MAX_FRAMES);
    loop {
        match socket.recv_msg(zmq::DONTWAIT) {
            Ok(frame) => {
                let more = frame.get_more();
                if frames.len() == MAX_FRAMES {
                    frames.remove(0);
                }
                frames.push(frame);
                if !more {
                    return Ok(Some(Message::from_frames(&frames)));
                }
            }
            Err(zmq::Error::EAGAIN) => return Ok(None),
            Err(zmq::Error::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What a message says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Batch { seq: u64, payload: Vec<u8> },
    EndOfReplay,
    Malformed,
}

impl Message {
    fn from_frames(frames: &[impl Deref<Target = [u8]>]) -> Self {
        let [.., seq, payload] = frames else {
            return Self::Malformed;
        };
        match <[u8; 8]>::try_from(&**seq).map(u64::from_be_bytes) {
            Ok(END_OF_REPLAY) => Self::EndOfReplay,
            Ok(seq) => Self::Batch {
                seq,
                payload: payload.to_vec(),
            },
            Err(_) => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_from_its_end() {
        let seq = 7u64.to_be_bytes();
        let end = [0xff; 8];
        let batch = Message::Batch {
            seq: 7,
            payload: b"p".to_vec(),
        };
        let cases: [(&[&[u8]], Message); 8] = [
            (&[b"topic", &seq, b"p"], batch),
            (
                &[b"", b"topic", &seq, b"p"],
                Message::Batch {
                    seq: 7,
                    payload: b"p".to_vec(),
                },
            ),
            (
                &[b"", &seq, b"p"],
                Message::Batch {
                    seq: 7,
                    payload: b"p".to_vec(),
                },
            ),
            (&[b"", b"", &end, b""], Message::EndOfReplay),
            (&[b"", &end, b""], Message::EndOfReplay),
            (&[b"topic", b"1234567", b"p"], Message::Malformed),
            (&[b"p"], Message::Malformed),
            (&[], Message::Malformed),
        ];
        for (frames, expected) in cases {
            assert_eq!(Message::from_frames(frames), expected, "{frames:?}");
        }
    }
}
