//! A proxy with the built filter and a scripted indexer.
#![expect(
    clippy::unwrap_used,
    reason = "a scenario that can't be set up has failed"
)]

use std::time::Duration;

use crate::indexer::{Indexer, MODEL};
use crate::{Host, Outcome};

/// Header that steers.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Addresses of the engines.
pub const ENGINES: [&str; 3] = ["10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::3]:8000"];
/// Plugin configuration.
pub const CONFIG: &str = r#"{"indexers":["prefixway_indexer"],"pools":["default"],"explain":true}"#;

/// Host and indexer.
#[derive(Debug)]
pub struct Rig {
    /// The proxy.
    pub host: Host,
    /// The indexer.
    pub indexer: Indexer,
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

impl Rig {
    /// Main thread and two workers, connected to an empty index.
    pub fn new() -> Self {
        Self::with(CONFIG, Indexer::new(&ENGINES))
    }

    /// The same with another configuration and index.
    pub fn with(config: &str, indexer: Indexer) -> Self {
        Self::on(Host::new(config).unwrap(), indexer)
    }

    /// The same on a proxy that was started otherwise.
    pub fn on(host: Host, indexer: Indexer) -> Self {
        let mut rig = Self { host, indexer };
        rig.settle();
        rig
    }

    /// Lets news reach every VM.
    pub fn settle(&mut self) {
        self.run(Duration::from_millis(300));
    }

    /// Lets time pass while the indexer serves.
    pub fn run(&mut self, time: Duration) {
        let step = Duration::from_millis(10);
        let mut left = time;
        while !left.is_zero() {
            self.indexer.serve(&mut self.host);
            self.host.advance(step.min(left));
            left = left.saturating_sub(step);
        }
    }

    /// The VM that holds the stream.
    pub fn leader(&mut self) -> Option<usize> {
        (0..self.host.vm_count()).find(|vm| {
            let vm = self.host.vm(*vm);
            vm.trap().is_none() && !vm.streams().is_empty()
        })
    }

    /// Sends a chat body through a VM.
    pub fn chat(&mut self, vm: usize, body: &str) -> Outcome {
        self.post(vm, "/v1/chat/completions", body)
    }

    /// Sends a body through a VM.
    pub fn post(&mut self, vm: usize, path: &str, body: &str) -> Outcome {
        let headers = [(":method", "POST"), (":path", path), (":authority", "a")];
        self.host.vm(vm).request(&headers).chunk(body).end()
    }

    /// Answers an exchange as an engine does, and ends it.
    pub fn answer(&mut self, vm: usize, outcome: &Outcome, cached: u32) {
        let upstream = outcome
            .header(DESTINATION)
            .and_then(|list| list.split(',').next())
            .unwrap_or(ENGINES[0])
            .to_owned();
        let body = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":500,"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#
        );
        self.host
            .vm(vm)
            .response(outcome.id)
            .upstream(&upstream)
            .chunk(body)
            .end();
    }

    /// Fails the test when a VM trapped or logged an error.
    pub fn assert_healthy(&self) {
        assert_eq!(self.host.complaints(), Vec::<String>::new());
    }
}

/// A chat body of about `4 * tokens` bytes of one user's text that starts with `name`.
pub fn chat(name: &str, tokens: usize) -> String {
    let text: String = format!("{name} ")
        .chars()
        .chain("abc defgh ".chars().cycle())
        .take(4 * tokens)
        .collect();
    serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// The first address in the destination header.
pub fn destination(outcome: &Outcome) -> Option<&str> {
    outcome.header(DESTINATION)?.split(',').next()
}
