//! Messages from a gateway to the indexer: numbered, and with a bounded number of unacknowledged ones.

use std::collections::VecDeque;

use prost::Message as _;

use super::record::{Body, Message};
use crate::{
    load::speculation::MAX_TTL_MS,
    proto::{self, up::Kind},
    snapshot::EndpointKey,
};

/// Most messages that are sent and not acknowledged.
pub const MAX_UNACKED: u64 = 1_024;

/// Most messages that wait; beyond it the oldest is dropped (they are hints, load is sent absolute and whole).
pub const MAX_WAITING: usize = 4_096;

/// Most messages that go together as one.
const MAX_TOGETHER: usize = 128;

/// Most bytes of messages that go together as one; a single one may be longer.
const MAX_TOGETHER_BYTES: usize = 256 << 10;

/// Stands for an endpoint that the shard does not have: what was expected of another is taken back by it.
pub const NO_ENDPOINT: u32 = u32::MAX;

/// Time between two `Usage` messages that differ.
pub const USAGE_MS: u64 = 50;

/// Time after which `Usage` is sent though nothing changed.
pub const USAGE_REPEAT_MS: u64 = 1_000;

/// Numbers and paces the messages of one stream after another.
#[derive(Debug, Default)]
pub struct Upstream {
    /// By the endpoint's key: an indexer that started anew may know it by another id.
    waiting: VecDeque<Message>,
    usage: Option<proto::Usage>,
    sent_usage: Option<(u64, proto::Usage)>,
    copies: Option<proto::Copies>,
    seq: u64,
    acked: u64,
}

impl Upstream {
    /// A new stream begins: numbers start over and nothing sent before is waited for.
    pub fn restart(&mut self) {
        self.seq = 0;
        self.acked = 0;
        self.sent_usage = None;
    }

    /// Adds a decision or an outcome.
    pub fn push(&mut self, message: Message) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(message);
    }

    /// Says what the gateway has in flight now; the newest is sent.
    pub fn set_usage(&mut self, usage: proto::Usage) {
        self.usage = Some(usage);
    }

    /// Says what the VMs have of the table now; it is sent once.
    pub fn set_copies(&mut self, copies: proto::Copies) {
        self.copies = Some(copies);
    }

    /// Endpoints have other ids from now on.
    pub fn forget_usage(&mut self) {
        self.usage = None;
    }

    /// The indexer took messages up to `seq`.
    pub fn ack(&mut self, seq: u64) {
        self.acked = self.acked.max(seq.min(self.seq));
    }

    /// Messages to send now, in order. Decisions for endpoints without an id are left out, and those that nobody would expect anything of any
    /// more; the others carry their age, because the stream may have been closed for a while.
    pub fn poll(
        &mut self,
        now_ms: u64,
        id_of: impl Fn(EndpointKey) -> Option<u32>,
    ) -> Vec<proto::Up> {
        let mut messages = Vec::new();
        if let Some(usage) = self
            .usage
            .take_if(|usage| is_due(self.sent_usage.as_ref(), usage, now_ms))
            && self.has_room()
        {
            self.sent_usage = Some((now_ms, usage.clone()));
            messages.push(self.number(Kind::Usage(usage)));
        }
        if self.has_room()
            && let Some(copies) = self.copies.take()
        {
            messages.push(self.number(Kind::Copies(copies)));
        }
        while self.has_room()
            && let Some(message) = self.waiting.pop_front()
        {
            if let Some(kind) = kind(message, now_ms, &id_of) {
                messages.push(self.number(kind));
            }
        }
        messages
    }

    fn has_room(&self) -> bool {
        self.seq - self.acked < MAX_UNACKED
    }

    fn number(&mut self, kind: Kind) -> proto::Up {
        self.seq += 1;
        proto::Up {
            seq: self.seq,
            kind: Some(kind),
        }
    }
}

