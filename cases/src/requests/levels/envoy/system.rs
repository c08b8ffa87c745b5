//! Envoy, an indexer and recorders on loopback, for one setup.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings};
use prefixway::demo::process::{Process, ProcessError, free_address};
use prefixway_e2e::recorder::Recorded;
use prefixway_e2e::{Recorder, rig};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::error::CaseError;
use crate::requests::deployment::Family;
use crate::requests::setup::Setup;

/// Longest wait for a part to be ready.
const LIMIT: Duration = Duration::from_mins(1);
/// The program of this crate; with `serve` it is the indexer.
const PROGRAM: &str = "prefixway-cases";

/// What has to be there.
pub(crate) struct Parts {
    pub(crate) envoy: PathBuf,
    pub(crate) module: PathBuf,
    indexer: PathBuf,
}

impl Parts {
    /// Finds them.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn find() -> Result<Self, String> {
        let said = |error: anyhow::Error| format!("{error:#}").trim().replace('\n', "; ");
        Ok(Self {
            envoy: rig::envoy_binary().map_err(said)?,
            module: rig::module().map_err(said)?,
            indexer: program().ok_or_else(|| format!("there is no program {PROGRAM}"))?,
        })
    }
}

/// The program itself, or beside a test's folder: `target/<profile>/deps/it-<hash>` and `target/<profile>/prefixway-cases`.
fn program() -> Option<PathBuf> {
    let running = std::env::current_exe().ok()?;
    let mut places = running.ancestors().skip(1).take(2);
    let own = (running.file_stem()? == PROGRAM).then(|| running.clone());
    own.or_else(|| places.find_map(|folder| Some(folder.join(PROGRAM)).filter(|p| p.is_file())))
}

/// A running system; dropping it ends everything.
pub(super) struct System {
    pub(super) envoy: Envoy,
    indexer: Option<Process>,
    pods: Vec<(String, Recorder)>,
    /// Pods by address.
    names: BTreeMap<String, String>,
    /// Last, so that nothing in it is in use when it goes.
    _folder: TempDir,
}

impl System {
    /// Starts everything, and waits until every worker has the snapshot.
    pub(super) async fn start(
        parts: &Parts,
        family: &Family,
        setup: &Setup,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut pods = Vec::new();
        for pod in setup.pods() {
            pods.push((pod.to_owned(), Recorder::start(pod).await?));
        }
        let (grpc, http) = (free_address()?, free_address()?);
        let indexer = if setup.is_known {
            let text = configuration(setup, family, &pods, folder.path(), [http, grpc]);
            Some(start_indexer(parts, folder.path(), &text, http).await?)
        } else {
            None
        };
        let mut plugin = json!({"indexers": [INDEXER]});
        if let Some(keys) = plugin.as_object_mut().filter(|_| setup.is_known) {
            let limits = json!({"max_body_bytes": setup.body_cap_bytes});
            keys.insert("limits".to_owned(), limits);
        }
        let settings = Settings {
            balancing: Balancing::Prefixway(Filter {
                module: parts.module.clone(),
                plugin,
                indexers: vec![(INDEXER.to_owned(), grpc)],
            }),
            engines: pods.iter().map(|(_, pod)| pod.address()).collect(),
            concurrency: rig::WORKERS,
        };
        let envoy = Envoy::start(&parts.envoy, folder.path(), &settings).await?;
        let names = pods
            .iter()
            .map(|(name, pod)| (pod.address().to_string(), name.clone()));
        let mut system = Self {
            names: names.collect(),
            envoy,
            indexer,
            pods,
            _folder: folder,
        };
        if setup.is_known {
            system.wait_for_snapshot().await?;
        }
        Ok(system)
    }

    async fn wait_for_snapshot(&mut self) -> Result<(), ProcessError> {
        let envoy = &self.envoy;
        let is_ready = async || {
            let gauges = envoy.stats("prefixway_ready_vms").await;
            let mut values = gauges.iter().map(|gauge| gauge.1);
            values
                .any(|vms| vms > u64::from(rig::WORKERS))
                .then_some(())
        };
        match &mut self.indexer {
            Some(indexer) => {
                indexer
                    .wait_for("the snapshot in every worker", LIMIT, is_ready)
                    .await
            }
            None => Ok(()),
        }
    }

    /// Checks that everything still runs: a trap or a crash fails the request that caused it.
    pub(super) fn check(&mut self) -> Result<(), CaseError> {
        let indexer = self.indexer.as_mut().map_or(Ok(()), Process::check);
        let all = self.envoy.check().and(indexer);
        all.map_err(|error| CaseError::mismatch("processes", &"running", &error))
    }

    /// Takes what a pod saw last.
    pub(super) fn take(&self, pod: &str) -> Option<Recorded> {
        let pod = self.pods.iter().find(|(name, _)| name == pod);
        pod.and_then(|(_, recorder)| recorder.take().pop())
    }

    /// Pods behind addresses; an address that is nobody's stays as it is.
    pub(super) fn pods_of<'a>(&self, addresses: impl Iterator<Item = &'a str>) -> Vec<String> {
        let pod = |address: &str| {
            let pod = self.names.get(address).cloned();
            pod.unwrap_or_else(|| address.to_owned())
        };
        addresses.map(pod).collect()
    }
}

/// The indexer's configuration; JSON, which every YAML reader takes.
fn configuration(
    setup: &Setup,
    family: &Family,
    pods: &[(String, Recorder)],
    folder: &Path,
    [http, grpc]: [SocketAddr; 2],
) -> String {
    let models = setup.pools.keys().map(|model| {
        json!({
            "id": model, "names": [model], "adapters": setup.adapters_for(model),
            "model_dir": family.folder, "pool": model,
        })
    });
    let endpoints = pods.iter().map(|(pod, recorder)| {
        json!({
            "address": recorder.address().to_string(), "model": setup.model_of(pod),
            "adapters": setup.adapters_of(pod), "scrape": false,
        })
    });
    let configuration = json!({
        "listen": {"http": http.to_string(), "grpc": grpc.to_string()},
        "state_dir": folder.join("state"),
        "models": models.collect::<Vec<_>>(),
        "endpoints": endpoints.collect::<Vec<_>>(),
        "policy": {"max_body_bytes": setup.body_cap_bytes},
    });
    format!("{configuration:#}\n")
}

/// Starts an indexer, and waits until it is ready.
///
/// # Errors
/// It does not get ready.
pub(crate) async fn start_indexer(
    parts: &Parts,
    folder: &Path,
    configuration: &str,
    http: SocketAddr,
) -> anyhow::Result<Process> {
    let file = folder.join("indexer.yaml");
    std::fs::write(&file, configuration)?;
    let mut command = Command::new(&parts.indexer);
    command.arg("serve").arg("--config").arg(&file);
    let mut process = Process::start("indexer", command, &folder.join("indexer.log"))?;
    let client = reqwest::Client::new();
    let url = format!("http://{http}/readyz");
    let is_ready = async || {
        let answer = client.get(&url).send().await.ok()?;
        answer.status().is_success().then_some(())
    };
    process.wait_for("the indexer", LIMIT, is_ready).await?;
    Ok(process)
}
