//! One source's sockets: SUB, its monitor, and a replay while there is one.

use std::time::Instant;

use prefixway_core::index::SourceId;
use tokio::sync::mpsc;

use super::multipart::{self, Message};
use super::quota::Quota;
use super::replay::{Replay, Step};
use super::{Batch, ReplayRequest, Source, SubscribeError, Update};
use crate::config::Publisher;

/// Messages read from one socket before the next one has its turn.
const READS_PER_TURN: usize = 64;
/// Messages that libzmq holds per source before TCP pushes back.
const RECEIVE_HIGH_WATER_MARK: i32 = 1_000;
/// Largest frame taken; a peer that announces more is disconnected by libzmq.
pub(super) const MAX_FRAME_BYTES: i64 = 256 << 20;
/// First and longest wait between two tries to connect, in milliseconds.
const RECONNECT_MS: i32 = 100;
const RECONNECT_MAX_MS: i32 = 2_000;
/// A peer that answers no heartbeat for this long is disconnected: finds half-open connections.
const HEARTBEAT_MS: i32 = 5_000;
const HEARTBEAT_TIMEOUT_MS: i32 = 15_000;
/// How the monitor tells of a connection that turned out to be no peer; its end is told right after.
const HANDSHAKES_FAILED: [zmq::SocketEvent; 3] = [
    zmq::SocketEvent::HANDSHAKE_FAILED_NO_DETAIL,
    zmq::SocketEvent::HANDSHAKE_FAILED_PROTOCOL,
    zmq::SocketEvent::HANDSHAKE_FAILED_AUTH,
];

pub(super) struct Link {
    id: SourceId,
    live: zmq::Socket,
    monitor: zmq::Socket,
    binds: bool,
    peers: u32,
    /// Connections that failed their handshake and whose end has not been told yet: anybody can reach a bound socket.
    strangers: u32,
    replay_address: Option<String>,
    replay: ReplayState,
    quota: Quota,
    /// Whether the last turn left something unread because there was no room.
    paused: bool,
}

/// Where a source's replay stands.
enum ReplayState {
    None,
    Running(ReplayRequest, Replay),
    /// Could not start; not told yet.
    Failed(ReplayRequest),
}

impl ReplayState {
    fn socket(&self) -> Option<&zmq::Socket> {
        match self {
            Self::Running(_, replay) => Some(replay.socket()),
            Self::None | Self::Failed(_) => None,
        }
    }
}

/// Why a turn ended early.
pub(super) enum Halt {
    /// The queue or the source's quota is full.
    NoRoom,
    /// Nobody reads the queue any more.
    Closed,
}

impl Link {
    pub(super) fn open(context: &zmq::Context, source: &Source) -> Result<Self, SubscribeError> {
        let (address, binds) = match &source.events.publisher {
            Publisher::Connect(address) => (address, false),
            Publisher::Bind(address) => (address, true),
        };
        let open = || -> zmq::Result<(zmq::Socket, zmq::Socket)> {
            let live = context.socket(zmq::SUB)?;
            live.set_linger(0)?;
            live.set_rcvhwm(RECEIVE_HIGH_WATER_MARK)?;
            live.set_maxmsgsize(MAX_FRAME_BYTES)?;
            live.set_reconnect_ivl(RECONNECT_MS)?;
            live.set_reconnect_ivl_max(RECONNECT_MAX_MS)?;
            live.set_heartbeat_ivl(HEARTBEAT_MS)?;
            live.set_heartbeat_timeout(HEARTBEAT_TIMEOUT_MS)?;
            live.set_ipv6(address.contains('['))?;
            live.set_subscribe(source.events.topic.as_bytes())?;
            let monitor_address = format!("inproc://monitor-{}", source.id.0);
            let events = HANDSHAKES_FAILED.into_iter().chain([
                zmq::SocketEvent::HANDSHAKE_SUCCEEDED,
                zmq::SocketEvent::DISCONNECTED,
            ]);
            let events = events.fold(0, |all, event| all | i32::from(event.to_raw()));
            live.monitor(&monitor_address, events)?;
            let monitor = context.socket(zmq::PAIR)?;
            monitor.set_linger(0)?;
            monitor.connect(&monitor_address)?;
            if binds {
                live.bind(address)?;
            } else {
                live.connect(address)?;
            }
            Ok((live, monitor))
        };
        let (live, monitor) = open().map_err(|source| SubscribeError::Socket {
            address: address.clone(),
            source,
        })?;
        Ok(Self {
            id: source.id,
            live,
            monitor,
            binds,
            peers: 0,
            strangers: 0,
            replay_address: source.events.replay.clone(),
            replay: ReplayState::None,
            quota: Quota::default(),
            paused: false,
        })
    }

    pub(super) fn id(&self) -> SourceId {
        self.id
    }

    pub(super) fn quota(&self) -> Quota {
        self.quota.clone()
    }

    pub(super) fn bound_address(&self) -> Option<String> {
        self.binds
            .then(|| self.live.get_last_endpoint().ok()?.ok())
            .flatten()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether it has something to do that no socket tells: room to look for, or a replay's silence.
    pub(super) fn is_due(&self) -> bool {
        self.paused || self.is_replaying()
    }

    pub(super) fn is_replaying(&self) -> bool {
        !matches!(self.replay, ReplayState::None)
    }

    /// The sockets to wait for; none of a paused link, since they would be readable at once.
    pub(super) fn poll_items(&self) -> impl Iterator<Item = zmq::PollItem<'_>> {
        let sockets =
            (!self.paused).then(|| [Some(&self.monitor), Some(&self.live), self.replay.socket()]);
        sockets
            .into_iter()
            .flatten()
            .flatten()
            .map(|socket| socket.as_poll_item(zmq::POLLIN))
    }

