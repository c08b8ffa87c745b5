//! One replay: a request to a publisher's ROUTER and the batches that come back.

use std::time::{Duration, Instant};

use super::SubscribeError;
use super::link::MAX_FRAME_BYTES;
use super::multipart::{self, Message};

/// A replay that has been silent for this long has failed. vLLM answers between two publishes, at most 100 ms later.
const SILENCE: Duration = Duration::from_secs(3);

/// Batches that libzmq may hold for us; vLLM keeps 10,000 by default, and its ROUTER drops what does not fit.
const RECEIVE_HIGH_WATER_MARK: i32 = 20_000;

/// A replay under way. Each has its own socket, so that answers to an earlier one can't be mistaken for its own.
pub(super) struct Replay {
    socket: zmq::Socket,
    last_heard: Instant,
}

/// What a replay has to say next.
pub(super) enum Step {
    Message(Message),
    /// Nothing now.
    Wait,
    Failed,
}

impl Replay {
    pub(super) fn start(
        context: &zmq::Context,
        address: &str,
        from: u64,
        now: Instant,
    ) -> Result<Self, SubscribeError> {
        let open = || -> zmq::Result<zmq::Socket> {
            let socket = context.socket(zmq::DEALER)?;
            socket.set_linger(0)?;
            socket.set_rcvhwm(RECEIVE_HIGH_WATER_MARK)?;
            socket.set_maxmsgsize(MAX_FRAME_BYTES)?;
            socket.set_ipv6(address.contains('['))?;
            socket.connect(address)?;
            // DEALER adds no delimiter of its own; the ROUTER's side reads [identity, "", start].
            socket.send_multipart([&[][..], &from.to_be_bytes()], zmq::DONTWAIT)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| SubscribeError::Socket {
            address: address.to_owned(),
            source,
        })?;
        Ok(Self {
            socket,
            last_heard: now,
        })
    }

    pub(super) fn socket(&self) -> &zmq::Socket {
        &self.socket
    }

    pub(super) fn step(&mut self, now: Instant) -> Step {
        match multipart::receive(&self.socket) {
            Ok(Some(message)) => {
                self.last_heard = now;
                Step::Message(message)
            }
            Ok(None) if now.duration_since(self.last_heard) < SILENCE => Step::Wait,
            Ok(None) => Step::Failed,
            Err(error) => {
                tracing::warn!(%error, "replay socket failed");
                Step::Failed
            }
        }
    }
}
