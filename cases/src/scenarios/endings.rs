//! Ways for a stream to end, and what is in flight meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(feature = "envoy")]
use anyhow::Context;
use prefixway_core::proto::Endpoint;
use prefixway_wasm_tests::Ending;
use prefixway_wasm_tests::rig::destination;
use serde::Deserialize;
use serde_json::json;

use super::pods::Pod;
#[cfg(feature = "envoy")]
use super::real::{self, MODEL, Parts, Plan, Planned, Stand, block_on};
use super::world::{PATH, Sent, Setup, World, body, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// Tokens of a prompt, held by the first pod.
const TOKENS: u32 = 1_024;
/// Bytes of a body that no gateway takes.
#[cfg(feature = "envoy")]
const TOO_LARGE: usize = 1 << 30;
/// Ticks of the long wait: the clock is the emulator's, but every tick is run.
const SLOW_TICK_MS: u64 = 100;

/// The case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Endings {
    pods: Vec<Pod>,
    streams: Vec<Stream>,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    ends: Ends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Ends {
    #[serde(rename = "normally")]
    Normally,
    #[serde(rename = "client closes before response headers")]
    ClientClosesBefore,
    #[serde(rename = "client closes mid-stream")]
    ClientCloses,
    #[serde(rename = "upstream resets mid-stream")]
    UpstreamResets,
    #[serde(rename = "upstream 503, retried on b, ok")]
    Retried,
    #[serde(rename = "upstream 200 with zero bytes")]
    Empty,
    #[serde(rename = "local reply 413")]
    TooLarge,
    #[serde(rename = "first token after 6 minutes")]
    Slow,
    #[serde(rename = "pod a flaps (removed, added again) while running")]
    PodFlaps,
    #[serde(rename = "request stream done twice is reported")]
    DoneTwice,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    in_flight_during: During,
    in_flight_after: BTreeMap<String, u32>,
    never_below: i64,
    six_minute_stream: Long,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum During {
    #[serde(
        rename = "each stream counted on exactly one pod at a time; retry books b and releases a"
    )]
    OnOnePod,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Long {
    #[serde(rename = "still counted at minute 5")]
    CountedAtMinute5,
}

/// One stream under way.
struct Play<'a> {
    world: World,
    sent: Sent,
    /// The pod that was chosen, and another.
    first: String,
    other: String,
    expect: &'a Expect,
}

impl Scenario for Endings {
    fn wasm(&self) -> Result<Notes, CaseError> {
        let During::OnOnePod = self.expect.in_flight_during;
        for stream in &self.streams {
            // Whichever VM takes it.
            for vm in [1, 2] {
                self.play(stream.ends, vm).map_err(|error| {
                    CaseError::not_understood(format!("{:?}: {error}", stream.ends))
                })?;
            }
        }
        Ok(Notes::new())
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for workers in [2, 4] {
            let pods = self.pods.iter().map(|pod| Planned::idle(&pod.name));
            let plan = Plan::new(pods.collect(), workers);
            notes = block_on(async {
                let mut stand = Stand::start(parts, &plan).await?;
                let mut notes = Notes::new();
                for (number, stream) in self.streams.iter().enumerate() {
                    let note = self.real(&stand, stream.ends, number).await;
                    let note = note.with_context(|| format!("{:?}", stream.ends))?;
                    notes.extend(note.map(str::to_owned));
                    let after = |pods: &BTreeMap<String, u64>| {
                        let wanted = self.expect.in_flight_after.iter();
                        let mut wanted = wanted.map(|(pod, count)| (pod, u64::from(*count)));
                        wanted.all(|(pod, count)| pods.get(pod) == Some(&count))
                    };
                    let what = format!("nothing in flight after {:?}", stream.ends);
                    stand.until_in_flight(&what, after).await?;
                }
                stand.check()?;
                Ok(notes)
            })?;
        }
        Ok(notes)
    }
}

