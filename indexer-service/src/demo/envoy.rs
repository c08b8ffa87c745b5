//! Envoy on loopback: its configuration from `envoy/local.yaml.jinja`, and the running proxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tokio::process::Command;

use super::process::{Process, ProcessError};

/// The configuration's template; its head names the values that it takes.
const TEMPLATE: &str = include_str!("../../../envoy/local.yaml.jinja");
/// Time that Envoy gets to compile the module and to listen.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Who picks the endpoint.
#[derive(Clone, Debug)]
pub enum Balancing {
    /// Envoy, one after the other.
    RoundRobin,
    /// Envoy, by requests in flight per worker.
    LeastRequest,
    /// The wasm filter; Envoy by requests in flight where the filter does not know.
    Prefixway(Filter),
}

impl Balancing {
    /// Its name in the template and in reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::Prefixway(_) => "prefixway",
        }
    }
}

/// The wasm filter and its source of knowledge.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The built module.
    pub module: PathBuf,
    /// Plugin configuration (`docs/filter.md`).
    pub plugin: serde_json::Value,
    /// The clusters of the indexers, by name, and where their snapshot streams listen.
    pub indexers: Vec<(String, SocketAddr)>,
}

/// Name of the cluster where there is one indexer.
pub const INDEXER: &str = "prefixway_indexer";

/// Envoy's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who picks the endpoint.
    pub balancing: Balancing,
    /// The endpoints of the pool.
    pub engines: Vec<SocketAddr>,
    /// Worker threads.
    pub concurrency: u32,
}

/// What can go wrong with Envoy.
#[derive(Debug, thiserror::Error)]
pub enum EnvoyError {
    /// The template does not render.
    #[error("cannot render the Envoy configuration")]
    Render(#[from] minijinja::Error),
    /// The plugin configuration or a path cannot be written as JSON.
    #[error("cannot write a value of the Envoy configuration")]
    Value(#[from] serde_json::Error),
    /// The configuration file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

#[derive(Serialize)]
struct Address {
    ip: String,
    port: u16,
}

#[derive(Serialize)]
struct Cluster {
    name: String,
    #[serde(flatten)]
    address: Address,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        // Quoted, since an IPv6 address is no plain YAML scalar inside braces.
        Self {
            ip: format!("\"{}\"", address.ip()),
            port: address.port(),
        }
    }
}

/// Renders the configuration. `listen` and `admin` may have port 0: the system picks.
///
/// # Errors
/// Only when a value cannot be written as JSON.
pub fn render(
    settings: &Settings,
    listen: SocketAddr,
    admin: SocketAddr,
) -> Result<String, EnvoyError> {
    let mut values = serde_json::json!({
        "policy": settings.balancing.as_str(),
        "listen": Address::from(listen),
        "admin": Address::from(admin),
        "engines": settings.engines.iter().copied().map(Address::from).collect::<Vec<_>>(),
    });
    if let (Balancing::Prefixway(filter), Some(values)) =
        (&settings.balancing, values.as_object_mut())
    {
        // JSON strings are YAML strings, whatever is in them.
        let plugin = serde_json::to_string(&filter.plugin)?;
        values.insert("plugin".to_owned(), serde_json::to_string(&plugin)?.into());
        values.insert(
            "module".to_owned(),
            serde_json::to_string(&filter.module)?.into(),
        );
        let indexers: Vec<Cluster> = filter
            .indexers
            .iter()
            .map(|(name, address)| Cluster {
                name: name.clone(),
                address: Address::from(*address),
            })
            .collect();
        values.insert("indexers".to_owned(), serde_json::to_value(indexers)?);
    }
    Ok(minijinja::Environment::new().render_str(TEMPLATE, minijinja::value::Serde(values))?)
}

/// A running Envoy; dropping it kills it.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    http: SocketAddr,
    admin: SocketAddr,
    client: reqwest::Client,
}

impl Envoy {
    /// Starts the binary on free loopback ports and waits until its listener takes requests. Files go to `folder`.
    ///
    /// # Errors
    /// When the configuration is refused, with the end of Envoy's log, or it is not ready within a minute.
    pub async fn start(
        binary: &Path,
        folder: &Path,
        settings: &Settings,
    ) -> Result<Self, EnvoyError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let text = render(settings, any, any)?;
        Self::start_with(binary, folder, &text, settings.concurrency).await
    }

