//! Faults around the filter: its indexer, its clients, its configuration, its own VM.

use std::time::Duration;

use prefixway_wasm_tests::trap::{ON_REQUEST_TRAILERS, with_trap};
use prefixway_wasm_tests::{Ending, Host, module_from_bytes, module_path};
use serde::Deserialize;

use super::pods::{Pod, number};
#[cfg(feature = "envoy")]
use super::real::Parts;
use super::world::{PATH, Setup, World, body, healthy, host, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

#[cfg(feature = "envoy")]
mod real;

/// Pods behind the gateway.
const PODS: [&str; 3] = ["a", "b", "c"];
/// Tokens of a prompt.
const TOKENS: u32 = 200;

/// The case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Faults {
    variants: Vec<Variant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    fault: String,
    expect: Expect,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expect {
    status: Option<u16>,
    mode: Option<String>,
    added_latency_ms_max: Option<u64>,
    destination: Option<String>,
    late_answer: Option<String>,
    panic: Option<bool>,
    in_flight_after: Option<u32>,
    callouts_max: Option<usize>,
    no_deadlock: Option<bool>,
    failed_requests: Option<u64>,
    in_flight_never_negative: Option<bool>,
    memory_growth_after_settle: Option<String>,
    other_requests: Option<String>,
    policy: Option<String>,
    hang: Option<bool>,
    startup: Option<String>,
    requests: Option<String>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Refuses,
    AnswersLate { after_s: u64 },
    AnswersNothing,
    NamesGonePod,
    ClientCloses,
    ColdCaches { requests: usize, workers: usize },
    Reconfigured { times: u64 },
    Traps,
    NoHolding,
}

impl Fault {
    /// Reads the file's words.
    fn read(text: &str) -> Result<Self, CaseError> {
        let numbers: Vec<u64> = text.split(' ').filter_map(number).collect();
        let first = || numbers.first().copied();
        let size = |at: usize| usize::try_from(*numbers.get(at)?).ok();
        let fault = match text {
            "indexer refuses connections" => Some(Self::Refuses),
            "indexer answers 200 with an empty body, or with no headers at all" => {
                Some(Self::AnswersNothing)
            }
            "indexer names a pod that is gone" => Some(Self::NamesGonePod),
            "client closes while the callout is open" => Some(Self::ClientCloses),
            "forced trap in the request path" => Some(Self::Traps),
            "Envoy without support for holding headers while the body is read" => {
                Some(Self::NoHolding)
            }
            _ if text.starts_with("indexer answers after ") => {
                first().map(|after_s| Self::AnswersLate { after_s })
            }
            _ if text.contains(" requests with a cold cache on ") => size(0)
                .zip(size(1))
                .map(|(requests, workers)| Self::ColdCaches { requests, workers }),
            _ if text.starts_with("filter configuration pushed ") => {
                first().map(|times| Self::Reconfigured { times })
            }
            _ => None,
        };
        fault.ok_or_else(|| CaseError::not_understood(format!("fault {text:?}")))
    }
}

impl Faults {
    /// Plays every fault; notes and errors begin with the fault's words.
    fn each(
        &self,
        play: impl Fn(Fault, &Expect) -> Result<Option<String>, CaseError>,
    ) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for variant in &self.variants {
            let fault = Fault::read(&variant.fault)?;
            variant.expect.read()?;
            let at = |error: CaseError| CaseError::NotUnderstood {
                what: format!("{}: {error}", variant.fault),
            };
            let note = play(fault, &variant.expect).map_err(at)?;
            notes.extend(note.map(|note| format!("{}: {note}", variant.fault)));
        }
        Ok(notes)
    }
}

impl Scenario for Faults {
    fn wasm(&self) -> Result<Notes, CaseError> {
        self.each(play)
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        self.each(|fault, expect| real::play(parts, fault, expect))
    }
}

