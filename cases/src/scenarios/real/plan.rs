//! What is to be started.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

/// A pod of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// Tokens of the shared prefix that its engine holds.
    pub(crate) tokens: u32,
    /// What its engine says of itself: running, waiting, KV cache in use. `None`: there is no page.
    pub(crate) figures: Option<(u32, u32, f64)>,
    pub(crate) is_healthy: bool,
    /// Whether it serves another pool's model.
    pub(crate) is_elsewhere: bool,
    /// Whether it is there at all: the indexer may name one that is gone.
    pub(crate) is_gone: bool,
}

impl Planned {
    /// A healthy pod with nothing to do.
    pub(crate) fn idle(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tokens: 0,
            figures: Some((0, 0, 0.0)),
            is_healthy: true,
            is_elsewhere: false,
            is_gone: false,
        }
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) pods: Vec<Planned>,
    pub(crate) workers: u32,
    pub(crate) policy: Value,
    pub(crate) plugin: Value,
    pub(crate) scrape: Value,
    pub(crate) has_indexer: bool,
    /// Where the gateway looks for an indexer, instead of where one is.
    pub(crate) indexer: Option<SocketAddr>,
    /// Another module than the built filter.
    pub(crate) module: Option<PathBuf>,
    /// Whether the listener comes from a file that may be replaced.
    pub(crate) is_dynamic: bool,
    /// Whether Envoy is told to let filters hold headers.
    pub(crate) can_hold: bool,
}

impl Plan {
    /// Pods, an indexer and Envoy with so many workers.
    pub(crate) fn new(pods: Vec<Planned>, workers: u32) -> Self {
        Self {
            pods,
            workers,
            policy: json!({}),
            plugin: json!({}),
            scrape: json!({"interval": "50ms", "idle_interval": "50ms"}),
            has_indexer: true,
            indexer: None,
            module: None,
            is_dynamic: false,
            can_hold: true,
        }
    }
}
