//! Load and health of the engines, from `/metrics` and `/health`.
//!
//! One task per engine (address), whatever the number of its ranks. A busy engine is read often, an idle one ever more rarely:
//!
//! ```text
//!  busy: interval     idle: doubles up to idle_interval     unreachable: interval, and unhealthy from the second time in a row
//! ```

pub mod parse;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::config;
use crate::ingest::{self, Command};
use crate::metrics::{EndpointResult, Metrics, Outcome};
use crate::shutdown::Shutdown;
use parse::{Adapters, Figures};

/// Failures in a row after which an engine counts as unhealthy; one alone may be a lost packet or a long step.
const FAILURES_TO_UNHEALTHY: u32 = 2;
/// Largest `/metrics` page read.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// What one look at an engine brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The engine.
    pub address: SocketAddr,
    /// How it is.
    pub health: Health,
    /// Figures per rank; `None` when the page was not read.
    pub figures: Option<BTreeMap<u32, Figures>>,
    /// Adapters per rank, of those that tell.
    pub adapters: BTreeMap<u32, Adapters>,
}

/// A scrape that brought nothing.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("no answer")]
    Request(#[from] reqwest::Error),
    #[error("page is larger than {MAX_PAGE_BYTES} bytes")]
    TooLarge,
}

/// Starts a task for each engine that wants it.
///
/// # Errors
/// The HTTP client can't be made.
pub fn start(
    config: &config::Config,
    ingest: &ingest::Handle,
    metrics: &Arc<Metrics>,
    shutdown: &Shutdown,
    tasks: &mut JoinSet<()>,
) -> Result<(), reqwest::Error> {
    let client = reqwest::Client::builder()
        .timeout(config.scrape.timeout)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()?;
    let mut addresses: Vec<SocketAddr> = config
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.scrape)
        .map(|endpoint| endpoint.address)
        .collect();
    addresses.sort();
    addresses.dedup();
    for address in addresses {
        let scraper = Scraper {
            client: client.clone(),
            address,
            settings: config.scrape,
            ingest: ingest.clone(),
            metrics: Arc::clone(metrics),
        };
        let shutdown = shutdown.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = scraper.run() => {}
                () = shutdown.wait() => {}
            }
        });
    }
    Ok(())
}

struct Scraper {
    client: reqwest::Client,
    address: SocketAddr,
    settings: config::Scrape,
    ingest: ingest::Handle,
    metrics: Arc<Metrics>,
}

/// What an engine says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers, or has missed one answer.
    Well,
    /// It says that it is not well, or nobody is there.
    Down,
    /// It does not answer in time.
    Silent,
}

impl Scraper {
    /// Ends when the ingest task does.
    async fn run(self) {
        let mut failures = 0;
        let mut pause = self.settings.interval;
        loop {
            let sample = self.sample(&mut failures).await;
            pause = next_pause(pause, &sample, self.settings);
            if self.ingest.send(Command::Scraped(sample)).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn sample(&self, failures: &mut u32) -> Sample {
        let (health, page) = tokio::join!(self.health(), self.page());
        let is_healthy = health == Health::Well;
        *failures = if is_healthy {
            0
        } else {
            failures.saturating_add(1)
        };
        let result = if is_healthy && page.is_ok() {
            Outcome::Ok
        } else {
            Outcome::Failed
        };
        self.metrics
            .scrapes
            .get_or_create_owned(&EndpointResult {
                endpoint: self.address.to_string(),
                result,
            })
            .inc();
        if let Err(error) = &page {
            tracing::debug!(%error, endpoint = %self.address, "scrape failed");
        }
        Sample {
            address: self.address,
            health: if *failures < FAILURES_TO_UNHEALTHY {
                Health::Well
            } else {
                health
            },
            figures: page.as_deref().ok().map(parse::figures),
            adapters: page.as_deref().map(parse::adapters).unwrap_or_default(),
        }
    }

    async fn health(&self) -> Health {
        let answer = self
            .client
            .get(format!("http://{}/health", self.address))
            .send()
            .await;
        match answer {
            Ok(answer) if answer.status().is_success() => Health::Well,
            Err(error) if error.is_timeout() => Health::Silent,
            Ok(_) | Err(_) => Health::Down,
        }
    }

    async fn page(&self) -> Result<String, ScrapeError> {
        let request = self.client.get(format!("http://{}/metrics", self.address));
        let mut answer = request.send().await?.error_for_status()?;
        let mut page = Vec::new();
        while let Some(part) = answer.chunk().await? {
            if page.len() + part.len() > MAX_PAGE_BYTES {
                return Err(ScrapeError::TooLarge);
            }
            page.extend_from_slice(&part);
        }
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

fn next_pause(pause: Duration, sample: &Sample, settings: config::Scrape) -> Duration {
    let is_idle = sample.figures.as_ref().is_some_and(|ranks| {
        ranks
            .values()
            .all(|figures| figures.running == 0 && figures.waiting == 0)
    });
    if sample.health == Health::Well && is_idle {
        (pause * 2).min(settings.idle_interval)
    } else {
        settings.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_engine_is_read_ever_more_rarely() {
        let settings = config::Scrape {
            interval: Duration::from_millis(250),
            idle_interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            max_age: Duration::from_secs(5),
        };
        let sample = |running| Sample {
            address: ([127, 0, 0, 1], 1).into(),
            health: Health::Well,
            figures: Some(BTreeMap::from([(
                0,
                Figures {
                    running,
                    ..Figures::default()
                },
            )])),
            adapters: BTreeMap::new(),
        };
        let pauses: Vec<u128> = [0, 0, 0, 2, 0]
            .iter()
            .scan(settings.interval, |pause, &running| {
                *pause = next_pause(*pause, &sample(running), settings);
                Some(pause.as_millis())
            })
            .collect();
        assert_eq!(pauses, [500, 1000, 1000, 250, 500]);
        let silent = Sample {
            figures: None,
            ..sample(0)
        };
        assert_eq!(
            next_pause(settings.idle_interval, &silent, settings),
            settings.interval
        );
    }
}
