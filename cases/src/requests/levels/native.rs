//! The logic alone: admission, prompts and the routing view, as the filter calls them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use prefixway_core::admission::{AtHead, Head, Held, Refusal, Route, Verdict, at_head};
use prefixway_core::index::Changes;
use prefixway_core::load::RequestId;
use prefixway_core::prompters::Prompters;
use prefixway_core::proto::{Down, EndpointLoad, Load, down::Kind};
use prefixway_core::schedule::Registry;
use prefixway_core::shared::{Action, SharedData, SharedError, Value};
use prefixway_core::snapshot::{Publisher, PublisherConfig};
use prefixway_core::text::{LocalTime, Prompter};
use prefixway_core::view::{Ending, RoutingView, ViewConfig, Wishes};

use super::Level;
use crate::error::CaseError;
use crate::requests::deployment::{Deployment, Family, SEED};
use crate::requests::expect::Seeded;
use crate::requests::request::Request;
use crate::requests::seen::{Answer, Fate, Identity, Prompts, Seen, Text};
use crate::requests::setup::{DEFAULT_BODY_CAP, Setup};

/// 2026-01-01T00:00:00Z, where the host emulator's clock starts too.
const START_MS: u64 = 1_767_225_600_000;
/// Ticks of 10 ms until everything has arrived.
const SETTLING_TICKS: u32 = 30;

/// The native level.
pub(crate) struct Native {
    family: Family,
    /// To see prompts in full.
    prompter: Prompter,
}

impl Native {
    /// Compiles the family's profile.
    ///
    /// # Errors
    /// The profile can't be compiled.
    pub(crate) fn new(family: Family) -> Result<Self, CaseError> {
        let prompter = Prompter::try_new(family.profile.clone());
        let wrong = |error| CaseError::not_understood(format!("model {}: {error}", family.name));
        Ok(Self {
            prompter: prompter.map_err(wrong)?,
            family,
        })
    }

    /// The canonical text of a chat's first messages, without what asks for an answer.
    pub(crate) fn text_of(&self, request: &Request) -> Option<Vec<u8>> {
        let body = request.body();
        let parsed = prefixway_core::text::parse(request.api()?, &body).ok()?;
        let prompt = self.prompter.prompt(&parsed, now()).ok()?;
        Some(prompt.text)
    }

    fn identity(&self, route: &Route<'_>, rungs: Vec<u64>) -> Identity {
        let prompts = route.request.as_ref().ok().and_then(|request| {
            let prompts = self.prompter.prompts(request, now()).ok()?;
            let texts = prompts.into_iter().map(|prompt| Text {
                space: prompt.space,
                bytes: prompt.text,
                is_truncated: prompt.truncated,
            });
            let salt = request.cache_salt.as_deref().unwrap_or_default();
            let adapter = route.served.adapter.unwrap_or_default();
            Some(Prompts {
                scope: [&route.served.profile.id, adapter, salt].map(str::to_owned),
                texts: texts.collect(),
            })
        });
        Identity::Known { rungs, prompts }
    }

    fn judge(
        &self,
        gateway: &mut Gateway,
        held: Held,
        request: &Request,
    ) -> Result<Seen, CaseError> {
        let body = request.body();
        if held.is_too_large(body.len()) {
            return Ok(gateway.refuse(&held.too_large()));
        }
        let opened = held.open(&body);
        let opened = opened.as_ref().map(AsRef::as_ref).map_err(|why| *why);
        let now_ms = gateway.now_ms;
        let route = match held.judge(opened, |model| gateway.view.lookup(model, now_ms)) {
            Verdict::Route(route) => route,
            Verdict::Pass(_) => return Ok(Seen::new(Fate::Passed)),
            Verdict::Refuse(refusal) => return Ok(gateway.refuse(&refusal)),
        };
        let (bytes, now_ns) = (body.len() as u64, now_ms * 1_000_000);
        let chosen = gateway
            .view
            .choose(&gateway.prompters, &route, bytes, Wishes::default(), now_ns)
            .ok_or_else(|| CaseError::mismatch("choice", &"one", &"no seed"))?;
        let identity = if chosen.no_text.is_some() {
            Identity::None
        } else {
            let mut prompts = chosen.prompts.iter();
            let told = prompts.find(|prompt| !prompt.rungs.is_empty());
            let rungs = told.into_iter().flat_map(|prompt| &prompt.rungs);
            self.identity(&route, rungs.map(|rung| rung.hash).collect())
        };
        let is_streamed = route.is_streamed();
        let decision = &chosen.decision;
        let addresses = decision
            .choices
            .iter()
            .map(|choice| choice.address.as_str());
        let pods = gateway.deployment.pods_of(addresses);

        let (number, memory) = (RequestId(1), &gateway.memory);
        let committed = gateway
            .view
            .commit(number, decision, &chosen.prompts, now_ms, memory);
        committed.map_err(|error| CaseError::mismatch("commit", &"stored", &error))?;
        let load_units = gateway.view.in_flight(now_ms);
        gateway.view.finish(number, Ending::default(), now_ms);
        Ok(Seen {
            identity: Some(identity),
            matched_tokens: Some(decision.predicted_cached_tokens()),
            is_streamed: Some(is_streamed),
            load_units: Some(load_units),
            left_over: Some(gateway.view.in_flight(now_ms)),
            ..Seen::new(Fate::Routed(pods))
        })
    }
}