impl Expect {
    /// Checks that every word has a meaning here.
    fn read(&self) -> Result<(), CaseError> {
        let words = [
            (
                &self.mode,
                &["load-only", "load-only after the callout deadline"][..],
            ),
            (&self.destination, &["pool member", "a live pool member"]),
            (&self.late_answer, &["ignored, no panic"]),
            (&self.memory_growth_after_settle, &["under 10%"]),
            (&self.other_requests, &["served within 1 s of the trap"]),
            (&self.policy, &["FAIL_RELOAD"]),
            (&self.startup, &["clear log line"]),
            (&self.requests, &["load-only at header time, no hang"]),
        ];
        for (said, known) in words {
            if let Some(said) = said.as_deref().filter(|said| !known.contains(said)) {
                return Err(CaseError::not_understood(format!("expect {said:?}")));
            }
        }
        let flags = [
            (self.panic, false),
            (self.no_deadlock, true),
            (self.in_flight_never_negative, true),
            (self.hang, false),
        ];
        let is_known = |(said, wanted): &(Option<bool>, bool)| said.is_none_or(|s| s == *wanted);
        let numbers = (
            self.status.unwrap_or(200),
            self.in_flight_after.unwrap_or(0),
            self.failed_requests.unwrap_or(0),
        );
        if flags.iter().all(is_known) && numbers == (200, 0, 0) {
            return Ok(());
        }
        Err(CaseError::not_understood(format!("{self:?}")))
    }
}

/// Plays one fault; gives what could not be expressed.
fn play(fault: Fault, expect: &Expect) -> Result<Option<String>, CaseError> {
    match fault {
        Fault::Refuses => refuses(expect),
        Fault::AnswersLate { after_s } => answers_late(after_s),
        Fault::AnswersNothing => answers_nothing(),
        Fault::NamesGonePod => Ok(Some("whose pool is Envoy's".to_owned())),
        Fault::ClientCloses => client_closes(),
        Fault::ColdCaches { requests, workers } => cold_caches(requests, workers, expect),
        Fault::Reconfigured { .. } => Ok(Some("the emulator has one configuration".to_owned())),
        Fault::Traps => traps(),
        Fault::NoHolding => holds_nothing(),
    }
}

fn pods() -> Vec<Pod> {
    PODS.iter().map(|name| Pod::idle(name)).collect()
}

/// A request of a gateway that knows nothing goes on untouched, to what Envoy falls back on.
fn passes(host: &mut Host, vm: usize) -> Result<(), CaseError> {
    let headers = [(":method", "POST"), (":path", PATH)];
    let started_ns = host.process().now_ns;
    let outcome = host
        .vm(vm)
        .request(&headers)
        .chunk(body(&prompt(TOKENS)))
        .end();
    let waited_ms = (host.process().now_ns - started_ns) / 1_000_000;
    let destination = outcome.header(prefixway_wasm_tests::rig::DESTINATION);
    if outcome.forwarded && outcome.trap.is_none() && destination.is_none() && waited_ms == 0 {
        return Ok(());
    }
    let got = format!("{:?}, {destination:?}, {waited_ms} ms", outcome.reply);
    Err(CaseError::mismatch("request", &"forwarded at once", &got))
}

/// A request of a gateway that knows its pods, and nothing of prefixes, goes to one of them.
fn routed_by_load(world: &mut World) -> Result<(), CaseError> {
    let reason = "prefixway_decisions_total.reason=stale";
    let before = world.rig.host.metric(reason);
    let sent = world.send(&prompt(TOKENS));
    world.picked(&sent)?;
    let by_load = world.rig.host.metric(reason) - before;
    if by_load == 1 {
        return Ok(());
    }
    Err(CaseError::mismatch("decisions by load alone", &1, &by_load))
}

fn refuses(expect: &Expect) -> Result<Option<String>, CaseError> {
    let mut host = host(&Setup::default())?;
    host.process_mut().refuse_streams = true;
    host.advance(Duration::from_secs(2));
    for vm in [1, 2] {
        passes(&mut host, vm)?;
    }
    healthy(&host)?;
    // One that had known all.
    let mut world = World::start(&pods(), &Setup::default())?;
    world.rig.host.process_mut().refuse_streams = true;
    let leader = world.rig.leader().unwrap_or(0);
    for token in world.rig.host.vm(leader).streams() {
        world.rig.host.vm(leader).close_stream(token, 14, "gone");
    }
    world.rig.host.advance(Duration::from_secs(8));
    routed_by_load(&mut world)?;
    world.check()?;
    let bound = expect.added_latency_ms_max;
    Ok(bound.map(|ms| format!("{ms} ms are of real time; no request waits here")))
}

