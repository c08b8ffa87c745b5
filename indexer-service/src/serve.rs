//! The indexer as a whole: starts every part, and joins every part when told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};

use prefixway_core::index::SourceId;

use crate::config::{Config, SeedError};
use crate::ingest::Ingest;
use crate::kv_events::{Source, SubscribeError, Subscriber};
use crate::metrics::Metrics;
use crate::model_dir::{self, LoadError};
use crate::profile::Profile;
use crate::reload::Reloader;
use crate::shutdown::{self, Shutdown, Trigger};
use crate::{calibration, grpc, http, ingest, scrape};

/// Updates of event sources that may wait for the index; each source has its own quota within.
const UPDATE_QUEUE: usize = 8192;

/// Time that open connections get to end by themselves.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// An indexer that can't start, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no seed.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// A model can't be loaded.
    #[error("can't load model {model}")]
    Profile {
        /// Its id.
        model: String,
        /// Why.
        source: LoadError,
    },
    /// An event source can't be subscribed to.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// An address can't be listened on.
    #[error("can't listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The client that scrapes engines can't be made.
    #[error("can't make an HTTP client")]
    Client(#[from] reqwest::Error),
    /// The index can't be made.
    #[error(transparent)]
    Ingest(#[from] ingest::IngestError),
    /// A task has panicked.
    #[error("a task has failed")]
    Task(#[from] JoinError),
}

impl ServeError {
    /// What the user can do next.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Seed(_) => Some("give the seed by seed_file, or make state_dir writable"),
            Self::Profile { .. } => Some(model_dir::HINT),
            Self::Subscribe(_) => Some("a bind address must belong to this machine and be free"),
            Self::Listen { .. } => {
                Some("another process may use the address; port 0 takes a free one")
            }
            Self::Client(_) | Self::Ingest(_) | Self::Task(_) => None,
        }
    }

    /// Whether another configuration would help.
    pub fn is_about_configuration(&self) -> bool {
        matches!(self, Self::Seed(_) | Self::Profile { .. })
    }
}

/// A running indexer; dropping it stops it without waiting.
#[derive(Debug)]
pub struct Running {
    http: SocketAddr,
    grpc: SocketAddr,
    bound_events: Vec<Option<String>>,
    trigger: Trigger,
    tasks: JoinSet<()>,
}

/// Starts an indexer and returns once it listens.
///
/// # Errors
/// Something that it needs can't be had: seed, model files, addresses.
pub async fn start(config: Config) -> Result<Running, ServeError> {
    let seed = config.seed.resolve()?;
    let profiles = load_profiles(&config)?;
    let metrics = Arc::new(Metrics::new());
    let http_listener = listen(config.listen.http).await?;
    let grpc_listener = listen(config.listen.grpc).await?;
    let (http, grpc) = (
        local(&http_listener, config.listen.http)?,
        local(&grpc_listener, config.listen.grpc)?,
    );

    let (updates, update_queue) = tokio::sync::mpsc::channel(UPDATE_QUEUE);
    let sources: Vec<Source> = ingest::sources(&config).collect();
    let subscriber = Subscriber::start(&sources, &updates)?;
    drop(updates);
    let numbers = 0..u32::try_from(config.endpoints.len()).unwrap_or(u32::MAX);
    let bound_events = numbers
        .map(|number| {
            subscriber
                .bound_address(SourceId(number))
                .map(str::to_owned)
        })
        .collect();

    let (trigger, shutdown) = shutdown::channel();
    let (hints, hinted) = calibration::hints(&config, &profiles);
    let parts = ingest::Parts {
        config: config.clone(),
        seed,
        profiles: profiles.clone(),
        hints,
        subscriber,
        updates: update_queue,
        metrics: Arc::clone(&metrics),
    };
    let (owner, handle) = Ingest::try_new(parts)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(owner.run(shutdown.clone()));
    if let Some(reloader) = Reloader::new(&config) {
        tasks.spawn(reloader.run(handle.clone(), Arc::clone(&metrics), shutdown.clone()));
    }
    scrape::start(&config, &handle, &metrics, &shutdown, &mut tasks)?;
    let calibrations = calibration::Parts {
        config: &config,
        profiles: &profiles,
        hinted,
        ingest: &handle,
        metrics: &metrics,
    };
    calibration::start(calibrations, &shutdown, &mut tasks)?;
    let pages = http::Pages {
        ingest: handle.clone(),
        metrics: Arc::clone(&metrics),
        gate: http::Gate::default(),
    };
    tasks.spawn(http::serve(http_listener, pages, shutdown.clone()));
    tasks.spawn(grpc::serve(grpc_listener, handle, shutdown));
    tracing::info!(%http, %grpc, shard = config.shard, endpoints = config.endpoints.len(), "serving");
    Ok(Running {
        http,
        grpc,
        bound_events,
        trigger,
        tasks,
    })
}

/// Runs an indexer until `shutdown`, and until all its tasks have ended.
///
/// # Errors
/// As [`start`] and [`Running::shut_down`].
pub async fn run(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
    let mut running = start(config).await?;
    let ended_early = tokio::select! {
        () = shutdown.wait() => None,
        task = running.tasks.join_next() => task,
    };
    let result = running.shut_down().await;
    match ended_early {
        Some(Err(error)) => Err(error.into()),
        _ => result,
    }
}

impl Running {
    /// Where health, metrics and the API are.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where the snapshot stream is.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// For each endpoint of the configuration, the address that its publisher should connect to; `None` where the indexer connects.
    pub fn bound_events(&self) -> &[Option<String>] {
        &self.bound_events
    }

    /// Stops all tasks and waits for their end; peers that do not let go are cut off after 5 seconds.
    ///
    /// # Errors
    /// A task has panicked.
    pub async fn shut_down(mut self) -> Result<(), ServeError> {
        self.trigger.shut_down();
        let mut result = Ok(());
        let deadline = tokio::time::Instant::now() + STOP_LIMIT;
        loop {
            match tokio::time::timeout_at(deadline, self.tasks.join_next()).await {
                Ok(None) => return result,
                Ok(Some(Ok(()))) => {}
                Ok(Some(Err(error))) => result = Err(error.into()),
                Err(_) => {
                    tracing::warn!(tasks = self.tasks.len(), "cutting connections off");
                    self.tasks.shutdown().await;
                    return result;
                }
            }
        }
    }
}

fn load_profiles(config: &Config) -> Result<Vec<Profile>, ServeError> {
    let load = |model: &crate::config::Model| {
        Profile::load(model).map_err(|source| ServeError::Profile {
            model: model.id.clone(),
            source,
        })
    };
    config.models.iter().map(load).collect()
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Listen { address, source })
}

fn local(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    listener
        .local_addr()
        .map_err(|source| ServeError::Listen { address, source })
}
