//! VMs over one shared data and one indexer, interrupting each other between any two host calls.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
};

use crate::{
    endpoint::HolderId,
    hash::Seed,
    index::{Changes, RungChange},
    proto::{self, down::Kind},
    shared::{Action, Keys, Member, MemberConfig, SharedData, SharedError, Value, head::Head},
    snapshot::{Publisher, PublisherConfig, Snapshot, sets},
};

/// Rung → token depth and holders.
pub(crate) type Meaning = BTreeMap<u64, (u32, Vec<u32>)>;

/// Shared data as the host keeps it: every set gives a value a new CAS number, empty values read as none.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    values: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    last_cas: Cell<u32>,
}

impl Memory {
    pub(crate) fn keys(&self) -> Vec<String> {
        let values = self.values.borrow();
        values
            .iter()
            .filter(|(_, (value, _))| !value.is_empty())
            .map(|(key, _)| key.clone())
            .collect()
    }
}

impl SharedData for Memory {
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
        let values = self.values.borrow();
        Ok(values
            .get(key)
            .filter(|(value, _)| !value.is_empty())
            .map(|(value, cas)| (value.clone(), Some(*cas))))
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

/// A source of chance (splitmix64).
#[derive(Debug)]
pub(crate) struct Dice(Cell<u64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) member: Member,
    /// Epoch and version that were compared last.
    checked: (u64, u64),
    /// Does nothing until then.
    pub(crate) stalled_until: u64,
}

/// What is under way to a VM, when its stream is open.
pub(crate) type Stream = RefCell<Option<VecDeque<proto::Down>>>;

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) vms: Vec<RefCell<Vm>>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) publisher: RefCell<Publisher>,
    pub(crate) now: Cell<u64>,
    pub(crate) dice: Dice,
    /// What every version meant.
    history: RefCell<BTreeMap<(u64, u64), (Meaning, u64)>>,
    model: RefCell<Meaning>,
    /// Whether VMs interrupt each other.
    pub(crate) is_torn: Cell<bool>,
    depth: Cell<u32>,
    nonces: Cell<u64>,
}

const MIB: usize = 1 << 20;

fn publisher(epoch: u64) -> Publisher {
    let config = PublisherConfig {
        epoch,
        seed: Seed(7),
        shard: "s".into(),
        ring_deltas: 40,
        max_bytes: 64 * MIB,
        thinning: crate::snapshot::Thinning::NONE,
    };
    Publisher::try_new(config).unwrap()
}

pub(crate) fn meaning(snapshot: &Snapshot) -> Meaning {
    let meaning_of = |entry: crate::snapshot::Entry| {
        let bits = snapshot
            .sets
            .get(entry.set)
            .expect("every set in use is known");
        (
            entry.token_depth,
            sets::holders(bits).map(|holder| holder.0).collect(),
        )
    };
    snapshot
        .table
        .iter()
        .map(|entry| (entry.hash, meaning_of(entry)))
        .collect()
}

impl World {
    pub(crate) fn new(vms: usize, seed: u64) -> Self {
        let world = Self {
            memory: Memory::default(),
            vms: Vec::new(),
            streams: (0..vms).map(|_| RefCell::default()).collect(),
            publisher: RefCell::new(publisher(1)),
            now: Cell::new(1_000_000),
            dice: Dice::new(seed),
            history: RefCell::default(),
            model: RefCell::default(),
            is_torn: Cell::new(false),
            depth: Cell::new(0),
            nonces: Cell::new(100),
        };
        world.remember();
        let vms = (0..vms).map(|_| RefCell::new(world.fresh_vm())).collect();
        Self { vms, ..world }
    }

    /// Keys of the only shard.
    pub(crate) fn keys() -> Keys {
        Keys::new(&["indexer".to_owned()], &[])
    }

