//! One VM's part in one shard: it reads what the leader publishes, or leads itself.
//!
//! ```text
//!                lease expired, CAS succeeds
//!  ┌───────────┐ ──────────────────────────► ┌────────┐   Open (at the first tick that finds the lead confirmed,
//!  │ Following │                             │ Leading│    and with growing pauses after the stream closed)
//!  └───────────┘ ◄────────────────────────── └────────┘
//!                another term in head: Close
//! ```

use super::{
    ShardInfo, SharedData, SharedError, Value,
    head::Head,
    keys::ShardKeys,
    leader::{LeadError, Leader},
    reader::{Changed, Reader},
    sweeper::Sweeper,
    upstream::{Upstream, together},
};
use crate::{
    proto::{self, up},
    snapshot::{ReplicaError, Snapshot, TableError, Update},
};

/// First pause before a closed stream is opened again; it doubles up to [`MAX_PAUSE_MS`].
const FIRST_PAUSE_MS: u64 = 100;

/// Longest pause before a closed stream is opened again.
pub const MAX_PAUSE_MS: u64 = 5_000;

/// Pause after a base that does not fit in the budget: the next will hardly fit either.
pub const OVER_BUDGET_PAUSE_MS: u64 = 60_000;

/// Silence after which a stream is taken for dead; the indexer sends heartbeats far more often.
pub const SILENCE_MS: u64 = 10_000;

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// Keys of the shard.
    pub keys: ShardKeys,
    /// Random number of the VM.
    pub nonce: u64,
    /// Name of the gateway, the same in all VMs of the proxy.
    pub gateway: String,
    /// Pools to subscribe to; empty = all.
    pub pools: Vec<String>,
    /// Budget of the table.
    pub max_bytes: usize,
}

/// What the host has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Open a stream and send this first.
    Open(proto::Up),
    /// Send on the open stream.
    Send(proto::Up),
    /// Close the stream.
    Close,
}

#[derive(Debug, PartialEq, Eq)]
enum Stream {
    /// Not open; to be opened at the time.
    ClosedUntil(u64),
    /// Open; heard of last at the time.
    Open(u64),
}

#[derive(Debug)]
enum Part {
    Following(Box<Reader>),
    Leading(Box<Leader>),
}

/// A VM's view of a shard, and its part in keeping it.
#[derive(Debug)]
pub struct Member {
    config: MemberConfig,
    part: Part,
    info: ShardInfo,
    stream: Stream,
    pause_ms: u64,
    upstream: Upstream,
    sweeper: Sweeper,
    resyncs: u64,
}

impl Member {
    /// A member that knows nothing.
    pub fn new(config: MemberConfig) -> Self {
        let reader = Reader::new(config.keys.clone(), Snapshot::empty(), config.max_bytes);
        Self {
            config,
            part: Part::Following(Box::new(reader)),
            info: ShardInfo::default(),
            stream: Stream::ClosedUntil(0),
            pause_ms: FIRST_PAUSE_MS,
            upstream: Upstream::default(),
            sweeper: Sweeper::default(),
            resyncs: 0,
        }
    }

    /// The copy.
    pub fn snapshot(&self) -> &Snapshot {
        match &self.part {
            Part::Following(reader) => reader.snapshot(),
            Part::Leading(leader) => leader.snapshot(),
        }
    }

    /// Endpoints, policy, load, seed.
    pub fn info(&self) -> &ShardInfo {
        &self.info
    }

    /// Whether this VM leads.
    pub fn is_leader(&self) -> bool {
        matches!(self.part, Part::Leading(_))
    }

    /// How often a copy had to be fetched anew.
    pub fn resyncs(&self) -> u64 {
        match &self.part {
            Part::Following(reader) => self.resyncs + reader.restarts(),
            Part::Leading(_) => self.resyncs,
        }
    }

    /// Time in ms since the leader last heard from the indexer; `None` = never.
    pub fn age_ms(&self, now_ms: u64) -> Option<u64> {
        (self.info.heard_ms > 0).then(|| now_ms.saturating_sub(self.info.heard_ms))
    }

    /// Decisions and usage for the indexer; only a leader sends them.
    pub fn upstream(&mut self) -> &mut Upstream {
        &mut self.upstream
    }

