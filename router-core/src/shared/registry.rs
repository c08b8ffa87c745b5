//! VMs of a proxy seeing each other: ids, records, and what they add up to.
//!
//! ```text
//!  vm-counter ─CAS─► id ─CAS─► vms: [(id, nonce)]        every tick: own record written, the others' records read
//! ```
//!
//! The list can lose an entry when two VMs create it at once, or when a VM was silent so long that another took its slot: each VM looks for
//! its own entry every tick and adds itself again. An id that another nonce uses is given up for a new one.
//!
//! `vms`, little endian: for each VM u32 id, u32 0, u64 nonce.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{
    SharedData, SharedError, Value,
    keys::Keys,
    read_u32, read_u64,
    record::{Body, Encoded, Message, VmRecord, encode},
};
use crate::{
    flow::{Head, MAX_HEADS},
    load::{Ledger, Usage},
    snapshot::EndpointKey,
};

/// Age at which a record no longer counts.
pub const MAX_RECORD_AGE_MS: u64 = 1_000;

/// Age at which the slot of a record is given up by whoever sees it.
pub const RECLAIM_MS: u64 = 2_000;

/// Shortest time between two writes of a record.
pub const MIN_WRITE_MS: u64 = 5;

/// Age at which a record is written again though nothing changed.
pub const REWRITE_MS: u64 = 200;

/// Most bytes of messages in a record; the oldest leave first.
pub const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Age at which a message leaves the record: everybody has read it.
pub const MAX_MESSAGE_AGE_MS: u64 = 1_000;

/// Most VMs of a proxy.
pub const MAX_VMS: usize = 1_024;

const VM_BYTES: usize = 16;

/// Messages of other VMs with the id of the VM that sent them.
pub type Received = Vec<(u32, Message)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vm {
    id: u32,
    nonce: u64,
}

#[derive(Debug, Default)]
struct Peer {
    last_seq: u64,
    time_ms: u64,
    usages: Vec<(EndpointKey, Usage)>,
    waiting: u32,
    heads: Vec<Head>,
}

/// One VM's place among the VMs of its proxy.
#[derive(Debug)]
pub struct VmRegistry {
    keys: Keys,
    nonce: u64,
    id: Option<u32>,
    peers: HashMap<(u32, u64), Peer>,
    outbox: VecDeque<Encoded>,
    outbox_bytes: usize,
    next_seq: u64,
    written_ms: u64,
    is_dirty: bool,
    waiting: u32,
    heads: Vec<Head>,
}

impl VmRegistry {
    /// A VM that is not registered yet.
    pub fn new(keys: Keys, nonce: u64) -> Self {
        Self {
            keys,
            nonce,
            id: None,
            peers: HashMap::new(),
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            next_seq: 1,
            written_ms: 0,
            is_dirty: true,
            waiting: 0,
            heads: Vec::new(),
        }
    }

