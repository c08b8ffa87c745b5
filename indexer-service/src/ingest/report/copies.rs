//! What gateways have of the published table.

use std::time::Instant;

use serde::Serialize;

use crate::ingest::Ingest;
use crate::publish::copies::{Copies, State};

/// The published table and all copies of it.
#[derive(Clone, Debug, Serialize)]
pub struct CopiesReport {
    /// What is published.
    pub table: TableReport,
    /// By gateway, in the order of their streams.
    pub gateways: Vec<GatewayReport>,
}

/// A table at a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// Number of the version line, hexadecimal.
    pub epoch: String,
    /// Version.
    pub version: u64,
    /// Checksum, hexadecimal.
    pub checksum: String,
    /// Entries.
    pub rungs: u64,
}

/// Copies of one gateway.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayReport {
    /// Its name.
    pub gateway: String,
    /// By VM.
    pub vms: Vec<VmReport>,
}

/// Copy of one VM.
#[derive(Clone, Debug, Serialize)]
pub struct VmReport {
    /// Number of the VM within its gateway.
    pub vm: u32,
    /// What it has.
    #[serde(flatten)]
    pub table: TableReport,
    /// Time since it said so.
    pub age_ms: u64,
    /// same, behind or different.
    pub state: &'static str,
}

impl TableReport {
    fn new(epoch: u64, version: u64, checksum: u64, rungs: u64) -> Self {
        Self {
            epoch: format!("{epoch:016x}"),
            version,
            checksum: format!("{checksum:016x}"),
            rungs,
        }
    }
}

impl CopiesReport {
    pub(super) fn new(ingest: &Ingest) -> Self {
        let (publisher, now) = (&ingest.publisher, Instant::now());
        let gateway = |(gateway, copies): (&str, &Copies)| GatewayReport {
            gateway: gateway.to_owned(),
            vms: copies
                .vms()
                .iter()
                .map(|told| VmReport {
                    vm: told.vm,
                    table: TableReport::new(told.epoch, told.version, told.checksum, told.rungs),
                    age_ms: u64::try_from(told.age(now).as_millis()).unwrap_or(u64::MAX),
                    state: told.state(publisher).as_str(),
                })
                .collect(),
        };
        Self {
            table: TableReport::new(
                publisher.epoch(),
                publisher.version(),
                publisher.checksum(),
                publisher.table().len() as u64,
            ),
            gateways: ingest.gateways.copies().map(gateway).collect(),
        }
    }

    /// VMs by state.
    pub(super) fn states(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let count = |state: &str| {
            let vms = self.gateways.iter().flat_map(|gateway| &gateway.vms);
            i64::try_from(vms.filter(|vm| vm.state == state).count()).unwrap_or(i64::MAX)
        };
        State::ALL
            .map(|state| (state.as_str(), count(state.as_str())))
            .into_iter()
    }
}