#[cfg(feature = "envoy")]
impl Endings {
    /// Plays one ending; gives what could not be expressed.
    async fn real(
        &self,
        stand: &Stand,
        ends: Ends,
        number: usize,
    ) -> anyhow::Result<Option<&'static str>> {
        use real::Play as Way;
        let way = match ends {
            Ends::Normally | Ends::ClientCloses | Ends::PodFlaps => Way::Stream,
            Ends::ClientClosesBefore => Way::Hold,
            Ends::UpstreamResets => Way::Break,
            Ends::Retried => Way::RefuseFirst,
            Ends::Empty => Way::Empty,
            Ends::TooLarge => Way::Answer,
            Ends::Slow => return Ok(Some("six minutes pass in the emulator only")),
            Ends::DoneTwice => return Ok(Some("Envoy tells of an end once")),
        };
        let client = stand.client();
        let prompt = real::words(100_000 * (number + 1), 200);
        let body = json!({"model": MODEL, "prompt": prompt, "stream": true}).to_string();
        if ends == Ends::TooLarge {
            let status = client.announce(real::PATH, TOO_LARGE).await?.head().await?;
            anyhow::ensure!(status == 413, "status {status}");
            return Ok(None);
        }
        let before = stand.seen();
        let mut open = client.send(real::PATH, &body, way, number).await?;
        if ends == Ends::Empty {
            anyhow::ensure!(open.head().await? == 200 && open.rest().await?.is_empty());
            return Ok(None);
        }
        if ends != Ends::ClientClosesBefore {
            let status = open.head().await?;
            anyhow::ensure!(status == 200, "status {status}");
            open.piece().await?;
        }
        // On one pod, and on the one that works on it.
        let one = |pods: &BTreeMap<String, u64>| {
            let busy: Vec<&String> = pods.iter().filter(|of| *of.1 > 0).map(|of| of.0).collect();
            let works = match ends {
                Ends::ClientClosesBefore => None,
                _ => open.header("x-engine"),
            };
            pods.values().sum::<u64>() == 1 && works.is_none_or(|pod| busy == [pod])
        };
        stand.until_in_flight("one stream on its pod", one).await?;
        let came: usize = stand.seen().values().sum::<usize>() - before.values().sum::<usize>();
        let attempts = if ends == Ends::Retried { 2 } else { 1 };
        anyhow::ensure!(came == attempts, "{came} attempts");
        match ends {
            Ends::ClientClosesBefore | Ends::ClientCloses => drop(open),
            Ends::UpstreamResets => {
                stand.stage.gate.add_permits(1);
                anyhow::ensure!(open.rest().await.is_err(), "a broken stream came whole");
            }
            Ends::PodFlaps => {
                let pod = open.header("x-engine").unwrap_or_default().to_owned();
                stand.pod(&pod)?.set_healthy(false);
                stand.until_healthy(&pod, false).await?;
                stand.pod(&pod)?.set_healthy(true);
                stand.until_healthy(&pod, true).await?;
                stand.until_in_flight("still one", one).await?;
                stand.stage.gate.add_permits(1);
                open.rest().await?;
                return Ok(Some(
                    "the pod flaps by its health: endpoints of the settings can't change",
                ));
            }
            _ => {
                stand.stage.gate.add_permits(1);
                open.rest().await?;
            }
        }
        Ok(None)
    }
}

impl Endings {
    fn play(&self, ends: Ends, vm: usize) -> Result<(), CaseError> {
        let [first, other] = [self.pods.first(), self.pods.get(1)]
            .map(|pod| pod.map(|pod| pod.name.clone()).unwrap_or_default());
        let pods: Vec<Pod> = self
            .pods
            .iter()
            .map(|pod| pod.holding((pod.name == first).then_some(TOKENS)))
            .collect();
        let tick_ms = if ends == Ends::Slow { SLOW_TICK_MS } else { 10 };
        let setup = Setup {
            plugin: json!({"tick_ms": tick_ms}),
            ..Setup::default()
        };
        let mut world = World::start(&pods, &setup)?;
        world.rig.run(Duration::from_secs(1));
        if ends == Ends::TooLarge {
            let headers = [
                (":method", "POST"),
                (":path", PATH),
                ("content-length", "99999999999"),
            ];
            let sent = world.rig.host.vm(vm).request(&headers).chunk("{").hang();
            let status = sent.reply.map(|reply| reply.status);
            if status != Some(413) {
                let got = format!("{status:?}");
                return Err(CaseError::mismatch("status", &413, &got));
            }
            world.rig.host.vm(vm).end(sent.id, Ending::Complete);
            return self.expect.check_after(&mut world);
        }
        let sent = world.send_to(vm, &body(&prompt(TOKENS)));
        let picked = world.picked(&sent)?;
        if picked != first {
            return Err(CaseError::mismatch("picked", &first, &picked));
        }
        let mut play = Play {
            world,
            sent,
            first,
            other,
            expect: &self.expect,
        };
        play.counted_on(&play.first.clone())?;
        play.end(ends)?;
        self.expect.check_after(&mut play.world)
    }
}

impl Expect {
    fn check_after(&self, world: &mut World) -> Result<(), CaseError> {
        let after = world.in_flight()?;
        if after != self.in_flight_after {
            let (wanted, got) = (format!("{:?}", self.in_flight_after), format!("{after:?}"));
            return Err(CaseError::mismatch("in flight after", &wanted, &got));
        }
        let gauge = world.rig.host.metric("prefixway_in_flight_requests");
        if gauge != 0 || gauge < self.never_below {
            return Err(CaseError::mismatch(
                "gauge of requests in flight",
                &0,
                &gauge,
            ));
        }
        world.check()
    }
}

