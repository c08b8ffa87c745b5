//! A running engine: scheduler loop, publisher thread and HTTP server, started and stopped together.

mod core;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::{ConfigError, EngineConfig, EventsConfig};
use crate::events::Lora;
use crate::events::publisher::{Publisher, PublisherError};
use crate::http;
use crate::http::connections::{Connections, TrackedListener};
use crate::metrics::{Labels, Metrics};
use crate::sequence::{Request, RequestId};
use crate::template::{Template, TemplateError};
use crate::tokenizer::{Tokenizer, TokenizerError};

pub(crate) use self::core::{Command, TokenUpdate};

/// Commands that may wait for the scheduler loop.
const MAX_QUEUED_COMMANDS: usize = 4_096;

/// Why an engine can't start or a publisher can't be restarted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A setting is refused.
    #[error("invalid engine configuration")]
    Config(#[from] ConfigError),
    /// The tokenizer can't be loaded.
    #[error("can't load the tokenizer")]
    Tokenizer(#[from] TokenizerError),
    /// The chat template can't be loaded.
    #[error("can't load the chat template")]
    Template(#[from] TemplateError),
    /// The HTTP address can't be bound.
    #[error("can't listen on {address}")]
    Listen {
        /// Configured address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The publisher can't start.
    #[error("can't start the event publisher")]
    Publisher(#[from] PublisherError),
}

/// What an engine does instead of answering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    /// It answers.
    #[default]
    None,
    /// It accepts connections and requests but answers nothing, streams stand still and no events leave.
    Hang,
    /// It closes new connections at once.
    Refuse,
    /// It answers every request, `/health` too, with this status.
    Status(u16),
}

/// Counters of an engine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that hold blocks.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// Blocks referenced by running requests.
    pub used_blocks: usize,
    /// Blocks with cached content, referenced or not.
    pub cached_blocks: usize,
    /// Prompt tokens admitted.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the cache.
    pub hit_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Requests answered to their end.
    pub finished: u64,
    /// Block hashes announced as stored.
    pub stored_blocks: u64,
    /// Block hashes announced as removed.
    pub removed_blocks: u64,
    /// Event batches published.
    pub batches: u64,
    /// Open HTTP connections.
    pub connections: usize,
}

/// Publisher settings with the ports that were really bound, for restarts on the same endpoints.
#[derive(Debug)]
pub(crate) struct ResolvedEvents {
    pub(crate) config: EventsConfig,
    /// Whether the configured endpoint meant to bind; the resolved one doesn't tell.
    binds: bool,
}

/// What the HTTP handlers and the scheduler loop share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) labels: Labels,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Template,
    pub(crate) fault: watch::Sender<Fault>,
    pub(crate) events: Option<ResolvedEvents>,
    metrics: Mutex<Metrics>,
    publisher: Mutex<Option<Publisher>>,
    commands: mpsc::Sender<Command>,
    next_request: AtomicU64,
}

/// Handle of a running engine. [`Engine::shutdown`] stops it in order; dropping the handle stops it at once.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    http_addr: SocketAddr,
    stop_http: Option<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Starts an engine on the current tokio runtime.
///
/// # Errors
/// [`EngineError`].
pub async fn start(config: EngineConfig) -> Result<Engine, EngineError> {
    config.check()?;
    let tokenizer = Tokenizer::from_model_dir(&config.model_dir)?;
    let template = Template::from_model_dir(&config.model_dir)?;
    let address = config.http;
    let listen_error = |source| EngineError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen_error)?;
    let http_addr = listener.local_addr().map_err(listen_error)?;
    let events = config.events.as_ref();
    let publisher = events
        .map(|events| Publisher::start(&config.name, events))
        .transpose()?;
    let events = events
        .zip(publisher.as_ref())
        .map(|(configured, publisher)| ResolvedEvents {
            binds: configured.binds(),
            config: EventsConfig {
                endpoint: publisher.endpoint().to_owned(),
                replay: publisher.replay_endpoint().map(str::to_owned),
                ..configured.clone()
            },
        });
    let (commands, inbox) = mpsc::channel(MAX_QUEUED_COMMANDS);
    let shared = Arc::new(Shared {
        labels: Labels {
            model_name: config.served_names.first().cloned().unwrap_or_default(),
            block_size: config.block_size,
            num_blocks: config.num_blocks,
            max_adapters: config.adapters.len(),
        },
        config,
        tokenizer,
        template,
        fault: watch::Sender::default(),
        events,
        metrics: Mutex::default(),
        publisher: Mutex::new(publisher),
        commands,
        next_request: AtomicU64::new(0),
    });
    let connections = Arc::new(Connections::default());
    let (stop_http, stopped) = oneshot::channel();
    let scheduling = tokio::spawn(core::run(Arc::clone(&shared), inbox));
    let serving = tokio::spawn(http::serve(
        Arc::clone(&shared),
        TrackedListener::new(listener, Arc::clone(&connections), shared.fault.subscribe()),
        stopped,
    ));
    Ok(Engine {
        shared,
        connections,
        http_addr,
        stop_http: Some(stop_http),
        tasks: vec![scheduling, serving],
    })
}

