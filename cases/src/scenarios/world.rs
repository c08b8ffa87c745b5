//! A proxy in the host emulator, with the pods of a case behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use prefixway_core::endpoint::HolderId;
use prefixway_core::index::{Changes, RungChange};
use prefixway_core::proto::{Admission, EndpointLoad};
use prefixway_core::shared::{Keys, VmRecord};
use prefixway_core::text::Api;
use prefixway_wasm_tests::indexer::{BYTES_PER_TOKEN, Indexer, MODEL, endpoint_at, idle};
use prefixway_wasm_tests::rig::{Rig, destination};
use prefixway_wasm_tests::{Host, Outcome};
use serde_json::json;

use super::pods::Pod;
use super::profile::Profile;
use crate::error::CaseError;

/// Path of requests whose prompt is text as it is: then a prefix in tokens is one in bytes.
pub(super) const PATH: &str = "/v1/completions";
/// The cluster of the indexer.
const INDEXER: &str = "prefixway_indexer";
/// Waiting requests at which a pod is full, where the case has a limit.
pub(super) const MAX_WAITING: u32 = 8;
/// Time for news to reach every VM.
const NEWS: Duration = Duration::from_millis(300);
/// Time until load is reported and gauges are written.
const REPORTING: Duration = Duration::from_millis(1_500);

/// How a world is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Workers, each with a VM; the main thread has one more.
    pub(super) workers: usize,
    /// Whether pods can be full.
    pub(super) has_limit: bool,
    /// How the filter chooses.
    pub(super) profile: Profile,
    /// Keys of the plugin's configuration besides the indexer.
    pub(super) plugin: serde_json::Value,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            workers: 2,
            has_limit: false,
            profile: Profile::Default,
            plugin: json!({}),
        }
    }
}

/// The proxy, its indexer and its pods.
#[derive(Debug)]
pub(super) struct World {
    pub(super) rig: Rig,
    pods: Vec<Pod>,
    workers: usize,
    /// Worker that takes the next request, from 0.
    next: usize,
}

/// A proxy with this many workers, none of which knows anything yet.
///
/// # Errors
/// The filter does not start.
pub(super) fn host(setup: &Setup) -> Result<Host, CaseError> {
    let mut plugin = json!({"indexers": [INDEXER]});
    if let (Some(keys), Some(more)) = (plugin.as_object_mut(), setup.plugin.as_object()) {
        keys.extend(more.clone());
    }
    let host = Host::builder(&plugin.to_string())
        .vms(setup.workers + 1)
        .start();
    host.map_err(|error| CaseError::mismatch("filter", &"started", &format!("{error:#}")))
}

impl World {
    /// Starts the proxy, and lets it learn of the pods as they are before anything happens to them.
    ///
    /// # Errors
    /// The filter does not start, or a pod is not understood.
    pub(super) fn start(pods: &[Pod], setup: &Setup) -> Result<Self, CaseError> {
        let addresses: Vec<String> = (0..pods.len()).map(address).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let mut indexer = Indexer::new(&addresses);
        indexer.policy.scheduling = setup.profile.scheduling();
        if setup.has_limit {
            indexer.policy.admission = Some(Admission {
                max_waiting: Some(MAX_WAITING),
                ..Admission::default()
            });
        }
        for (endpoint, pod) in indexer.endpoints.endpoints.iter_mut().zip(pods) {
            endpoint.healthy = pod.is_healthy() || pod.is_going();
            if let Some(pool) = &pod.pool {
                endpoint.pool.clone_from(pool);
            }
        }
        let mut world = Self {
            rig: Rig {
                host: host(setup)?,
                indexer,
            },
            pods: pods.to_vec(),
            workers: setup.workers,
            next: 0,
        };
        for (id, pod) in (0u32..).zip(pods) {
            let load = load(id, pod)?;
            world.rig.indexer.loads.insert(id, load);
        }
        world.publish(pods);
        world.rig.run(NEWS);
        Ok(world)
    }

    /// Lets the pods hold as much of the shared prefix as the case says.
    fn publish(&mut self, pods: &[Pod]) {
        let tokens = |pod: &Pod| pod.prefix_tokens_matched.unwrap_or(0);
        let longest = pods.iter().map(tokens).max().unwrap_or(0);
        if longest == 0 {
            return;
        }
        let body = body(&prompt(longest));
        let hashes = self.rig.indexer.hashes(Api::Completions, &body);
        let upserts = hashes.rungs.iter().map(|rung| {
            let depth = u32::try_from(rung.bytes()).unwrap_or(u32::MAX) / BYTES_PER_TOKEN;
            let holders = (0u32..)
                .zip(pods)
                .filter(|(_, pod)| tokens(pod) >= depth)
                .map(|(id, _)| HolderId(id));
            RungChange {
                hash: rung.hash,
                token_depth: depth,
                holders: holders.collect(),
            }
        });
        let changes = Changes {
            upserts: upserts.collect(),
            removes: Vec::new(),
        };
        self.rig.indexer.publish(&changes);
    }

    /// A pod joins, with nothing in its cache.
    ///
    /// # Errors
    /// It is not understood.
    pub(super) fn join(&mut self, pod: &Pod) -> Result<(), CaseError> {
        let id = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let endpoint = endpoint_at(id, &address(self.pods.len()));
        self.rig.indexer.endpoints.endpoints.push(endpoint);
        self.rig.indexer.loads.insert(id, load(id, pod)?);
        self.pods.push(pod.clone());
        self.rig.indexer.announce(&mut self.rig.host);
        self.rig.run(NEWS);
        Ok(())
    }