impl Play<'_> {
    /// Fails unless the stream counts on this pod and on no other.
    fn counted_on(&mut self, pod: &str) -> Result<(), CaseError> {
        let counted = self.world.in_flight()?;
        let on_pod = counted.get(pod).copied().unwrap_or(0);
        let all: u32 = counted.values().sum();
        if (on_pod, all) == (1, 1) {
            return Ok(());
        }
        let wanted = format!("one, on {pod}");
        let got = format!("{counted:?}");
        Err(CaseError::mismatch("in flight during", &wanted, &got))
    }

    fn end(&mut self, ends: Ends) -> Result<(), CaseError> {
        let upstream = destination(&self.sent.outcome)
            .unwrap_or_default()
            .to_owned();
        let (vm, id) = (self.sent.vm, self.sent.outcome.id);
        let piece = "data: {\"choices\":[]}\n\n";
        match ends {
            Ends::Normally => {
                let response = self.world.rig.host.vm(vm).response(id).upstream(&upstream);
                response.chunk(piece).chunk("data: [DONE]\n\n").end();
            }
            Ends::ClientClosesBefore => self.world.rig.host.vm(vm).end(id, Ending::ClientAbort),
            Ends::ClientCloses | Ends::UpstreamResets => {
                let ending = match ends {
                    Ends::ClientCloses => Ending::ClientAbort,
                    _ => Ending::UpstreamReset,
                };
                let response = self.world.rig.host.vm(vm).response(id).upstream(&upstream);
                response.chunk(piece).hang();
                self.counted_on(&self.first.clone())?;
                self.world.rig.host.vm(vm).end(id, ending);
            }
            Ends::Retried => {
                let other = self.world.address_of(&self.other);
                let response = self.world.rig.host.vm(vm).response(id).upstream(&other);
                response.chunk(piece).hang();
                self.counted_on(&self.other.clone())?;
                self.world.rig.host.vm(vm).end(id, Ending::Complete);
            }
            Ends::Empty => {
                let response = self.world.rig.host.vm(vm).response(id).upstream(&upstream);
                response.end();
            }
            Ends::Slow => {
                let Long::CountedAtMinute5 = self.expect.six_minute_stream;
                self.wait(Duration::from_mins(5));
                self.counted_on(&self.first.clone())?;
                self.wait(Duration::from_mins(1));
                let response = self.world.rig.host.vm(vm).response(id).upstream(&upstream);
                response.chunk(piece).end();
            }
            Ends::PodFlaps => {
                let removed = self.remove();
                self.world.rig.run(Duration::from_secs(1));
                self.add(removed);
                self.counted_on(&self.first.clone())?;
                let response = self.world.rig.host.vm(vm).response(id).upstream(&upstream);
                response.chunk(piece).end();
            }
            Ends::DoneTwice => {
                let response = self.world.rig.host.vm(vm).response(id).upstream(&upstream);
                response.chunk(piece).hang();
                self.world.rig.host.vm(vm).report_end(id);
                self.world.rig.host.vm(vm).end(id, Ending::Complete);
            }
            Ends::TooLarge => {}
        }
        Ok(())
    }

    /// Lets much time pass.
    fn wait(&mut self, time: Duration) {
        let step = Duration::from_millis(SLOW_TICK_MS);
        let mut left = time;
        while !left.is_zero() {
            self.world.rig.indexer.serve(&mut self.world.rig.host);
            self.world.rig.host.advance(step);
            left = left.saturating_sub(step);
        }
    }

    fn remove(&mut self) -> Vec<Endpoint> {
        let address = self.world.address_of(&self.first);
        let rig = &mut self.world.rig;
        let (gone, left) = rig
            .indexer
            .endpoints
            .endpoints
            .drain(..)
            .partition(|endpoint| endpoint.address == address);
        rig.indexer.endpoints.endpoints = left;
        rig.indexer.announce(&mut rig.host);
        gone
    }

    /// Adds pods again, as an indexer does: under other ids, with nothing in their caches.
    fn add(&mut self, pods: Vec<Endpoint>) {
        let rig = &mut self.world.rig;
        for (number, pod) in (100..).zip(pods) {
            rig.indexer.endpoints.endpoints.push(Endpoint {
                id: number,
                holders: Vec::new(),
                ..pod
            });
        }
        rig.indexer.announce(&mut rig.host);
    }
}
