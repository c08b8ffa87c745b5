//! A gateway's end of the snapshot stream.
//!
//! ```text
//!            Hello, other epoch or not resumable                BaseDone, checksum fits
//!  ┌───────┐ ────────────────────────────────► ┌──────────┐ ───────────────────────────► ┌──────┐
//!  │ Start │                                   │ Building │  (copy replaced at once)     │ Live │ ◄┐ Delta: version + 1,
//!  └───────┘ ────────────────────────────────► └──────────┘ ───────────────────────────► └──────┘ ─┘ checksum fits
//!      ▲      Hello, resume                                                                 │
//!      └──────────────── any error: the caller closes the stream and subscribes anew ◄──────┘
//! ```
//!
//! The copy stays readable while a new base is built. After an error that casts doubt on it, the next subscription asks for a base.

use super::{
    entry::{Entry, entries},
    segment::Segment,
    sets::{Sets, SetsError},
    table::{Table, TableError},
    thinning::Thinning,
};
use crate::{
    hash::Seed,
    proto::{self, down::Kind},
};

/// Largest `segment_bits` that is accepted.
const MAX_SEGMENT_BITS: u32 = 16;

/// Why a stream can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// A message that does not belong here.
    #[error("unexpected message {kind}")]
    Unexpected {
        /// Its kind.
        kind: &'static str,
    },
    /// Deltas are missing.
    #[error("version {got} follows {have}")]
    Gap {
        /// Version of the copy.
        have: u64,
        /// Version that came.
        got: u64,
    },
    /// The copy is not what the indexer has.
    #[error("checksum differs at version {version}")]
    Checksum {
        /// Version at which it was found.
        version: u64,
    },
    /// The indexer resumes from another place than asked.
    #[error("resumed from version {got} of epoch {epoch}")]
    BadResume {
        /// Epoch of the Hello.
        epoch: u64,
        /// Version of the Hello.
        got: u64,
    },
    /// The seed is not that of the deployment, or does not fit its own check.
    #[error("seed of another deployment")]
    Seed,
    /// From the table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// From the dictionary.
    #[error(transparent)]
    Sets(#[from] SetsError),
}

/// What a message changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Nothing to be seen yet.
    None,
    /// The copy was replaced.
    Base,
    /// The copy goes on from where it was.
    Resumed,
    /// The copy is one version further.
    Delta(proto::Delta),
    /// New policy.
    Policy(Box<proto::Policy>),
    /// New endpoints.
    Endpoints(proto::Endpoints),
    /// New load.
    Load(proto::Load),
    /// The indexer took messages up to this number.
    Ack(u64),
}

/// Table and dictionary at a version.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Version line; 0 = nothing has been received.
    pub epoch: u64,
    /// Version of table and sets.
    pub version: u64,
    /// Rungs.
    pub table: Table,
    /// Holder sets.
    pub sets: Sets,
}

impl Snapshot {
    /// A copy of nothing.
    pub fn empty() -> Self {
        Self {
            epoch: 0,
            version: 0,
            table: Table::uncovered(0),
            sets: Sets::default(),
        }
    }

    /// Checksum of table and dictionary.
    pub fn checksum(&self) -> u64 {
        self.table.checksum().wrapping_add(self.sets.checksum())
    }

    /// The same, counted anew from all entries and sets.
    pub fn recounted_checksum(&self) -> u64 {
        let entries = self.table.iter().map(Entry::sum);
        let sum = entries.fold(0u64, u64::wrapping_add);
        sum.wrapping_add(self.sets.recounted_checksum())
    }

    /// Goes one version further.
    ///
    /// # Errors
    /// [`ReplicaError::Gap`] (nothing is changed), or the copy is useless afterwards.
    pub fn apply(&mut self, delta: &proto::Delta) -> Result<(), ReplicaError> {
        if self.version.checked_add(1) != Some(delta.version) {
            return Err(ReplicaError::Gap {
                have: self.version,
                got: delta.version,
            });
        }
        self.sets.apply(delta)?;
        self.table.apply(delta)?;
        self.version = delta.version;
        if self.checksum() != delta.checksum {
            return Err(ReplicaError::Checksum {
                version: delta.version,
            });
        }
        Ok(())
    }
}