fn answers_late(after_s: u64) -> Result<Option<String>, CaseError> {
    let mut host = host(&Setup::default())?;
    host.advance(Duration::from_millis(200));
    for _ in 0..after_s {
        for vm in [1, 2] {
            passes(&mut host, vm)?;
        }
        host.advance(Duration::from_secs(1));
    }
    healthy(&host)?;
    // The late answer comes on every stream that was ever opened.
    let addresses = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"];
    let indexer = prefixway_wasm_tests::Indexer::new(&addresses);
    let mut rig = prefixway_wasm_tests::Rig { host, indexer };
    rig.run(Duration::from_secs(1));
    let outcome = rig.post(1, PATH, &body(&prompt(TOKENS)));
    if !outcome.forwarded {
        return Err(CaseError::mismatch("request", &"forwarded", &"not"));
    }
    healthy(&rig.host)?;
    Ok(None)
}

fn answers_nothing() -> Result<Option<String>, CaseError> {
    let mut host = host(&Setup::default())?;
    for round in 0..4 {
        host.advance(Duration::from_secs(2));
        for vm in 0..host.vm_count() {
            for token in host.vm(vm).streams() {
                match round % 2 {
                    0 => host.vm(vm).deliver_metadata(token, &[(":status", "200")]),
                    _ => host.vm(vm).deliver_metadata(token, &[]),
                }
                if round > 1 {
                    host.vm(vm).deliver(token, b"");
                }
                host.vm(vm).close_stream(token, 0, "");
            }
        }
        for vm in [1, 2] {
            passes(&mut host, vm)?;
        }
    }
    healthy(&host)?;
    Ok(None)
}

/// There is no callout before prefill and decode are in two places; what there is to leave is a request that is held.
fn client_closes() -> Result<Option<String>, CaseError> {
    let mut world = World::start(&pods(), &Setup::default())?;
    let headers = [(":method", "POST"), (":path", PATH)];
    let held = world.rig.host.vm(1).request(&headers).chunk("{").hang();
    world.rig.host.vm(1).end(held.id, Ending::ClientAbort);
    let sent = world.send(&prompt(TOKENS));
    world
        .rig
        .host
        .vm(sent.vm)
        .end(sent.outcome.id, Ending::ClientAbort);
    let left: u32 = world.in_flight()?.values().sum();
    if left != 0 {
        return Err(CaseError::mismatch("in flight after", &0, &left));
    }
    world.check()?;
    Ok(Some(
        "no request waits for a callout yet; one that is held was left".to_owned(),
    ))
}

fn cold_caches(
    requests: usize,
    workers: usize,
    expect: &Expect,
) -> Result<Option<String>, CaseError> {
    let setup = Setup {
        workers,
        ..Setup::default()
    };
    // Before anything is known, and with an index that holds nothing.
    let mut cold = host(&setup)?;
    let mut world = World::start(&pods(), &setup)?;
    for request in 0..requests {
        passes(&mut cold, 1 + request % workers)?;
        let sent = world.send(&format!("{request}: {}", prompt(TOKENS)));
        world.picked(&sent)?;
        if request % 100 == 0 {
            cold.advance(Duration::from_millis(10));
            world.rig.run(Duration::from_millis(10));
        }
    }
    for host in [&mut cold, &mut world.rig.host] {
        let callouts: usize = (0..host.vm_count())
            .map(|vm| host.vm(vm).callouts().len())
            .sum();
        if expect.callouts_max.is_some_and(|most| callouts > most) {
            let most = format!("at most {:?}", expect.callouts_max);
            return Err(CaseError::mismatch("callouts", &most, &callouts));
        }
        healthy(host)?;
    }
    Ok(None)
}

