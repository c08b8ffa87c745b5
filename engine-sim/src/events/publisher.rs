//! Sends event batches over ZMQ and answers replays, on a thread of its own.
//!
//! Sequence numbers start at 0 and grow by one per batch. A batch that the network loses (see [`Publisher::lose`]) still takes its number and
//! can be replayed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use thiserror::Error;
use zmq::{Context, DONTWAIT, Socket, SocketType};

use super::replay::ReplayBuffer;
use crate::config::EventsConfig;

/// Batches that may wait for the thread; beyond, the engine waits, as vLLM's does (`max_queue_size`).
pub const MAX_QUEUED_BATCHES: usize = 100_000;
/// Messages kept per slow subscriber before they are dropped (`hwm`).
pub const HIGH_WATER_MARK: i32 = 100_000;
/// How long the thread waits for a batch before it looks for a replay request.
const REPLAY_POLL: Duration = Duration::from_millis(5);
/// How long unsent messages are kept when a publisher stops.
const LINGER_MS: i32 = 200;

/// Why a publisher can't start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublisherError {
    /// A socket can't be set up, bound or connected.
    #[error("can't open event endpoint {endpoint}")]
    Endpoint {
        /// Configured endpoint.
        endpoint: String,
        /// What ZMQ says.
        #[source]
        source: zmq::Error,
    },
    /// The thread can't be started.
    #[error("can't start the publisher thread")]
    Thread(#[source] std::io::Error),
}

enum Message {
    Batch(Vec<u8>),
    Stop,
}

/// A running publisher. Dropping it stops and joins its thread.
pub struct Publisher {
    queue: SyncSender<Message>,
    thread: Option<JoinHandle<()>>,
    endpoint: String,
    replay: Option<String>,
    losses: Arc<AtomicU64>,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("endpoint", &self.endpoint)
            .field("replay", &self.replay)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Opens the sockets and starts the thread. `name` names the thread.
    ///
    /// # Errors
    /// [`PublisherError`].
    pub fn start(name: &str, config: &EventsConfig) -> Result<Self, PublisherError> {
        Self::start_as(name, config, config.binds())
    }

    /// Like [`Publisher::start`], where the endpoint's spelling doesn't tell whether to bind (the successor of one that took a free port).
    pub(crate) fn start_as(
        name: &str,
        config: &EventsConfig,
        binds: bool,
    ) -> Result<Self, PublisherError> {
        let context = Context::new();
        let endpoint_error = |endpoint: &str| {
            let endpoint = endpoint.to_owned();
            move |source| PublisherError::Endpoint { endpoint, source }
        };
        let events = open(&context, SocketType::PUB, &config.endpoint, binds)
            .map_err(endpoint_error(&config.endpoint))?;
        let replay = config.replay.as_deref().map(|endpoint| {
            open(&context, SocketType::ROUTER, endpoint, true).map_err(endpoint_error(endpoint))
        });
        let replay = replay.transpose()?;
        let endpoint = resolved(&events, &config.endpoint);
        let replay_endpoint = config
            .replay
            .as_deref()
            .zip(replay.as_ref())
            .map(|(configured, socket)| resolved(socket, configured));
        let (queue, inbox) = sync_channel(MAX_QUEUED_BATCHES);
        let losses = Arc::new(AtomicU64::new(0));
        let worker = Worker {
            events,
            replay,
            topic: config.topic.clone(),
            buffer: ReplayBuffer::new(config.buffer_steps),
            next_sequence: 0,
            losses: Arc::clone(&losses),
        };
        let thread = Builder::new()
            .name(format!("events-{name}"))
            .spawn(move || worker.run(&inbox))
            .map_err(PublisherError::Thread)?;
        Ok(Self {
            queue,
            thread: Some(thread),
            endpoint,
            replay: replay_endpoint,
            losses,
        })
    }

    /// Gives the endpoint to connect to (or, where the publisher connects, the one it connects to), with its real port.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Gives the replay endpoint with its real port.
    pub fn replay_endpoint(&self) -> Option<&str> {
        self.replay.as_deref()
    }

    /// Queues an encoded batch. Waits while [`MAX_QUEUED_BATCHES`] are queued.
    pub fn publish(&self, payload: Vec<u8>) {
        if self.queue.send(Message::Batch(payload)).is_err() {
            tracing::warn!("event batch lost, the publisher thread is gone");
        }
    }

    /// Makes the network lose the next `batches`: they are numbered and kept for replays but not sent.
    pub fn lose(&self, batches: u64) {
        self.losses.fetch_add(batches, Ordering::SeqCst);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // An error means that the thread has ended already.
        let _ = self.queue.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the publisher thread panicked");
        }
    }
}

struct Worker {
    events: Socket,
    replay: Option<Socket>,
    topic: String,
    buffer: ReplayBuffer,
    next_sequence: u64,
    losses: Arc<AtomicU64>,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            match inbox.recv_timeout(REPLAY_POLL) {
                Ok(Message::Batch(payload)) => self.publish(payload),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.serve_replay();
        }
    }

    fn publish(&mut self, payload: Vec<u8>) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let lost = self
            .losses
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok();
        if !lost {
            let frames = [self.topic.as_bytes(), &sequence.to_be_bytes(), &payload];
            if let Err(error) = self.events.send_multipart(frames, 0) {
                tracing::warn!(%error, sequence, "can't send an event batch");
            }
        }
        self.buffer.push(sequence, payload);
    }

    fn serve_replay(&self) {
        let Some(socket) = &self.replay else { return };
        while let Ok(request) = socket.recv_multipart(DONTWAIT) {
            for message in self
                .buffer
                .answer(&self.topic, &request)
                .unwrap_or_default()
            {
                if let Err(error) = socket.send_multipart(message, 0) {
                    tracing::warn!(%error, "can't answer a replay");
                    break;
                }
            }
        }
    }
}

fn open(
    context: &Context,
    kind: SocketType,
    endpoint: &str,
    binds: bool,
) -> Result<Socket, zmq::Error> {
    let socket = context.socket(kind)?;
    socket.set_linger(LINGER_MS)?;
    socket.set_sndhwm(HIGH_WATER_MARK)?;
    socket.set_ipv6(endpoint.contains("::"))?;
    if binds {
        socket.bind(endpoint)?;
    } else {
        socket.connect(endpoint)?;
    }
    Ok(socket)
}

/// Gives the endpoint with the port that was really bound; wildcard addresses become loopback.
fn resolved(socket: &Socket, configured: &str) -> String {
    match socket.get_last_endpoint() {
        Ok(Ok(endpoint)) => endpoint
            .trim_end_matches('\0')
            .replace("//0.0.0.0:", "//127.0.0.1:")
            .replace("//[::]:", "//[::1]:"),
        _ => configured.to_owned(),
    }
}

#[cfg(test)]
mod tests;
