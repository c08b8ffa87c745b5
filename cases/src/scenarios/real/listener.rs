//! Envoy whose listener comes from a file that is replaced while it runs, as a control plane would push it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use prefixway::demo::envoy::{Balancing, Envoy, Settings, render};
use prefixway::demo::process::free_address;
use serde_json::Value;

/// Seconds that an old listener goes on for.
const DRAIN_S: &str = "2";

/// A listener and the file that it is read from.
#[derive(Debug)]
pub(crate) struct Listener {
    settings: Settings,
    address: SocketAddr,
    folder: PathBuf,
}

impl Listener {
    /// Writes the first one.
    pub(crate) fn new(settings: &Settings, folder: &Path) -> anyhow::Result<Self> {
        let listener = Self {
            settings: settings.clone(),
            // An address that the system picks would be another for each listener.
            address: free_address()?,
            folder: folder.to_owned(),
        };
        listener.write()?;
        Ok(listener)
    }

    /// Starts Envoy with the listener in the file.
    pub(crate) async fn start(&self, binary: &Path) -> anyhow::Result<Envoy> {
        let (before, _, after) = self.parts()?;
        let source = format!(
            "dynamic_resources:\n  lds_config:\n    resource_api_version: V3\n    path_config_source: {{path: {}}}\n",
            serde_json::to_string(&self.file())?
        );
        let text = format!("{source}{before}{after}");
        let arguments = ["--drain-time-s", DRAIN_S, "--drain-strategy", "immediate"];
        let concurrency = self.settings.concurrency;
        let folder = &self.folder;
        Ok(Envoy::start_with_arguments(binary, folder, &text, concurrency, &arguments).await?)
    }

    /// Replaces the filter's configuration.
    pub(crate) fn push(&mut self, key: &str, value: Value) -> anyhow::Result<()> {
        if let Balancing::Prefixway(filter) = &mut self.settings.balancing
            && let Some(keys) = filter.plugin.as_object_mut()
        {
            keys.insert(key.to_owned(), value);
        }
        self.write()
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
        // Envoy looks at the file when another one takes its place.
        let next = self.folder.join("listener.next");
        std::fs::write(&next, format!("resources:\n{listener}"))?;
        std::fs::rename(next, self.file())?;
        Ok(())
    }
}