    fn fresh_vm(&self) -> Vm {
        self.nonces.set(self.nonces.get() + 1);
        let config = MemberConfig {
            keys: Self::keys().shard(0),
            nonce: self.nonces.get(),
            gateway: "g".into(),
            pools: vec![],
            max_bytes: 64 * MIB,
        };
        Vm {
            member: Member::new(config),
            checked: (0, 0),
            stalled_until: 0,
        }
    }

    /// The VM traps: it starts over and remembers nothing.
    pub(crate) fn trap(&self, vm: usize) {
        if let Ok(mut place) = self.vms[vm].try_borrow_mut() {
            *place = self.fresh_vm();
            *self.streams[vm].borrow_mut() = None;
        }
    }

    pub(crate) fn leaders(&self) -> Vec<usize> {
        (0..self.vms.len())
            .filter(|&vm| self.vms[vm].borrow().member.is_leader())
            .collect()
    }

    pub(crate) fn head(&self) -> Head {
        let (bytes, _) = self
            .memory
            .get(&Self::keys().shard(0).head())
            .unwrap()
            .unwrap();
        Head::from_bytes(&bytes).unwrap()
    }

    fn remember(&self) {
        let publisher = self.publisher.borrow();
        let meaning = (self.model.borrow().clone(), publisher.checksum());
        self.history
            .borrow_mut()
            .insert((publisher.epoch(), publisher.version()), meaning);
    }