/// A host that is asked to hold headers holds the body too, until it is let go.
fn holds_nothing() -> Result<Option<String>, CaseError> {
    let mut world = World::start(&pods(), &Setup::default())?;
    let headers = [(":method", "POST"), (":path", PATH)];
    let text = body(&prompt(TOKENS));
    let mut went_at_headers = false;
    for _ in 0..4 {
        let request = world.rig.host.vm(1).request(&headers).keep_body();
        went_at_headers = !request.paused;
        if request.paused {
            // What Envoy has kept comes at once when the request is let go.
            for _ in 0..200 {
                if world.rig.host.vm(1).is_resumed(request.id) {
                    break;
                }
                world.rig.run(Duration::from_millis(10));
            }
            if !world.rig.host.vm(1).is_resumed(request.id) {
                return Err(CaseError::mismatch("held request", &"let go", &"hangs"));
            }
        }
        let outcome = world.rig.host.vm(1).late_body(request.id, &text);
        if !outcome.forwarded {
            return Err(CaseError::mismatch("request", &"forwarded", &"not"));
        }
        world.rig.host.vm(1).end(request.id, Ending::Complete);
    }
    if !went_at_headers {
        return Err(CaseError::mismatch(
            "requests in the end",
            &"not held",
            &"held",
        ));
    }
    let complaints = world.rig.host.complaints();
    let is_said = |line: &String| line.contains("allow_on_headers_stop_iteration");
    if complaints.len() != 1 || !complaints.iter().all(is_said) {
        let got = complaints.join(", ");
        return Err(CaseError::mismatch("log", &"one clear line", &got));
    }
    Ok(Some(
        "the line comes with the second request of a VM: nothing tells it before".to_owned(),
    ))
}

fn traps() -> Result<Option<String>, CaseError> {
    let failed = |error: prefixway_wasm_tests::Error| {
        CaseError::mismatch("module with a trap", &"made", &format!("{error:#}"))
    };
    let bytes = module_path().and_then(|path| with_trap(&path, ON_REQUEST_TRAILERS));
    let module = bytes
        .and_then(|bytes| module_from_bytes(&bytes))
        .map_err(failed)?;
    let host = Host::builder(r#"{"indexers":["prefixway_indexer"]}"#)
        .vms(3)
        .module(module)
        .start()
        .map_err(failed)?;
    let indexer = prefixway_wasm_tests::Indexer::new(&prefixway_wasm_tests::rig::ENGINES);
    let mut rig = prefixway_wasm_tests::Rig { host, indexer };
    rig.settle();
    let serves = |rig: &mut prefixway_wasm_tests::Rig, vm: usize| {
        let outcome = rig.post(vm, PATH, &body(&prompt(TOKENS)));
        let went = prefixway_wasm_tests::rig::destination(&outcome).is_some();
        if outcome.forwarded && went {
            return Ok(());
        }
        let got = format!("{:?} {:?}", outcome.trap, outcome.reply);
        Err(CaseError::mismatch(
            "request after the trap",
            &"routed",
            &got,
        ))
    };
    serves(&mut rig, 1)?;
    let headers = [(":method", "POST"), (":path", PATH)];
    let trapping = rig.host.vm(1).request(&headers).chunk("{");
    let trapped = trapping.end_with_trailers().trap;
    if trapped.is_none() {
        return Err(CaseError::mismatch("trap", &"one", &"none"));
    }
    // The other worker serves at once; the VM that takes the dead one's place learns all within the second.
    serves(&mut rig, 2)?;
    let reloaded = rig.host.add_vm().map_err(failed)?;
    rig.run(Duration::from_millis(900));
    serves(&mut rig, reloaded)?;
    serves(&mut rig, 2)?;
    // What the dead VM had in flight vanishes with its record.
    rig.run(Duration::from_secs(3));
    let usage = &rig.indexer.heard.usage;
    let in_flight: u32 = usage.endpoints.iter().map(|of| of.in_flight).sum();
    if in_flight != 3 {
        return Err(CaseError::mismatch(
            "in flight after the trap",
            &3,
            &in_flight,
        ));
    }
    Ok(None)
}