/// The same messages in as few as possible: each that is sent costs a proxy more than what is in it.
pub fn together(messages: Vec<proto::Up>) -> Vec<proto::Up> {
    let mut bundles: Vec<Vec<proto::Up>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let len = message.encoded_len();
        bytes += len;
        match bundles.last_mut() {
            Some(last) if last.len() < MAX_TOGETHER && bytes <= MAX_TOGETHER_BYTES => {
                last.push(message);
            }
            _ => {
                bytes = len;
                bundles.push(vec![message]);
            }
        }
    }
    bundles.into_iter().filter_map(bundle).collect()
}

fn bundle(mut ups: Vec<proto::Up>) -> Option<proto::Up> {
    if ups.len() < 2 {
        return ups.pop();
    }
    Some(proto::Up {
        seq: 0,
        kind: Some(Kind::Together(proto::Together { ups })),
    })
}

fn kind(message: Message, now_ms: u64, id_of: impl Fn(EndpointKey) -> Option<u32>) -> Option<Kind> {
    let id = id_of(message.endpoint);
    let age_ms = now_ms.saturating_sub(message.said_ms);
    let routed = |routed: proto::Routed, endpoint: u32| proto::Routed {
        endpoint,
        age_ms: u32::try_from(age_ms).unwrap_or(u32::MAX),
        ..routed
    };
    match message.body {
        Body::Routed(_) | Body::Moved(_) if age_ms > MAX_TTL_MS => None,
        Body::Routed(decided) => Some(Kind::Routed(routed(decided, id?))),
        Body::Moved(moved) => Some(Kind::Moved(routed(moved, id.unwrap_or(NO_ENDPOINT)))),
        Body::Outcome(outcome) => Some(Kind::Outcome(proto::Outcome {
            endpoint: id.unwrap_or(NO_ENDPOINT),
            ..outcome
        })),
        Body::Sampled(sampled) => {
            let endpoint = id?;
            let outcome = |outcome| proto::Outcome {
                endpoint,
                ..outcome
            };
            Some(Kind::Sampled(Box::new(proto::Sampled {
                endpoint,
                outcome: sampled.outcome.map(outcome),
                ..*sampled
            })))
        }
    }
}

