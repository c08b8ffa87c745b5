//! Envoy whose listener comes from a file that is replaced while it runs, as a control plane would push it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, Settings, render};
use prefixway::demo::process::{free_address, wait_for};
use serde_json::Value;

use crate::rig::LIMIT;

/// Seconds that an old listener goes on for, unless something else is said.
const DRAIN_S: u32 = 2;
/// The VMs' name in the configuration's template.
const VM_ID: &str = "prefixway";

/// A listener and the file that it is read from.
#[derive(Debug)]
pub struct Listener {
    settings: Settings,
    address: SocketAddr,
    folder: PathBuf,
    vm_id: String,
    drain_s: u32,
}

impl Listener {
    /// Writes the first one.
    ///
    /// # Errors
    /// When there is no free port, or the file can't be written.
    pub fn new(settings: &Settings, folder: &Path) -> anyhow::Result<Self> {
        let listener = Self {
            settings: settings.clone(),
            // An address that the system picks would be another for each listener.
            address: free_address()?,
            folder: folder.to_owned(),
            vm_id: VM_ID.to_owned(),
            drain_s: DRAIN_S,
        };
        listener.write()?;
        Ok(listener)
    }

    /// The same, where old listeners go on for so many seconds.
    #[must_use]
    pub fn draining_for(self, drain_s: u32) -> Self {
        Self { drain_s, ..self }
    }

    /// Starts Envoy with the listener in the file.
    ///
    /// # Errors
    /// When it does not start, with the end of its log.
    pub async fn start(&self, binary: &Path) -> anyhow::Result<Envoy> {
        let (before, _, after) = self.parts()?;
        let source = format!(
            "dynamic_resources:\n  lds_config:\n    resource_api_version: V3\n    path_config_source: {{path: {}}}\n",
            serde_json::to_string(&self.file())?
        );
        let text = format!("{source}{before}{after}");
        let drain_s = self.drain_s.to_string();
        let arguments = ["--drain-time-s", &drain_s, "--drain-strategy", "immediate"];
        let concurrency = self.settings.concurrency;
        let folder = &self.folder;
        Ok(Envoy::start_with_arguments(binary, folder, &text, concurrency, &arguments).await?)
    }

    /// Replaces a value of the filter's configuration.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn push(&mut self, key: &str, value: Value) -> anyhow::Result<()> {
        if let Some(filter) = self.filter()
            && let Some(keys) = filter.plugin.as_object_mut()
        {
            keys.insert(key.to_owned(), value);
        }
        self.write()
    }

    /// Replaces the filter's module.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn push_module(&mut self, module: &Path) -> anyhow::Result<()> {
        if let Some(filter) = self.filter() {
            module.clone_into(&mut filter.module);
        }
        self.write()
    }

    /// Gives the VMs another name: the new ones share nothing with those before.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn push_vm_id(&mut self, vm_id: &str) -> anyhow::Result<()> {
        vm_id.clone_into(&mut self.vm_id);
        self.write()
    }

    /// Waits until Envoy has taken more updates than `before`.
    ///
    /// # Errors
    /// When that takes longer than [`LIMIT`].
    pub async fn taken(envoy: &Envoy, before: u64) -> anyhow::Result<()> {
        wait_for("the update", LIMIT, async || {
            (Self::updates(envoy).await > before).then_some(())
        })
        .await?;
        Ok(())
    }

    /// Updates that Envoy has taken.
    pub async fn updates(envoy: &Envoy) -> u64 {
        let stats = envoy.stats("listener_manager.lds.update_success").await;
        stats.first().map_or(0, |(_, value)| *value)
    }

    fn filter(&mut self) -> Option<&mut Filter> {
        match &mut self.settings.balancing {
            Balancing::Prefixway(filter) => Some(filter),
            Balancing::RoundRobin | Balancing::LeastRequest => None,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("listener.yaml")
    }

    /// The configuration before its listeners, the listener, and what comes after.
    fn parts(&self) -> anyhow::Result<(String, String, String)> {
        let text = render(
            &self.settings,
            self.address,
            SocketAddr::from(([127, 0, 0, 1], 0)),
        )?;
        let (before, rest) = text.split_once("  listeners:\n").context("no listeners")?;
        let at = rest.find("\n  clusters:").context("no clusters")?;
        let (listener, after) = rest.split_at(at + 1);
        Ok((before.to_owned(), listener.to_owned(), after.to_owned()))
    }

    fn write(&self) -> anyhow::Result<()> {
        let (_, listener, _) = self.parts()?;
        let listener = listener.replacen(
            "  - name:",
            "  - \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n    name:",
            1,
        );
        let named = format!("vm_id: {}\n", self.vm_id);
        let listener = listener.replacen(&format!("vm_id: {VM_ID}\n"), &named, 1);
        anyhow::ensure!(listener.contains(&named), "no vm_id in {listener}");
        // Envoy looks at the file when another one takes its place.
        let next = self.folder.join("listener.next");
        std::fs::write(&next, format!("resources:\n{listener}"))?;
        std::fs::rename(next, self.file())?;
        Ok(())
    }
}