    /// Starts the binary with `text` as its configuration: one listener, and an admin interface on loopback.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(
        binary: &Path,
        folder: &Path,
        text: &str,
        concurrency: u32,
    ) -> Result<Self, EnvoyError> {
        Self::start_with_arguments(binary, folder, text, concurrency, &[]).await
    }

    /// The same with further arguments.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with_arguments(
        binary: &Path,
        folder: &Path,
        text: &str,
        concurrency: u32,
        arguments: &[&str],
    ) -> Result<Self, EnvoyError> {
        let file = folder.join("envoy.yaml");
        std::fs::write(&file, text).map_err(|source| EnvoyError::Write {
            path: file.clone(),
            source,
        })?;
        let admin_file = folder.join("envoy-admin");
        // A file of an earlier start in the same folder would name a dead address.
        let _ = std::fs::remove_file(&admin_file);

        let mut command = Command::new(binary);
        command
            .arg("--config-path")
            .arg(&file)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--concurrency", &concurrency.to_string()])
            .args(["--disable-hot-restart", "--log-level", "warning"])
            .args(["--component-log-level", "wasm:info"])
            .args(arguments);
        let mut process = Process::start("envoy", command, &folder.join("envoy.log"))?;

        let admin: SocketAddr = process
            .wait_for("envoy's admin interface", START_LIMIT, async || {
                std::fs::read_to_string(&admin_file)
                    .ok()?
                    .trim()
                    .parse()
                    .ok()
            })
            .await?;
        let client = reqwest::Client::new();
        let http = process
            .wait_for("envoy's listener", START_LIMIT, async || {
                let ready = client
                    .get(format!("http://{admin}/ready"))
                    .send()
                    .await
                    .ok()?;
                if !ready.status().is_success() {
                    return None;
                }
                let text = client
                    .get(format!("http://{admin}/listeners"))
                    .send()
                    .await
                    .ok()?;
                // One line a listener: `name::127.0.0.1:12345`.
                let text = text.text().await.ok()?;
                text.lines()
                    .find_map(|line| line.split_once("::")?.1.parse().ok())
            })
            .await?;
        Ok(Self {
            process,
            http,
            admin,
            client,
        })
    }

    /// Where it takes requests.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Its admin interface.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Number of its process; `None` when it has ended.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// All counters and gauges whose name contains `part`, with their values.
    pub async fn stats(&self, part: &str) -> Vec<(String, u64)> {
        let url = format!("http://{}/stats", self.admin);
        let text = async { self.client.get(url).send().await.ok()?.text().await.ok() };
        let text = text.await.unwrap_or_default();
        let pairs = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        pairs.filter(|(name, _)| name.contains(part)).collect()
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// With the end of its log when it does not.
    pub fn check(&mut self) -> Result<(), ProcessError> {
        self.process.check()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) {
        self.process.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(balancing: Balancing) -> Settings {
        Settings {
            balancing,
            engines: vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()],
            concurrency: 2,
        }
    }

    fn rendered(balancing: Balancing) -> String {
        let any = "127.0.0.1:0".parse().unwrap();
        render(&settings(balancing), any, any).unwrap()
    }

    fn filter() -> Balancing {
        Balancing::Prefixway(Filter {
            module: PathBuf::from("/tmp/a \"quoted\" path.wasm"),
            plugin: serde_json::json!({"indexers": ["prefixway_indexer"]}),
            indexers: [(INDEXER, "127.0.0.1:9701"), ("another", "[::1]:9702")]
                .map(|(name, address)| (name.to_owned(), address.parse().unwrap()))
                .to_vec(),
        })
    }

    #[test]
    fn every_endpoint_and_value_is_in_the_configuration() {
        let text = rendered(filter());
        for part in [
            r#"address: "::1", port_value: 2"#,
            r#"filename: "/tmp/a \"quoted\" path.wasm""#,
            r#"value: "{\"indexers\":[\"prefixway_indexer\"]}""#,
            "cluster_name: prefixway_indexer\n",
            "port_value: 9701",
            "cluster_name: another\n",
            r#"address: "::1", port_value: 9702"#,
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn only_prefixway_has_the_filter_and_the_override() {
        for balancing in [Balancing::RoundRobin, Balancing::LeastRequest] {
            let text = rendered(balancing);
            assert!(
                !text.contains("wasm") && !text.contains("override_host"),
                "{text}"
            );
        }
        assert!(rendered(filter()).contains("allow_on_headers_stop_iteration: true"));
    }

    #[test]
    fn client_sent_routing_headers_are_removed_under_every_policy() {
        for balancing in [Balancing::RoundRobin, Balancing::LeastRequest, filter()] {
            let text = rendered(balancing);
            for header in [
                "x-gateway-destination-endpoint",
                "x-prefiller-host-port",
                "x-prefiller-url",
                "x-data-parallel-host-port",
                "x-data-parallel-rank",
                "x-envoy-original-dst-host",
            ] {
                assert!(
                    text.contains(&format!("- remove: {header}")),
                    "{header} is kept in\n{text}"
                );
            }
        }
    }
}
