//! Event batches of the engines, from ZeroMQ to a bounded queue.
//!
//! ```text
//!  PUB (engine) ═► SUB ──┐
//!                monitor ├─ worker thread (128 sources each) ─► mpsc queue of Update ─► ingest
//!  ROUTER (replay) ═► DEALER ┘         ▲ mailbox: replay(source, from)
//! ```
//!
//! libzmq reconnects and resubscribes by itself, so a publisher may restart at will; the monitor only tells that it happened.
//!
//! **When the consumer is slow.** Nothing is read for which there is no room: a source whose quota ([`SOURCE_QUOTA`], [`SOURCE_QUOTA_BYTES`]) is in the queue
//! is not read (counted, see [`Subscriber::waits`]), and the others go on. Its batches wait in libzmq's bounded queue, then in TCP's, and past those the *publisher* drops them. The next batch that
//! arrives shows a gap in the sequence, and the gap asks for a replay. So memory is bounded, no source waits for another, and no loss is silent.

mod link;
mod multipart;
mod quota;
mod replay;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use prefixway_core::index::SourceId;
use tokio::sync::mpsc;

use crate::config::Events;
use link::Link;
use quota::{Quota, Share};
use worker::Worker;

/// Batches of one source that may be in the queue; 256 batches are 10 seconds of a busy engine.
pub const SOURCE_QUOTA: usize = 256;

/// Bytes of one source's batches that may be in the queue; a single larger batch may be, too.
pub const SOURCE_QUOTA_BYTES: usize = 64 << 20;

/// Sources of one worker thread; a libzmq context has 1023 sockets and a source needs up to 5.
const SOURCES_PER_WORKER: usize = 128;

/// A source to subscribe to.
#[derive(Clone, Debug)]
pub struct Source {
    /// Number that its updates carry.
    pub id: SourceId,
    /// Where its publisher is.
    pub events: Events,
}

/// What the subscriber tells; updates of one source are in the order they happened.
#[derive(Debug)]
pub enum Update {
    /// A publisher is there, for the first time or again.
    Connected(SourceId),
    /// The publisher is gone; libzmq tries to reach it again.
    Disconnected(SourceId),
    /// A batch.
    Batch(Batch),
    /// A replay has come to its end marker (`complete`), or has gone silent before it.
    ReplayEnded {
        /// Whose.
        source: SourceId,
        /// Which.
        request: ReplayRequest,
        /// Whether the end marker was seen.
        complete: bool,
    },
    /// A message that is not a batch: fewer than two frames, or no sequence number.
    Malformed(SourceId),
}

impl Update {
    /// Whom it is about.
    pub fn source(&self) -> SourceId {
        match self {
            Self::Connected(source) | Self::Disconnected(source) | Self::Malformed(source) => {
                *source
            }
            Self::Batch(batch) => batch.source,
            Self::ReplayEnded { source, .. } => *source,
        }
    }
}

/// Number of a replay, chosen by the caller: tells its answers from those to an earlier one that are still in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayRequest(pub u64);

/// One event batch, still as bytes.
#[derive(Debug)]
pub struct Batch {
    /// Whose.
    pub source: SourceId,
    /// Sequence number, from 0, plus 1 for each batch of the source.
    pub seq: u64,
    /// The replay that it answers; `None` for a live batch.
    pub replay: Option<ReplayRequest>,
    /// Msgpack payload.
    pub payload: Vec<u8>,
    /// The batch's part of its source's quota, given back when dropped.
    #[expect(dead_code, reason = "held for its drop")]
    share: Share,
}

/// A subscriber that can't start.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// A socket can't be made, bound or connected.
    #[error("can't subscribe to {address}")]
    Socket {
        /// The address as configured.
        address: String,
        /// Why.
        source: zmq::Error,
    },
    /// A thread or its waker can't be made.
    #[error("can't start the subscriber's thread")]
    Thread(#[source] std::io::Error),
}

/// Subscriber threads of all sources.
#[derive(Debug)]
pub struct Subscriber {
    workers: Vec<Handle>,
    worker_of: HashMap<SourceId, usize>,
    bound: HashMap<SourceId, String>,
    quotas: HashMap<SourceId, Quota>,
}

