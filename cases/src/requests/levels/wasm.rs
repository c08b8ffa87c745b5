//! The built filter in the host emulator, with a scripted indexer.

use std::time::Duration;

use prefixway_core::index::Changes;
use prefixway_wasm_tests::indexer::Indexer;
use prefixway_wasm_tests::rig::{DESTINATION, Rig};
use prefixway_wasm_tests::{Host, Outcome, built_module};
use serde_json::json;

use super::Level;
use crate::error::CaseError;
use crate::requests::deployment::{Deployment, Family, SEED};
use crate::requests::expect::Seeded;
use crate::requests::request::{Framing, Request};
use crate::requests::seen::{Answer, Fate, Identity, Seen, Upstream};
use crate::requests::setup::Setup;

/// Time until load is reported and gauges are written.
const REPORTING: Duration = Duration::from_millis(1_500);
/// VM that takes the requests: the first worker.
const WORKER: usize = 1;
/// Reasons with which a request's prompt is not looked at.
const WITHOUT_TEXT: [&str; 4] = ["no_text", "unsupported_encoding", "undecodable", "charset"];
/// Reasons with which it is.
const WITH_TEXT: [&str; 3] = ["prefix", "load_over_prefix", "no_prefix"];

// Hashes are compared with those of the native level.
const _: () = assert!(SEED.0 == prefixway_wasm_tests::indexer::SEED.0);

/// The wasm level.
pub(crate) struct Wasm {
    family: Family,
}

impl Wasm {
    /// Looks for the built filter.
    ///
    /// # Errors
    /// There is none, or it can't be compiled.
    pub(crate) fn new(family: Family) -> Result<Self, String> {
        match built_module() {
            Ok(_) => Ok(Self { family }),
            Err(error) => Err(format!("{error:#}").replace('\n', "; ")),
        }
    }
}

impl Level for Wasm {
    fn send(
        &mut self,
        setup: &Setup,
        request: &Request,
        seeded: Option<&Seeded>,
    ) -> Result<Seen, CaseError> {
        let block = seeded.and_then(|seeded| u32::try_from(seeded.block).ok());
        let deployment = Deployment::new(setup, &self.family, block);
        let changes = match seeded {
            Some(seeded) => deployment.seeded(request, seeded)?,
            None => Changes::default(),
        };
        let mut proxy = Proxy::start(deployment, &changes, setup)?;
        let seen = proxy.exchange(request);
        let complaints = proxy.rig.host.complaints();
        if complaints.is_empty() {
            Ok(seen)
        } else {
            Err(CaseError::mismatch(
                "traps and errors",
                &"none",
                &complaints.join(", "),
            ))
        }
    }
}

/// A proxy of one request.
struct Proxy {
    deployment: Deployment,
    rig: Rig,
}

impl Proxy {
    fn start(deployment: Deployment, changes: &Changes, setup: &Setup) -> Result<Self, CaseError> {
        let mut config = json!({"indexers": ["prefixway_indexer"]});
        if setup.is_known
            && let Some(keys) = config.as_object_mut()
        {
            let limits = json!({"max_body_bytes": setup.body_cap_bytes});
            keys.insert("limits".to_owned(), limits);
        }
        let host = Host::new(&config.to_string());
        let mut host =
            host.map_err(|error| CaseError::mismatch("filter", &"started", &format!("{error:#}")))?;
        let (policy, endpoints) = (deployment.policy.clone(), deployment.endpoints.clone());
        let mut indexer = Indexer::serving(policy, endpoints);
        indexer.publish(changes);
        if !setup.is_known {
            host.process_mut().refuse_streams = true;
        }
        host.advance(Duration::from_millis(50));
        let mut rig = Rig { host, indexer };
        rig.settle();
        Ok(Self { deployment, rig })
    }

