//! Telling what this proxy's VMs have of the tables.

use super::RoutingView;
use crate::{
    proto,
    shared::{
        Keys, Member, SharedData, SharedError,
        copies::{COPIES_MS, CopiesRecord, MAX_COPIES_AGE_MS, TableCopy},
    },
};

/// When and how copies are told.
#[derive(Debug)]
pub(super) struct Copies {
    keys: Keys,
    nonce: u64,
    due_ms: u64,
    pub(super) audits: bool,
}

impl Copies {
    pub(super) fn new(keys: Keys, nonce: u64) -> Self {
        Self {
            keys,
            nonce,
            due_ms: 0,
            audits: false,
        }
    }
}

impl RoutingView {
    /// Tells the others what this VM has, and the indexer of each shard that it leads what all have.
    pub(super) fn tell_copies(
        &mut self,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<(), SharedError> {
        let Some(id) = self.registry.id().filter(|_| now_ms >= self.copies.due_ms) else {
            return Ok(());
        };
        self.copies.due_ms = now_ms + COPIES_MS;
        let audits = self.copies.audits;
        let own = CopiesRecord {
            id,
            nonce: self.copies.nonce,
            time_ms: now_ms,
            copies: self
                .members
                .iter()
                .map(|member| TableCopy::of(member.snapshot(), audits))
                .collect(),
        };
        shared.set(&self.copies.keys.copies(id), &own.to_bytes(), None)?;
        if !self.members.iter().any(Member::is_leader) {
            return Ok(());
        }
        let mut records = vec![own];
        for id in self.registry.others() {
            let value = shared.get(&self.copies.keys.copies(id))?;
            let record = value.and_then(|(bytes, _)| CopiesRecord::from_bytes(&bytes));
            records.extend(record.filter(|record| {
                record.id == id && now_ms.saturating_sub(record.time_ms) <= MAX_COPIES_AGE_MS
            }));
        }
        records.sort_by_key(|record| record.id);
        let leading = self.members.iter_mut().enumerate();
        for (shard, member) in leading.filter(|(_, member)| member.is_leader()) {
            let vms = records
                .iter()
                .filter_map(|record| record.message(shard, now_ms));
            let vms = vms.collect();
            member.upstream().set_copies(proto::Copies { vms });
        }
        Ok(())
    }
}
