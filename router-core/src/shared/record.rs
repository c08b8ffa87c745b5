//! Record of a VM: what it has in flight and its newest decisions.
//!
//! ```text
//! offset 0   4 bytes  "PWV1"
//!        4   u32      VM id
//!        8   u64      nonce of the VM
//!       16   u64      ms at which this was written
//!       24   u32      number of usages
//!       28   u32      number of messages
//!       32   usages:   u64 endpoint key, u64 queued prefill tokens, u32 requests in flight, u32 0
//!            messages: u64 sequence number, u64 endpoint key, u32 shard, u16 kind (1 Routed, 2 Outcome, 3 Routed that has moved, 16 Sampled), u16 0,
//!                      u32 length, u32 low half of the ms at which it was said (0: as the record),
//!                      and the message of that length, whose endpoint id is 0 (ids differ between epochs, keys don't)
//!            where requests wait: u32 requests that wait, u32 number of heads, heads as in [`Head`]
//! ```
//!
//! Messages are in order of their numbers, oldest first.

use prost::Message as _;

use super::{read_u32, read_u64};
use crate::{flow::Head, load::Usage, proto, snapshot::EndpointKey};

const MAGIC: &[u8; 4] = b"PWV1";
const FIXED_BYTES: usize = 32;
const USAGE_BYTES: usize = 24;
const MESSAGE_BYTES: usize = 32;

/// A decision or how it went.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A decision.
    Routed(proto::Routed),
    /// How a request went.
    Outcome(proto::Outcome),
    /// A decision whose request went on to another endpoint, in place of what was said before.
    Moved(proto::Routed),
    /// A decision in full, for the indexer.
    Sampled(Box<proto::Sampled>),
}

/// A message of a VM to all others and to the indexer.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// 1, 2, ... within the VM.
    pub seq: u64,
    /// Number of the shard the endpoint belongs to.
    pub shard: u32,
    /// The endpoint; its id in the body is not used.
    pub endpoint: EndpointKey,
    /// When it was said, Unix time.
    pub said_ms: u64,
    /// What is said.
    pub body: Body,
}

/// Contents of `vm/<id>`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmRecord {
    /// Number of the VM.
    pub id: u32,
    /// Its nonce.
    pub nonce: u64,
    /// When it was written.
    pub time_ms: u64,
    /// What the VM has in flight.
    pub usages: Vec<(EndpointKey, Usage)>,
    /// Its newest messages, oldest first.
    pub messages: Vec<Message>,
    /// Requests that wait in it.
    pub waiting: u32,
    /// The first ones of its tenants.
    pub heads: Vec<Head>,
}

/// A message as it is kept in the outbox: encoded once.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    pub(super) time_ms: u64,
    pub(super) bytes: Vec<u8>,
}

