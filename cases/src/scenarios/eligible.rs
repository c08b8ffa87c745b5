//! Pods that must not be picked, and streams that run on one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use prefixway_wasm_tests::rig::destination;
use serde::Deserialize;

use super::pods::{Arrivals, Pod, Update, number};
#[cfg(feature = "envoy")]
use super::real::{MODEL, PATH, Parts, Plan, Play, Stand, block_on};
#[cfg(feature = "envoy")]
use super::spread::planned;
use super::world::{Sent, Setup, World, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// The case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Eligible {
    pods: Vec<Pod>,
    arrivals: Arrivals,
    also: String,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    picks: BTreeMap<String, u32>,
    running_streams_on_terminating: Undisturbed,
    within_ms_of_update: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Undisturbed {
    #[serde(rename = "finish undisturbed")]
    Finish,
}

impl Eligible {
    /// Streams that run already, and the pod they run on: `ten streams were already running on "terminating"`.
    fn running(&self) -> Result<(u64, &Pod), CaseError> {
        let count = self.also.split(' ').next().and_then(number);
        let name = self.also.split('"').nth(1);
        let pod = name.and_then(|name| self.pods.iter().find(|pod| pod.name == name));
        count
            .zip(pod)
            .ok_or_else(|| CaseError::not_understood(format!("also {:?}", self.also)))
    }

    /// Lets happen to the pods what the case says.
    fn update(&self, world: &mut World) {
        let endpoints = &mut world.rig.indexer.endpoints.endpoints;
        for (endpoint, pod) in endpoints.iter_mut().zip(&self.pods) {
            endpoint.healthy = pod.is_healthy();
            if pod.update == Some(Update::AddressCleared) {
                endpoint.address.clear();
            }
        }
        let mut pods = self.pods.iter();
        endpoints.retain(|_| {
            let pod = pods.next();
            pod.is_none_or(|pod| pod.update != Some(Update::LabelChanged))
        });
        world.rig.indexer.announce(&mut world.rig.host);
    }
}

impl Scenario for Eligible {
    fn wasm(&self) -> Result<Notes, CaseError> {
        self.arrivals.check()?;
        let (count, going) = self.running()?;
        let mut world = World::start(&self.pods, &Setup::default())?;
        let held = going.prefix_tokens_matched.unwrap_or(0);
        let mut streams = Vec::new();
        for _ in 0..count {
            let sent = world.send(&prompt(held));
            let pod = world.picked(&sent)?;
            if pod != going.name {
                return Err(CaseError::mismatch("running stream", &going.name, &pod));
            }
            world.rig.run(Duration::from_millis(20));
            streams.push(sent);
        }
        self.update(&mut world);
        world
            .rig
            .run(Duration::from_millis(self.expect.within_ms_of_update));
        let mut picks: BTreeMap<String, u32> = BTreeMap::new();
        let mut sent = Vec::new();
        for _ in 0..self.arrivals.count {
            // Also as a second or third choice.
            let request = world.send(&prompt(held));
            for address in request
                .outcome
                .header(prefixway_wasm_tests::rig::DESTINATION)
                .unwrap_or_default()
                .split(',')
            {
                let pod = world.pod_at(address).unwrap_or(address).to_owned();
                *picks.entry(pod).or_default() += 1;
            }
            sent.push(request);
            world
                .rig
                .host
                .advance(Duration::from_micros(self.arrivals.gap_us()));
        }
        if picks != self.expect.picks {
            let (wanted, got) = (format!("{:?}", self.expect.picks), format!("{picks:?}"));
            return Err(CaseError::mismatch("picks", &wanted, &got));
        }
        let Undisturbed::Finish = self.expect.running_streams_on_terminating;
        for stream in &streams {
            finish(&mut world, stream)?;
        }
        let left = world.in_flight()?;
        let of_going = left.get(&going.name).copied().unwrap_or(0);
        if of_going != 0 {
            let what = format!("in flight on {}", going.name);
            return Err(CaseError::mismatch(what, &0, &of_going));
        }
        let failed = world.rig.host.metric("prefixway_failed_requests_total");
        if failed != 0 {
            return Err(CaseError::mismatch("failed requests", &0, &failed));
        }
        world.check()?;
        Ok(Notes::new())
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        // The indexer's list of endpoints is its settings', which don't change while it runs.
        let (changed, pods): (Vec<&Pod>, Vec<&Pod>) =
            self.pods.iter().partition(|pod| pod.update.is_some());
        let pods: Vec<Pod> = pods.into_iter().cloned().collect();
        let plan = Plan::new(planned(&pods)?, 4);
        let seen = block_on(self.real(parts, &plan))?;
        if seen != self.expect.picks {
            let (wanted, got) = (format!("{:?}", self.expect.picks), format!("{seen:?}"));
            return Err(CaseError::mismatch("picks", &wanted, &got));
        }
        let names: Vec<&str> = changed.iter().map(|pod| pod.name.as_str()).collect();
        Ok(vec![
            format!(
                "without {}: endpoints of the settings can't change",
                names.join(", ")
            ),
            "a pod that terminates fails its health check".to_owned(),
        ])
    }
}

#[cfg(feature = "envoy")]
impl Eligible {
    /// Where requests went after the update.
    async fn real(&self, parts: &Parts, plan: &Plan) -> anyhow::Result<BTreeMap<String, u32>> {
        let (count, going) = self.running()?;
        let mut stand = Stand::start(parts, plan).await?;
        let body = serde_json::json!({"model": MODEL, "prompt": stand.prompt}).to_string();
        let client = stand.client();
        let mut streams = Vec::new();
        for _ in 0..count {
            let mut stream = client.send(PATH, &body, Play::Stream, 0).await?;
            stream.head().await?;
            stream.piece().await?;
            streams.push(stream);
        }
        let running = stand.pod(&going.name)?.seen();
        anyhow::ensure!(
            running as u64 == count,
            "{running} streams run on {}",
            going.name
        );
        stand.pod(&going.name)?.set_healthy(false);
        tokio::time::sleep(Duration::from_millis(self.expect.within_ms_of_update)).await;
        let before = stand.seen();
        for _ in 0..self.arrivals.count {
            let answer = client.post(PATH, &body, Play::Answer, 0).await?;
            anyhow::ensure!(answer.status == 200, "status {}", answer.status);
        }
        let mut picks = BTreeMap::new();
        for (pod, count) in stand.seen() {
            let more = count - before.get(&pod).copied().unwrap_or(0);
            if more > 0 {
                picks.insert(pod, u32::try_from(more)?);
            }
        }
        stand.release();
        for mut stream in streams {
            let rest = stream.rest().await?;
            anyhow::ensure!(rest.ends_with(b"[DONE]\n\n"), "a running stream was cut");
        }
        stand
            .until_in_flight("nothing in flight", |pods| pods.values().all(|n| *n == 0))
            .await?;
        stand.check()?;
        Ok(picks)
    }
}

/// The engine goes on with a stream and ends it.
fn finish(world: &mut World, stream: &Sent) -> Result<(), CaseError> {
    let upstream = destination(&stream.outcome).unwrap_or_default().to_owned();
    let pieces = ["data: {\"choices\":[]}\n\n", "data: [DONE]\n\n"];
    let mut response = world
        .rig
        .host
        .vm(stream.vm)
        .response(stream.outcome.id)
        .header("content-type", "text/event-stream")
        .upstream(&upstream);
    for piece in pieces {
        response = response.chunk(piece);
    }
    let (_, body) = response.end();
    if body == pieces.concat().as_bytes() {
        return Ok(());
    }
    let got = String::from_utf8_lossy(&body).into_owned();
    Err(CaseError::mismatch(
        "running stream",
        &pieces.concat(),
        &got,
    ))
}