    fn exchange(&mut self, request: &Request) -> Seen {
        let (before, streams) = (self.memory(), self.metric("prefixway_ttft_ms"));
        let outcome = self.send(request);
        let grown_bytes = self.memory().saturating_sub(before);
        let seen = Seen {
            grown_bytes: Some(grown_bytes),
            ..Seen::new(self.fate(&outcome))
        };
        if let Fate::Answered(_) = seen.fate {
            return seen;
        }
        self.rig.run(REPORTING);
        let load_units = self.in_flight();
        let added_headers = self.answer(&outcome);
        self.rig.run(REPORTING);
        let routed = self.rig.indexer.heard.routed.last();
        let matched_tokens = routed.map(|routed| routed.predicted_cached_tokens);
        Seen {
            identity: self.identity(),
            matched_tokens,
            is_streamed: Some(self.metric("prefixway_ttft_ms") > streams),
            load_units: Some(load_units),
            left_over: Some(self.in_flight()),
            upstream: Some(upstream(&outcome)),
            added_headers: Some(added_headers),
            ..seen
        }
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let pseudo = [
            (":method", request.method.as_str()),
            (":path", request.path.as_str()),
            (":authority", "gateway.test"),
        ];
        let mut sending = self.rig.host.vm(WORKER).request(&pseudo);
        for (name, value) in request.sent_headers() {
            sending = sending.header(&name, &value);
        }
        for piece in &request.pieces {
            sending = sending.chunk(piece);
        }
        if request.ends_empty || request.framing == Framing::Chunked {
            sending = sending.chunk("");
        }
        sending.end()
    }

    fn fate(&self, outcome: &Outcome) -> Fate {
        if let Some(reply) = &outcome.reply {
            return Fate::Answered(Answer {
                status: u16::try_from(reply.status).unwrap_or(0),
                headers: owned(reply.headers.iter()),
                body: reply.body.clone(),
            });
        }
        match outcome.header(DESTINATION) {
            Some(list) => Fate::Routed(self.deployment.pods_of(list.split(','))),
            None => Fate::Passed,
        }
    }

    /// What the filter has made of the prompt, by its metrics and by what it tells the indexer.
    fn identity(&self) -> Option<Identity> {
        let decided = |reasons: &[&str]| {
            let mut reasons = reasons.iter();
            reasons.any(|reason| {
                self.metric(&format!("prefixway_decisions_total.reason={reason}")) > 0
            })
        };
        if decided(&WITHOUT_TEXT) {
            return Some(Identity::None);
        }
        decided(&WITH_TEXT).then(|| {
            let routed = self.rig.indexer.heard.routed.last();
            let bytes = routed
                .map(|routed| routed.rungs.clone())
                .unwrap_or_default();
            let rungs = bytes
                .chunks_exact(8)
                .filter_map(|bytes| bytes.try_into().ok());
            Identity::Known {
                rungs: rungs.map(u64::from_le_bytes).collect(),
                prompts: None,
            }
        })
    }

    /// Answers as a pod does; gives the headers that the client gets besides.
    fn answer(&mut self, outcome: &Outcome) -> Vec<(String, String)> {
        let first = outcome
            .header(DESTINATION)
            .and_then(|list| list.split(',').next());
        let mut addresses = self.deployment.pods.keys();
        let address = first.or_else(|| addresses.next().map(String::as_str));
        let said = [(":status", "200"), ("content-type", "application/json")];
        let mut response = self.rig.host.vm(WORKER).response(outcome.id);
        response = response.header("content-type", "application/json");
        if let Some(address) = address {
            response = response.upstream(address);
        }
        let body = r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        let (headers, _) = response.chunk(body).end();
        let headers = owned(headers.iter()).into_iter();
        let is_said = |header: &(String, String)| said.contains(&(&header.0, &header.1));
        headers.filter(|header| !is_said(header)).collect()
    }

    fn in_flight(&self) -> u32 {
        let endpoints = &self.rig.indexer.heard.usage.endpoints;
        endpoints.iter().map(|endpoint| endpoint.in_flight).sum()
    }

    fn memory(&mut self) -> usize {
        self.rig.host.vm(WORKER).memory_bytes()
    }

    fn metric(&self, name: &str) -> i64 {
        self.rig.host.metric(name)
    }
}

fn upstream(outcome: &Outcome) -> Upstream {
    let headers = outcome
        .headers
        .iter()
        .filter(|header| !header.0.starts_with(':'));
    Upstream {
        path: outcome.header(":path").unwrap_or_default().to_owned(),
        headers: owned(headers),
        body: outcome.body.clone(),
    }
}

fn owned<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect()
}