fn now() -> LocalTime {
    LocalTime::from_unix(i64::try_from(START_MS / 1_000).unwrap_or(0), 0)
}

impl Level for Native {
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
        let mut gateway = Gateway::start(deployment, &changes, setup.is_known)?;
        let sent = request.sent_headers();
        let header = |name: &str| {
            let header = sent.iter().find(|header| header.0 == name);
            header.map(|header| header.1.as_str())
        };
        let head = Head {
            method: &request.method,
            path: &request.path,
            content_type: header("content-type"),
            content_encoding: header("content-encoding"),
            content_length: header("content-length"),
            ends: request.pieces.is_empty(),
        };
        let cap = if setup.is_known {
            setup.body_cap_bytes
        } else {
            DEFAULT_BODY_CAP
        };
        match at_head(&head, cap) {
            AtHead::Pass => Ok(Seen {
                load_units: Some(0),
                ..Seen::new(Fate::Passed)
            }),
            AtHead::Refuse(refusal) => Ok(gateway.refuse(&refusal)),
            AtHead::Hold(held) => self.judge(&mut gateway, held, request),
        }
    }
}

/// A gateway's view, fed by a publisher.
struct Gateway {
    deployment: Deployment,
    view: RoutingView,
    memory: Memory,
    prompters: Prompters,
    now_ms: u64,
}

impl Gateway {
    fn start(deployment: Deployment, changes: &Changes, is_known: bool) -> Result<Self, CaseError> {
        let broken =
            |error: &dyn core::fmt::Display| CaseError::mismatch("snapshot", &"published", error);
        let mut publisher = Publisher::try_new(PublisherConfig {
            epoch: 1,
            seed: SEED,
            shard: "cases".to_owned(),
            ring_deltas: 64,
            max_bytes: 64 << 20,
            thinning: prefixway_core::snapshot::Thinning::NONE,
        })
        .map_err(|error| broken(&error))?;
        publisher.apply(changes).map_err(|error| broken(&error))?;
        let mut gateway = Self {
            view: RoutingView::new(&ViewConfig {
                indexers: vec!["indexer".to_owned()],
                pools: Vec::new(),
                gateway: "cases".to_owned(),
                nonce: 1,
                max_bytes: 64 << 20,
                registry: Registry::default(),
            }),
            deployment,
            memory: Memory::default(),
            prompters: Prompters::default(),
            now_ms: START_MS,
        };
        let mut stream: VecDeque<Down> = VecDeque::new();
        for _ in 0..SETTLING_TICKS {
            gateway.now_ms += 10;
            while let Some(message) = stream.pop_front() {
                let taken = gateway.view.on_message(0, message, gateway.now_ms);
                taken.map_err(|error| broken(&error))?;
            }
            let ticked = gateway.view.tick(gateway.now_ms, &gateway.memory);
            let opens = |(_, action): &(usize, Action)| matches!(action, Action::Open(_));
            if is_known && ticked.actions.iter().any(opens) {
                stream = gateway.first_messages(&mut publisher);
            }
        }
        let policies = gateway.view.policies();
        let mut failed = None;
        let prompters = Prompters::compile(policies, |model, error| {
            failed = Some(format!("{model}: {error}"));
        });
        gateway.prompters = prompters;
        match failed {
            Some(error) => Err(broken(&error)),
            None => Ok(gateway),
        }
    }

    fn first_messages(&self, publisher: &mut Publisher) -> VecDeque<Down> {
        let down = |kind| Down { kind: Some(kind) };
        let start = publisher.start(0, 0);
        let idle = |endpoint: &prefixway_core::proto::Endpoint| EndpointLoad {
            endpoint: endpoint.id,
            ..EndpointLoad::default()
        };
        let endpoints = &self.deployment.endpoints;
        let load = Load {
            endpoints: endpoints.endpoints.iter().map(idle).collect(),
        };
        let first = [
            start.hello,
            down(Kind::Policy(Box::new(self.deployment.policy.clone()))),
            down(Kind::Endpoints(endpoints.clone())),
        ];
        let last = down(Kind::Load(load));
        first.into_iter().chain(start.body).chain([last]).collect()
    }

    /// The answer to a refused request, or its passing where nothing may be refused.
    fn refuse(&self, refusal: &Refusal) -> Seen {
        if self.view.policies().next().is_none() {
            return Seen::new(Fate::Passed);
        }
        let reply = refusal.reply();
        let headers = reply.headers.into_iter();
        Seen::new(Fate::Answered(Answer {
            status: reply.status,
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.into_owned()))
                .collect(),
            body: reply.body,
        }))
    }
}

/// Shared data of a proxy with one VM.
#[derive(Debug, Default)]
struct Memory {
    values: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    last_cas: Cell<u32>,
}

impl SharedData for Memory {
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
        let values = self.values.borrow();
        let value = values.get(key).filter(|(value, _)| !value.is_empty());
        Ok(value.map(|(value, cas)| (value.clone(), Some(*cas))))
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
        let mut values = self.values.borrow_mut();
        if let (Some(cas), Some((_, current))) = (cas, values.get(key))
            && cas != *current
        {
            return Err(SharedError::CasMismatch);
        }
        self.last_cas.set(self.last_cas.get() + 1);
        values.insert(key.to_owned(), (value.to_vec(), self.last_cas.get()));
        Ok(())
    }
}
