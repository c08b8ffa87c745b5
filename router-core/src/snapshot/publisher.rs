//! The indexer's end of the snapshot: changes of the index in, messages for gateways out.

use std::collections::VecDeque;

use hashbrown::HashMap;
use prost::bytes::Bytes;

use super::{
    entry::{ENTRY_BYTES, Entry, HASH_BYTES, SetId},
    sets::{MAX_SETS, Sets, SetsError, bits},
    table::{Table, TableError},
    thinning::Thinning,
};
use crate::{
    hash::Seed,
    index::{Changes, RungChange},
    proto::{self, down::Kind},
};

/// Most rungs in one delta; larger changes are published as several versions.
pub const MAX_DELTA_RUNGS: usize = 8192;

/// Most bytes of entries in a base segment.
const MAX_SEGMENT_BYTES: usize = 1 << 20;

/// Most sets in one message.
const MAX_MESSAGE_SETS: usize = 4096;

/// Why a change could not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// From the table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// From the dictionary.
    #[error(transparent)]
    Sets(#[from] SetsError),
}

/// Settings of a publisher.
#[derive(Clone, Debug)]
pub struct PublisherConfig {
    /// Number of this version line; never 0, and never that of an earlier line.
    pub epoch: u64,
    /// The deployment's hash seed.
    pub seed: Seed,
    /// Name of the shard.
    pub shard: String,
    /// Deltas kept so that gateways can resume.
    pub ring_deltas: usize,
    /// Budget of the table.
    pub max_bytes: usize,
    /// Rungs that are published.
    pub thinning: Thinning,
}

/// What a gateway that subscribes is sent: `hello`, then policy and endpoints, then `body`.
#[derive(Clone, Debug)]
pub struct Start {
    /// First message.
    pub hello: proto::Down,
    /// A base, or the deltas the gateway lacks.
    pub body: Vec<proto::Down>,
}

/// Keeps the published table, its version line and the newest deltas.
#[derive(Debug)]
pub struct Publisher {
    config: PublisherConfig,
    table: Table,
    interner: Interner,
    version: u64,
    ring: VecDeque<proto::Delta>,
    /// A base made for an earlier subscriber, with its version and segment bits: good for others as long as the ring reaches back to it.
    /// Its bytes are shared by all streams they are sent on.
    base: Option<(u64, u32, Vec<proto::Down>)>,
}

impl Publisher {
    /// A publisher of an empty table at version 1.
    ///
    /// # Errors
    /// No memory.
    pub fn try_new(config: PublisherConfig) -> Result<Self, PublishError> {
        let table = Table::try_new(config.max_bytes)?.thinned(config.thinning);
        Ok(Self {
            config,
            table,
            interner: Interner::default(),
            version: 1,
            ring: VecDeque::new(),
            base: None,
        })
    }

    /// Version of the newest delta.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of the version line.
    pub fn epoch(&self) -> u64 {
        self.config.epoch
    }

