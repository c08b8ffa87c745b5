//! Fan-out to gateways: a bounded queue per stream, and each gateway's share of the load.
//!
//! **When a gateway is slow.** Its queue holds [`QUEUE`] messages (several seconds of deltas). One more closes the stream with
//! `RESOURCE_EXHAUSTED`; the gateway subscribes anew and resumes from its version, or is sent a new base. Nobody waits for it.

pub mod copies;
mod load;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use prefixway_core::proto::{self, down::Kind};
use prefixway_core::snapshot::Publisher;
use tokio::sync::mpsc;

use copies::Copies;
use load::{Loads, same_but_age};
pub use load::{Scraped, Totals};

use crate::metrics::{Metrics, Reason, ReasonLabel};

/// Messages that may wait for one gateway.
pub const QUEUE: usize = 1024;

/// Shortest time between two load messages of one gateway.
pub const LOAD_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time between two, so that ages stay true.
const LOAD_REPEAT: Duration = Duration::from_millis(500);

/// Number of a stream; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A gateway's end of its stream.
#[derive(Debug)]
pub struct Subscription {
    /// Number of the stream.
    pub id: StreamId,
    /// What it is sent first: hello, policy, endpoints, base or deltas.
    pub first: Vec<proto::Down>,
    /// What it is sent then, until it ends.
    pub queue: mpsc::Receiver<proto::Down>,
    /// Why the queue ended; empty when the indexer stops.
    pub ended: Arc<OnceLock<Reason>>,
}

#[derive(Debug)]
struct Stream {
    gateway: Arc<str>,
    pools: Vec<String>,
    /// Room for a table; 0 = not said.
    table_bytes: u64,
    queue: mpsc::Sender<proto::Down>,
    ended: Arc<OnceLock<Reason>>,
    /// Newest number taken, and newest number acknowledged.
    taken: u64,
    acknowledged: u64,
    load: Vec<proto::EndpointLoad>,
    load_sent: Option<Instant>,
    copies: Copies,
}

/// All streams.
#[derive(Debug)]
pub struct Gateways {
    streams: BTreeMap<StreamId, Stream>,
    next: u64,
    loads: Loads,
    metrics: Arc<Metrics>,
}

impl Gateways {
    /// No streams yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            streams: BTreeMap::new(),
            next: 0,
            loads: Loads::default(),
            metrics,
        }
    }

    /// Opens a stream that begins with `first`. A gateway without a name counts as one of its own.
    pub fn open(&mut self, subscribe: proto::Subscribe, first: Vec<proto::Down>) -> Subscription {
        self.next += 1;
        let id = StreamId(self.next);
        let (sender, queue) = mpsc::channel(QUEUE);
        let ended = Arc::new(OnceLock::new());
        let gateway = if subscribe.gateway.is_empty() {
            format!("stream {}", id.0)
        } else {
            subscribe.gateway
        };
        let stream = Stream {
            gateway: gateway.into(),
            pools: subscribe.pools,
            table_bytes: subscribe.max_table_bytes,
            queue: sender,
            ended: Arc::clone(&ended),
            taken: 0,
            acknowledged: 0,
            load: Vec::new(),
            load_sent: None,
            copies: Copies::default(),
        };
        self.streams.insert(id, stream);
        self.count();
        Subscription {
            id,
            first,
            queue,
            ended,
        }
    }

    /// Forgets a stream that its gateway has closed; its load counts until it is too old.
    pub fn close(&mut self, id: StreamId) {
        self.end(id, Reason::Ended);
    }

    /// Closes all streams: what they were sent no longer holds.
    pub fn close_all(&mut self, reason: Reason) {
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            self.end(id, reason);
        }
    }

    /// The least room for a table that any gateway says it has.
    pub fn table_bytes(&self) -> Option<u64> {
        let said = self.streams.values().map(|stream| stream.table_bytes);
        said.filter(|bytes| *bytes > 0).min()
    }

    /// Number of open streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is no open stream.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Name of a stream's gateway.
    pub fn gateway(&self, id: StreamId) -> Option<Arc<str>> {
        self.streams
            .get(&id)
            .map(|stream| Arc::clone(&stream.gateway))
    }

    /// Notes that a message was taken; the acknowledgement goes out with [`Self::tick`].
    pub fn taken(&mut self, id: StreamId, seq: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.taken = stream.taken.max(seq);
        }
    }

    /// Notes what a gateway has in flight.
    pub fn used(&mut self, id: StreamId, usage: &proto::Usage, now: Instant) {
        if let Some(gateway) = self.gateway(id) {
            self.loads.used(gateway, usage, now);
        }
    }

    /// Notes what a gateway's VMs have of the published table.
    pub fn told_copies(
        &mut self,
        id: StreamId,
        copies: &proto::Copies,
        publisher: &Publisher,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        for odd in stream.copies.take(copies, publisher, now) {
            tracing::error!(
                gateway = &*stream.gateway,
                vm = odd.vm,
                version = odd.version,
                "a gateway's copy of the table is not what was published"
            );
        }
    }

    /// What the VMs of each gateway have of the published table, by their own account.
    pub fn copies(&self) -> impl Iterator<Item = (&str, &Copies)> {
        let streams = self.streams.values();
        streams.map(|stream| (&*stream.gateway, &stream.copies))
    }

    /// What all gateways together have in flight.
    pub fn totals(&self) -> Totals {
        self.loads.totals()
    }

    /// Sends the same message to all.
    pub fn broadcast(&mut self, kind: &Kind) {
        self.send_each(|_| Some(kind.clone()));
    }

    /// Sends each stream what its pools make of it.
    pub fn send_by_pools(&mut self, make: impl Fn(&[String]) -> Kind) {
        self.send_each(|stream| Some(make(&stream.pools)));
    }

    /// Sends acknowledgements and load where they are due.
    pub fn tick(&mut self, scraped: &[Scraped], now: Instant) {
        self.loads.expire(now);
        let loads = &self.loads;
        let totals = loads.totals();
        let mut slow = Vec::new();
        for (&id, stream) in &mut self.streams {
            let mut is_slow = false;
            if stream.taken > stream.acknowledged {
                stream.acknowledged = stream.taken;
                is_slow |= stream.send(Kind::Ack(proto::Ack { seq: stream.taken }));
            }
            let age = stream.load_sent.map(|sent| now.duration_since(sent));
            if age.is_none_or(|age| age >= LOAD_INTERVAL) {
                let load = loads.for_others_than(&stream.gateway, &totals, scraped, now);
                if age.is_none_or(|age| age >= LOAD_REPEAT) || !same_but_age(&load, &stream.load) {
                    stream.load_sent = Some(now);
                    stream.load.clone_from(&load);
                    is_slow |= stream.send(Kind::Load(proto::Load { endpoints: load }));
                }
            }
            if is_slow {
                slow.push(id);
            }
        }
        for id in slow {
            self.end(id, Reason::Slow);
        }
    }

    fn send_each(&mut self, make: impl Fn(&Stream) -> Option<Kind>) {
        let slow: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| make(stream).is_some_and(|kind| stream.send(kind)))
            .map(|(&id, _)| id)
            .collect();
        for id in slow {
            self.end(id, Reason::Slow);
        }
    }

    fn end(&mut self, id: StreamId, reason: Reason) {
        if let Some(stream) = self.streams.remove(&id) {
            // Before the sender goes: the reader looks for the reason when the queue ends.
            let _ = stream.ended.set(reason);
            self.metrics
                .streams_closed
                .get_or_create_owned(&ReasonLabel { reason })
                .inc();
            tracing::info!(gateway = &*stream.gateway, ?reason, "stream closed");
            self.count();
        }
    }

    fn count(&self) {
        self.metrics
            .gateways
            .set(i64::try_from(self.streams.len()).unwrap_or(i64::MAX));
    }
}