    /// Number of this VM, once it has one.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// Numbers of the other VMs that are there.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        self.peers.keys().map(|(id, _)| *id)
    }

    /// What the other VMs have in flight, from records that still count.
    pub fn usages(&self, now_ms: u64) -> impl Iterator<Item = (EndpointKey, Usage)> {
        let counts = move |peer: &&Peer| is_fresh(peer.time_ms, now_ms, MAX_RECORD_AGE_MS);
        self.peers
            .values()
            .filter(counts)
            .flat_map(|peer| peer.usages.iter().copied())
    }

    /// What waits in the other VMs, with the VM's number, from records that still count: a VM where something waits writes its own each tick.
    pub fn heads(&self, now_ms: u64) -> impl Iterator<Item = (u32, Head)> {
        let of = move |((id, _), peer): (&(u32, u64), &'_ Peer)| {
            let counts = is_fresh(peer.time_ms, now_ms, REWRITE_MS);
            (*id, counts, peer.heads.clone())
        };
        let peers = self.peers.iter().map(of).filter(|(_, counts, _)| *counts);
        peers.flat_map(|(id, _, heads)| heads.into_iter().map(move |head| (id, head)))
    }

    /// Requests that wait in this VM and the others.
    pub fn waiting(&self, now_ms: u64) -> u32 {
        let counts = |peer: &&Peer| is_fresh(peer.time_ms, now_ms, MAX_RECORD_AGE_MS);
        let peers = self.peers.values().filter(counts);
        peers.fold(self.waiting, |sum, peer| sum.saturating_add(peer.waiting))
    }

    /// Sets what waits in this VM; others read it from the next [`Self::write`] on. To be called each tick while something waits.
    pub fn set_waiting(&mut self, waiting: u32, heads: impl Iterator<Item = Head>) {
        self.is_dirty |= waiting > 0 || self.waiting > 0;
        self.waiting = waiting;
        self.heads.clear();
        self.heads.extend(heads.take(MAX_HEADS));
    }

    /// Adds a message for the other VMs; it goes out with the next [`Self::write`]. Gives it with its number.
    pub fn send(&mut self, shard: u32, endpoint: EndpointKey, body: Body, now_ms: u64) -> Message {
        let message = Message {
            seq: self.next_seq,
            shard,
            endpoint,
            said_ms: now_ms,
            body,
        };
        self.next_seq += 1;
        let encoded = Encoded::new(&message);
        self.outbox_bytes += encoded.bytes.len();
        self.outbox.push_back(encoded);
        while self.outbox_bytes > MAX_MESSAGE_BYTES {
            self.forget_oldest();
        }
        self.is_dirty = true;
        message
    }

    /// Says that something in flight changed.
    pub fn touch(&mut self) {
        self.is_dirty = true;
    }

    /// Whether it is long enough since the record was written last that news may go out at once.
    pub fn may_write(&self, now_ms: u64) -> bool {
        self.id.is_some() && now_ms.saturating_sub(self.written_ms) >= MIN_WRITE_MS
    }

    /// Writes this VM's record when something changed, at most every [`MIN_WRITE_MS`]. Called at each decision and each tick.
    ///
    /// # Errors
    /// When the host fails.
    pub fn write(
        &mut self,
        ledger: &Ledger,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        let pause_ms = if self.is_dirty {
            MIN_WRITE_MS
        } else {
            REWRITE_MS
        };
        if now_ms.saturating_sub(self.written_ms) < pause_ms {
            return Ok(());
        }
        self.write_now(ledger, now_ms, shared)
    }

    /// The same, however short ago the last time is: what others have to know before they do the next thing.
    ///
    /// # Errors
    /// When the host fails.
    pub fn write_now(
        &mut self,
        ledger: &Ledger,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        let Some(id) = self.id else {
            return Ok(());
        };
        while self
            .outbox
            .front()
            .is_some_and(|oldest| !is_fresh(oldest.time_ms, now_ms, MAX_MESSAGE_AGE_MS))
        {
            self.forget_oldest();
        }
        let bytes = encode(
            (id, self.nonce, now_ms),
            ledger.usages(),
            self.outbox.iter(),
            (self.waiting, &self.heads),
        );
        shared.set(&self.keys.vm(id), &bytes, None)?;
        self.written_ms = now_ms;
        self.is_dirty = false;
        Ok(())
    }

    /// Leaves: this VM's record counts no more, and whoever reads the list next gives its place up.
    ///
    /// # Errors
    /// When the host fails; then the record is forgotten by its age.
    pub fn leave(&mut self, shared: &impl SharedData) -> Result<(), SharedError> {
        match self.id.take() {
            Some(id) => self.empty(id, shared),
            None => Ok(()),
        }
    }

    /// Frees what a VM that is gone has left.
    fn empty(&self, id: u32, shared: &impl SharedData) -> Result<(), SharedError> {
        shared.set(&self.keys.copies(id), &[], None)?;
        shared.set(&self.keys.vm(id), &[], None)
    }

    /// Registers where needed, and reads the records of the others; gives their new messages. To be called every few ms.
    ///
    /// # Errors
    /// When the host fails; the next tick goes on from there.
    pub fn tick(&mut self, now_ms: u64, shared: &impl SharedData) -> Result<Received, SharedError> {
        let Some(id) = self.id else {
            self.take_id(shared)?;
            return Ok(Vec::new());
        };
        let me = Vm {
            id,
            nonce: self.nonce,
        };
        let value = shared.get(&self.keys.vms())?;
        let mut vms = parse(value.as_ref());
        if vms.iter().any(|vm| vm.id == id && vm.nonce != self.nonce) {
            // Two VMs got one id when the counter began.
            self.id = None;
            return Ok(Vec::new());
        }
        let mut received = Vec::new();
        let mut dead = Vec::new();
        for &vm in vms.iter().filter(|vm| vm.nonce != me.nonce) {
            if !self.read(vm, now_ms, shared, &mut received)? {
                dead.push(vm);
            }
        }
        self.peers.retain(|&(id, nonce), _| {
            vms.contains(&Vm { id, nonce }) && !dead.contains(&Vm { id, nonce })
        });
        if !dead.is_empty() || !vms.contains(&me) {
            vms.retain(|vm| !dead.contains(vm));
            if !vms.contains(&me) && vms.len() < MAX_VMS {
                vms.push(me);
            }
            self.replace_list(&vms, value.as_ref(), &dead, shared)?;
        }
        Ok(received)
    }

    fn take_id(&mut self, shared: &impl SharedData) -> Result<(), SharedError> {
        let key = self.keys.vm_counter();
        let Some((bytes, cas)) = shared.get(&key)? else {
            // Only a counter that exists can be counted up by CAS; that is left to the next tick.
            return shared.set(&key, &0u64.to_le_bytes(), None);
        };
        let next = read_u64(&bytes, 0).unwrap_or(0).wrapping_add(1);
        match shared.set(&key, &next.to_le_bytes(), cas) {
            Ok(()) => self.id = u32::try_from(next).ok(),
            Err(SharedError::CasMismatch) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads a record; gives `false` when its slot may be reclaimed.
    fn read(
        &mut self,
        vm: Vm,
        now_ms: u64,
        shared: &impl SharedData,
        received: &mut Received,
    ) -> Result<bool, SharedError> {
        let peer = self.peers.entry((vm.id, vm.nonce)).or_insert_with(|| Peer {
            time_ms: now_ms,
            ..Peer::default()
        });
        let value = shared.get(&self.keys.vm(vm.id))?;
        if value.is_none() {
            // It has left, or not written yet.
            peer.usages.clear();
            peer.waiting = 0;
            peer.heads.clear();
        }
        let record = value.and_then(|(bytes, _)| VmRecord::from_bytes(&bytes, peer.last_seq));
        if let Some(record) = record.filter(|record| record.nonce == vm.nonce) {
            peer.time_ms = record.time_ms;
            peer.usages = record.usages;
            peer.waiting = record.waiting;
            peer.heads = record.heads;
            if let Some(last) = record.messages.last() {
                peer.last_seq = last.seq;
            }
            received.extend(record.messages.into_iter().map(|message| (vm.id, message)));
        }
        Ok(is_fresh(peer.time_ms, now_ms, RECLAIM_MS))
    }

    fn replace_list(
        &self,
        vms: &[Vm],
        old: Option<&Value>,
        dead: &[Vm],
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        let mut bytes = Vec::with_capacity(vms.len() * VM_BYTES);
        for vm in vms {
            bytes.extend_from_slice(&vm.id.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&vm.nonce.to_le_bytes());
        }
        match shared.set(&self.keys.vms(), &bytes, old.and_then(|(_, cas)| *cas)) {
            Ok(()) => dead.iter().try_for_each(|vm| self.empty(vm.id, shared)),
            // Somebody else changed it; the next tick looks again.
            Err(SharedError::CasMismatch) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.outbox.pop_front() {
            self.outbox_bytes -= oldest.bytes.len();
        }
    }
}

fn parse(value: Option<&Value>) -> Vec<Vm> {
    let bytes = value.map_or(&[][..], |(bytes, _)| bytes);
    let chunks = bytes.as_chunks::<VM_BYTES>().0.iter().take(MAX_VMS);
    chunks
        .filter_map(|vm| {
            Some(Vm {
                id: read_u32(vm, 0)?,
                nonce: read_u64(vm, 8)?,
            })
        })
        .collect()
}

fn is_fresh(time_ms: u64, now_ms: u64, max_age_ms: u64) -> bool {
    now_ms.saturating_sub(time_ms) <= max_age_ms
}
