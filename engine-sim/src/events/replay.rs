//! The batches kept for replays and how a replay is answered.
//!
//! ```text
//! request   [identity] "" start_seq (8 bytes BE)
//! answers   [identity] "" topic seq payload          one message per kept batch with seq >= start_seq
//! end       [identity] "" ""    ff*8 ""
//! ```
//! This is the shape of vLLM 0.26.0 and later.

use std::collections::VecDeque;

/// Sequence field of the message that ends a replay (-1).
pub const END_SEQUENCE: [u8; 8] = [0xff; 8];

/// Newest batches in order.
#[derive(Debug)]
pub struct ReplayBuffer {
    batches: VecDeque<(u64, Vec<u8>)>,
    capacity: usize,
}

impl ReplayBuffer {
    /// Makes an empty buffer for the newest `capacity` batches.
    pub fn new(capacity: usize) -> Self {
        Self {
            batches: VecDeque::new(),
            capacity,
        }
    }

    /// Keeps a batch; the oldest one goes when the buffer is full.
    pub fn push(&mut self, sequence: u64, payload: Vec<u8>) {
        self.batches.push_back((sequence, payload));
        while self.batches.len() > self.capacity {
            self.batches.pop_front();
        }
    }

    /// Gives the messages that answer `request` (its frames, identity first); `None` for a malformed one, which vLLM ignores.
    pub fn answer(&self, topic: &str, request: &[Vec<u8>]) -> Option<Vec<Vec<Vec<u8>>>> {
        let [identity, delimiter, start] = request else {
            return None;
        };
        let start = u64::from_be_bytes(start.as_slice().try_into().ok()?);
        let message = |topic: &[u8], sequence: [u8; 8], payload: &[u8]| {
            vec![
                identity.clone(),
                delimiter.clone(),
                topic.to_vec(),
                sequence.to_vec(),
                payload.to_vec(),
            ]
        };
        let kept = self
            .batches
            .iter()
            .filter(|(sequence, _)| *sequence >= start);
        let mut messages: Vec<_> = kept
            .map(|(sequence, payload)| message(topic.as_bytes(), sequence.to_be_bytes(), payload))
            .collect();
        messages.push(message(b"", END_SEQUENCE, b""));
        Some(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start: u64) -> Vec<Vec<u8>> {
        vec![b"peer".to_vec(), Vec::new(), start.to_be_bytes().to_vec()]
    }

    #[test]
    fn a_replay_holds_what_is_left_from_the_start_and_then_its_end() {
        let mut buffer = ReplayBuffer::new(2);
        for sequence in 0..4 {
            buffer.push(sequence, vec![u8::try_from(sequence).unwrap()]);
        }
        let answers = buffer.answer("t", &request(1)).unwrap();
        let shape: Vec<_> = answers.iter().map(|frames| frames[2..].to_vec()).collect();
        let batch = |sequence: u8| {
            vec![
                b"t".to_vec(),
                vec![0, 0, 0, 0, 0, 0, 0, sequence],
                vec![sequence],
            ]
        };
        assert_eq!(
            shape,
            [
                batch(2),
                batch(3),
                vec![Vec::new(), END_SEQUENCE.to_vec(), Vec::new()]
            ]
        );
        assert!(
            answers
                .iter()
                .all(|frames| frames[0] == b"peer" && frames[1].is_empty())
        );
    }

    #[test]
    fn malformed_requests_are_ignored() {
        let buffer = ReplayBuffer::new(2);
        assert_eq!(buffer.answer("", &request(0)[..2]), None);
        assert_eq!(
            buffer.answer("", &[Vec::new(), Vec::new(), vec![1, 2]]),
            None
        );
    }
}