#[derive(Debug)]
enum State {
    Start,
    Building {
        building: Snapshot,
        bits: u32,
        next_segment: u32,
    },
    Live,
}

/// Follows one snapshot stream.
#[derive(Debug)]
pub struct Replica {
    state: State,
    snapshot: Snapshot,
    /// Epoch of the stream's hello; that of the endpoints it sends.
    stream_epoch: u64,
    seed: Option<Seed>,
    expected_seed: Option<Seed>,
    max_bytes: usize,
}

impl Replica {
    /// A replica that has nothing. `max_bytes` is the table's budget, `expected_seed` that of the deployment when another is to be refused.
    pub fn new(max_bytes: usize, expected_seed: Option<Seed>) -> Self {
        Self::from_snapshot(Snapshot::empty(), max_bytes, expected_seed)
    }

    /// A replica that goes on from a copy.
    pub fn from_snapshot(
        snapshot: Snapshot,
        max_bytes: usize,
        expected_seed: Option<Seed>,
    ) -> Self {
        Self {
            state: State::Start,
            snapshot,
            stream_epoch: 0,
            seed: None,
            expected_seed,
            max_bytes,
        }
    }

    /// First message of a new stream.
    pub fn subscribe(&mut self, pools: &[String], gateway: &str) -> proto::Subscribe {
        self.state = State::Start;
        proto::Subscribe {
            pools: pools.to_vec(),
            gateway: gateway.to_owned(),
            have_epoch: self.snapshot.epoch,
            have_version: self.snapshot.version,
            max_table_bytes: self.max_bytes as u64,
        }
    }

