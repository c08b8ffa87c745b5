//! The thread that reads a share of the sources.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::link::{Halt, Link};
use super::{Mailbox, Update};

/// Wait while some source has no room; its consumer needs about that long for a batch.
const PAUSED_POLL: Duration = Duration::from_millis(2);
/// Wait while a replay is under way, to notice its silence.
const REPLAY_POLL: Duration = Duration::from_millis(100);
/// Wait otherwise; the waker ends it at once.
const IDLE_POLL: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    links: Vec<Link>,
    updates: mpsc::Sender<Update>,
    mailbox: Arc<Mutex<Mailbox>>,
    woken: UnixStream,
    // Last: a context ends only after its sockets.
    context: zmq::Context,
}

impl Worker {
    pub(super) fn new(
        context: zmq::Context,
        links: Vec<Link>,
        updates: mpsc::Sender<Update>,
        mailbox: Arc<Mutex<Mailbox>>,
        woken: UnixStream,
    ) -> Self {
        Self {
            links,
            updates,
            mailbox,
            woken,
            context,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let ready = self.wait();
            if self.updates.is_closed() || !self.read_mailbox() {
                return;
            }
            let now = Instant::now();
            for (link, is_ready) in self.links.iter_mut().zip(ready) {
                if (is_ready || link.is_due())
                    && matches!(link.turn(&self.updates, now), Err(Halt::Closed))
                {
                    return;
                }
            }
        }
    }

    /// Waits for something to read; for each link, whether it has something.
    fn wait(&mut self) -> Vec<bool> {
        let timeout = if self.links.iter().any(Link::is_paused) {
            PAUSED_POLL
        } else if self.links.iter().any(Link::is_replaying) {
            REPLAY_POLL
        } else {
            IDLE_POLL
        };
        let mut owners = Vec::new();
        let mut items = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            items.extend(link.poll_items());
            owners.resize(items.len(), number);
        }
        items.push(zmq::PollItem::from_fd(self.woken.as_raw_fd(), zmq::POLLIN));
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        match zmq::poll(&mut items, timeout_ms) {
            Ok(_) | Err(zmq::Error::EINTR) => {}
            Err(error) => {
                tracing::error!(%error, "can't wait for events");
                std::thread::sleep(PAUSED_POLL);
            }
        }
        let mut ready = vec![false; self.links.len()];
        for (item, owner) in items.iter().zip(owners) {
            if let Some(ready) = ready.get_mut(owner) {
                *ready |= item.is_readable();
            }
        }
        let mut drained = [0u8; 64];
        while matches!((&self.woken).read(&mut drained), Ok(n) if n > 0) {}
        ready
    }

    /// Does what the mailbox says; `false` to stop.
    fn read_mailbox(&mut self) -> bool {
        let mailbox =
            std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner));
        let now = Instant::now();
        for (source, (request, from)) in mailbox.replays {
            if let Some(link) = self.links.iter_mut().find(|link| link.id() == source) {
                link.start_replay(&self.context, request, from, now);
            }
        }
        !mailbox.stop
    }
}
