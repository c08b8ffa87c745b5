//! A VM's own copy, kept current from shared data.
//!
//! ```text
//!             head complete                    whole at the head's version
//!  ┌───────┐ ───────────────► ┌─────────────┐ ────────────────────────────► ┌─────────┐ ◄┐ deltas of the ring
//!  │ Empty │                  │ Loading     │                               │ Current │ ─┘ (any term of the epoch)
//!  └───────┘ ◄─────────────── │ (old copy   │ ◄──────────────────────────── └─────────┘
//!             restart         │ stays)      │  another epoch, or behind the ring
//!                             └─────────────┘
//! ```

use super::{
    MAX_DELTAS_PER_TICK, RING_DELTAS, ShardInfo, SharedData, SharedError,
    head::Head,
    keys::ShardKeys,
    loading::{Loading, Step, read_delta},
};
use crate::{proto, snapshot::Snapshot};

/// Most ticks that pass between two attempts to load a copy.
const MAX_PAUSE_TICKS: u32 = 256;

/// What a tick or a message changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// Deltas that were applied, oldest first.
    pub deltas: Vec<proto::Delta>,
    /// The copy was replaced.
    pub is_replaced: bool,
    /// There is a new policy.
    pub has_policy: bool,
}

/// Follows the leader of one shard.
#[derive(Debug)]
pub struct Reader {
    keys: ShardKeys,
    max_bytes: usize,
    snapshot: Snapshot,
    loading: Option<Loading>,
    /// The copy missed a delta: it stays in use, and grows old, until another is loaded.
    is_behind: bool,
    /// Ticks to let pass before loading again, and how many the next restart costs.
    pause: (u32, u32),
    /// Term and revisions of what was read last.
    seen: (u64, [u32; 3]),
    restarts: u64,
}

impl Reader {
    /// A reader that starts from a copy (which may be empty); `max_bytes` is the table's budget.
    pub fn new(keys: ShardKeys, snapshot: Snapshot, max_bytes: usize) -> Self {
        Self {
            keys,
            max_bytes,
            snapshot,
            loading: None,
            is_behind: false,
            pause: (0, 1),
            seen: (0, [0; 3]),
            restarts: 0,
        }
    }

    /// The copy.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives the copy away.
    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// How often a copy had to be read anew.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Takes what is new: a few items, or the deltas since the last tick, and the small messages that changed.
    ///
    /// # Errors
    /// When the host fails; the next tick goes on from there.
    pub fn tick(
        &mut self,
        head: &Head,
        info: &mut ShardInfo,
        shared: &impl SharedData,
    ) -> Result<Changed, SharedError> {
        let mut changed = Changed::default();
        info.heard_ms = info.heard_ms.max(head.heard_ms);
        self.read_messages(head, info, shared, &mut changed)?;
        if head.epoch == 0 {
            return Ok(changed);
        }
        if self.follows(head) {
            self.loading = None;
            self.follow(head, shared, &mut changed);
        } else {
            self.load(head, info, shared, &mut changed);
        }
        Ok(changed)
    }

    /// Whether the ring takes the copy to the head's version.
    fn follows(&self, head: &Head) -> bool {
        let version = self.snapshot.version;
        !self.is_behind
            && self.snapshot.epoch == head.epoch
            && (version >= head.version
                || (version >= head.ring_base && head.version - version <= RING_DELTAS))
    }

    fn follow(&mut self, head: &Head, shared: &impl SharedData, changed: &mut Changed) {
        while self.snapshot.version < head.version && changed.deltas.len() < MAX_DELTAS_PER_TICK {
            let Some(delta) =
                read_delta(head.term.0, self.snapshot.version + 1, &self.keys, shared)
            else {
                self.is_behind = true;
                return;
            };
            if self.snapshot.apply(&delta).is_err() {
                // The copy is not what the leader has.
                self.snapshot = Snapshot::empty();
                self.restarts += 1;
                changed.is_replaced = true;
                return;
            }
            changed.deltas.push(delta);
        }
    }

    fn load(
        &mut self,
        head: &Head,
        info: &mut ShardInfo,
        shared: &impl SharedData,
        changed: &mut Changed,
    ) {
        if self.pause.0 > 0 {
            self.pause.0 -= 1;
            return;
        }
        if self.loading.is_none() {
            self.loading = Loading::begin(head, &self.keys, shared, self.max_bytes);
        }
        let Some(loading) = &mut self.loading else {
            return;
        };
        match loading.step(head, &self.keys, shared) {
            Step::More => {}
            Step::Done(snapshot, seed) => {
                self.snapshot = *snapshot;
                info.seed = Some(seed);
                self.loading = None;
                self.is_behind = false;
                self.pause = (0, 1);
                changed.is_replaced = true;
            }
            Step::Restart => {
                self.loading = None;
                self.restarts += 1;
                let (_, ticks) = self.pause;
                self.pause = (ticks, (ticks * 2).min(MAX_PAUSE_TICKS));
            }
        }
    }

    fn read_messages(
        &mut self,
        head: &Head,
        info: &mut ShardInfo,
        shared: &impl SharedData,
        changed: &mut Changed,
    ) -> Result<(), SharedError> {
        let (term, mut seen) = self.seen;
        if term != head.term.0 {
            seen = [0; 3];
        }
        let [policy, endpoints, load] = seen;
        if head.policy != policy
            && let Some((_, policy)) = self.read_message(head, "policy", shared)?
        {
            info.policy = Some(policy);
            changed.has_policy = true;
        }
        if head.endpoints != endpoints
            && let Some((epoch, message)) =
                self.read_message::<proto::Endpoints>(head, "endpoints", shared)?
        {
            info.set_endpoints(epoch, message);
        }
        if head.load != load
            && let Some(load) = self.read_message(head, "load", shared)?
        {
            info.load = Some(load);
        }
        self.seen = (head.term.0, [head.policy, head.endpoints, head.load]);
        Ok(())
    }

    fn read_message<M: prost::Message + Default>(
        &self,
        head: &Head,
        name: &str,
        shared: &impl SharedData,
    ) -> Result<Option<(u64, M)>, SharedError> {
        let value = shared.get(&self.keys.of_term(head.term.0, name))?;
        Ok(value.and_then(|(bytes, _)| {
            let (stamp, message) = bytes.split_first_chunk()?;
            Some((u64::from_le_bytes(*stamp), M::decode(message).ok()?))
        }))
    }
}