    /// Sends a completion through the next worker.
    pub(super) fn send(&mut self, prompt: &str) -> Sent {
        let vm = 1 + self.next % self.workers;
        self.next += 1;
        self.send_to(vm, &body(prompt))
    }

    /// Sends a body through a VM.
    pub(super) fn send_to(&mut self, vm: usize, body: &str) -> Sent {
        let outcome = self.rig.post(vm, PATH, body);
        Sent { vm, outcome }
    }

    /// The pod at an address.
    pub(super) fn pod_at(&self, address: &str) -> Option<&str> {
        let at = (0..self.pods.len()).find(|at| self::address(*at) == address)?;
        self.pods.get(at).map(|pod| pod.name.as_str())
    }

    /// Where a pod listens.
    pub(super) fn address_of(&self, name: &str) -> String {
        let at = self.pods.iter().position(|pod| pod.name == name);
        at.map(address).unwrap_or_default()
    }

    /// The pod that a request goes to first.
    ///
    /// # Errors
    /// It goes to none of the case's.
    pub(super) fn picked(&self, sent: &Sent) -> Result<String, CaseError> {
        let first = destination(&sent.outcome);
        let pod = first.and_then(|address| self.pod_at(address));
        pod.map(str::to_owned).ok_or_else(|| {
            let got = format!("{first:?}, answered with {:?}", sent.outcome.reply);
            CaseError::mismatch("destination", &"a pod", &got)
        })
    }

    /// Sequences in flight by pod: by the indexer's account and by the records of all VMs, which have to agree.
    ///
    /// # Errors
    /// They don't.
    pub(super) fn in_flight(&mut self) -> Result<BTreeMap<String, u32>, CaseError> {
        self.rig.run(REPORTING);
        let told = self.rig.indexer.heard.usage.endpoints.clone();
        let mut by_indexer = self.none_in_flight();
        for usage in told {
            let endpoints = &self.rig.indexer.endpoints.endpoints;
            let endpoint = endpoints.iter().find(|known| known.id == usage.endpoint);
            let pod = endpoint.and_then(|endpoint| self.pod_at(&endpoint.address));
            let name = pod.unwrap_or("unknown").to_owned();
            *by_indexer.entry(name).or_default() += usage.in_flight;
        }
        let by_vms = self.in_records();
        if by_vms == by_indexer {
            return Ok(by_vms);
        }
        let what = "in flight by the VMs' records and by the indexer";
        let (ours, theirs) = (format!("{by_vms:?}"), format!("{by_indexer:?}"));
        Err(CaseError::mismatch(what, &ours, &theirs))
    }

    fn none_in_flight(&self) -> BTreeMap<String, u32> {
        let names = self.pods.iter().map(|pod| (pod.name.clone(), 0));
        names.collect()
    }

    fn in_records(&self) -> BTreeMap<String, u32> {
        let keys = Keys::new(&[INDEXER.to_owned()], &[]);
        let mut sums = self.none_in_flight();
        let process = self.rig.host.process();
        for vm in 1..64 {
            let bytes = process.shared(&keys.vm(vm)).map(|(bytes, _)| bytes);
            let record = bytes.and_then(|bytes| VmRecord::from_bytes(bytes, u64::MAX));
            for (key, usage) in record.into_iter().flat_map(|record| record.usages) {
                let pod = (0..self.pods.len()).find(|at| {
                    prefixway_core::snapshot::EndpointKey::new(&address(*at), None) == key
                });
                let pod = pod.and_then(|at| self.pods.get(at));
                let name = pod.map_or("unknown", |pod| &pod.name).to_owned();
                *sums.entry(name).or_default() += usage.in_flight;
            }
        }
        sums
    }

    /// Fails where a VM has trapped or said that something is wrong.
    ///
    /// # Errors
    /// One has.
    pub(super) fn check(&self) -> Result<(), CaseError> {
        healthy(&self.rig.host)
    }
}

/// A request and the VM that it went through.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) vm: usize,
    pub(super) outcome: Outcome,
}

/// Fails where a VM has trapped or said that something is wrong.
///
/// # Errors
/// One has.
pub(super) fn healthy(host: &Host) -> Result<(), CaseError> {
    let complaints = host.complaints();
    if complaints.is_empty() {
        return Ok(());
    }
    let got = complaints.join(", ");
    Err(CaseError::mismatch("traps and errors", &"none", &got))
}

fn load(id: u32, pod: &Pod) -> Result<EndpointLoad, CaseError> {
    Ok(match pod.figures(MAX_WAITING)? {
        None => EndpointLoad {
            endpoint: id,
            ..EndpointLoad::default()
        },
        Some(said) => EndpointLoad {
            running: Some(said.running),
            waiting: Some(said.waiting),
            kv_usage_ratio: Some(said.kv_used),
            // No gateway has sent them.
            others: Some(said.running + said.waiting),
            age_ms: said.age_ms,
            ..idle(id)
        },
    })
}

fn address(at: usize) -> String {
    format!("10.0.0.{}:8000", at + 1)
}

/// A prompt of about so many tokens that begins like every other.
pub(super) fn prompt(tokens: u32) -> String {
    let bytes = usize::try_from(tokens * BYTES_PER_TOKEN).unwrap_or(0);
    let words = (0..).map(|number| format!("w{number} "));
    let mut text = String::with_capacity(bytes + 16);
    for word in words {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&word);
    }
    text.truncate(bytes);
    text
}

/// The body of a completion.
pub(super) fn body(prompt: &str) -> String {
    json!({"model": MODEL, "prompt": prompt}).to_string()
}