impl Encoded {
    pub(super) fn new(message: &Message) -> Self {
        let routed = |routed: &proto::Routed| {
            let routed = proto::Routed {
                endpoint: 0,
                ..routed.clone()
            };
            routed.encode_to_vec()
        };
        let (kind, body) = match &message.body {
            Body::Routed(decided) => (1u16, routed(decided)),
            Body::Moved(moved) => (3u16, routed(moved)),
            Body::Outcome(outcome) => (
                2u16,
                proto::Outcome {
                    endpoint: 0,
                    ..*outcome
                }
                .encode_to_vec(),
            ),
            Body::Sampled(sampled) => (16u16, sampled.encode_to_vec()),
        };
        let mut bytes = Vec::with_capacity(MESSAGE_BYTES + body.len());
        bytes.extend_from_slice(&message.seq.to_le_bytes());
        bytes.extend_from_slice(&message.endpoint.0.to_le_bytes());
        bytes.extend_from_slice(&message.shard.to_le_bytes());
        bytes.extend_from_slice(&u32::from(kind).to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&low_half(message.said_ms).to_le_bytes());
        bytes.extend_from_slice(&body);
        Self {
            time_ms: message.said_ms,
            bytes,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low_half(ms: u64) -> u32 {
    ms as u32
}

/// The time whose low half is given, at most as late as the record's.
fn said_ms(low: u32, record_ms: u64) -> u64 {
    match low {
        0 => record_ms,
        low => record_ms.saturating_sub(u64::from(low_half(record_ms).wrapping_sub(low))),
    }
}

/// Bytes of a record.
pub(super) fn encode<'a>(
    (id, nonce, time_ms): (u32, u64, u64),
    usages: impl Iterator<Item = (EndpointKey, Usage)>,
    messages: impl ExactSizeIterator<Item = &'a Encoded>,
    (waiting, heads): (u32, &[Head]),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&nonce.to_le_bytes());
    bytes.extend_from_slice(&time_ms.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&u32::try_from(messages.len()).unwrap_or(0).to_le_bytes());
    let mut count = 0u32;
    for (key, usage) in usages {
        bytes.extend_from_slice(&key.0.to_le_bytes());
        bytes.extend_from_slice(&usage.queued_prefill_tokens.to_le_bytes());
        bytes.extend_from_slice(&usage.in_flight.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        count += 1;
    }
    if let Some(place) = bytes.get_mut(24..28) {
        place.copy_from_slice(&count.to_le_bytes());
    }
    messages.for_each(|message| bytes.extend_from_slice(&message.bytes));
    if waiting > 0 {
        bytes.extend_from_slice(&waiting.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(heads.len()).unwrap_or(0).to_le_bytes());
        for head in heads {
            head.write(&mut bytes);
        }
    }
    bytes
}

impl VmRecord {
    /// Bytes of the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        let encoded: Vec<_> = self.messages.iter().map(Encoded::new).collect();
        encode(
            (self.id, self.nonce, self.time_ms),
            self.usages.iter().copied(),
            encoded.iter(),
            (self.waiting, &self.heads),
        )
    }

    /// Reads a record; messages up to `after` are passed over unread. `None` when the bytes are not a record.
    pub fn from_bytes(bytes: &[u8], after: u64) -> Option<Self> {
        if bytes.get(..4)? != MAGIC {
            return None;
        }
        let usage_bytes = (read_u32(bytes, 24)? as usize).checked_mul(USAGE_BYTES)?;
        let (usages, mut rest) = bytes.get(FIXED_BYTES..)?.split_at_checked(usage_bytes)?;
        let usages = usages
            .as_chunks::<USAGE_BYTES>()
            .0
            .iter()
            .map_while(|usage| {
                let in_flight = read_u32(usage, 16)?;
                Some((
                    EndpointKey(read_u64(usage, 0)?),
                    Usage {
                        in_flight,
                        queued_prefill_tokens: read_u64(usage, 8)?,
                    },
                ))
            });
        let usages = usages.collect();
        let time_ms = read_u64(bytes, 16)?;
        let mut messages = Vec::new();
        for _ in 0..read_u32(bytes, 28)? {
            let (fixed, after_fixed) = rest.split_at_checked(MESSAGE_BYTES)?;
            let (body, after_body) = after_fixed.split_at_checked(read_u32(fixed, 24)? as usize)?;
            rest = after_body;
            let seq = read_u64(fixed, 0)?;
            if seq <= after {
                continue;
            }
            let body = match read_u32(fixed, 20)? {
                1 => Body::Routed(proto::Routed::decode(body).ok()?),
                2 => Body::Outcome(proto::Outcome::decode(body).ok()?),
                3 => Body::Moved(proto::Routed::decode(body).ok()?),
                16 => Body::Sampled(Box::new(proto::Sampled::decode(body).ok()?)),
                _ => continue,
            };
            messages.push(Message {
                seq,
                shard: read_u32(fixed, 16)?,
                endpoint: EndpointKey(read_u64(fixed, 8)?),
                said_ms: said_ms(read_u32(fixed, 28)?, time_ms),
                body,
            });
        }
        Some(Self {
            id: read_u32(bytes, 4)?,
            nonce: read_u64(bytes, 8)?,
            time_ms,
            usages,
            messages,
            waiting: read_u32(rest, 0).unwrap_or(0),
            heads: Head::read_all(rest.get(8..).unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VmRecord {
        let routed = proto::Routed {
            request: 5,
            rungs: vec![1; 16].into(),
            ..proto::Routed::default()
        };
        let outcome = proto::Outcome {
            request: 5,
            failed: true,
            ..proto::Outcome::default()
        };
        VmRecord {
            id: 2,
            nonce: 3,
            time_ms: 4,
            usages: vec![(
                EndpointKey(9),
                Usage {
                    in_flight: 1,
                    queued_prefill_tokens: 10,
                },
            )],
            messages: vec![
                Message {
                    seq: 7,
                    shard: 1,
                    endpoint: EndpointKey(9),
                    said_ms: 3,
                    body: Body::Routed(routed),
                },
                Message {
                    seq: 8,
                    shard: 0,
                    endpoint: EndpointKey(8),
                    said_ms: 4,
                    body: Body::Outcome(outcome),
                },
            ],
            waiting: 0,
            heads: Vec::new(),
        }
    }

    #[test]
    fn what_waits_is_told_behind_the_messages() {
        let head = |tenant| Head {
            arrival: crate::flow::Arrival {
                lane: 1,
                priority: -2,
                tenant,
                tokens: 4,
                units: 5,
                bytes: 0,
                at_ms: 6,
            },
            waiting: 7,
            number: 10,
        };
        let told = VmRecord {
            waiting: 14,
            heads: vec![head(8), head(9)],
            ..record()
        };
        let bytes = told.to_bytes();
        assert_eq!(VmRecord::from_bytes(&bytes, 0), Some(told));
        assert_eq!(bytes.len(), record().to_bytes().len() + 8 + 2 * 48);
    }

    #[test]
    fn times_are_told_by_their_low_half() {
        let record_ms = 0x123_0000_0010;
        assert_eq!(said_ms(low_half(record_ms), record_ms), record_ms);
        assert_eq!(
            said_ms(low_half(record_ms - 0x20), record_ms),
            record_ms - 0x20
        );
        assert_eq!(said_ms(0, record_ms), record_ms);
    }

    #[test]
    fn golden_record() {
        let mut expected =
            b"PWV1\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0".to_vec();
        expected.extend(b"\x09\0\0\0\0\0\0\0\x0A\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
        expected.extend(
            b"\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x14\0\0\0\x03\0\0\0",
        );
        expected.extend(
            b"\x08\x05\x1A\x10\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
        );
        expected
            .extend(b"\x08\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\x04\0\0\0");
        expected.extend(b"\x08\x05\x38\x01");
        assert_eq!(record().to_bytes(), expected);
        assert_eq!(VmRecord::from_bytes(&expected, 0), Some(record()));
        assert_eq!(
            VmRecord::from_bytes(&expected, 7).unwrap().messages,
            record().messages[1..]
        );
        for length in 0..expected.len() {
            assert_eq!(
                VmRecord::from_bytes(&expected[..length], 0),
                None,
                "{length}"
            );
        }
    }
}