impl Stream {
    /// Queues a message; `true` when there is no room for it.
    fn send(&self, kind: Kind) -> bool {
        let down = proto::Down { kind: Some(kind) };
        // A closed queue is told by `Gateways::close`.
        matches!(
            self.queue.try_send(down),
            Err(mpsc::error::TrySendError::Full(_))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribe(gateway: &str) -> proto::Subscribe {
        proto::Subscribe {
            gateway: gateway.to_owned(),
            ..proto::Subscribe::default()
        }
    }

    fn heartbeat(version: u64) -> Kind {
        Kind::Heartbeat(proto::Heartbeat {
            unix_ms: 0,
            version,
        })
    }

    #[test]
    fn a_full_queue_closes_its_stream_and_no_other() {
        let mut gateways = Gateways::new(Arc::new(Metrics::new()));
        let mut slow = gateways.open(subscribe("slow"), Vec::new());
        let mut quick = gateways.open(subscribe("quick"), Vec::new());
        for version in 0..=QUEUE as u64 {
            gateways.broadcast(&heartbeat(version));
            quick.queue.try_recv().unwrap();
        }
        assert_eq!(gateways.len(), 1);
        assert_eq!(slow.ended.get(), Some(&Reason::Slow));
        assert!(quick.ended.get().is_none());
        // What was queued before still arrives, then the end.
        for _ in 0..QUEUE {
            slow.queue.try_recv().unwrap();
        }
        assert_eq!(
            slow.queue.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
    }

    #[test]
    fn acknowledgements_are_sent_once_and_load_at_most_every_50_ms() {
        let mut gateways = Gateways::new(Arc::new(Metrics::new()));
        let mut one = gateways.open(subscribe("one"), Vec::new());
        let two = gateways.open(subscribe("two"), Vec::new());
        let start = Instant::now();
        let scraped = [Scraped {
            endpoint: 7,
            figures: None,
            others: 0,
        }];
        let usage = |in_flight| proto::Usage {
            endpoints: vec![proto::EndpointUsage {
                endpoint: 7,
                in_flight,
                queued_prefill_tokens: 10,
            }],
        };
        gateways.taken(one.id, 3);
        gateways.tick(&scraped, start);
        let mut kinds =
            || std::iter::from_fn(|| one.queue.try_recv().ok()?.kind).collect::<Vec<_>>();
        let first = kinds();
        assert!(
            matches!(
                first.as_slice(),
                [Kind::Ack(proto::Ack { seq: 3 }), Kind::Load(_)]
            ),
            "{first:?}"
        );
        gateways.used(two.id, &usage(2), start);
        gateways.tick(&scraped, start + LOAD_INTERVAL / 2);
        assert_eq!(kinds(), []);
        gateways.tick(&scraped, start + LOAD_INTERVAL);
        let loads = kinds();
        let [Kind::Load(load)] = loads.as_slice() else {
            panic!("{loads:?}")
        };
        assert_eq!(
            (
                load.endpoints[0].in_flight,
                load.endpoints[0].queued_prefill_tokens
            ),
            (2, 10)
        );
        // Nothing new, nothing sent.
        gateways.tick(&scraped, start + 3 * LOAD_INTERVAL);
        assert_eq!(kinds(), []);
    }
}