    /// Publishes a change of up to `rungs` rungs.
    pub(crate) fn publish(&self, rungs: u64) {
        let mut upserts: BTreeMap<u64, RungChange> = BTreeMap::new();
        let mut removes = Vec::new();
        for _ in 0..=self.dice.below(rungs) {
            let hash = (1 + self.dice.below(900)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if self.dice.below(4) == 0 {
                removes.push(hash);
            } else {
                let mut holders: Vec<u32> = (0..self.dice.below(4))
                    .map(|_| self.dice.below(9) as u32)
                    .collect();
                holders.sort_unstable();
                holders.dedup();
                let holders = holders.into_iter().map(HolderId).collect();
                upserts.insert(
                    hash,
                    RungChange {
                        hash,
                        token_depth: self.dice.below(3) as u32,
                        holders,
                    },
                );
            }
        }
        removes.retain(|hash| !upserts.contains_key(hash));
        let mut model = self.model.borrow_mut();
        for hash in &removes {
            model.remove(hash);
        }
        for change in upserts.values() {
            let holders = change.holders.iter().map(|holder| holder.0).collect();
            model.insert(change.hash, (change.token_depth, holders));
        }
        drop(model);
        let changes = Changes {
            upserts: upserts.into_values().collect(),
            removes,
        };
        let deltas = self.publisher.borrow_mut().apply(&changes).unwrap();
        self.remember();
        for stream in &self.streams {
            if let Some(inbox) = stream.borrow_mut().as_mut() {
                let message = |delta: &proto::Delta| proto::Down {
                    kind: Some(Kind::Delta(delta.clone())),
                };
                inbox.extend(deltas.iter().map(message));
            }
        }
    }

    /// The indexer starts over with another epoch and the same rungs.
    pub(crate) fn restart_indexer(&self) {
        let epoch = self.publisher.borrow().epoch() + 1;
        let mut fresh = publisher(epoch);
        let rung = |(&hash, (token_depth, holders)): (&u64, &(u32, Vec<u32>))| RungChange {
            hash,
            token_depth: *token_depth,
            holders: holders.iter().copied().map(HolderId).collect(),
        };
        let upserts = self.model.borrow().iter().map(rung).collect();
        fresh
            .apply(&Changes {
                upserts,
                removes: vec![],
            })
            .unwrap();
        *self.publisher.borrow_mut() = fresh;
        self.remember();
        for vm in 0..self.vms.len() {
            self.break_stream(vm);
        }
    }

    pub(crate) fn break_stream(&self, vm: usize) {
        if self.streams[vm].borrow_mut().take().is_some() {
            self.vms[vm].borrow_mut().member.on_closed(self.now.get());
        }
    }

    /// One tick of a VM, with up to `messages` messages of its stream before it. Checks the copy afterwards.
    pub(crate) fn tick(&self, place: usize, messages: usize) {
        let Ok(mut vm) = self.vms[place].try_borrow_mut() else {
            return;
        };
        let now = self.now.get();
        if now < vm.stalled_until {
            return;
        }
        for _ in 0..messages {
            let Some(message) = self.streams[place]
                .borrow_mut()
                .as_mut()
                .and_then(VecDeque::pop_front)
            else {
                break;
            };
            if vm.member.on_message(message, now).is_err() {
                *self.streams[place].borrow_mut() = None;
            }
        }
        let (_, actions) = vm.member.tick(now, &Torn { world: self }).unwrap();
        for action in actions {
            match action {
                Action::Open(up) => {
                    let Some(proto::up::Kind::Subscribe(subscribe)) = up.kind else {
                        panic!("{up:?}")
                    };
                    let start = self
                        .publisher
                        .borrow_mut()
                        .start(subscribe.have_epoch, subscribe.have_version);
                    let endpoints = proto::Down {
                        kind: Some(Kind::Endpoints(proto::Endpoints::default())),
                    };
                    let messages = [start.hello, endpoints]
                        .into_iter()
                        .chain(start.body)
                        .collect();
                    *self.streams[place].borrow_mut() = Some(messages);
                }
                Action::Send(_) => {}
                Action::Close => *self.streams[place].borrow_mut() = None,
            }
        }
        let snapshot = vm.member.snapshot();
        let version = (snapshot.epoch, snapshot.version);
        if snapshot.epoch != 0 {
            let history = self.history.borrow();
            let (expected, checksum) = history.get(&version).expect("a version that was published");
            assert_eq!(snapshot.checksum(), *checksum, "{version:?}");
            if vm.checked != version {
                assert_eq!(&meaning(snapshot), expected, "{version:?}");
                vm.checked = version;
            }
        }
    }

    /// Something else happens between two host calls of a VM.
    fn disturb(&self) {
        if !self.is_torn.get() || self.depth.get() >= 2 || self.dice.below(6) != 0 {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        if self.dice.below(3) == 0 {
            self.publish(4);
        } else {
            self.tick(self.dice.below(self.vms.len() as u64) as usize, 8);
        }
        self.depth.set(self.depth.get() - 1);
    }

    /// Nothing happens any more but time: everybody has to end up with the newest copy.
    pub(crate) fn settle(&self) {
        self.is_torn.set(false);
        for vm in 0..self.vms.len() {
            self.vms[vm].borrow_mut().stalled_until = 0;
        }
        for _ in 0..300 {
            self.now.set(self.now.get() + 40);
            for vm in 0..self.vms.len() {
                self.tick(vm, 64);
            }
        }
        let publisher = self.publisher.borrow();
        assert_eq!(self.leaders().len(), 1);
        for vm in &self.vms {
            let vm = vm.borrow();
            let snapshot = vm.member.snapshot();
            assert_eq!(
                (snapshot.epoch, snapshot.version),
                (publisher.epoch(), publisher.version())
            );
            assert_eq!(meaning(snapshot), *self.model.borrow());
            assert_eq!(snapshot.checksum(), publisher.checksum());
        }
        let head = self.head();
        assert_eq!(head.stale, [0u64; 0]);
        let term = format!("/{:016x}/", head.term.0);
        let strangers: Vec<_> = self
            .memory
            .keys()
            .into_iter()
            .filter(|key| !key.contains(&term) && !key.ends_with("/head"))
            .collect();
        assert_eq!(strangers, [""; 0], "keys of dead terms are emptied");
    }
}

struct Torn<'a> {
    world: &'a World,
}

impl SharedData for Torn<'_> {
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
        self.world.disturb();
        self.world.memory.get(key)
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
        self.world.disturb();
        self.world.memory.set(key, value, cas)
    }
}
