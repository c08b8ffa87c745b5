//! The indexer as a child process, as an operator would run it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use super::process::{Process, ProcessError, free_address};

/// Time that the indexer gets to be ready.
const START_LIMIT: Duration = Duration::from_secs(30);

/// One engine as the indexer has to know it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where Envoy reaches the engine.
    pub address: SocketAddr,
    /// Its publisher, and who binds; `None` for an engine that publishes nothing.
    pub events: Option<Events>,
    /// Its replay socket.
    pub replay: Option<String>,
    /// Its prefill rate.
    pub prefill_tokens_per_s: f64,
}

/// Where events come from.
#[derive(Clone, Debug)]
pub enum Events {
    /// The engine's publisher is bound to this address.
    Connect(String),
    /// The indexer binds this address, the engine's publisher connects.
    Bind(String),
}

/// The indexer's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the model, also its profile id.
    pub model: String,
    /// Its folder.
    pub model_dir: PathBuf,
    /// The engines.
    pub sources: Vec<Source>,
    /// What the filter is told: `on`, `shadow` or `off`.
    pub mode: String,
    /// Where the snapshot stream listens; kept over a restart.
    pub grpc: SocketAddr,
    /// Where health and metrics are served.
    pub http: SocketAddr,
    /// Its part where several share the engines.
    pub sharing: Option<Sharing>,
}

/// One of several indexers that share the engines.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Its name.
    pub shard: String,
    /// All names.
    pub shards: Vec<String>,
    /// The seed that they share.
    pub seed: String,
}

impl Settings {
    /// Settings with free loopback ports.
    ///
    /// # Errors
    /// When the system has no free port.
    pub fn on_free_ports(
        model: &str,
        model_dir: &Path,
        sources: Vec<Source>,
    ) -> Result<Self, ProcessError> {
        Ok(Self {
            model: model.to_owned(),
            model_dir: model_dir.to_owned(),
            sources,
            mode: "on".to_owned(),
            grpc: free_address()?,
            http: free_address()?,
            sharing: None,
        })
    }

    /// The configuration file's text; JSON, which every YAML reader takes.
    pub fn configuration(&self, state_dir: &Path) -> String {
        let endpoints: Vec<_> = self
            .sources
            .iter()
            .map(|source| self.endpoint(source))
            .collect();
        let mut configuration = json!({
            "listen": {"http": self.http.to_string(), "grpc": self.grpc.to_string()},
            "state_dir": state_dir,
            "models": [{"id": self.model, "names": [self.model], "model_dir": self.model_dir}],
            "endpoints": endpoints,
            "policy": {"mode": self.mode, "explain": true},
        });
        if let (Some(sharing), Some(keys)) = (&self.sharing, configuration.as_object_mut()) {
            keys.insert("shard".to_owned(), json!(sharing.shard));
            keys.insert("shards".to_owned(), json!(sharing.shards));
            keys.insert("seed".to_owned(), json!(sharing.seed));
        }
        format!("{configuration:#}\n")
    }

    fn endpoint(&self, source: &Source) -> serde_json::Value {
        let mut endpoint = json!({
            "address": source.address.to_string(),
            "model": self.model,
            "prefill_tokens_per_s": source.prefill_tokens_per_s,
        });
        let events = source.events.as_ref().map(|events| match events {
            Events::Connect(address) => json!({"connect": address, "replay": source.replay}),
            Events::Bind(address) => json!({"bind": address, "replay": source.replay}),
        });
        if let (Some(fields), Some(events)) = (endpoint.as_object_mut(), events) {
            fields.insert("events".to_owned(), events);
        }
        endpoint
    }
}

/// A running indexer; dropping it kills it.
#[derive(Debug)]
pub struct Indexer {
    process: Process,
    http: SocketAddr,
    client: reqwest::Client,
}

impl Indexer {
    /// Starts `binary serve` and waits until it is ready. Configuration, state and log go to `folder`.
    ///
    /// # Errors
    /// When it does not start, with the end of its log.
    pub async fn start(
        binary: &Path,
        folder: &Path,
        settings: &Settings,
    ) -> Result<Self, ProcessError> {
        let file = folder.join("indexer.yaml");
        std::fs::write(&file, settings.configuration(&folder.join("state"))).map_err(|source| {
            ProcessError::Prepare {
                what: file.display().to_string(),
                source,
            }
        })?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&file);
        let process = Process::start("indexer", command, &folder.join("indexer.log"))?;
        let mut indexer = Self {
            process,
            http: settings.http,
            client: reqwest::Client::new(),
        };
        let url = format!("http://{}/readyz", settings.http);
        let client = indexer.client.clone();
        indexer
            .process
            .wait_for("the indexer", START_LIMIT, async || {
                let answer = client.get(&url).send().await.ok()?;
                answer.status().is_success().then_some(())
            })
            .await?;
        Ok(indexer)
    }

    /// Its health and metrics.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Number of its process; `None` when it has ended.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// The sum of a metric's series whose text contains `part`; `None` when there is none or it does not answer.
    pub async fn metric(&self, name: &str, part: &str) -> Option<f64> {
        let url = format!("http://{}/metrics", self.http);
        let text = self.client.get(url).send().await.ok()?.text().await.ok()?;
        sum_of(&text, name, part)
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// With the end of its log when it does not.
    pub fn check(&mut self) -> Result<(), ProcessError> {
        self.process.check()
    }

    /// Kills it at once, as a crash would.
    pub async fn kill(self) {
        self.process.kill().await;
    }
}

fn sum_of(text: &str, name: &str, part: &str) -> Option<f64> {
    let lines = text.lines().filter(|line| {
        let series = line.strip_prefix(name);
        series.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(part)
    });
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_metric_are_added_up() {
        let text = "# HELP a_total x\na_total{s=\"1\"} 2\na_total{s=\"2\"} 3\na_total_more 7\n";
        assert_eq!(sum_of(text, "a_total", ""), Some(5.0));
        assert_eq!(sum_of(text, "a_total", "s=\"2\""), Some(3.0));
        assert_eq!(sum_of(text, "b_total", ""), None);
    }
}
