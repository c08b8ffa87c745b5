//! The VM that holds the stream of a shard and publishes what comes down it.

use std::collections::VecDeque;

use prost::Message as _;

use super::{
    LEASE_MS, MAX_DELTAS_PER_TICK, MAX_ITEMS_PER_TICK, RENEW_MS, RING_DELTAS, ShardInfo,
    SharedData, SharedError,
    head::{Head, MAX_STALE, Term},
    items::Items,
    keys::ShardKeys,
    sweeper::{DeadTerm, Sweeper},
};
use crate::{
    hash::Seed,
    proto,
    snapshot::{Replica, ReplicaError, Snapshot, Update},
};

/// Why a VM leads no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadError {
    /// Another VM has taken the lead.
    #[error("another VM leads")]
    Demoted,
    /// The host failed; the lead is not lost by that.
    #[error(transparent)]
    Shared(#[from] SharedError),
}

/// What a leader publishes besides the copy: bytes to write and the revision under which `head` announces them.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    revision: u32,
    is_written: bool,
}

impl Outgoing {
    fn put(&mut self, stamp: u64, message: &impl prost::Message) {
        self.bytes = [&stamp.to_le_bytes()[..], &message.encode_to_vec()].concat();
        self.is_written = false;
    }
}

/// Leads one shard: owns the copy that the stream keeps current.
#[derive(Debug)]
pub struct Leader {
    keys: ShardKeys,
    nonce: u64,
    /// The term that is in `head` unless another VM leads; that of `self.head` may be later until the next tick.
    term: Term,
    replica: Replica,
    /// Seed of the copy.
    seed: Option<Seed>,
    /// Deltas that are in the copy and not in the ring yet.
    pending: VecDeque<proto::Delta>,
    /// What was published of the copy in this term.
    items: Items,
    head: Head,
    renewed_ms: u64,
    policy: Outgoing,
    endpoints: Outgoing,
    load: Outgoing,
    sweeper: Sweeper,
}

