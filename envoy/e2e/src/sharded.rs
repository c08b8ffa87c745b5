//! The system with its engines split over two indexers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use prefixway::demo::engines;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, Settings};
use prefixway::demo::indexer::{self, Indexer, Sharing};
use prefixway::demo::process::wait_for;
use prefixway_core::shard::owner;
use prefixway_engine_sim::Engine;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::{
    Answer, GRACE, LIMIT, MODEL, Pool, WORKERS, binary, envoy_binary, module, post, start_pool,
};

/// Engines of the pool.
const ENGINES: usize = 6;
/// Seed of the deployment.
const SEED: &str = "0x5eed";

/// The system under test; dropping it ends everything.
#[derive(Debug)]
pub struct Sharded {
    /// The gateway.
    pub envoy: Envoy,
    /// The engines, in order of their names.
    pub engines: Vec<Engine>,
    /// The indexers that run, in order of the gateway's clusters.
    pub indexers: [Option<Indexer>; 2],
    /// Number of the indexer that has each engine.
    pub owners: Vec<usize>,
    settings: [indexer::Settings; 2],
    folders: [PathBuf; 2],
    // Last: the others write to it.
    _folder: TempDir,
}

impl Sharded {
    /// Starts engines, both indexers and Envoy; the second indexer has the deployment's seed, or another.
    ///
    /// # Errors
    /// When a part does not start, with the end of its log.
    pub async fn start(second_seed: Option<&str>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let model_dir = folder.path().join("model");
        engines::model(&model_dir)?;
        let (engines, sources) = start_pool(Pool::Binding(ENGINES), &model_dir).await?;
        let addresses = engines::addresses(&engines);
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        // Ports are the system's, so names are looked for by which each indexer has two engines at least.
        let (shards, owners) = (0..1_000)
            .find_map(|number| {
                let shards = [format!("east-{number}"), format!("west-{number}")];
                let owners: Option<Vec<usize>> = texts
                    .iter()
                    .map(|text| {
                        let owner = owner(shards.iter().map(String::as_str), text)?;
                        shards.iter().position(|shard| shard == owner)
                    })
                    .collect();
                let owners = owners?;
                let second = owners.iter().sum::<usize>();
                (2..=ENGINES - 2)
                    .contains(&second)
                    .then_some((shards, owners))
            })
            .context("no names split the engines")?;
        let setting = |number: usize| -> anyhow::Result<indexer::Settings> {
            let mut settings =
                indexer::Settings::on_free_ports(MODEL, &model_dir, sources.clone())?;
            let seed = second_seed.filter(|_| number == 1).unwrap_or(SEED);
            settings.sharing = Some(Sharing {
                shard: shards.get(number).cloned().unwrap_or_default(),
                shards: shards.to_vec(),
                seed: seed.to_owned(),
            });
            Ok(settings)
        };
        let settings = [setting(0)?, setting(1)?];
        let clusters = ["indexer_east", "indexer_west"];
        let envoy = Settings {
            balancing: Balancing::Prefixway(Filter {
                module: module()?,
                plugin: json!({"indexers": clusters, "explain": true}),
                indexers: clusters
                    .iter()
                    .zip(&settings)
                    .map(|(cluster, settings)| ((*cluster).to_owned(), settings.grpc))
                    .collect(),
            }),
            engines: addresses,
            concurrency: WORKERS,
        };
        let envoy = Envoy::start(&envoy_binary()?, folder.path(), &envoy).await?;
        let folders = clusters.map(|cluster| folder.path().join(cluster));
        let mut sharded = Self {
            envoy,
            engines,
            indexers: [None, None],
            owners,
            settings,
            folders,
            _folder: folder,
        };
        for number in 0..2 {
            sharded.start_indexer(number).await?;
        }
        sharded
            .gauge("prefixway_ready_vms", u64::from(WORKERS) + 1)
            .await?;
        Ok(sharded)
    }

