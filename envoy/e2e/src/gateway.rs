//! Envoy and an indexer in front of engines that only record, with the local configuration changed as a test likes.

use std::net::SocketAddr;

use anyhow::Context;
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings, render};
use prefixway::demo::indexer::{self, Indexer};
use prefixway::demo::process::wait_for;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Recorder;
use crate::rig::{Answer, LIMIT, MODEL, WORKERS, binary, envoy_binary, module, post};

/// A gateway in front of recorders; dropping it ends everything.
#[derive(Debug)]
pub struct Gateway {
    /// The gateway.
    pub envoy: Envoy,
    /// The indexer.
    pub indexer: Indexer,
    /// The engines.
    pub pool: Vec<Recorder>,
    folder: TempDir,
}

impl Gateway {
    /// Starts so many recorders, the indexer, and Envoy with what `change` makes of its configuration and the plugin's; waits until every
    /// worker has the snapshot.
    ///
    /// # Errors
    /// When a part does not start, with the end of its log.
    pub async fn start(
        engines: usize,
        plugin: &Value,
        change: impl FnOnce(&mut Value),
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let mut pool = Vec::new();
        for number in 0..engines {
            pool.push(Recorder::start(&number.to_string()).await?);
        }
        let addresses: Vec<SocketAddr> = pool.iter().map(Recorder::address).collect();
        let sources = addresses.iter().map(|address| indexer::Source {
            address: *address,
            events: None,
            replay: None,
            prefill_tokens_per_s: 8_000.0,
        });
        let settings = indexer::Settings::on_free_ports(MODEL, &model_dir, sources.collect())?;
        let indexer = Indexer::start(&binary(), folder.path(), &settings).await?;
        let mut configuration = json!({"indexers": [INDEXER], "explain": true});
        if let (Some(all), Some(more)) = (configuration.as_object_mut(), plugin.as_object()) {
            all.extend(more.clone());
        }
        let settings = Settings {
            balancing: Balancing::Prefixway(Filter {
                module: module()?,
                plugin: configuration,
                indexers: vec![(INDEXER.to_owned(), settings.grpc)],
            }),
            engines: addresses,
            concurrency: WORKERS,
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut text: Value = serde_saphyr::from_str(&render(&settings, any, any)?)?;
        change(&mut text);
        let envoy = Envoy::start_with(
            &envoy_binary()?,
            folder.path(),
            &format!("{text:#}"),
            WORKERS,
        )
        .await?;
        let gateway = Self {
            envoy,
            indexer,
            pool,
            folder,
        };
        gateway.wait_for_workers().await?;
        Ok(gateway)
    }

    async fn wait_for_workers(&self) -> anyhow::Result<()> {
        let ready = wait_for("the snapshot in every worker", LIMIT, async || {
            let gauges = self.envoy.stats("prefixway_ready_vms").await;
            let mut gauges = gauges.iter();
            gauges
                .any(|(_, vms)| *vms > u64::from(WORKERS))
                .then_some(())
        });
        ready
            .await
            .with_context(|| format!("envoy's log ends:\n{}", self.envoy.log_tail()))
    }

    /// A path in the folder that all files of this system are in.
    pub fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    /// Changes the policy in the indexer's file of settings; it is taken over within a second or so.
    ///
    /// # Errors
    /// When the file can't be read or written.
    pub fn change_policy(&self, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
        let file = self.path("indexer.yaml");
        let mut settings: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        change(settings.get_mut("policy").context("no policy")?);
        // Replaced whole, so that no half of it is read.
        let new = self.path("indexer.new");
        std::fs::write(&new, format!("{settings:#}\n"))?;
        Ok(std::fs::rename(new, file)?)
    }

    /// Posts a chat body on a connection of its own.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn chat(&self, body: &Value, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
        let client = reqwest::Client::new();
        let path = "/v1/chat/completions";
        post(&client, self.envoy.http(), path, body, headers).await
    }
}

/// The HTTP connection manager in a configuration of Envoy.
pub fn manager(envoy: &mut Value) -> Option<&mut Value> {
    envoy.pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
}

/// A request header as the recorder saw it.
pub fn seen<'a>(answer: &'a Answer, header: &str) -> Option<&'a str> {
    let path = format!("/headers/{header}");
    answer.body.pointer(&path).and_then(Value::as_str)
}
