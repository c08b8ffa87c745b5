//! Real Envoy with the built filter, a real indexer, and recorders in the pods' place.

mod client;
pub(crate) mod system;

use prefixway_e2e::recorder::Recorded;
use tokio::runtime::Runtime;

use super::Level;
use crate::error::CaseError;
use crate::requests::deployment::Family;
use crate::requests::expect::Seeded;
use crate::requests::request::Request;
use crate::requests::seen::{Answer, Fate, Seen, Upstream};
use crate::requests::setup::Setup;
use client::Reply;
use system::System;

/// Header that names the pod which answered.
const POD: &str = "x-engine";
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Headers of an answer that are Envoy's or the recorder's; all others would be the filter's.
const KNOWN_HEADERS: [&str; 7] = [
    POD,
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "date",
    "server",
];

/// The Envoy level.
pub(crate) struct RealEnvoy {
    family: Family,
    parts: system::Parts,
    /// The system of the last setup: most cases have the same one.
    current: Option<(Setup, System)>,
    /// Last, so that everything above ends before it.
    runtime: Runtime,
}

impl RealEnvoy {
    /// Looks for Envoy and the built filter.
    ///
    /// # Errors
    /// One of them is missing.
    pub(crate) fn new(family: Family) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        Ok(Self {
            parts: system::Parts::find()?,
            family,
            current: None,
            runtime: runtime.map_err(|error| error.to_string())?,
        })
    }

    /// A system with this setup.
    fn system(&mut self, setup: &Setup) -> Result<&mut System, CaseError> {
        let is_current = |current: &(Setup, System)| current.0 == *setup;
        if !self.current.as_ref().is_some_and(is_current) {
            self.current = None;
            let starting = System::start(&self.parts, &self.family, setup);
            let system = self.runtime.block_on(starting);
            let system = system.map_err(|error| {
                CaseError::mismatch("Envoy, indexer and pods", &"started", &format!("{error:#}"))
            })?;
            self.current = Some((setup.clone(), system));
        }
        let current = self.current.as_mut().map(|current| &mut current.1);
        current.ok_or_else(|| CaseError::mismatch("system", &"started", &"none"))
    }
}

impl Level for RealEnvoy {
    fn send(
        &mut self,
        setup: &Setup,
        request: &Request,
        _seeded: Option<&Seeded>,
    ) -> Result<Seen, CaseError> {
        let address = self.system(setup)?.envoy.http();
        let reply = client::send(&self.runtime, address, request);
        let system = self.system(setup)?;
        system.check()?;
        let log = system.envoy.log_tail();
        let failed = |what: &dyn core::fmt::Display| {
            let got = format!("{what}; its log ends: {log}");
            CaseError::mismatch("answer through Envoy", &"an answer", &got)
        };
        let reply = reply.map_err(|error| failed(&error))?;
        let Some(pod) = reply.header(POD).map(str::to_owned) else {
            return Ok(answered(reply));
        };
        let recorded = system.take(&pod);
        let recorded = recorded.ok_or_else(|| failed(&"that of a pod which saw nothing"))?;
        Ok(forwarded(system, &reply, recorded))
    }
}

fn answered(reply: Reply) -> Seen {
    Seen {
        continued: reply.continued,
        ..Seen::new(Fate::Answered(Answer {
            status: reply.status,
            headers: reply.headers,
            body: reply.body,
        }))
    }
}

fn forwarded(system: &System, reply: &Reply, recorded: Recorded) -> Seen {
    let mut destinations = recorded
        .headers
        .iter()
        .filter(|header| header.0 == DESTINATION);
    let fate = match destinations.next() {
        Some((_, list)) => Fate::Routed(system.pods_of(list.split(','))),
        None => Fate::Passed,
    };
    let headers = reply.headers.iter();
    let is_added = |header: &&(String, String)| {
        let name = header.0.as_str();
        !KNOWN_HEADERS.contains(&name) && !name.starts_with("x-envoy-")
    };
    Seen {
        continued: reply.continued,
        added_headers: Some(headers.filter(is_added).cloned().collect()),
        upstream: Some(Upstream {
            path: recorded.path,
            headers: recorded.headers,
            body: recorded.body,
        }),
        ..Seen::new(fate)
    }
}