    /// Starts an indexer (again).
    ///
    /// # Errors
    /// When it does not start, with the end of its log.
    pub async fn start_indexer(&mut self, number: usize) -> anyhow::Result<()> {
        let (Some(slot), Some(settings), Some(folder)) = (
            self.indexers.get_mut(number),
            self.settings.get(number),
            self.folders.get(number),
        ) else {
            bail!("no indexer {number}");
        };
        std::fs::create_dir_all(folder)?;
        *slot = Some(Indexer::start(&binary(), folder, settings).await?);
        Ok(())
    }

    /// Kills an indexer as a crash would.
    pub async fn kill_indexer(&mut self, number: usize) {
        let running = self.indexers.get_mut(number).and_then(Option::take);
        if let Some(indexer) = running {
            indexer.kill().await;
        }
    }

    /// Waits until a gauge of the gateway has the value.
    ///
    /// # Errors
    /// When that takes longer than [`LIMIT`].
    pub async fn gauge(&self, name: &str, value: u64) -> anyhow::Result<()> {
        let ready = wait_for(name, LIMIT, async || {
            let gauges = self.envoy.stats(name).await;
            gauges.iter().any(|(_, is)| *is == value).then_some(())
        });
        ready
            .await
            .with_context(|| format!("envoy's log ends:\n{}", self.envoy.log_tail()))
    }

    /// Waits until every batch of the engines of running indexers is in the proxy's tables.
    ///
    /// # Errors
    /// When that takes longer than [`LIMIT`].
    pub async fn settle(&self) -> anyhow::Result<()> {
        let settled = wait_for(
            "the proxy's tables to be the indexers'",
            LIMIT,
            async || {
                let mut rungs = 0.0;
                for (number, indexer) in self.indexers.iter().enumerate() {
                    let owned = self.engines.iter().zip(&self.owners);
                    let published: u64 = owned
                        .filter(|(_, owner)| **owner == number)
                        .map(|(engine, _)| engine.stats().batches)
                        .sum();
                    let Some(indexer) = indexer else { continue };
                    let applied = indexer.metric("prefixway_event_batches_total", "").await?;
                    if applied < published as f64 {
                        return None;
                    }
                    rungs += indexer.metric("prefixway_index_rungs", "").await?;
                }
                if self.indexers.iter().any(Option::is_none) {
                    return Some(());
                }
                let copied = self.envoy.stats("prefixway_index_rungs").await;
                let is_equal = |(_, copied): &(String, u64)| (*copied as f64 - rungs).abs() < 0.5;
                copied.iter().any(is_equal).then_some(())
            },
        );
        settled
            .await
            .with_context(|| format!("envoy's log ends:\n{}", self.envoy.log_tail()))?;
        tokio::time::sleep(GRACE).await;
        Ok(())
    }

    /// Sends `body` through the gateway.
    ///
    /// # Errors
    /// When there is no answer or it is no success.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let client = reqwest::Client::new();
        post(&client, self.envoy.http(), path, body, &[])
            .await?
            .success()
    }

    /// Sends `body` straight to an engine.
    ///
    /// # Errors
    /// When there is no answer or it is no success.
    pub async fn straight(&self, engine: usize, path: &str, body: &Value) -> anyhow::Result<()> {
        let engine = self.engines.get(engine).context("no such engine")?;
        let client = reqwest::Client::new();
        post(&client, engine.http_addr(), path, body, &[])
            .await?
            .success()?;
        Ok(())
    }

    /// The decisions that an indexer was told of; by the reason of its own, all of them.
    pub async fn decisions(&self, number: usize) -> Option<f64> {
        let indexer = self.indexers.get(number)?.as_ref()?;
        indexer.metric("prefixway_decisions_total", "").await
    }

    /// Engines of an indexer, in order.
    pub fn engines_of(&self, number: usize) -> Vec<usize> {
        let owners: BTreeMap<usize, usize> = self.owners.iter().copied().enumerate().collect();
        owners
            .into_iter()
            .filter_map(|(engine, owner)| (owner == number).then_some(engine))
            .collect()
    }
}