impl Leader {
    /// Takes the lead when nobody has it or its lease has expired; `head` is what was read just now with its CAS number. Gives `None`
    /// when another VM was faster.
    ///
    /// The first `head` can't be written by CAS, so the lead counts only once [`Self::tick`] has found it confirmed.
    ///
    /// # Errors
    /// When the host fails.
    pub fn claim(
        keys: &ShardKeys,
        nonce: u64,
        old: Option<(&Head, Option<u32>)>,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<Option<Claim>, SharedError> {
        let (term, mut stale, cas) = match old {
            Some((head, cas)) => {
                let mut stale = head.stale.clone();
                stale.push(head.term.0);
                (head.term.next(nonce), stale, cas)
            }
            None => (Term::default().next(nonce), Vec::new(), None),
        };
        let stale = stale.split_off(stale.len().saturating_sub(MAX_STALE));
        let head = Head {
            term,
            leader: nonce,
            lease_ms: now_ms + LEASE_MS,
            stale,
            ..Head::default()
        };
        match shared.set(&keys.head(), &head.to_bytes(), cas) {
            Ok(()) => Ok(Some(Claim { head })),
            Err(SharedError::CasMismatch) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A leader under a claim that goes on from the copy it has.
    pub fn new(
        keys: ShardKeys,
        claim: Claim,
        snapshot: Snapshot,
        info: &ShardInfo,
        max_bytes: usize,
    ) -> Self {
        let mut sweeper = Sweeper::default();
        for &term in &claim.head.stale {
            sweeper.add(DeadTerm::of_another(term));
        }
        let mut leader = Self {
            keys,
            nonce: claim.head.leader,
            term: claim.head.term,
            replica: Replica::from_snapshot(snapshot, max_bytes, None),
            seed: info.seed,
            pending: VecDeque::new(),
            items: Items::default(),
            head: claim.head,
            renewed_ms: 0,
            policy: Outgoing::default(),
            endpoints: Outgoing::default(),
            load: Outgoing::default(),
            sweeper,
        };
        leader.head.heard_ms = info.heard_ms;
        if let Some(policy) = &info.policy {
            leader.policy.put(info.endpoints_epoch, policy);
        }
        if let Some(endpoints) = &info.endpoints_message {
            leader.endpoints.put(info.endpoints_epoch, endpoints);
        }
        leader
    }

    /// Number of the term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The copy.
    pub fn snapshot(&self) -> &Snapshot {
        self.replica.snapshot()
    }

    /// Whether the stream keeps the copy current.
    pub fn is_live(&self) -> bool {
        self.replica.is_live()
    }

    /// Gives the copy away, and the terms whose keys should still be emptied, its own among them.
    pub fn into_snapshot(self) -> (Snapshot, Vec<DeadTerm>) {
        let mut terms = self.sweeper.terms().to_vec();
        terms.push(DeadTerm::of_another(self.term.0));
        terms.push(self.items.dead_term(self.head.term.0));
        (self.replica.into_snapshot(), terms)
    }

    /// First message of a new stream.
    pub fn subscribe(&mut self, pools: &[String], gateway: &str) -> proto::Subscribe {
        self.replica.subscribe(pools, gateway)
    }

    /// Takes a message of the stream.
    ///
    /// # Errors
    /// Then the stream has to be closed and [`Self::subscribe`] called for a new one.
    pub fn feed(
        &mut self,
        message: proto::Down,
        info: &mut ShardInfo,
        now_ms: u64,
    ) -> Result<Update, ReplicaError> {
        let update = self.replica.feed(message)?;
        info.heard_ms = now_ms;
        self.head.heard_ms = now_ms;
        match &update {
            Update::Base => {
                self.begin_copy();
                self.seed = self.replica.seed();
                info.seed = self.seed;
            }
            Update::Delta(delta) => self.pending.push_back(delta.clone()),
            Update::Policy(policy) => {
                self.policy
                    .put(self.replica.stream_epoch(), policy.as_ref());
                info.policy = Some(policy.as_ref().clone());
            }
            Update::Endpoints(endpoints) => {
                let epoch = self.replica.stream_epoch();
                self.endpoints.put(epoch, endpoints);
                info.set_endpoints(epoch, endpoints.clone());
            }
            Update::Load(load) => {
                self.load.put(now_ms, load);
                info.load = Some((now_ms, load.clone()));
            }
            Update::None | Update::Resumed | Update::Ack(_) => {}
        }
        Ok(update)
    }

    /// Publishes what is new, renews the lease and empties keys of dead terms: a bounded amount of each.
    ///
    /// # Errors
    /// [`LeadError::Demoted`]: give the lead up. Otherwise the next tick goes on from there.
    pub fn tick(&mut self, now_ms: u64, shared: &impl SharedData) -> Result<(), LeadError> {
        let value = shared.get(&self.keys.head())?;
        let (current, cas) = match &value {
            Some((bytes, cas)) => (Head::from_bytes(bytes), *cas),
            None => (None, None),
        };
        if current.is_none_or(|head| head.term != self.term) {
            return Err(LeadError::Demoted);
        }
        let before = self.head.clone();
        self.publish_messages(shared)?;
        self.publish_copy(shared)?;
        self.sweeper.sweep(&self.keys, shared)?;
        self.head.stale = self.sweeper.terms().iter().map(|dead| dead.term).collect();
        let is_due = now_ms.saturating_sub(self.renewed_ms) >= RENEW_MS;
        let heard = self.head.heard_ms;
        if self.head
            != (Head {
                heard_ms: heard,
                ..before
            })
            || is_due
        {
            self.head.lease_ms = now_ms + LEASE_MS;
            match shared.set(&self.keys.head(), &self.head.to_bytes(), cas) {
                Ok(()) => self.renewed_ms = now_ms,
                Err(SharedError::CasMismatch) => return Err(LeadError::Demoted),
                Err(error) => return Err(error.into()),
            }
        }
        self.term = self.head.term;
        Ok(())
    }

    /// Ends the lease: what is published stays for the successor to bring forward and for all others to read.
    ///
    /// # Errors
    /// When the host fails; then the lease runs out.
    pub fn resign(&mut self, now_ms: u64, shared: &impl SharedData) -> Result<(), SharedError> {
        let value = shared.get(&self.keys.head())?;
        let head = value.and_then(|(bytes, cas)| Some((Head::from_bytes(&bytes)?, cas)));
        let Some((mut head, cas)) = head.filter(|(head, _)| head.term == self.term) else {
            return Ok(());
        };
        head.lease_ms = now_ms.saturating_sub(1);
        match shared.set(&self.keys.head(), &head.to_bytes(), cas) {
            // Another VM has taken the lead already.
            Ok(()) | Err(SharedError::CasMismatch) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A new base replaces the copy. When items of another were published, it goes under a new term: readers then never mix the two, and the
    /// keys of the old are emptied like those of any dead term.
    fn begin_copy(&mut self) {
        self.pending.clear();
        if !self.items.is_empty() {
            self.sweeper.add(self.items.dead_term(self.head.term.0));
            self.head.term = self.head.term.next(self.nonce);
            for outgoing in [&mut self.policy, &mut self.endpoints, &mut self.load] {
                outgoing.is_written = outgoing.bytes.is_empty();
            }
        }
        self.items = Items::default();
        self.head.epoch = 0;
        self.head.is_complete = false;
    }

    fn publish_messages(&mut self, shared: &impl SharedData) -> Result<(), SharedError> {
        let term = self.head.term.0;
        let all = [
            ("policy", &mut self.policy, &mut self.head.policy),
            ("endpoints", &mut self.endpoints, &mut self.head.endpoints),
            ("load", &mut self.load, &mut self.head.load),
        ];
        for (name, outgoing, revision) in all {
            if !outgoing.bytes.is_empty() && !outgoing.is_written {
                shared.set(&self.keys.of_term(term, name), &outgoing.bytes, None)?;
                outgoing.is_written = true;
                outgoing.revision = outgoing.revision.wrapping_add(1).max(1);
                *revision = outgoing.revision;
            }
        }
        Ok(())
    }

    fn publish_copy(&mut self, shared: &impl SharedData) -> Result<(), SharedError> {
        let Some(seed) = self.seed else { return Ok(()) };
        let (epoch, version) = (self.snapshot().epoch, self.snapshot().version);
        if epoch == 0 {
            return Ok(());
        }
        if self.head.epoch != epoch {
            // Deltas that were applied before anything was published are in the items already.
            self.pending.clear();
            self.head.epoch = epoch;
            self.head.version = version;
            self.head.ring_base = version;
        }
        let term = self.head.term.0;
        let (keys, snapshot) = (&self.keys, self.replica.snapshot_mut());
        let mut budget = MAX_ITEMS_PER_TICK;
        self.items
            .publish_new(&mut budget, snapshot, (keys, term), shared)?;
        for _ in 0..MAX_DELTAS_PER_TICK {
            let Some(next) = self.pending.front() else {
                break;
            };
            let version = next.version;
            if !self
                .items
                .make_room(version, &mut budget, snapshot, (keys, term), shared)?
            {
                break;
            }
            shared.set(
                &keys.delta(term, version % RING_DELTAS),
                &next.encode_to_vec(),
                None,
            )?;
            self.pending.pop_front();
            self.head.version = version;
        }
        if self
            .items
            .publish_meta(snapshot, seed, (keys, term), shared)?
        {
            self.head.is_complete = true;
        }
        Ok(())
    }
}

/// A term that was written to `head`.
#[derive(Clone, Debug)]
pub struct Claim {
    head: Head,
}