    /// Starts a replay from `from`, in place of the one under way.
    pub(super) fn start_replay(
        &mut self,
        context: &zmq::Context,
        request: ReplayRequest,
        from: u64,
        now: Instant,
    ) {
        let started = self.replay_address.as_ref().and_then(|address| {
            Replay::start(context, address, from, now)
                .inspect_err(
                    |error| tracing::warn!(%error, source = self.id.0, "can't ask for a replay"),
                )
                .ok()
        });
        self.replay = match started {
            Some(replay) => ReplayState::Running(request, replay),
            None => ReplayState::Failed(request),
        };
    }

    /// Reads what is there, at most [`READS_PER_TURN`] messages of each socket.
    pub(super) fn turn(
        &mut self,
        updates: &mpsc::Sender<Update>,
        now: Instant,
    ) -> Result<(), Halt> {
        let has_waited = std::mem::take(&mut self.paused);
        let result = self
            .read_monitor(updates)
            .and_then(|()| self.read_replay(updates, now))
            .and_then(|()| self.read_live(updates));
        match result {
            Err(Halt::NoRoom) => {
                self.paused = true;
                if !has_waited {
                    self.quota.count_wait();
                }
                Ok(())
            }
            other => other,
        }
    }

    fn read_monitor(&mut self, updates: &mpsc::Sender<Update>) -> Result<(), Halt> {
        for _ in 0..READS_PER_TURN {
            let slot = reserve(updates)?;
            let Ok(event) = self.monitor.recv_msg(zmq::DONTWAIT) else {
                return Ok(());
            };
            if event.get_more() {
                // The address frame.
                let _ = self.monitor.recv_msg(zmq::DONTWAIT);
            }
            let Some((number, _value)) = event.split_first_chunk::<2>() else {
                continue;
            };
            let before = self.peers;
            let number = u16::from_ne_bytes(*number);
            if number == zmq::SocketEvent::HANDSHAKE_SUCCEEDED.to_raw() {
                self.peers += 1;
            } else if HANDSHAKES_FAILED
                .map(zmq::SocketEvent::to_raw)
                .contains(&number)
            {
                self.strangers += 1;
            } else if number == zmq::SocketEvent::DISCONNECTED.to_raw() {
                let left = if self.strangers > 0 {
                    &mut self.strangers
                } else {
                    &mut self.peers
                };
                *left = left.saturating_sub(1);
            }
            if self.peers > before {
                slot.send(Update::Connected(self.id));
            } else if before > 0 && self.peers == 0 {
                slot.send(Update::Disconnected(self.id));
            }
        }
        Ok(())
    }

    fn read_live(&mut self, updates: &mpsc::Sender<Update>) -> Result<(), Halt> {
        for _ in 0..READS_PER_TURN {
            self.need_room()?;
            let slot = reserve(updates)?;
            match multipart::receive(&self.live) {
                Ok(Some(message)) => match message {
                    Message::Batch { seq, payload } => {
                        let source = self.id;
                        slot.send(Update::Batch(Batch {
                            source,
                            seq,
                            replay: None,
                            share: self.quota.take(payload.len()),
                            payload,
                        }));
                    }
                    Message::EndOfReplay | Message::Malformed => {
                        slot.send(Update::Malformed(self.id));
                    }
                },
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::error!(%error, source = self.id.0, "event socket failed");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn read_replay(&mut self, updates: &mpsc::Sender<Update>, now: Instant) -> Result<(), Halt> {
        for _ in 0..READS_PER_TURN {
            self.need_room()?;
            let slot = reserve(updates)?;
            let source = self.id;
            let (request, step) = match &mut self.replay {
                ReplayState::None => return Ok(()),
                ReplayState::Failed(request) => (*request, Step::Failed),
                ReplayState::Running(request, replay) => (*request, replay.step(now)),
            };
            let update = match step {
                Step::Wait => return Ok(()),
                Step::Message(Message::Batch { seq, payload }) => Update::Batch(Batch {
                    source,
                    seq,
                    replay: Some(request),
                    share: self.quota.take(payload.len()),
                    payload,
                }),
                Step::Message(Message::Malformed) => Update::Malformed(source),
                Step::Message(Message::EndOfReplay) => {
                    self.replay = ReplayState::None;
                    Update::ReplayEnded {
                        source,
                        request,
                        complete: true,
                    }
                }
                Step::Failed => {
                    self.replay = ReplayState::None;
                    Update::ReplayEnded {
                        source,
                        request,
                        complete: false,
                    }
                }
            };
            slot.send(update);
        }
        Ok(())
    }

    fn need_room(&self) -> Result<(), Halt> {
        if self.quota.has_room() {
            Ok(())
        } else {
            Err(Halt::NoRoom)
        }
    }
}

fn reserve(updates: &mpsc::Sender<Update>) -> Result<mpsc::Permit<'_, Update>, Halt> {
    updates.try_reserve().map_err(|error| match error {
        mpsc::error::TrySendError::Full(()) => Halt::NoRoom,
        mpsc::error::TrySendError::Closed(()) => Halt::Closed,
    })
}