    /// Reads or publishes what is new, and takes the lead when nobody has it. To be called every few ms.
    ///
    /// # Errors
    /// When the host fails; the next tick goes on from there.
    pub fn tick(
        &mut self,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<(Changed, Vec<Action>), SharedError> {
        let mut actions = Vec::new();
        if let Part::Leading(leader) = &mut self.part {
            match leader.tick(now_ms, shared) {
                Ok(()) => {
                    self.drive_stream(now_ms, &mut actions);
                    return Ok((Changed::default(), actions));
                }
                Err(LeadError::Shared(error)) => return Err(error),
                Err(LeadError::Demoted) => self.step_down(&mut actions),
            }
        }
        self.sweeper.sweep(&self.config.keys, shared)?;
        let changed = self.follow(now_ms, shared)?;
        Ok((changed, actions))
    }

    /// Takes a message of the stream. What it changed is given as a reader would give it.
    ///
    /// # Errors
    /// The stream can't go on: it has to be closed, and [`Self::on_closed`] is already done.
    pub fn on_message(
        &mut self,
        message: proto::Down,
        now_ms: u64,
    ) -> Result<Changed, ReplicaError> {
        // What comes after the end of the lead or of the stream is of no use.
        let (Part::Leading(leader), Stream::Open(heard_ms)) = (&mut self.part, &mut self.stream)
        else {
            return Ok(Changed::default());
        };
        let update = match leader.feed(message, &mut self.info, now_ms) {
            Ok(update) => update,
            Err(error) => {
                self.resyncs += 1;
                if matches!(error, ReplicaError::Table(TableError::OverBudget { .. })) {
                    self.pause_ms = OVER_BUDGET_PAUSE_MS;
                }
                self.on_closed(now_ms);
                return Err(error);
            }
        };
        if leader.is_live() {
            self.pause_ms = FIRST_PAUSE_MS;
        }
        *heard_ms = now_ms;
        let mut changed = Changed::default();
        match update {
            Update::Base => changed.is_replaced = true,
            Update::Delta(delta) => changed.deltas.push(delta),
            Update::Policy(_) => changed.has_policy = true,
            Update::Ack(seq) => self.upstream.ack(seq),
            Update::Endpoints(_) => self.upstream.forget_usage(),
            Update::Load(_) | Update::None | Update::Resumed => {}
        }
        Ok(changed)
    }

    /// The stream is closed; a leader opens another after a pause.
    pub fn on_closed(&mut self, now_ms: u64) {
        self.stream = Stream::ClosedUntil(now_ms + self.pause_ms);
        self.pause_ms = (self.pause_ms * 2).min(MAX_PAUSE_MS);
    }

    /// Gives the lead up, if this VM has it, so that another need not wait for the lease to expire. What the host has to do is given even
    /// when the host has failed.
    pub fn resign(
        &mut self,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> (Vec<Action>, Option<SharedError>) {
        let mut actions = Vec::new();
        let Part::Leading(leader) = &mut self.part else {
            return (actions, None);
        };
        let error = leader.resign(now_ms, shared).err();
        self.step_down(&mut actions);
        (actions, error)
    }

    fn follow(&mut self, now_ms: u64, shared: &impl SharedData) -> Result<Changed, SharedError> {
        let value = shared.get(&self.config.keys.head())?;
        let head = value
            .as_ref()
            .and_then(|(bytes, _)| Head::from_bytes(bytes));
        let Some(head) = head.filter(|head| head.lease_ms >= now_ms) else {
            self.stand_up(value.as_ref(), now_ms, shared)?;
            return Ok(Changed::default());
        };
        match &mut self.part {
            Part::Following(reader) => reader.tick(&head, &mut self.info, shared),
            Part::Leading(_) => Ok(Changed::default()),
        }
    }

    /// Claims the lead. When the claim stands, the copy at hand becomes the one that is published.
    fn stand_up(
        &mut self,
        old: Option<&Value>,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        let head = old.and_then(|(bytes, cas)| Some((Head::from_bytes(bytes)?, *cas)));
        let old = head.as_ref().map(|(head, cas)| (head, *cas));
        let Some(claim) = Leader::claim(&self.config.keys, self.config.nonce, old, now_ms, shared)?
        else {
            return Ok(());
        };
        if let Part::Following(reader) = &mut self.part {
            let empty = Reader::new(self.config.keys.clone(), Snapshot::empty(), 0);
            self.resyncs += reader.restarts();
            let snapshot = core::mem::replace(reader.as_mut(), empty).into_snapshot();
            let leader = Leader::new(
                self.config.keys.clone(),
                claim,
                snapshot,
                &self.info,
                self.config.max_bytes,
            );
            self.part = Part::Leading(Box::new(leader));
            self.stream = Stream::ClosedUntil(now_ms);
            self.pause_ms = FIRST_PAUSE_MS;
        }
        Ok(())
    }

    fn step_down(&mut self, actions: &mut Vec<Action>) {
        let reader = Reader::new(
            self.config.keys.clone(),
            Snapshot::empty(),
            self.config.max_bytes,
        );
        if let Part::Leading(leader) =
            core::mem::replace(&mut self.part, Part::Following(Box::new(reader)))
        {
            let (snapshot, dead) = leader.into_snapshot();
            for term in dead {
                self.sweeper.add(term);
            }
            let reader = Reader::new(self.config.keys.clone(), snapshot, self.config.max_bytes);
            self.part = Part::Following(Box::new(reader));
        }
        if matches!(self.stream, Stream::Open(_)) {
            actions.push(Action::Close);
        }
        self.stream = Stream::ClosedUntil(0);
    }

    fn drive_stream(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Part::Leading(leader) = &mut self.part else {
            return;
        };
        match self.stream {
            Stream::ClosedUntil(at_ms) if now_ms >= at_ms => {
                let subscribe = leader.subscribe(&self.config.pools, &self.config.gateway);
                self.upstream.restart();
                self.stream = Stream::Open(now_ms);
                actions.push(Action::Open(proto::Up {
                    seq: 0,
                    kind: Some(up::Kind::Subscribe(subscribe)),
                }));
            }
            Stream::Open(heard_ms) if now_ms.saturating_sub(heard_ms) > SILENCE_MS => {
                actions.push(Action::Close);
                self.on_closed(now_ms);
            }
            Stream::Open(_) if leader.is_live() => {
                let endpoints = &self.info.endpoints;
                let id_of = |key| Some(endpoints.list().get(endpoints.place_of(key)?)?.id.0);
                let messages = self.upstream.poll(now_ms, id_of);
                actions.extend(together(messages).into_iter().map(Action::Send));
            }
            Stream::ClosedUntil(_) | Stream::Open(_) => {}
        }
    }
}
