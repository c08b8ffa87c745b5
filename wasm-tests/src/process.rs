//! What all VMs of one proxy share.

use std::collections::{BTreeMap, HashMap};

use crate::fault::Fault;
use crate::status::{LogLevel, Status};

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Keeps observations.
    Histogram,
}

/// One metric of the process; VMs that define the same name share it.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Kind given at the first definition.
    pub kind: MetricKind,
    /// Sum of a counter, value of a gauge, number of observations of a histogram.
    pub value: i64,
    /// Observations of a histogram, in order.
    pub observations: Vec<u64>,
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// VM that wrote it.
    pub vm: usize,
    /// Level.
    pub level: LogLevel,
    /// Text.
    pub text: String,
}

/// Clock, shared data, metrics, log and faults of one proxy process.
#[derive(Debug, Default)]
pub struct Process {
    /// Time in nanoseconds since the Unix epoch.
    pub now_ns: u64,
    /// Every log line so far.
    pub logs: Vec<LogLine>,
    /// Faults in force, first match wins.
    pub faults: Vec<Fault>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, Metric>,
    /// Whether a stream opened from now on is refused (status 14 right after the call).
    pub refuse_streams: bool,
    shared: HashMap<String, (Vec<u8>, u32)>,
    last_cas: u32,
}

impl Process {
    pub(crate) fn starting_at(now_ns: u64) -> Self {
        Self {
            now_ns,
            ..Self::default()
        }
    }

    pub(crate) fn fault(&mut self, vm: usize, call: &str, key: &str) -> Option<Status> {
        self.faults.iter_mut().find_map(|f| f.hit(vm, call, key))
    }

    /// Value and CAS number of a key, or `None` when it was never written.
    pub fn shared(&self, key: &str) -> Option<(&[u8], u32)> {
        self.shared.get(key).map(|(v, cas)| (v.as_slice(), *cas))
    }

    /// Every key written so far, sorted; emptied keys stay, as in Envoy.
    pub fn shared_keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.shared.keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    /// Bytes held by all values.
    pub fn shared_bytes(&self) -> usize {
        self.shared.values().map(|(v, _)| v.len()).sum()
    }

    /// Writes a key as Envoy does: a non-zero `cas` must fit an existing value, a missing key takes any.
    pub fn set_shared(&mut self, key: &str, value: &[u8], cas: u32) -> Status {
        if let Some((_, have)) = self.shared.get(key)
            && cas != 0
            && cas != *have
        {
            return Status::CasMismatch;
        }
        self.last_cas = self.last_cas.checked_add(1).unwrap_or(1);
        self.shared
            .insert(key.to_owned(), (value.to_vec(), self.last_cas));
        Status::Ok
    }

    pub(crate) fn define_metric(&mut self, kind: MetricKind, name: &str) {
        self.metrics
            .entry(name.to_owned())
            .or_insert_with(|| Metric {
                kind,
                value: 0,
                observations: Vec::new(),
            });
    }

    /// Sum, value or number of observations of a metric; 0 when it was never defined.
    pub fn metric(&self, name: &str) -> i64 {
        self.metrics.get(name).map_or(0, |m| m.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cas_must_fit_an_existing_value_only() {
        let mut process = Process::default();
        assert_eq!(process.set_shared("k", b"1", 77), Status::Ok);
        let cas = process.shared("k").unwrap().1;
        assert_eq!(process.set_shared("k", b"2", cas + 1), Status::CasMismatch);
        assert_eq!(process.set_shared("k", b"2", cas), Status::Ok);
        assert_eq!(process.set_shared("k", b"3", 0), Status::Ok);
        assert_eq!(process.shared("k").unwrap().0, b"3");
    }
}
