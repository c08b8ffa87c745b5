//! An indexer with a table of a given size, filled by events as engines send them.

#[path = "../../indexer-service/tests/it/support/msgpack.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the indexer's tests, which use more of it and may stop at a mistake"
)]
mod msgpack;
#[path = "../../indexer-service/benches/support/unique.rs"]
pub(crate) mod unique;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use prefixway::config::{Config, Overrides};
use prefixway::serve::{self, Running};

use crate::MODEL;

/// Files of the served model.
pub(crate) const MODEL_DIR: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../router-core/tests/fixtures/vllm/tinybpe/model"
);
const BLOCKS: u32 = 64;
const BLOCK_TOKENS: u32 = 16;
/// Batches that are sent before the indexer is asked how far it is.
const BATCHES: u32 = 256;

/// An indexer at work in this process.
pub(crate) struct Table {
    running: Running,
    /// The last engine's publisher; its blocks stay as long as it lives.
    publisher: zmq::Socket,
    sent: u32,
}

impl Table {
    /// Starts an indexer for `engines`. The last one's events fill the table; the others are known by decisions, so that prompts that came
    /// before are found to their ends.
    ///
    /// # Errors
    /// When it doesn't start.
    pub(crate) async fn start(engines: &[SocketAddr], state_dir: &Path) -> anyhow::Result<Self> {
        let publisher = zmq::Context::new().socket(zmq::PUB)?;
        publisher.set_sndhwm(0)?;
        publisher.bind("tcp://127.0.0.1:*")?;
        let events = publisher.get_last_endpoint()?;
        let events = events.map_err(|_| anyhow::anyhow!("zmq's address is no text"))?;
        let mut text = format!(
            "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\nstate_dir: '{}'\nindex: {{max_bytes: 4294967296}}\n\
             models: [{{id: {MODEL}, model_dir: '{MODEL_DIR}', calibration: off}}]\nendpoints:",
            state_dir.display()
        );
        for (number, engine) in engines.iter().enumerate() {
            let events = if number + 1 == engines.len() {
                format!(", events: {{connect: '{events}'}}")
            } else {
                String::new()
            };
            write!(
                text,
                "\n- {{address: '{engine}', model: {MODEL}, scrape: false{events}}}"
            )?;
        }
        let config = Config::parse(&text, &PathBuf::new(), &Overrides::default())?;
        let running = serve::start(config).await?;
        Ok(Self {
            running,
            publisher,
            sent: 0,
        })
    }

    /// Where gateways connect.
    pub(crate) fn grpc(&self) -> SocketAddr {
        self.running.grpc()
    }

    /// Publishes prompts until the table has so many entries.
    ///
    /// # Errors
    /// When it doesn't get there.
    pub(crate) async fn fill(&mut self, rungs: u64) -> anyhow::Result<u64> {
        // The subscription reaches the publisher.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut now = self.rungs().await?;
        let mut idle = 0;
        while now < rungs {
            for _ in 0..BATCHES {
                let seq = u64::from(self.sent).to_be_bytes();
                let (_, payload) = unique::stored(self.sent, BLOCKS, BLOCK_TOKENS);
                self.publisher
                    .send_multipart([&b""[..], &seq, &payload], 0)?;
                self.sent += 1;
            }
            // As fast as the indexer takes them, so that its queue stays short.
            let before = now;
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                now = self.rungs().await?;
                if now >= before + u64::from(BATCHES * BLOCKS) || now >= rungs {
                    break;
                }
            }
            idle = if now == before { idle + 1 } else { 0 };
            anyhow::ensure!(idle < 5, "the table stays at {now} of {rungs} entries");
        }
        Ok(now)
    }

    async fn rungs(&self) -> anyhow::Result<u64> {
        let metrics = crate::http1::get(self.running.http(), "/metrics").await?;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("prefixway_index_rungs "));
        line.context("the indexer doesn't tell its size")?
            .trim()
            .parse()
            .context("the indexer's size is no number")
    }
}