impl Engine {
    /// Gives the engine's name.
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// Gives the address that HTTP listens on.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Gives the PUB endpoint with its real port; `None` without events.
    pub fn events_endpoint(&self) -> Option<String> {
        let events = self.shared.events.as_ref();
        events.map(|events| events.config.endpoint.clone())
    }

    /// Gives the replay endpoint with its real port; `None` without one.
    pub fn replay_endpoint(&self) -> Option<String> {
        self.shared.events.as_ref()?.config.replay.clone()
    }

    /// Gives the counters.
    pub fn stats(&self) -> EngineStats {
        let metrics = self.shared.metrics();
        EngineStats {
            running: metrics.scheduler.running,
            waiting: metrics.scheduler.waiting,
            used_blocks: metrics.scheduler.used_blocks,
            cached_blocks: metrics.scheduler.cached_blocks,
            prompt_tokens: metrics.prompt_tokens,
            hit_tokens: metrics.hit_tokens,
            generation_tokens: metrics.generation_tokens,
            finished: metrics.finished,
            stored_blocks: metrics.stored_blocks,
            removed_blocks: metrics.removed_blocks,
            batches: metrics.batches,
            connections: self.connections.count(),
        }
    }

    /// Makes the engine misbehave, or behave again with [`Fault::None`].
    pub fn inject(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Closes all open HTTP connections, in the middle of replies too.
    pub fn drop_connections(&self) {
        self.connections.close_all();
    }

    /// Makes the network lose the next event `batches`; a replay still has them.
    pub fn lose_batches(&self, batches: u64) {
        if let Some(publisher) = self.shared.publisher().as_ref() {
            publisher.lose(batches);
        }
    }

    /// Loses the cache, and requests under way, without an event that says so: from now on the events that were published claim what the
    /// engine does not have.
    pub async fn forget_cache(&self) {
        let (done, forgotten) = oneshot::channel();
        self.shared.command(Command::Forget(done)).await;
        // An error means that the loop has ended: there is nothing left to forget.
        let _ = forgotten.await;
    }

    /// Stops publishing events and answering replays; requests are still served. [`Engine::restart_publisher`] undoes it.
    pub async fn stop_publisher(&self) {
        let publisher = self.shared.publisher().take();
        // Joining the thread takes as long as its sockets linger: not on an async thread.
        if let Err(error) = tokio::task::spawn_blocking(move || drop(publisher)).await {
            tracing::error!(%error, "the publisher did not stop");
        }
    }

    /// Restarts the publisher on the same endpoints: sequence numbers begin at 0, older batches are gone, the cache stays.
    ///
    /// # Errors
    /// [`EngineError::Publisher`].
    pub async fn restart_publisher(&self) -> Result<(), EngineError> {
        self.stop_publisher().await;
        self.start_publisher()
    }

    /// Does what a crash and restart of the process does: connections are closed, requests are lost, the cache is empty, sequence
    /// numbers begin at 0. Addresses stay.
    ///
    /// # Errors
    /// [`EngineError::Publisher`].
    pub async fn restart(&self) -> Result<(), EngineError> {
        self.stop_publisher().await;
        self.connections.close_all();
        self.forget_cache().await;
        self.start_publisher()
    }

    /// Stops everything: requests end, connections close, tasks and the publisher thread are joined.
    pub async fn shutdown(mut self) {
        self.shared.fault.send_replace(Fault::None);
        self.shared.command(Command::Stop).await;
        if let Some(stop) = self.stop_http.take() {
            // An error means that the server has ended already.
            let _ = stop.send(());
        }
        self.connections.close_all();
        for task in self.tasks.drain(..) {
            if let Err(error) = task.await {
                tracing::error!(%error, "an engine task failed");
            }
        }
        self.stop_publisher().await;
    }

    fn start_publisher(&self) -> Result<(), EngineError> {
        if let Some(events) = &self.shared.events {
            let publisher = Publisher::start_as(self.name(), &events.config, events.binds)?;
            *self.shared.publisher() = Some(publisher);
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    pub(crate) fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publisher(&self) -> MutexGuard<'_, Option<Publisher>> {
        self.publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Finds a served model: `Ok(None)` is the base model, `Err` an unknown name.
    pub(crate) fn adapter(&self, model: Option<&str>) -> Result<Option<Lora>, String> {
        let Some(model) = model else { return Ok(None) };
        if self.config.served_names.iter().any(|name| name == model) {
            return Ok(None);
        }
        let position = self.config.adapters.iter().position(|name| name == model);
        let id = position.and_then(|position| u32::try_from(position + 1).ok());
        id.map(|id| {
            Some(Lora {
                id,
                name: model.to_owned(),
            })
        })
        .ok_or_else(|| model.to_owned())
    }

    /// Hands a request to the scheduler. The receiver yields one update per token and is closed early when the engine stops or restarts;
    /// dropping it aborts the request.
    pub(crate) async fn submit(&self, request: Request) -> mpsc::Receiver<TokenUpdate> {
        let (sender, receiver) = mpsc::channel(request.output.len().max(1));
        self.command(Command::Submit(request, sender)).await;
        receiver
    }

    /// Sends a command; without effect after the loop has ended.
    pub(crate) async fn command(&self, command: Command) {
        if self.commands.send(command).await.is_err() {
            tracing::debug!("command after the end of the scheduler loop");
        }
    }
}

#[cfg(test)]
mod tests;