    /// From now on the table may take so many bytes; one that is larger already stays as it is.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.config.max_bytes = max_bytes;
        self.table.set_max_bytes(max_bytes);
    }

    /// Bytes that its table may take.
    pub fn max_bytes(&self) -> usize {
        self.config.max_bytes
    }

    /// The published table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The published dictionary.
    pub fn sets(&self) -> &Sets {
        &self.interner.sets
    }

    /// Checksum of table and dictionary.
    pub fn checksum(&self) -> u64 {
        self.table
            .checksum()
            .wrapping_add(self.interner.sets.checksum())
    }

    /// Checksum at a version of this line; `None` when that is no longer kept.
    pub fn checksum_at(&self, version: u64) -> Option<u64> {
        let newer = usize::try_from(self.version.checked_sub(version)?).ok()?;
        if newer == 0 {
            return Some(self.checksum());
        }
        let place = self.ring.len().checked_sub(newer + 1)?;
        self.ring.get(place).map(|delta| delta.checksum)
    }

    /// Publishes changes; gives the deltas to broadcast, oldest first, none when nothing is different from what was published.
    ///
    /// # Errors
    /// The table's budget is used up. What was applied until then is published (see [`Self::version`]) and the rest is not: the caller
    /// should begin a new epoch with fewer rungs.
    pub fn apply(&mut self, changes: &Changes) -> Result<Vec<proto::Delta>, PublishError> {
        let mut deltas = Vec::new();
        let (mut upserts, mut removes) = (changes.upserts.as_slice(), changes.removes.as_slice());
        while !upserts.is_empty() || !removes.is_empty() {
            let (remove_now, remove_later) = removes.split_at(removes.len().min(MAX_DELTA_RUNGS));
            let room = MAX_DELTA_RUNGS - remove_now.len();
            let (upsert_now, upsert_later) = upserts.split_at(upserts.len().min(room));
            deltas.extend(self.apply_part(upsert_now, remove_now)?);
            (upserts, removes) = (upsert_later, remove_later);
        }
        Ok(deltas)
    }

    /// What to send to a gateway that has version `have_version` of epoch `have_epoch` (0 = nothing). Many gateways that come at once share
    /// one base: it may be some versions old, and the deltas since then follow it.
    pub fn start(&mut self, have_epoch: u64, have_version: u64) -> Start {
        let resumed = if have_epoch == self.config.epoch {
            self.deltas_since(have_version)
        } else {
            None
        };
        let (version, segment_bits, mut body) = match &resumed {
            Some(_) => (have_version, 0, Vec::new()),
            None => self.shared_base(),
        };
        let deltas = resumed
            .as_ref()
            .map_or_else(|| self.deltas_since(version), |deltas| Some(deltas.clone()));
        body.extend(
            deltas
                .into_iter()
                .flatten()
                .map(|delta| down(Kind::Delta(delta))),
        );
        let hello = proto::Hello {
            epoch: self.config.epoch,
            version,
            seed_check: self.config.seed.check(),
            seed: self.config.seed.0,
            shard: self.config.shard.clone(),
            segment_bits,
            resume: resumed.is_some(),
            thinning: self.config.thinning.level(),
        };
        Start {
            hello: down(Kind::Hello(hello)),
            body,
        }
    }

    fn shared_base(&mut self) -> (u64, u32, Vec<proto::Down>) {
        if let Some(base) = &self.base {
            return base.clone();
        }
        let bits = self.segment_bits();
        let base = (self.version, bits, self.base(bits));
        // Without a ring there is nothing to bring it forward with.
        self.base = (self.config.ring_deltas > 0).then(|| base.clone());
        base
    }

    /// Deltas newer than `version`, oldest first; `None` when they are no longer kept or the version is not of this line.
    pub fn deltas_since(&self, version: u64) -> Option<Vec<proto::Delta>> {
        let missing = usize::try_from(self.version.checked_sub(version)?).ok()?;
        let known = self.ring.len().checked_sub(missing)?;
        Some(self.ring.range(known..).cloned().collect())
    }

    fn base(&self, bits: u32) -> Vec<proto::Down> {
        let mut messages = Vec::new();
        let sets: Vec<_> = self
            .interner
            .sets
            .iter()
            .map(|(id, bits)| holder_set(id, bits))
            .collect();
        for sets in sets.chunks(MAX_MESSAGE_SETS) {
            messages.push(down(Kind::Sets(proto::Sets {
                sets: sets.to_vec(),
            })));
        }
        let mut segments = vec![(0u64, Vec::new()); 1 << bits];
        for entry in self.table.iter() {
            let index = entry.hash.checked_shr(64 - bits).unwrap_or(0);
            if let Some((checksum, bytes)) = usize::try_from(index)
                .ok()
                .and_then(|index| segments.get_mut(index))
            {
                *checksum = checksum.wrapping_add(entry.sum());
                bytes.extend_from_slice(&entry.to_bytes());
            }
        }
        for ((checksum, bytes), index) in segments.into_iter().zip(0u32..) {
            let segment = proto::Segment {
                index,
                version: self.version,
                checksum,
                entries: bytes.into(),
            };
            messages.push(down(Kind::Segment(segment)));
        }
        messages.push(down(Kind::BaseDone(proto::BaseDone {
            version: self.version,
            checksum: self.checksum(),
            entries: self.table.len() as u64,
        })));
        messages
    }

    /// Bits at which a base segment stays within its limit: the mean is at most half of it.
    fn segment_bits(&self) -> u32 {
        let halves = (self.table.len() * ENTRY_BYTES)
            .div_ceil(MAX_SEGMENT_BYTES / 2)
            .max(1);
        halves.next_power_of_two().trailing_zeros()
    }

    fn apply_part(
        &mut self,
        upserts: &[RungChange],
        removes: &[u64],
    ) -> Result<Option<proto::Delta>, PublishError> {
        let mut upsert_bytes = Vec::with_capacity(upserts.len() * ENTRY_BYTES);
        let mut remove_bytes = Vec::with_capacity(removes.len() * HASH_BYTES);
        for &hash in removes {
            if let Some(old) = self.table.remove(hash) {
                self.interner.release(old.set);
                remove_bytes.extend_from_slice(&hash.to_le_bytes());
            }
        }
        let mut failed = None;
        let thinning = self.config.thinning;
        let is_kept = |change: &&RungChange| change.hash != 0 && thinning.keeps(change.hash);
        for change in upserts.iter().filter(is_kept) {
            match self.upsert(change) {
                Ok(Some(entry)) => upsert_bytes.extend_from_slice(&entry.to_bytes()),
                Ok(None) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let sets_changed = self.interner.has_changes();
        let delta = if upsert_bytes.is_empty() && remove_bytes.is_empty() && !sets_changed {
            None
        } else {
            self.version += 1;
            let (sets, dropped_sets) = self.interner.take_changes();
            let delta = proto::Delta {
                version: self.version,
                sets,
                dropped_sets,
                upserts: upsert_bytes.into(),
                removes: remove_bytes.into(),
                checksum: self.checksum(),
            };
            if self.ring.len() >= self.config.ring_deltas {
                self.ring.pop_front();
            }
            if self.config.ring_deltas > 0 {
                self.ring.push_back(delta.clone());
            }
            // Half the ring is left for those who come later and take long.
            let reach = self.config.ring_deltas as u64 / 2;
            self.base
                .take_if(|(version, _, _)| *version + reach < self.version);
            Some(delta)
        };
        match failed {
            Some(error) => Err(error),
            None => Ok(delta),
        }
    }

    /// Puts a rung in the table; `None` when it is there already.
    fn upsert(&mut self, change: &RungChange) -> Result<Option<Entry>, PublishError> {
        let set = self.interner.acquire(bits(&change.holders))?;
        let entry = Entry {
            hash: change.hash,
            set,
            token_depth: change.token_depth,
        };
        match self.table.insert(entry) {
            Ok(old) => {
                if let Some(old) = old {
                    self.interner.release(old.set);
                }
                Ok((old != Some(entry)).then_some(entry))
            }
            Err(error) => {
                self.interner.release(set);
                Err(error.into())
            }
        }
    }
}

fn down(kind: Kind) -> proto::Down {
    proto::Down { kind: Some(kind) }
}

fn holder_set(id: SetId, bits: &[u8]) -> proto::HolderSet {
    proto::HolderSet {
        id: id.0,
        bits: Bytes::copy_from_slice(bits),
    }
}

/// Holder sets with the number of entries that use them.
#[derive(Debug, Default)]
struct Interner {
    sets: Sets,
    ids: HashMap<Box<[u8]>, SetId>,
    /// Uses by set id; index 0 is not used.
    uses: Vec<u32>,
    free: Vec<u32>,
    /// Ids begun since the last delta, and ids whose uses fell to 0 since then.
    begun: Vec<SetId>,
    idle: Vec<SetId>,
}

impl Interner {
    /// The id of a set, used once more.
    fn acquire(&mut self, bits: Vec<u8>) -> Result<SetId, SetsError> {
        if bits.is_empty() {
            return Ok(SetId::EMPTY);
        }
        let id = if let Some(&id) = self.ids.get(bits.as_slice()) {
            id
        } else {
            let id = match self.free.pop() {
                Some(id) => id,
                None => u32::try_from(self.uses.len().max(1)).unwrap_or(MAX_SETS),
            };
            self.sets.insert(id, &bits)?;
            if self.uses.len() <= id as usize {
                self.uses.resize(id as usize + 1, 0);
            }
            self.ids.insert(bits.into(), SetId(id));
            self.begun.push(SetId(id));
            SetId(id)
        };
        if let Some(uses) = self.uses.get_mut(id.0 as usize) {
            *uses += 1;
        }
        Ok(id)
    }

    fn release(&mut self, id: SetId) {
        if id == SetId::EMPTY {
            return;
        }
        if let Some(uses) = self.uses.get_mut(id.0 as usize) {
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.idle.push(id);
            }
        }
    }

    fn has_changes(&self) -> bool {
        !self.begun.is_empty() || !self.idle.is_empty()
    }

    /// Sets begun and ids dropped since the last time. A dropped id is free from the next delta on.
    fn take_changes(&mut self) -> (Vec<proto::HolderSet>, Vec<u32>) {
        let begun = core::mem::take(&mut self.begun);
        let mut sets = Vec::with_capacity(begun.len());
        for id in begun {
            sets.push(holder_set(id, self.sets.get(id).unwrap_or_default()));
        }
        let mut dropped = Vec::new();
        for id in core::mem::take(&mut self.idle) {
            let unused = self.uses.get(id.0 as usize) == Some(&0);
            if let Some(bits) = self.sets.get(id).filter(|_| unused) {
                self.ids.remove(bits);
                self.sets.remove(id.0);
                self.free.push(id.0);
                dropped.push(id.0);
            }
        }
        (sets, dropped)
    }
}