fn is_due(sent: Option<&(u64, proto::Usage)>, usage: &proto::Usage, now_ms: u64) -> bool {
    sent.is_none_or(|(at_ms, sent)| {
        let pause = if sent == usage {
            USAGE_REPEAT_MS
        } else {
            USAGE_MS
        };
        now_ms.saturating_sub(*at_ms) >= pause
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(key: EndpointKey) -> Option<u32> {
        u32::try_from(key.0).ok()
    }

    fn usage(in_flight: u32) -> proto::Usage {
        proto::Usage {
            endpoints: vec![proto::EndpointUsage {
                endpoint: 1,
                in_flight,
                queued_prefill_tokens: 0,
            }],
        }
    }

    fn said(body: Body, endpoint: u64, said_ms: u64) -> Message {
        Message {
            seq: 1,
            shard: 0,
            endpoint: EndpointKey(endpoint),
            said_ms,
            body,
        }
    }

    #[test]
    fn what_waited_for_a_stream_says_how_old_it_is_and_what_is_too_old_is_left_out() {
        let mut upstream = Upstream::default();
        let strange = u64::MAX;
        for (request, endpoint, said_ms) in [(1, 1, 1_000), (2, 1, 61_000), (3, strange, 61_000)] {
            let routed = proto::Routed {
                request,
                ..proto::Routed::default()
            };
            let outcome = proto::Outcome {
                request,
                ..proto::Outcome::default()
            };
            upstream.push(said(Body::Routed(routed.clone()), endpoint, said_ms));
            upstream.push(said(Body::Moved(routed), endpoint, said_ms));
            upstream.push(said(Body::Outcome(outcome), endpoint, said_ms));
        }
        let sent = upstream.poll(61_001, id_of).into_iter();
        let sent: Vec<_> = sent
            .map(|up| match up.kind {
                Some(Kind::Routed(routed)) => ('r', routed.request, routed.endpoint, routed.age_ms),
                Some(Kind::Moved(moved)) => ('m', moved.request, moved.endpoint, moved.age_ms),
                Some(Kind::Outcome(outcome)) => ('o', outcome.request, outcome.endpoint, 0),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ('o', 1, 1, 0),
            ('r', 2, 1, 1),
            ('m', 2, 1, 1),
            ('o', 2, 1, 0),
            ('m', 3, NO_ENDPOINT, 1),
            ('o', 3, NO_ENDPOINT, 0),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn usage_is_sent_when_it_changes_and_repeated_when_not() {
        let mut upstream = Upstream::default();
        let mut sent = Vec::new();
        for (now_ms, in_flight) in [(0, 1), (10, 2), (50, 2), (60, 2), (1_049, 2), (1_050, 2)] {
            upstream.set_usage(usage(in_flight));
            sent.extend(
                upstream
                    .poll(now_ms, id_of)
                    .into_iter()
                    .map(|up| (now_ms, up.seq)),
            );
        }
        assert_eq!(sent, [(0, 1), (50, 2), (1_050, 3)]);
        upstream.restart();
        upstream.set_usage(usage(2));
        assert_eq!(upstream.poll(1_051, id_of).len(), 1);
    }

    #[test]
    fn messages_go_together_in_order_within_bounds() {
        let up = |seq: u64, bytes: usize| proto::Up {
            seq,
            kind: Some(Kind::Routed(proto::Routed {
                rungs: vec![0; bytes].into(),
                ..proto::Routed::default()
            })),
        };
        let parts = |ups: Vec<proto::Up>| -> Vec<Vec<u64>> {
            let seqs = |up: proto::Up| match up.kind {
                Some(Kind::Together(together)) if up.seq == 0 => {
                    together.ups.iter().map(|up| up.seq).collect()
                }
                _ => vec![up.seq],
            };
            together(ups).into_iter().map(seqs).collect()
        };
        assert!(parts(Vec::new()).is_empty());
        assert_eq!(parts(vec![up(1, 8)]), [[1]]);
        let many = parts((1..=300).map(|seq| up(seq, 8)).collect());
        assert_eq!(
            many.iter().map(Vec::len).collect::<Vec<_>>(),
            [128, 128, 44]
        );
        assert!(many.concat().into_iter().eq(1..=300));
        let long = parts((1..=5).map(|seq| up(seq, 120 << 10)).collect());
        assert_eq!(long, [vec![1, 2], vec![3, 4], vec![5]]);
        let longest = parts(vec![up(1, 8), up(2, 300 << 10), up(3, 8)]);
        assert_eq!(longest, [[1], [2], [3]]);
    }

    #[test]
    fn the_unacknowledged_window_is_bounded_and_so_is_the_queue() {
        let mut upstream = Upstream::default();
        for request in 0..5_000 {
            let routed = proto::Routed {
                request,
                ..proto::Routed::default()
            };
            upstream.push(said(Body::Routed(routed), 1, 0));
        }
        let first = upstream.poll(0, id_of);
        assert_eq!(first.len() as u64, MAX_UNACKED);
        assert!(matches!(&first[0].kind, Some(Kind::Routed(routed)) if routed.request == 904));
        assert!(upstream.poll(0, id_of).is_empty());
        upstream.ack(10);
        assert_eq!(
            upstream
                .poll(0, id_of)
                .iter()
                .map(|up| up.seq)
                .collect::<Vec<_>>(),
            (1_025..=1_034).collect::<Vec<_>>()
        );
        upstream.ack(u64::MAX);
        assert_eq!(upstream.poll(0, id_of).len() as u64, MAX_UNACKED);
    }
}
