//! How others talk to the owner of the index.

use prefixway_core::proto;
use tokio::sync::{mpsc, oneshot};

use super::Report;
use super::decisions::{DecisionsPage, Wanted};
use super::query::{self, Asker, Query};
use crate::calibration::Calibrated;
use crate::config::Policy;
use crate::publish::{StreamId, Subscription};
use crate::scrape::Sample;

/// Commands that may wait.
const COMMAND_QUEUE: usize = 4096;

/// What others ask of the owner.
#[derive(Debug)]
pub enum Command {
    /// An engine was scraped.
    Scraped(Sample),
    /// A model's engines were asked how they spell prompts.
    Calibrated(Box<Calibrated>),
    /// A gateway wants the snapshot.
    Subscribe {
        /// Its first message.
        subscribe: proto::Subscribe,
        /// Where its end of the stream goes.
        reply: oneshot::Sender<Subscription>,
    },
    /// A gateway says something.
    Up {
        /// Its stream.
        stream: StreamId,
        /// What it says.
        message: proto::Up,
    },
    /// A gateway has closed its stream.
    Closed(StreamId),
    /// The settings have another policy now.
    Policy(Box<Policy>),
    /// Somebody wants to know the state.
    Report(oneshot::Sender<Report>),
    /// Somebody wants to see decisions.
    Decisions(Wanted, oneshot::Sender<DecisionsPage>),
}

/// The owner has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the index has stopped")]
pub struct Stopped;

/// Talks to the owner; clones talk to the same one.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    asker: Asker,
}

/// Queues of commands and of questions.
pub(super) fn channel() -> (Handle, mpsc::Receiver<Command>, mpsc::Receiver<Query>) {
    let (commands, receiver) = mpsc::channel(COMMAND_QUEUE);
    let (asker, questions) = query::channel();
    (Handle { commands, asker }, receiver, questions)
}

impl Handle {
    /// Sends a command, waiting for room.
    ///
    /// # Errors
    /// The owner has stopped.
    pub async fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }

    /// Says that a stream is no longer read. Where the queue is full, the stream's own queue fills up and closes it.
    pub fn closed(&self, stream: StreamId) {
        let _ = self.commands.try_send(Command::Closed(stream));
    }

    /// Asks questions.
    pub fn asker(&self) -> &Asker {
        &self.asker
    }

    /// The state of everything; `None` when the owner has stopped.
    pub async fn report(&self) -> Option<Report> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Report(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Decisions that gateways told in full; `None` when the owner has stopped.
    pub async fn decisions(&self, wanted: Wanted) -> Option<DecisionsPage> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Decisions(wanted, reply)).await.ok()?;
        answer.await.ok()
    }

    /// Opens a snapshot stream; `None` when the owner has stopped.
    pub async fn subscribe(&self, subscribe: proto::Subscribe) -> Option<Subscription> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Subscribe { subscribe, reply })
            .await
            .ok()?;
        answer.await.ok()
    }
}