    /// Whether the copy is being kept current.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live)
    }

    /// The copy; of epoch 0 when there is none.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The copy, to have images made from it.
    pub fn snapshot_mut(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }

    /// Gives the copy away.
    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// Epoch of the stream: that of the endpoints it sends, and of the copy once that is live.
    pub fn stream_epoch(&self) -> u64 {
        self.stream_epoch
    }

    /// The deployment's seed, from the stream.
    pub fn seed(&self) -> Option<Seed> {
        self.seed
    }

    /// Takes a message.
    ///
    /// # Errors
    /// Then the stream has to be closed and [`Self::subscribe`] called for a new one.
    pub fn feed(&mut self, message: proto::Down) -> Result<Update, ReplicaError> {
        let result = self.step(message);
        if let Err(error) = result {
            self.state = State::Start;
            // A copy that is in doubt is not resumed from; a message out of place says nothing against it.
            if !matches!(error, ReplicaError::Unexpected { .. } | ReplicaError::Seed) {
                self.snapshot.epoch = 0;
                self.snapshot.version = 0;
            }
        }
        result
    }

    fn step(&mut self, message: proto::Down) -> Result<Update, ReplicaError> {
        let kind = message
            .kind
            .ok_or(ReplicaError::Unexpected { kind: "unknown" })?;
        if matches!(self.state, State::Start) && !matches!(kind, Kind::Hello(_)) {
            return Err(ReplicaError::Unexpected {
                kind: "before hello",
            });
        }
        match (kind, &mut self.state) {
            (Kind::Hello(hello), State::Start) => self.hello(&hello),
            (Kind::Policy(policy), _) => Ok(Update::Policy(policy)),
            (Kind::Endpoints(endpoints), _) => Ok(Update::Endpoints(endpoints)),
            (Kind::Load(load), _) => Ok(Update::Load(load)),
            (Kind::Ack(ack), _) => Ok(Update::Ack(ack.seq)),
            (Kind::Heartbeat(_), _) => Ok(Update::None),
            (Kind::Sets(sets), State::Building { building, .. }) => {
                for set in &sets.sets {
                    building.sets.insert(set.id, &set.bits)?;
                }
                Ok(Update::None)
            }
            (
                Kind::Segment(segment),
                State::Building {
                    building,
                    bits,
                    next_segment,
                },
            ) => {
                if segment.index != *next_segment || segment.version != building.version {
                    return Err(ReplicaError::Gap {
                        have: building.version,
                        got: segment.version,
                    });
                }
                add_base_segment(building, *bits, &segment)?;
                *next_segment += 1;
                Ok(Update::None)
            }
            (Kind::BaseDone(done), State::Building { .. }) => self.base_done(&done),
            (Kind::Delta(delta), State::Live) => {
                self.snapshot.apply(&delta)?;
                Ok(Update::Delta(delta))
            }
            (kind, _) => Err(ReplicaError::Unexpected { kind: name(&kind) }),
        }
    }

    fn hello(&mut self, hello: &proto::Hello) -> Result<Update, ReplicaError> {
        let seed = Seed(hello.seed);
        if seed.check() != hello.seed_check || self.expected_seed.is_some_and(|known| known != seed)
        {
            return Err(ReplicaError::Seed);
        }
        self.seed = Some(seed);
        self.stream_epoch = hello.epoch;
        if hello.resume {
            if hello.epoch == 0
                || hello.epoch != self.snapshot.epoch
                || hello.version != self.snapshot.version
            {
                return Err(ReplicaError::BadResume {
                    epoch: hello.epoch,
                    got: hello.version,
                });
            }
            self.state = State::Live;
            return Ok(Update::Resumed);
        }
        let thinning = Thinning::from_level(hello.thinning);
        let thinning = thinning
            .filter(|_| hello.epoch != 0 && hello.segment_bits <= MAX_SEGMENT_BITS)
            .ok_or(ReplicaError::Unexpected { kind: "hello" })?;
        let building = Snapshot {
            epoch: hello.epoch,
            version: hello.version,
            table: Table::uncovered(self.max_bytes).thinned(thinning),
            sets: Sets::default(),
        };
        self.state = State::Building {
            building,
            bits: hello.segment_bits,
            next_segment: 0,
        };
        Ok(Update::None)
    }

    fn base_done(&mut self, done: &proto::BaseDone) -> Result<Update, ReplicaError> {
        let State::Building {
            mut building,
            bits,
            next_segment,
        } = core::mem::replace(&mut self.state, State::Live)
        else {
            return Err(ReplicaError::Unexpected { kind: "base_done" });
        };
        let version = building.version;
        if next_segment != 1 << bits || done.version != version {
            return Err(ReplicaError::Gap {
                have: version,
                got: done.version,
            });
        }
        building.sets.set_version(version);
        if building.table.len() as u64 != done.entries || building.checksum() != done.checksum {
            return Err(ReplicaError::Checksum { version });
        }
        self.snapshot = building;
        Ok(Update::Base)
    }
}

/// Adopts a segment of the base; one that is too large for an image is split by the table.
fn add_base_segment(
    building: &mut Snapshot,
    bits: u32,
    segment: &proto::Segment,
) -> Result<(), ReplicaError> {
    let first_hash = u64::from(segment.index).checked_shl(64 - bits).unwrap_or(0);
    let depth = u8::try_from(bits).unwrap_or(u8::MAX);
    let list = entries(&segment.entries);
    let before = building.table.checksum();
    let empty = Segment::try_new(first_hash, depth, segment.version, list.len())
        .map_err(TableError::from)?;
    let last_hash = empty.last_hash();
    building.table.adopt(empty)?;
    for entry in list {
        if entry.hash < first_hash || entry.hash > last_hash {
            return Err(ReplicaError::Checksum {
                version: segment.version,
            });
        }
        building.table.insert(entry)?;
    }
    if building.table.checksum().wrapping_sub(before) != segment.checksum {
        return Err(ReplicaError::Checksum {
            version: segment.version,
        });
    }
    Ok(())
}

fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Hello(_) => "hello",
        Kind::Policy(_) => "policy",
        Kind::Endpoints(_) => "endpoints",
        Kind::Sets(_) => "sets",
        Kind::Segment(_) => "segment",
        Kind::BaseDone(_) => "base_done",
        Kind::Delta(_) => "delta",
        Kind::Load(_) => "load",
        Kind::Ack(_) => "ack",
        Kind::Heartbeat(_) => "heartbeat",
    }
}
