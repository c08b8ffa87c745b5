//! One indexer shard as this VM follows it.

use prefixway_core::proto::{Down, Up, up};
use prefixway_core::snapshot::{Endpoints, Replica, ReplicaError, Update};
use prost::Message;
use thiserror::Error;

use crate::decision::ShardSight;
use crate::host::{self, Buffer, HostError};
use crate::stream::{Due, Link, METHOD, SERVICE};

/// Why a stream had to be given up.
#[derive(Debug, Error)]
pub(crate) enum StreamError {
    /// The message could not be read.
    #[error("message could not be read")]
    Host(#[from] HostError),
    /// The message is no `Down`.
    #[error("message could not be decoded")]
    Decode(#[from] prost::DecodeError),
    /// The copy does not go on.
    #[error("copy does not go on")]
    Replica(#[from] ReplicaError),
}

/// Stream, copy and endpoints of a shard.
#[derive(Debug)]
pub(crate) struct Shard {
    cluster: String,
    link: Link,
    replica: Replica,
    endpoints: Endpoints,
    heard_ms: u64,
}

impl Shard {
    /// A shard of which nothing is known.
    pub(crate) fn new(cluster: &str, max_bytes: usize) -> Self {
        Self {
            cluster: cluster.to_owned(),
            link: Link::default(),
            replica: Replica::new(max_bytes, None),
            endpoints: Endpoints::default(),
            heard_ms: 0,
        }
    }

    /// The stream's token while it is open.
    pub(crate) fn token(&self) -> Option<u32> {
        self.link.token()
    }

    /// Endpoints of the shard.
    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The copy.
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Age of the copy in ms; `None` while there is none.
    pub(crate) fn age_ms(&self, now_ms: u64) -> Option<u64> {
        (self.replica.snapshot().epoch != 0).then(|| now_ms.saturating_sub(self.heard_ms))
    }

    /// What a decision sees of the shard.
    pub(crate) fn sight(&self, now_ms: u64, max_age_ms: u64) -> ShardSight<'_> {
        ShardSight {
            snapshot: self.replica.snapshot(),
            endpoints: &self.endpoints,
            is_fresh: self.age_ms(now_ms).is_some_and(|age| age <= max_age_ms),
        }
    }

    /// Opens, gives up and feeds the stream; gives whether it ended.
    pub(crate) fn tick(&mut self, now_ms: u64, pools: &[String], gateway: &str) -> bool {
        let ended = match self.link.due(now_ms) {
            Due::Nothing => false,
            Due::Open => !self.open(now_ms, pools, gateway),
            Due::Cancel(token) => {
                let _ = host::cancel_stream(token);
                self.closed(now_ms);
                true
            }
        };
        self.send_waiting();
        ended
    }

    /// Opens the stream and subscribes; gives whether that worked.
    fn open(&mut self, now_ms: u64, pools: &[String], gateway: &str) -> bool {
        let Ok(token) = host::open_stream(&self.cluster, SERVICE, METHOD) else {
            self.closed(now_ms);
            return false;
        };
        self.link.opened(token, now_ms);
        let subscribe = Up {
            seq: 0,
            kind: Some(up::Kind::Subscribe(self.replica.subscribe(pools, gateway))),
        };
        if host::send(token, &subscribe.encode_to_vec()).is_err() {
            let _ = host::cancel_stream(token);
            self.closed(now_ms);
            return false;
        }
        true
    }

    fn send_waiting(&mut self) {
        let Some(token) = self.link.token() else {
            return;
        };
        while let Some(record) = self.link.next() {
            if host::send(token, &record.encode_to_vec()).is_err() {
                return;
            }
        }
    }

    /// Queues a record; gives whether an older one was dropped for it.
    pub(crate) fn push(&mut self, record: up::Kind) -> bool {
        self.link.push(record)
    }

    /// The stream ended.
    pub(crate) fn closed(&mut self, now_ms: u64) {
        self.link.closed(now_ms, host::now_ns());
    }

    /// Takes a message of the stream.
    ///
    /// # Errors
    /// The stream is cancelled then, and will be opened again.
    pub(crate) fn message(&mut self, size: usize, now_ms: u64) -> Result<Update, StreamError> {
        let result = self.feed(size, now_ms);
        if result.is_err() {
            if let Some(token) = self.link.token() {
                let _ = host::cancel_stream(token);
            }
            self.closed(now_ms);
        }
        result
    }

    fn feed(&mut self, size: usize, now_ms: u64) -> Result<Update, StreamError> {
        let bytes = host::buffer(Buffer::GrpcMessage, 0, size)?;
        let message = Down::decode(bytes.as_slice())?;
        self.link.heard(now_ms);
        let update = self.replica.feed(message)?;
        self.heard_ms = now_ms;
        match &update {
            Update::Endpoints(endpoints) => self.endpoints = Endpoints::from_message(endpoints),
            Update::Ack(seq) => self.link.acknowledged(*seq),
            _ => {}
        }
        self.send_waiting();
        Ok(update)
    }
}