#[derive(Debug)]
struct Handle {
    mailbox: Arc<Mutex<Mailbox>>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Commands to a worker. The newest replay of a source replaces an older one, so this is bounded by the sources.
#[derive(Debug, Default)]
struct Mailbox {
    replays: BTreeMap<SourceId, (ReplayRequest, u64)>,
    stop: bool,
}

impl Subscriber {
    /// Binds and connects all sources and starts the threads; publishers need not be there yet.
    ///
    /// # Errors
    /// An address can't be bound or is not understood by libzmq, or a thread can't be started.
    pub fn start(
        sources: &[Source],
        updates: &mpsc::Sender<Update>,
    ) -> Result<Self, SubscribeError> {
        let mut subscriber = Self {
            workers: Vec::new(),
            worker_of: HashMap::new(),
            bound: HashMap::new(),
            quotas: HashMap::new(),
        };
        for part in sources.chunks(SOURCES_PER_WORKER) {
            let context = zmq::Context::new();
            let mut links = Vec::with_capacity(part.len());
            for source in part {
                let link = Link::open(&context, source)?;
                if let Some(address) = link.bound_address() {
                    subscriber.bound.insert(source.id, address);
                }
                subscriber.quotas.insert(source.id, link.quota());
                subscriber
                    .worker_of
                    .insert(source.id, subscriber.workers.len());
                links.push(link);
            }
            let handle = Handle::start(context, links, updates.clone(), subscriber.workers.len())?;
            subscriber.workers.push(handle);
        }
        Ok(subscriber)
    }

    /// Asks the source's publisher for its batches from `from` on; replaces a replay that is under way.
    ///
    /// Never blocks. The end is told by [`Update::ReplayEnded`]; a source without a replay address ends at once, incomplete.
    pub fn replay(&self, source: SourceId, request: ReplayRequest, from: u64) {
        if let Some(handle) = self
            .worker_of
            .get(&source)
            .and_then(|&i| self.workers.get(i))
        {
            handle.tell(|mailbox| {
                mailbox.replays.insert(source, (request, from));
            });
        }
    }

    /// Times that the source was not read since its share of the queue was full.
    pub fn waits(&self, source: SourceId) -> u64 {
        self.quotas.get(&source).map_or(0, Quota::waits)
    }

    /// The address that a binding source really listens on (port 0 and `*` resolved); `None` for connecting sources.
    pub fn bound_address(&self, source: SourceId) -> Option<&str> {
        self.bound.get(&source).map(String::as_str)
    }
}

impl Drop for Subscriber {
    /// Stops and joins the threads; they look at their mailbox at least every poll, so this takes milliseconds.
    fn drop(&mut self) {
        for handle in &self.workers {
            handle.tell(|mailbox| mailbox.stop = true);
        }
        for handle in &mut self.workers {
            if let Some(thread) = handle.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a subscriber thread has panicked");
            }
        }
    }
}

impl Handle {
    fn start(
        context: zmq::Context,
        links: Vec<Link>,
        updates: mpsc::Sender<Update>,
        number: usize,
    ) -> Result<Self, SubscribeError> {
        let (waker, woken) = UnixStream::pair().map_err(SubscribeError::Thread)?;
        for end in [&waker, &woken] {
            end.set_nonblocking(true).map_err(SubscribeError::Thread)?;
        }
        let mailbox = Arc::new(Mutex::new(Mailbox::default()));
        let worker = Worker::new(context, links, updates, Arc::clone(&mailbox), woken);
        let thread = std::thread::Builder::new()
            .name(format!("kv-events-{number}"))
            .spawn(move || worker.run())
            .map_err(SubscribeError::Thread)?;
        Ok(Self {
            mailbox,
            waker,
            thread: Some(thread),
        })
    }

    fn tell(&self, change: impl FnOnce(&mut Mailbox)) {
        change(&mut self.mailbox.lock().unwrap_or_else(PoisonError::into_inner));
        // A full pipe means that the worker is about to wake anyway.
        let _ = (&self.waker).write(&[1]);
    }
}
